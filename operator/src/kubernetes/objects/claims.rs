//! What has to be done to disks that a StatefulSet cannot do by itself. Its claim templates cannot be changed, so a
//! volume is grown by patching the claims, and a grown or added one gets into the templates by making the StatefulSet
//! anew while its pods go on as orphans. No claim is ever deleted or made smaller here.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::quantity::bytes;
use super::{CLUSTER_LABEL, Names};
use crate::object::ObjectKey;

/// A claim that has to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSize {
    /// metadata.name of the claim.
    pub claim: String,
    /// spec.resources.requests.storage.
    pub size: String,
}

/// What has to be done before the wanted StatefulSet can be applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimChanges {
    /// Claims to patch.
    pub grow: Vec<ClaimSize>,
    /// Why the StatefulSet has to be deleted, with its pods orphaned, and made again; none if it can be applied as it is.
    pub recreate: Option<String>,
    /// Why it must not be applied at all: the spec asks for what no disk does.
    pub refused: Option<String>,
}

/// Compares the claim templates of both StatefulSets, and the claims of the live one with what is wanted. `claims` may
/// hold others than this StatefulSet's.
pub fn claim_changes(
    wanted: &StatefulSet,
    live: Option<&StatefulSet>,
    claims: &[PersistentVolumeClaim],
) -> ClaimChanges {
    let mut changes = ClaimChanges::default();
    let set = wanted.metadata.name.as_deref().unwrap_or_default();
    for template in templates(wanted) {
        let (Some(volume), Some(size)) = (name(template), size(template)) else {
            continue;
        };
        for claim in claims.iter().filter(|claim| is_claim(claim, volume, set)) {
            if is_larger(Some(size), self::size(claim)) {
                changes.grow.push(ClaimSize {
                    claim: name(claim).unwrap_or_default().to_owned(),
                    size: size.to_owned(),
                });
            }
        }
    }
    if let Some(live) = live {
        compare(wanted, live, &mut changes);
    }
    changes
}

/// What is still to be grown by whoever provides the disks: claims that were asked for more than they have, as a sentence
/// for a condition. One that is not bound yet has no disk to grow.
pub fn growing(claims: &[PersistentVolumeClaim]) -> Option<String> {
    let behind: Vec<String> = claims
        .iter()
        .filter(|claim| is_larger(size(claim), capacity(claim)))
        .filter_map(|claim| {
            let (name, size, has) = (name(claim)?, size(claim)?, capacity(claim)?);
            Some(format!("{name} (from {has} to {size})"))
        })
        .collect();
    (!behind.is_empty()).then(|| {
        format!(
            "the storage is still growing claims {}; if it does not end, `kubectl describe pvc` says why",
            behind.join(", ")
        )
    })
}

/// Gives claim templates the sizes that they have in the live StatefulSet.
pub fn keep_sizes(wanted: &mut StatefulSet, live: Option<&StatefulSet>) {
    for template in wanted.spec.volume_claim_templates.iter_mut().flatten() {
        let mut live = live.into_iter().flat_map(templates);
        if let Some(live) = live.find(|live| name(live) == name(template))
            && let Some(spec) = &mut template.spec
        {
            spec.resources = live.spec.as_ref().and_then(|spec| spec.resources.clone());
        }
    }
}

/// Puts the names of volumes into the order in which the live StatefulSet has them, new ones behind. What is made from
/// them, which nobody can change in a StatefulSet, does not depend on the order in the spec then.
pub fn in_live_order(volumes: &mut [String], live: Option<&StatefulSet>) {
    let order: Vec<&str> = live
        .into_iter()
        .flat_map(templates)
        .filter_map(name)
        .collect();
    volumes.sort_by_key(|volume| {
        let place = order.iter().position(|live| live == volume);
        place.unwrap_or(order.len())
    });
}

/// Names of the claims that the wanted StatefulSet makes, or takes if there are such, and the live one does not.
pub fn claims_to_come(wanted: &StatefulSet, live: Option<&StatefulSet>) -> BTreeSet<String> {
    let mut names = claim_names(wanted);
    for name in live.into_iter().flat_map(claim_names) {
        names.remove(&name);
    }
    names
}

fn claim_names(set: &StatefulSet) -> BTreeSet<String> {
    let of = set.metadata.name.as_deref().unwrap_or_default();
    let brokers = 0..set.spec.replicas.unwrap_or(0);
    brokers
        .flat_map(|broker| {
            let volumes = templates(set).filter_map(name);
            volumes.map(move |volume| format!("{volume}-{of}-{broker}"))
        })
        .collect()
}

/// The broker whose data a claim of the Cluster that its label names holds.
pub fn claim_broker(claim: &PersistentVolumeClaim) -> Option<i32> {
    let cluster = claim.metadata.labels.as_ref()?.get(CLUSTER_LABEL)?;
    let cluster = ObjectKey::new(claim.metadata.namespace.as_deref(), Some(cluster));
    let (_, broker) = parts(name(claim)?, &Names::new(&cluster).brokers())?;
    Some(broker)
}

