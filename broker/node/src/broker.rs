//! The broker's shared state: what it is, which replicas it holds, and the pieces that work on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use taffrail_core::config::{BrokerConfig, ConfigMap, TopicConfig};
use taffrail_core::ids::{BrokerId, Incarnation, TopicId, TopicPartition};
use taffrail_core::metadata::{ConfigResource, Image};
use taffrail_core::time::Instant;
use tokio::sync::{Semaphore, SetOnce};

use crate::access::Authorizer;
use crate::cluster::Cluster;
use crate::cluster::endpoints::lacks_rack;
use crate::env::{Env, random_id};
use crate::groups::Groups;
use crate::housekeeping;
use crate::metrics::NodeMetrics;
use crate::node::{Health, StartError};
use crate::partition::{Partition, SEARCHES_MAX};
use crate::replication::{self, Recovering, Replication};

/// One broker. Everything in it is reached through an `Arc` by connections and background tasks.
pub(crate) struct Broker<E: Env> {
    /// The seam.
    pub(crate) env: E,
    /// The values that this broker started with.
    pub(crate) config: BrokerConfig,
    /// This broker.
    pub(crate) id: BrokerId,
    /// Drawn anew at each start: tells two lives of one broker apart.
    pub(crate) incarnation: Incarnation,
    /// Asked before anything is done for a client.
    pub(crate) authorizer: Authorizer,
    /// Quorum, registration, committed metadata, connections to other brokers.
    pub(crate) cluster: Cluster<E>,
    /// Group coordinators of the `__consumer_offsets` partitions that this broker leads.
    pub(crate) groups: Groups<E>,
    /// Log directories, fetchers, ISR proposals, fetch sessions.
    pub(crate) replication: Replication<E>,
    /// Searches by time of ListOffsets wait here for their turn.
    pub(crate) searches: Arc<Semaphore>,
    /// The replicas that this broker holds.
    partitions: RwLock<BTreeMap<TopicPartition, Arc<Partition<E>>>>,
    metrics: NodeMetrics,
    pub(crate) recovered: AtomicU64,
    pub(crate) to_recover: AtomicU64,
    /// Bytes of the logs that the start had to read.
    pub(crate) bytes_scanned: AtomicU64,
    pub(crate) recovering: Recovering,
    started: AtomicBool,
    ready_once: AtomicBool,
    stopping: AtomicBool,
    fatal: SetOnce<String>,
}

impl<E: Env> Broker<E> {
    pub(crate) fn new(env: E, config: BrokerConfig, file: ConfigMap) -> Arc<Self> {
        let incarnation = Incarnation(random_id(&env));
        Arc::new(Self {
            id: BrokerId(config.node_id),
            incarnation,
            authorizer: Authorizer,
            cluster: Cluster::new(&config, file),
            groups: Groups::new(&config),
            replication: Replication::new(&config),
            searches: Arc::new(Semaphore::new(SEARCHES_MAX)),
            partitions: RwLock::new(BTreeMap::new()),
            metrics: NodeMetrics::new(),
            recovered: AtomicU64::new(0),
            to_recover: AtomicU64::new(0),
            bytes_scanned: AtomicU64::new(0),
            recovering: Recovering::default(),
            started: AtomicBool::new(false),
            ready_once: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            fatal: SetOnce::new(),
            env,
            config,
        })
    }

    /// Recovers the logs, then joins the cluster.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), StartError> {
        replication::open_directories(self).await?;
        self.cluster.start(self).await?;
        replication::start(self);
        housekeeping::start(self);
        self.started.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn metrics(&self) -> &NodeMetrics {
        &self.metrics
    }

    pub(crate) fn health(&self) -> Health {
        let not_ready = if self.is_stopping() {
            Some("the broker is shutting down".to_owned())
        } else {
            self.not_ready()
        };
        Health {
            started: self.started.load(Ordering::Acquire),
            recovery: (
                self.recovered.load(Ordering::Relaxed),
                self.to_recover.load(Ordering::Relaxed),
            ),
            recovering: self.recovering.names(),
            not_ready,
            fatal: self.fatal.get().cloned(),
        }
    }

