//! Brings one object to what is wanted: compared with the cache first, so that a world that is as wanted sees no
//! request at all.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::super::api::{ApiError, Kind};
use super::super::cache::{Cache, key_of};
use super::super::difference::differences;
use super::super::objects::is_owned_by;
use super::Pass;
use crate::object::content_hash;
use crate::refusal::{Concern, Reason, Refusal};

/// Annotation with a hash of what was applied. Fields that are no longer wanted show in nothing else.
const APPLIED: &str = "taffrail.io/applied";

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It was as wanted.
    Unchanged,
    /// It was made or changed.
    Changed,
    /// It could not be written, which is among the refusals.
    No,
}

/// Over what an object is applied.
#[derive(Clone, Copy, Debug)]
enum Over<'a> {
    /// Whatever is there: the object does not depend on it.
    Anything,
    /// This version, which the object was made from; none if there was none.
    Seen(Option<&'a ObjectMeta>),
}

impl Pass<'_> {
    /// Applies an object unless it is as wanted.
    pub(super) async fn apply<K: Kind>(&mut self, cache: &Cache<K>, wanted: K) -> Written {
        self.apply_over(cache, wanted, Over::Anything).await
    }

    /// As `apply`, for an object that was made from what was seen of the live one: over any other version it is not
    /// applied, but looked at again.
    pub(super) async fn apply_over_seen<K: Kind>(
        &mut self,
        cache: &Cache<K>,
        wanted: K,
        seen: Option<&ObjectMeta>,
    ) -> Written {
        self.apply_over(cache, wanted, Over::Seen(seen)).await
    }

    async fn apply_over<K: Kind>(
        &mut self,
        cache: &Cache<K>,
        mut wanted: K,
        over: Over<'_>,
    ) -> Written {
        let key = key_of(&wanted);
        let kind = K::kind(&());
        let name = format!("{kind} {}", key.name);
        let text = match serde_json::to_string(&wanted) {
            Ok(text) => text,
            Err(error) => return self.not_written(&name, error),
        };
        let annotations = wanted.meta_mut().annotations.get_or_insert_default();
        annotations.insert(APPLIED.to_owned(), content_hash(&text));
        let wanted_value = match serde_json::to_value(&wanted) {
            Ok(value) => value,
            Err(error) => return self.not_written(&name, error),
        };
        let live = match cache.get(&key) {
            Some(live) => Some(live.as_ref().clone()),
            // One without our labels is in no cache.
            None => match self.context.writer.get::<K>(&key).await {
                Ok(live) => live,
                Err(error) => return self.not_written(&name, error),
            },
        };
        if let Some(live) = &live {
            let metadata = live.meta();
            if !is_owned_by(metadata, &self.uid) {
                let going = metadata.deletion_timestamp.is_some() || self.is_orphan(metadata);
                self.refusals.push(taken(&name, going));
                return Written::No;
            }
            if metadata.deletion_timestamp.is_some() {
                self.refusals.push(taken(&name, true));
                return Written::No;
            }
            let live = serde_json::to_value(live).unwrap_or_default();
            let places = differences(&wanted_value, &live);
            let usual = self.memory.applied.get(&name);
            if places.is_empty() || usual.is_some_and(|usual| places.is_subset(usual)) {
                return Written::Unchanged;
            }
            tracing::info!(cluster = %self.key, object = name, ?places, "applies changes");
        } else {
            tracing::info!(cluster = %self.key, object = name, "makes");
        }
        if !pin(wanted.meta_mut(), live.as_ref().map(Resource::meta), over) {
            return self.changed_meanwhile(&name);
        }
        let mut applied = self.context.writer.apply(&key, &wanted).await;
        if applied.as_ref().is_err_and(ApiError::is_invalid) && live.is_some() {
            // Often because of what somebody added to a list that we share: a port of the same name, say.
            tracing::warn!(cluster = %self.key, object = name, "is refused over what is there: puts the whole right");
            applied = match self.context.writer.put_right(&key, &wanted).await {
                // The first refusal says what is wrong.
                Err(error) if error.is_invalid() => applied,
                put_right => put_right,
            };
        }
        match applied {
            Ok(written) => {
                let value = serde_json::to_value(&written).unwrap_or_default();
                let usual = differences(&wanted_value, &value);
                self.memory.applied.insert(name, usual);
                cache.put(written);
                self.wrote = true;
                Written::Changed
            }
            Err(error) if error.is_namespace_going() => {
                self.refusals.push(Refusal::new(
                    Concern::Ready,
                    Reason::Deleting,
                    format!("namespace {} is being deleted", key.namespace),
                ));
                Written::No
            }
            Err(error) if error.is_conflict() => self.changed_meanwhile(&name),
            Err(error) => self.not_written(&name, error),
        }
    }

    /// The event of the change is on its way, and with it the next pass.
    fn changed_meanwhile(&mut self, name: &str) -> Written {
        tracing::info!(cluster = %self.key, object = name, "changed meanwhile");
        self.refusals.push(Refusal::new(
            Concern::BrokersReady,
            Reason::Progressing,
            format!("{name} was changed meanwhile and is looked at again"),
        ));
        Written::No
    }

    /// Whether an object belonged to an earlier Cluster of this name, so that it goes by itself.
    fn is_orphan(&self, metadata: &ObjectMeta) -> bool {
        let mut owners = metadata.owner_references.iter().flatten();
        owners.any(|owner| {
            owner.controller == Some(true) && owner.kind == "Cluster" && owner.name == self.key.name
        })
    }

    fn not_written(&mut self, name: &str, error: impl ToString) -> Written {
        self.failed(
            None,
            Concern::Ready,
            format!("cannot write {name}: {}", error.to_string()),
        );
        Written::No
    }

    /// Deletes an object of ours.
    pub(super) async fn delete<K: Kind>(
        &mut self,
        object: &K,
        propagation: kube::api::PropagationPolicy,
    ) -> bool {
        let name = format!("{} {}", K::kind(&()), key_of(object).name);
        let deleted: Result<(), ApiError> = self.context.writer.delete(object, propagation).await;
        match deleted {
            Ok(()) => {
                tracing::info!(cluster = %self.key, object = name, "deletes");
                self.wrote = true;
                true
            }
            Err(error) => {
                self.failed(
                    None,
                    Concern::Ready,
                    format!("cannot delete {name}: {error}"),
                );
                false
            }
        }
    }
}

