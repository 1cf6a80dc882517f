//! Which cluster the disks of a name belong to: the id and the founding voters that were fixed when its data was made. Pure.
//!
//! A Cluster that is deleted and applied again has another UID, so its id comes from what is left: the claims, which
//! nobody owns and which carry it as annotations, or a StatefulSet that still stands.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::objects::{CLUSTER_ID_ANNOTATION, VOTERS_ANNOTATION};
use crate::refusal::{Concern, Reason, Refusal};

/// What an object that holds or describes data says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// What the object is, for messages: "claim data-0-demo-broker-0".
    pub(super) what: String,
    /// The cluster id that it names.
    pub(super) cluster_id: Option<String>,
    /// The voters that it names.
    pub(super) voters: Option<Vec<i32>>,
}

impl Mark {
    /// What the annotations of an object say.
    pub(super) fn of(kind: &str, metadata: &ObjectMeta) -> Self {
        let annotation = |name| metadata.annotations.as_ref()?.get(name);
        Self {
            what: format!("{kind} {}", metadata.name.as_deref().unwrap_or_default()),
            cluster_id: annotation(CLUSTER_ID_ANNOTATION).cloned(),
            voters: annotation(VOTERS_ANNOTATION)
                .and_then(|voters| serde_json::from_str(voters).ok()),
        }
    }
}

/// What is fixed for as long as the data lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Kafka's cluster id.
    pub(super) cluster_id: String,
    /// Brokers that voted on metadata when the data was made. Others may have joined them.
    pub(super) voters: Vec<i32>,
}

/// The identity of a Cluster: what its disks say, else what the spec says, else a new one.
pub(super) fn identity(
    spec_id: Option<&str>,
    derived_id: &str,
    new_voters: Vec<i32>,
    marks: &[Mark],
) -> Result<Identity, Refusal> {
    let ids: BTreeSet<&str> = marks
        .iter()
        .filter_map(|mark| mark.cluster_id.as_deref())
        .collect();
    let named = |id: &str| {
        let holder = marks
            .iter()
            .find(|mark| mark.cluster_id.as_deref() == Some(id));
        holder.map(|mark| mark.what.clone()).unwrap_or_default()
    };
    let mut ids = ids.into_iter();
    let found = ids.next();
    if let (Some(first), Some(second)) = (found, ids.next()) {
        return Err(mismatch(format!(
            "{} holds data of cluster {first} and {} of cluster {second}; delete the one that is not wanted, or give the \
             Cluster another name",
            named(first),
            named(second),
        )));
    }
    if let (Some(spec), Some(found)) = (spec_id, found)
        && spec != found
    {
        return Err(mismatch(format!(
            "spec.clusterId: is {spec}, but {} holds data of cluster {found}; set spec.clusterId to that, or give the \
             Cluster another name",
            named(found),
        )));
    }
    let mut with_voters = marks.iter().filter(|mark| mark.voters.is_some());
    let first = with_voters.next();
    if let Some(first) = first
        && let Some(second) = with_voters.find(|second| second.voters != first.voters)
    {
        return Err(mismatch(format!(
            "{} holds data of a cluster with voters {:?} and {} of one with voters {:?}; delete the one that is not wanted, \
             or give the Cluster another name",
            first.what,
            first.voters.as_deref().unwrap_or_default(),
            second.what,
            second.voters.as_deref().unwrap_or_default(),
        )));
    }
    let voters = first.and_then(|mark| mark.voters.clone());
    Ok(Identity {
        cluster_id: found.or(spec_id).unwrap_or(derived_id).to_owned(),
        voters: voters.unwrap_or(new_voters),
    })
}

fn mismatch(message: String) -> Refusal {
    Refusal::new(Concern::Ready, Reason::ClusterIdMismatch, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: Option<&str>, voters: Option<&str>) -> Mark {
        let texts = [(CLUSTER_ID_ANNOTATION, id), (VOTERS_ANNOTATION, voters)];
        let annotations = texts
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), text?.to_owned())));
        let metadata = ObjectMeta {
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        };
        Mark::of("claim", &metadata)
    }

    #[test]
    fn disks_come_before_the_spec_and_the_spec_before_the_uid() {
        let three = || vec![0, 1, 2];
        for (spec, marks, expected) in [
            (None, vec![], Some(("derived", three()))),
            (Some("spec"), vec![], Some(("spec", three()))),
            (
                None,
                vec![claim(Some("disk"), Some("[0]"))],
                Some(("disk", vec![0])),
            ),
            (None, vec![claim(None, None)], Some(("derived", three()))),
            (
                Some("disk"),
                vec![claim(Some("disk"), None)],
                Some(("disk", three())),
            ),
            (Some("spec"), vec![claim(Some("disk"), None)], None),
            (
                None,
                vec![claim(Some("a"), None), claim(Some("b"), None)],
                None,
            ),
            (
                None,
                vec![claim(Some("a"), None), claim(None, None)],
                Some(("a", three())),
            ),
            (
                None,
                vec![
                    claim(Some("a"), None),
                    claim(Some("a"), Some("[0]")),
                    claim(None, Some("[0]")),
                ],
                Some(("a", vec![0])),
            ),
            (
                None,
                vec![
                    claim(Some("a"), Some("[0]")),
                    claim(Some("a"), Some("[0,1,2]")),
                ],
                None,
            ),
        ] {
            let found = identity(spec, "derived", three(), &marks);
            let shown = found
                .as_ref()
                .ok()
                .map(|found| (found.cluster_id.as_str(), found.voters.clone()));
            assert_eq!(shown, expected, "{spec:?} {marks:?}");
            if let Err(refusal) = found {
                assert_eq!(refusal.reason, Reason::ClusterIdMismatch);
            }
        }
    }
}
