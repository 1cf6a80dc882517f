//! The broker's shared state: what it is, which replicas it holds, and the pieces that work on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use taffrail_core::config::BrokerConfig;
use taffrail_core::ids::{BrokerId, Incarnation, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_core::time::Instant;

use crate::access::Authorizer;
use crate::cluster::Cluster;
use crate::env::{Env, random_id};
use crate::groups::Groups;
use crate::metrics::NodeMetrics;
use crate::node::{Health, StartError};
use crate::partition::Partition;
use crate::replication::Replication;

/// One broker. Everything in it is reached through an `Arc` by connections and background tasks.
pub(crate) struct Broker<E: Env> {
    /// The seam.
    pub(crate) env: E,
    /// The static configuration.
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
    /// Log directories, fetchers, ISR proposals.
    pub(crate) replication: Replication<E>,
    /// The replicas that this broker holds.
    partitions: RwLock<BTreeMap<TopicPartition, Arc<Partition<E>>>>,
    metrics: NodeMetrics,
    recovered: AtomicU64,
    to_recover: AtomicU64,
    started: AtomicBool,
    stopping: AtomicBool,
    fatal: OnceLock<String>,
}