/// Ties an object to the version that it was made from, so that the API server refuses it over any other. Says whether it
/// may be sent at all: what nobody has looked at is not written over.
fn pin(wanted: &mut ObjectMeta, live: Option<&ObjectMeta>, over: Over<'_>) -> bool {
    let Over::Seen(seen) = over else {
        return true;
    };
    wanted.uid = seen.and_then(|seen| seen.uid.clone());
    wanted.resource_version = seen.and_then(|seen| seen.resource_version.clone());
    seen.is_some() || live.is_none()
}

fn taken(name: &str, going: bool) -> Refusal {
    if going {
        Refusal::new(
            Concern::Ready,
            Reason::Progressing,
            format!("{name} of an earlier Cluster of this name is being deleted"),
        )
    } else {
        Refusal::new(
            Concern::Ready,
            Reason::NameTaken,
            format!(
                "{name} exists and does not belong to this Cluster; delete it, or give the Cluster another name"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_that_was_seen_is_written_over() {
        let version = |version: &str| ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        let (old, new) = (version("9"), version("10"));
        for (live, over, sent, expected) in [
            (Some(&new), Over::Anything, true, None),
            (None, Over::Anything, true, None),
            // The API server refuses it, since it is at version 10.
            (Some(&new), Over::Seen(Some(&old)), true, Some("9")),
            (Some(&new), Over::Seen(Some(&new)), true, Some("10")),
            (None, Over::Seen(Some(&old)), true, Some("9")),
            (None, Over::Seen(None), true, None),
            // Made by someone since the pass began: how many pods it has was not counted.
            (Some(&new), Over::Seen(None), false, None),
        ] {
            let mut wanted = ObjectMeta::default();
            assert_eq!(pin(&mut wanted, live, over), sent, "{live:?} {over:?}");
            assert_eq!(
                wanted.resource_version.as_deref(),
                expected,
                "{live:?} {over:?}"
            );
            assert_eq!(wanted.uid.as_deref(), expected.map(|_| "u"));
        }
    }
}
