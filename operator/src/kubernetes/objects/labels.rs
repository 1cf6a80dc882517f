//! Labels, selectors and owner references: how the objects of a Cluster are known.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use taffrail_crds::Cluster;

use super::Blueprint;

/// The label that names the Cluster.
pub const CLUSTER_LABEL: &str = "taffrail.io/cluster";

/// Who writes, for server-side apply.
pub const FIELD_MANAGER: &str = "taffrail-operator";

const NAME_LABEL: &str = "app.kubernetes.io/name";
const NAME: &str = "taffrail-broker";

/// The labels that select the pods of a Cluster. They never change: a StatefulSet's selector cannot.
pub fn selector_labels(cluster: &str) -> BTreeMap<String, String> {
    strings(&[(NAME_LABEL, NAME), (CLUSTER_LABEL, cluster)])
}

/// The same as text, for status.selector and list requests.
pub fn selector(cluster: &str) -> String {
    format!("{NAME_LABEL}={NAME},{CLUSTER_LABEL}={cluster}")
}

/// The labels of everything that is made for a Cluster.
pub(super) fn labels(cluster: &str) -> BTreeMap<String, String> {
    let mut labels = selector_labels(cluster);
    labels.extend(strings(&[
        ("app.kubernetes.io/instance", cluster),
        ("app.kubernetes.io/component", "broker"),
        ("app.kubernetes.io/part-of", "taffrail"),
        ("app.kubernetes.io/managed-by", "taffrail-operator"),
    ]));
    labels
}

pub(super) fn label_selector(cluster: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some(selector_labels(cluster)),
        ..LabelSelector::default()
    }
}

/// Metadata of an object that goes when the Cluster goes.
pub(super) fn metadata(blueprint: &Blueprint<'_>, name: String) -> ObjectMeta {
    let key = &blueprint.cluster.key;
    ObjectMeta {
        name: Some(name),
        namespace: Some(key.namespace.clone()),
        labels: Some(labels(&key.name)),
        owner_references: Some(vec![OwnerReference {
            api_version: Cluster::api_version(&()).into_owned(),
            kind: Cluster::kind(&()).into_owned(),
            name: key.name.clone(),
            uid: blueprint.uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

/// Whether an object belongs to the Cluster of this UID, so that it may be written.
pub fn is_owned_by(metadata: &ObjectMeta, uid: &str) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

pub(super) fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}
