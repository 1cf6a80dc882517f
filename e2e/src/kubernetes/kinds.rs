//! Small manifests of the two kinds.

use serde_json::{Value, json};

/// The Cluster of most tests.
pub const CLUSTER: &str = "demo";

/// A Cluster of that many brokers, for clients inside of Kubernetes.
pub fn cluster(brokers: u32) -> Value {
    json!({
        "apiVersion": "taffrail.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": CLUSTER},
        "spec": {
            "brokers": brokers,
            "storage": {"volumes": [{"name": "data-0", "size": "1Gi"}]},
            "config": {
                "min.insync.replicas": brokers.min(2),
                "default.replication.factor": brokers.min(3),
            },
        },
    })
}

/// A Topic of that Cluster with three replicas.
pub fn topic(name: &str, partitions: usize) -> Value {
    json!({
        "apiVersion": "taffrail.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {
            "clusterRef": {"name": CLUSTER},
            "partitions": partitions,
            "replicationFactor": 3,
        },
    })
}

/// The same object with one field of its spec set.
pub fn with(mut object: Value, field: &str, value: Value) -> Value {
    object["spec"][field] = value;
    object
}
