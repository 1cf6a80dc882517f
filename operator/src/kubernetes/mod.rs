//! Clusters and Topics on Kubernetes: watches keep caches, events mark Clusters in a queue, and for each marked one a
//! pass observes, validates, plans, applies and writes status. No pass ever waits for the world to change: it does what
//! can be done now and comes back.

mod api;
mod cache;
mod context;
mod deletion;
mod difference;
mod dirty;
pub mod endpoints;
mod finalizer;
mod identity;
mod lease;
mod news;
pub mod objects;
mod pass;
mod queue;
mod run;
mod watch;

use thiserror::Error;

pub use run::run;

/// Why the operator cannot run in Kubernetes. Each says in one sentence what is wrong and what to do.
#[derive(Debug, Error)]
pub enum KubernetesError {
    /// There is no cluster to talk to.
    #[error(
        "no Kubernetes cluster is configured: {0}; run this in a pod, or set KUBECONFIG. On a machine without Kubernetes, \
         `taffrail-operator local -f FILE` runs the same manifests"
    )]
    NoCluster(String),
    /// The runtime, signals or the HTTP port could not be set up.
    #[error("{what}: {error}")]
    Setup {
        /// What could not be set up.
        what: &'static str,
        /// Why.
        error: String,
    },
}
