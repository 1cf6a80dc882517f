//! The node as its shell sees it: built, started, handed frames, asked for its state, shut down.

use std::sync::Arc;

use taffrail_core::config::{BrokerConfig, ConfigMap};
use taffrail_core::time::Instant;
use thiserror::Error;

use crate::broker::Broker;
use crate::connection::Connection;
use crate::dispatch;
use crate::env::Env;
use crate::metrics::NodeMetrics;
use crate::response::Handled;
use crate::state::{self, AdminState, SafeToStop};

/// Why a node did not start. Each text says what to do.
#[derive(Debug, Error)]
pub enum StartError {
    /// A log directory or the metadata log could not be opened.
    #[error("{0}")]
    Storage(String),
    /// What is on disk belongs to another broker or cluster.
    #[error("{0}")]
    Identity(String),
}

/// How far a node is, for the probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Whether recovery has finished.
    pub started: bool,
    /// Logs recovered so far and in all.
    pub recovery: (u64, u64),
    /// The logs that are being recovered now.
    pub recovering: Vec<String>,
    /// Why the node is not ready yet: registered, unfenced and caught up once makes it ready until it shuts down.
    pub not_ready: Option<String>,
    /// Why the process must stop, once a node has lost an invariant.
    pub fatal: Option<String>,
}

/// One broker. Clones are handles to the same one.
pub struct Node<E: Env> {
    broker: Arc<Broker<E>>,
}

impl<E: Env> Clone for Node<E> {
    fn clone(&self) -> Self {
        Self {
            broker: Arc::clone(&self.broker),
        }
    }
}

impl<E: Env> Node<E> {
    /// Puts a node together from its configuration: the typed values and the map they came from, which topics'
    /// defaults are looked up in. Touches nothing on disk yet.
    pub fn new(env: E, config: BrokerConfig, file: ConfigMap) -> Self {
        Self {
            broker: Broker::new(env, config, file),
        }
    }

    /// Opens the log directories, recovers every log, starts the background tasks and registers with the cluster
    /// in the background. Requests may be handled from the moment it returns; until the node has metadata they are
    /// answered with retriable errors.
    pub async fn start(&self) -> Result<(), StartError> {
        self.broker.start().await
    }

    /// Handles one request. `frame` starts at the API key (no length prefix); Produce patches record batches in it.
    pub fn handle(&self, connection: &mut Connection, frame: &mut [u8]) -> Handled<E> {
        dispatch::handle(&self.broker, connection, frame)
    }

    /// How far the node is. Cheap: called by every probe.
    pub fn health(&self) -> Health {
        self.broker.health()
    }

    /// Completes when the process must stop because the node has lost an invariant, and tells which.
    pub async fn failed(&self) -> &str {
        self.broker.failed().await
    }

    /// Everything that `GET /admin/state` shows.
    pub fn state(&self) -> AdminState {
        state::admin_state(&self.broker)
    }

    /// Which partitions would fall below their min.insync.replicas if this broker stopped now.
    pub fn safe_to_stop(&self) -> SafeToStop {
        state::safe_to_stop(&self.broker)
    }

    /// The metrics, with gauges refreshed by the call.
    pub fn metrics(&self) -> &NodeMetrics {
        state::refresh_metrics(&self.broker);
        self.broker.metrics()
    }

    /// Hands over leadership, flushes, marks the log directories clean and leaves; what is not done by `deadline` is left.
    pub async fn shutdown(&self, deadline: Instant) {
        self.broker.shutdown(deadline).await;
    }
}
