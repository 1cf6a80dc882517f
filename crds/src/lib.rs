//! The public Kubernetes API of Taffrail: the Cluster and Topic kinds, and the rules a manifest must meet.
//!
//! Doc comments of the fields are what `kubectl explain` prints. Validation rules live in the generated schema
//! alone, so that the API server and `admission` (for runs without one) refuse the same manifests alike.

pub mod admission;
mod cluster;
mod condition;
mod config_value;
pub mod definitions;
mod topic;

pub use cluster::{
    Cluster, ClusterSpec, ClusterStatus, DeletionPolicy, Listener, ListenerStatus, ListenerType,
    Pod, Rack, Storage, Volume,
};
pub use condition::{Condition, ConditionStatus, set_condition};
pub use config_value::{ConfigValue, ConfigValueError};
pub use topic::{ClusterRef, Topic, TopicSpec, TopicStatus};

/// API group of both kinds.
pub const GROUP: &str = "taffrail.io";
/// The one served version of both kinds.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` as a manifest writes it.
pub const API_VERSION: &str = "taffrail.io/v1alpha1";
