//! The StatefulSet. Kubernetes replaces no pod of it by itself (OnDelete): which broker may be stopped, and when, is
//! decided by what the brokers say.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use taffrail_crds::Volume;

use super::Blueprint;
use super::labels::{label_selector, labels, metadata};
use super::pod::pod_template;

/// Annotation with the brokers that vote on metadata, as JSON, on the StatefulSet and, for when that is gone, on the
/// claims: fixed for the life of the cluster's data.
pub(in crate::kubernetes) const VOTERS_ANNOTATION: &str = "taffrail.io/voters";

/// Annotation with Kafka's cluster id, which is on the disks too.
pub(in crate::kubernetes) const CLUSTER_ID_ANNOTATION: &str = "taffrail.io/cluster-id";

pub(super) fn stateful_set(blueprint: &Blueprint<'_>) -> StatefulSet {
    let names = blueprint.names();
    let mut metadata = metadata(blueprint, names.brokers());
    metadata.annotations = Some(memory(blueprint));
    let volumes = blueprint.spec.storage.volumes.iter();
    let by_name: BTreeMap<&str, &Volume> = volumes
        .map(|volume| (volume.name.as_str(), volume))
        .collect();
    let in_order = blueprint.cluster.volumes.iter();
    let volumes = in_order.filter_map(|name| by_name.get(name.as_str()));
    StatefulSet {
        metadata,
        spec: StatefulSetSpec {
            replicas: Some(blueprint.replicas),
            selector: label_selector(&blueprint.cluster.key.name),
            service_name: Some(names.headless()),
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..StatefulSetUpdateStrategy::default()
            }),
            template: pod_template(blueprint),
            volume_claim_templates: Some(
                volumes
                    .map(|volume| claim_template(blueprint, volume))
                    .collect(),
            ),
            ..StatefulSetSpec::default()
        },
        ..StatefulSet::default()
    }
}

/// What must be known to start brokers on their disks again.
fn memory(blueprint: &Blueprint<'_>) -> BTreeMap<String, String> {
    let voters = serde_json::to_string(blueprint.founders).unwrap_or_default();
    BTreeMap::from([
        (VOTERS_ANNOTATION.to_owned(), voters),
        (
            CLUSTER_ID_ANNOTATION.to_owned(),
            blueprint.cluster.cluster_id.clone(),
        ),
    ])
}

fn claim_template(blueprint: &Blueprint<'_>, volume: &Volume) -> PersistentVolumeClaim {
    let requests = BTreeMap::from([("storage".to_owned(), Quantity(volume.size.clone()))]);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(volume.name.clone()),
            labels: Some(labels(&blueprint.cluster.key.name)),
            annotations: Some(memory(blueprint)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(requests),
                ..VolumeResourceRequirements::default()
            }),
            storage_class_name: volume.storage_class_name.clone(),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}