fn compare(wanted: &StatefulSet, live: &StatefulSet, changes: &mut ClaimChanges) {
    let find = |set: &'_ StatefulSet, volume: Option<&str>| {
        templates(set)
            .find(|template| name(template) == volume)
            .cloned()
    };
    for template in templates(live) {
        let volume = name(template).unwrap_or_default();
        let Some(new) = find(wanted, Some(volume)) else {
            changes.refused = Some(format!(
                "spec.storage.volumes: volume {volume} is in use and cannot be removed; put it back"
            ));
            return;
        };
        if is_larger(size(template), size(&new)) {
            changes.refused = Some(format!(
                "spec.storage.volumes: volume {volume} has {} and cannot shrink to {}",
                size(template).unwrap_or_default(),
                size(&new).unwrap_or_default(),
            ));
            return;
        }
    }
    let reasons: Vec<String> = templates(wanted)
        .filter_map(|template| {
            let volume = name(template)?;
            match find(live, Some(volume)) {
                None => Some(format!("volume {volume} is added")),
                Some(old) if is_larger(size(template), size(&old)) => Some(format!(
                    "volume {volume} grows from {} to {}",
                    size(&old)?,
                    size(template)?
                )),
                Some(_) => None,
            }
        })
        .collect();
    if !reasons.is_empty() {
        changes.recreate = Some(reasons.join(", "));
    }
}

fn templates(set: &StatefulSet) -> impl Iterator<Item = &PersistentVolumeClaim> {
    let templates = set.spec.volume_claim_templates.as_ref();
    templates.into_iter().flatten()
}

/// Whether a claim was made from the template of a volume.
fn is_claim(claim: &PersistentVolumeClaim, volume: &str, set: &str) -> bool {
    name(claim)
        .and_then(|name| parts(name, set))
        .is_some_and(|(of, _)| of == volume)
}

/// Volume and broker of a claim, whose name is `<volume>-<StatefulSet>-<number>`.
fn parts<'a>(claim: &'a str, set: &str) -> Option<(&'a str, i32)> {
    let (rest, number) = claim.rsplit_once('-')?;
    let volume = rest.strip_suffix(set)?.strip_suffix('-')?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let broker = number.parse().ok().filter(|_| digits)?;
    (!volume.is_empty()).then_some((volume, broker))
}

fn name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.name.as_deref()
}

fn size(claim: &PersistentVolumeClaim) -> Option<&str> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    Some(requests.get("storage")?.0.as_str())
}

/// What the claim's disk has.
fn capacity(claim: &PersistentVolumeClaim) -> Option<&str> {
    let capacity = claim.status.as_ref()?.capacity.as_ref()?;
    Some(capacity.get("storage")?.0.as_str())
}

