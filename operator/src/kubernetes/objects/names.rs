//! Names of the objects of a Cluster. A Cluster's name has at most 40 characters and a listener's at most 15, so the
//! longest, a Service of one broker, has 40 + 1 + 15 + 1 + 3 of the 63 that Kubernetes allows.

use crate::object::ObjectKey;

/// Names of the objects of one Cluster.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    cluster: &'a ObjectKey,
}

impl<'a> Names<'a> {
    /// Of the Cluster with this key.
    pub fn new(cluster: &'a ObjectKey) -> Self {
        Self { cluster }
    }

    /// Namespace of all of them.
    pub fn namespace(&self) -> &'a str {
        &self.cluster.namespace
    }

    /// The StatefulSet, the ServiceAccount and the PodDisruptionBudget.
    pub fn brokers(&self) -> String {
        format!("{}-broker", self.cluster.name)
    }

    /// The headless Service.
    pub fn headless(&self) -> String {
        format!("{}-brokers", self.cluster.name)
    }

    /// The Service of the Internal listeners.
    pub fn bootstrap(&self) -> String {
        format!("{}-bootstrap", self.cluster.name)
    }

    /// The Service of an outside listener.
    pub fn outside(&self, listener: &str) -> String {
        format!("{}-{listener}", self.cluster.name)
    }

    /// The Service of an outside listener for one broker.
    pub fn outside_broker(&self, listener: &str, broker: i32) -> String {
        format!("{}-{listener}-{broker}", self.cluster.name)
    }

    /// The ConfigMap with a content of this hash.
    pub fn configuration(&self, hash: &str) -> String {
        format!("{}-broker-{hash}", self.cluster.name)
    }

    /// A broker's pod.
    pub fn pod(&self, broker: i32) -> String {
        format!("{}-broker-{broker}", self.cluster.name)
    }

    /// A broker's claim for a volume.
    pub fn claim(&self, volume: &str, broker: i32) -> String {
        format!("{volume}-{}", self.pod(broker))
    }

    /// Host name of a pod within Kubernetes, whatever the cluster's domain.
    pub fn host(&self, pod: &str) -> String {
        format!("{pod}.{}.{}.svc", self.headless(), self.cluster.namespace)
    }
}
