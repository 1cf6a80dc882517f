//! What all passes share, and what is remembered of each Cluster from pass to pass. None of the memory is needed to be
//! right: an operator that starts with an empty one only looks and writes once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Mutex as AsyncMutex;

use super::api::Writer;
use super::watch::Caches;
use crate::kafka::Admin;
use crate::metrics::Metrics;
use crate::object::ObjectKey;
use crate::refusal::Refusal;
use crate::status::is_ready;

/// What all passes share.
pub(super) struct Context {
    pub(super) caches: Arc<Caches>,
    pub(super) writer: Writer,
    pub(super) metrics: Metrics,
    /// Image of brokers whose Cluster names none.
    pub(super) image: Option<String>,
    /// Its pull policy.
    pub(super) image_pull_policy: Option<String>,
    memories: Mutex<BTreeMap<ObjectKey, Arc<AsyncMutex<Memory>>>>,
    /// Reasons for which something is not done at this moment, by Cluster.
    blocked: Mutex<BTreeMap<ObjectKey, Vec<&'static str>>>,
}

/// What is remembered of one Cluster.
pub(super) struct Memory {
    /// The connection to its brokers.
    pub(super) admin: Admin,
    /// For each object by kind and name where the API server's form of it differs from ours, as of its last apply.
    pub(super) applied: BTreeMap<String, BTreeSet<String>>,
    /// Refusals that events told of, by object.
    pub(super) told: BTreeSet<(Option<ObjectKey>, &'static str)>,
    /// Failures of the last pass.
    pub(super) failed: BTreeMap<Option<ObjectKey>, Vec<Refusal>>,
    /// Whether brokers hold nothing that they were told of racks and addresses.
    pub(super) untold: bool,
    /// When status.underReplicatedPartitions was last changed.
    pub(super) counted: Option<Instant>,
    /// When the wording of InSync was last changed, by object.
    pub(super) worded: BTreeMap<Option<ObjectKey>, Instant>,
    /// Whether the status was read once to learn what was told before this operator began.
    pub(super) recalled: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            admin: Admin::new(Vec::new()),
            applied: BTreeMap::new(),
            told: BTreeSet::new(),
            failed: BTreeMap::new(),
            untold: false,
            counted: None,
            worded: BTreeMap::new(),
            recalled: false,
        }
    }
}

impl Context {
    pub(super) fn new(
        caches: Arc<Caches>,
        writer: Writer,
        metrics: Metrics,
        image: Option<String>,
        image_pull_policy: Option<String>,
    ) -> Self {
        Self {
            caches,
            writer,
            metrics,
            image,
            image_pull_policy,
            memories: Mutex::default(),
            blocked: Mutex::default(),
        }
    }

    /// The memory of a Cluster.
    pub(super) fn memory(&self, key: &ObjectKey) -> Arc<AsyncMutex<Memory>> {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(memories.entry(key.clone()).or_default())
    }

    /// A Cluster is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.remove(key);
        self.metrics.forget(&key.namespace, &key.name);
    }

    /// Counts objects and what is not done, after a pass over a Cluster.
    pub(super) fn count(&self, key: &ObjectKey, reasons: Vec<&'static str>) {
        let mut blocked = self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
        if reasons.is_empty() {
            blocked.remove(key);
        } else {
            blocked.insert(key.clone(), reasons);
        }
        self.metrics
            .set_blocked(blocked.values().flatten().copied());
        drop(blocked);
        let clusters = self.caches.clusters.all();
        let paused = clusters
            .iter()
            .filter(|cluster| cluster.spec.paused)
            .count();
        self.metrics.set_paused(paused);
        let ready = clusters
            .iter()
            .filter_map(|cluster| cluster.status.as_ref())
            .filter(|status| is_ready(&status.conditions))
            .count();
        self.metrics
            .set_managed("Cluster", ready, clusters.len() - ready);
        let topics = self.caches.topics.all();
        let ready = topics
            .iter()
            .filter_map(|topic| topic.status.as_ref())
            .filter(|status| is_ready(&status.conditions))
            .count();
        self.metrics
            .set_managed("Topic", ready, topics.len() - ready);
    }
}