/// Sizes that cannot be read are left alone.
fn is_larger(one: Option<&str>, other: Option<&str>) -> bool {
    match (one.and_then(bytes), other.and_then(bytes)) {
        (Some(one), Some(other)) => one > other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(volumes: &[(&str, &str)]) -> StatefulSet {
        let templates: Vec<_> = volumes
            .iter()
            .map(|(name, size)| claim(name, size))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "demo-broker"},
            "spec": {"selector": {}, "template": {}, "volumeClaimTemplates": templates},
        }))
        .expect("a StatefulSet")
    }

    fn claim(name: &str, size: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"resources": {"requests": {"storage": size}}},
        }))
        .expect("a claim")
    }

    /// Volumes wanted, volumes of the live StatefulSet, claims, and what comes of it.
    fn check(
        wanted: &[(&str, &str)],
        live: Option<&[(&str, &str)]>,
        claims: &[(&str, &str)],
        grow: &[(&str, &str)],
        recreate: Option<&str>,
        refused: Option<&str>,
    ) {
        let claims: Vec<_> = claims
            .iter()
            .map(|(name, size)| claim(name, size))
            .collect();
        let got = claim_changes(&set(wanted), live.map(set).as_ref(), &claims);
        let sizes: Vec<(&str, &str)> = got
            .grow
            .iter()
            .map(|size| (size.claim.as_str(), size.size.as_str()))
            .collect();
        assert_eq!(sizes, grow, "{wanted:?}");
        assert_eq!(got.recreate.as_deref(), recreate, "{wanted:?}");
        let reason = got.refused.unwrap_or_default();
        assert!(reason.contains(refused.unwrap_or_default()), "{reason}");
        assert_eq!(reason.is_empty(), refused.is_none(), "{reason}");
    }

    #[test]
    fn volumes_grow_and_are_added() {
        let (a1, b1) = (("a", "1Gi"), ("b", "1Gi"));
        check(&[a1], None, &[], &[], None, None);
        check(
            &[a1],
            Some(&[a1]),
            &[("a-demo-broker-0", "1Gi")],
            &[],
            None,
            None,
        );
        // The same size in other words.
        check(
            &[("a", "1024Mi")],
            Some(&[a1]),
            &[("a-demo-broker-0", "1Gi")],
            &[],
            None,
            None,
        );
        check(
            &[("a", "2Gi")],
            Some(&[a1]),
            &[
                ("a-demo-broker-0", "1Gi"),
                ("a-demo-broker-1", "2Gi"),
                ("a-other-broker-0", "1Gi"),
                ("aa-demo-broker-0", "1Gi"),
                ("a-demo-broker-x", "1Gi"),
            ],
            &[("a-demo-broker-0", "2Gi")],
            Some("volume a grows from 1Gi to 2Gi"),
            None,
        );
        // Claims that stayed of an earlier cluster, or of a pass that was interrupted.
        check(
            &[("a", "2Gi")],
            None,
            &[("a-demo-broker-0", "1Gi")],
            &[("a-demo-broker-0", "2Gi")],
            None,
            None,
        );
        check(
            &[a1, b1],
            Some(&[a1]),
            &[],
            &[],
            Some("volume b is added"),
            None,
        );
    }

    #[test]
    fn growth_is_over_when_the_disk_has_it() {
        let has = |name: &str, size: &str, capacity: Option<&str>| {
            let mut claim = claim(name, size);
            claim.status = capacity.map(|capacity| {
                serde_json::from_value(json!({"capacity": {"storage": capacity}}))
                    .expect("a status")
            });
            claim
        };
        for (claims, expected) in [
            (vec![], None),
            (vec![has("a", "2Gi", None)], None),
            (vec![has("a", "2Gi", Some("2048Mi"))], None),
            // Storage comes in whole units.
            (vec![has("a", "1500Mi", Some("2Gi"))], None),
            (
                vec![
                    has("a", "2Gi", Some("1Gi")),
                    has("b", "2Gi", Some("2Gi")),
                    has("c", "2Gi", Some("1Gi")),
                ],
                Some("a (from 1Gi to 2Gi), c (from 1Gi to 2Gi)"),
            ),
        ] {
            let told = growing(&claims);
            assert_eq!(told.is_some(), expected.is_some(), "{told:?}");
            let told = told.unwrap_or_default();
            assert!(told.contains(expected.unwrap_or_default()), "{told}");
        }
    }

    #[test]
    fn kept_sizes_leave_only_other_changes() {
        let live = set(&[("a", "1Gi")]);
        for (wanted, expected) in [
            (set(&[("a", "2Gi")]), None),
            (
                set(&[("a", "2Gi"), ("b", "1Gi")]),
                Some("volume b is added"),
            ),
        ] {
            let mut wanted = wanted;
            keep_sizes(&mut wanted, Some(&live));
            let changes = claim_changes(&wanted, Some(&live), &[]);
            assert_eq!(changes.recreate.as_deref(), expected);
            assert_eq!(changes.refused, None);
        }
    }

    #[test]
    fn volumes_never_shrink_or_go() {
        let (a1, b1) = (("a", "1Gi"), ("b", "1Gi"));
        check(&[a1], Some(&[a1, b1]), &[], &[], None, Some("put it back"));
        check(
            &[a1],
            Some(&[("a", "2Gi")]),
            &[("a-demo-broker-0", "2Gi")],
            &[],
            None,
            Some("cannot shrink to 1Gi"),
        );
    }

    #[test]
    fn claims_to_come_are_those_of_new_brokers_and_volumes() {
        let with = |replicas: i32, volumes: &[(&str, &str)]| {
            let mut set = set(volumes);
            set.spec.replicas = Some(replicas);
            set
        };
        let (a, b) = (("a", "1Gi"), ("b", "1Gi"));
        for (wanted, live, expected) in [
            (with(1, &[a, b]), None, "a-demo-broker-0 b-demo-broker-0"),
            (with(1, &[a]), Some(with(1, &[a])), ""),
            (with(2, &[a]), Some(with(1, &[a])), "a-demo-broker-1"),
            (with(1, &[a, b]), Some(with(1, &[a])), "b-demo-broker-0"),
            (with(1, &[a]), Some(with(2, &[a])), ""),
        ] {
            let names: Vec<String> = claims_to_come(&wanted, live.as_ref()).into_iter().collect();
            assert_eq!(names.join(" "), expected);
        }
    }

    #[test]
    fn live_volumes_come_first_in_their_order() {
        let live = set(&[("b", "1Gi"), ("a", "1Gi")]);
        for (live, expected) in [(None, "c a d b"), (Some(&live), "b a c d")] {
            let mut volumes = ["c", "a", "d", "b"].map(str::to_owned);
            in_live_order(&mut volumes, live);
            assert_eq!(volumes.join(" "), expected);
        }
    }
}