    /// What is missing for the first time to be ready; later losses (of the quorum, say) do not count any more. But one that
    /// should vote and never will with this disk is not ready.
    fn not_ready(&self) -> Option<String> {
        if let Some(reason) = self.cluster.lost_seat() {
            return Some(reason);
        }
        if self.ready_once.load(Ordering::Acquire) {
            return None;
        }
        let missing = if !self.cluster.is_registered() {
            "not registered with the controller yet"
        } else if !self.cluster.is_caught_up() {
            "not caught up with the metadata yet"
        } else if !self.cluster.is_unfenced() {
            if lacks_rack(self, &self.cluster.image()) {
                "waits for the operator to tell the rack"
            } else {
                "still fenced by the controller"
            }
        } else {
            self.ready_once.store(true, Ordering::Release);
            return None;
        };
        Some(missing.to_owned())
    }

    /// Whether shutdown has begun: background tasks end at their next turn.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The broker has lost something it cannot go on without; the shell stops the process.
    pub(crate) fn fail(&self, reason: String) {
        tracing::error!(reason, "the broker cannot go on");
        // Only the first reason counts: later ones follow from it.
        let _later = self.fatal.set(reason);
    }

    /// Waits until [`Broker::fail`] is called, and tells why it was.
    pub(crate) async fn failed(&self) -> &str {
        self.fatal.wait().await
    }

    /// The replica of a partition that this broker holds.
    pub(crate) fn partition(&self, id: TopicPartition) -> Option<Arc<Partition<E>>> {
        self.partitions
            .read()
            .expect("no panic while locked")
            .get(&id)
            .cloned()
    }

    /// All replicas that this broker holds.
    pub(crate) fn partitions(&self) -> Vec<Arc<Partition<E>>> {
        self.partitions
            .read()
            .expect("no panic while locked")
            .values()
            .cloned()
            .collect()
    }

    /// The replicas of one topic that this broker holds.
    pub(crate) fn partitions_of(&self, topic: TopicId) -> Vec<Arc<Partition<E>>> {
        let range = TopicPartition::new(topic, i32::MIN)..=TopicPartition::new(topic, i32::MAX);
        self.partitions
            .read()
            .expect("no panic while locked")
            .range(range)
            .map(|(_, held)| held.clone())
            .collect()
    }

    pub(crate) fn insert_partition(&self, partition: Arc<Partition<E>>) {
        self.partitions
            .write()
            .expect("no panic while locked")
            .insert(partition.id, partition);
    }

    pub(crate) fn remove_partition(&self, id: TopicPartition) -> Option<Arc<Partition<E>>> {
        self.partitions
            .write()
            .expect("no panic while locked")
            .remove(&id)
    }

    /// The configuration of a topic as `image` has it. A committed value that this version cannot read has its default.
    pub(crate) fn topic_config(&self, image: &Image, topic: &str) -> TopicConfig {
        let layers = self.cluster.layers(image);
        let (config, errors) = TopicConfig::lenient(
            &layers,
            image.configs(&ConfigResource::Topic(topic.to_owned())),
        );
        for error in errors {
            tracing::warn!(topic, %error, "a committed topic config cannot be used, its default holds");
        }
        config
    }

    /// Hands over leadership, flushes, marks the directories clean.
    pub(crate) async fn shutdown(self: &Arc<Self>, deadline: Instant) {
        if self.config.controlled_shutdown_enable {
            // A quarter of the time is kept for closing the logs.
            let now = self.env.now();
            let hand_over_by = now + deadline.saturating_since(now) * 3 / 4;
            self.cluster.begin_controlled_shutdown(hand_over_by).await;
        }
        self.stopping.store(true, Ordering::Release);
        self.replication.stop();
        let epoch = self.cluster.broker_epoch();
        replication::close_all(self, epoch).await;
    }
}
