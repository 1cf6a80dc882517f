//! What the operator remembers between runs, in the data folder: the role that Kubernetes' etcd plays elsewhere. Whose
//! data it is, the objects as they were last in force, their ages, and the topics made for them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::LocalError;
use super::folder::{memory_file, replace};
use crate::object::{ObjectKey, derived_uid};
use crate::observed::ManagedTopic;

/// The content of `cluster.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    /// The Cluster.
    pub(super) cluster: ObjectKey,
    /// Its UID.
    pub(super) cluster_uid: String,
    /// Kafka's cluster id, which is also on the brokers' disks.
    pub(super) cluster_id: String,
    /// Brokers that vote on metadata.
    pub(super) voters: Vec<i32>,
    /// Brokers that have data here.
    pub(super) brokers: Vec<i32>,
    /// The Cluster's manifest in force.
    #[serde(default)]
    pub(super) cluster_manifest: Option<Value>,
    /// Topic objects in force.
    #[serde(default)]
    pub(super) topics: BTreeMap<ObjectKey, RememberedTopic>,
    /// Counts Topic objects, for their ages.
    #[serde(default)]
    pub(super) next_age: i64,
    /// Topics that were made or adopted, by topic name.
    #[serde(default)]
    pub(super) managed: BTreeMap<String, ManagedTopic>,
    /// Topics whose object was removed and that were kept, by topic name.
    #[serde(default)]
    pub(super) kept: BTreeMap<String, KeptTopic>,
}

/// A Topic object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RememberedTopic {
    /// Smaller is older.
    pub(super) created: i64,
    /// Its manifest in force.
    pub(super) manifest: Value,
}

/// A topic that outlived its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeptTopic {
    /// The object.
    pub(super) object: ObjectKey,
    /// Kafka's topic id.
    pub(super) topic_id: Option<String>,
}

impl Memory {
    /// The memory of a new cluster.
    pub(super) fn new(cluster: ObjectKey, cluster_id: String, voters: Vec<i32>) -> Self {
        Self {
            cluster_uid: derived_uid("Cluster", &cluster),
            cluster,
            cluster_id,
            voters,
            brokers: Vec::new(),
            cluster_manifest: None,
            topics: BTreeMap::new(),
            next_age: 0,
            managed: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// What is remembered in a folder; none if no cluster ever ran there.
    pub(super) fn load(folder: &Path) -> Result<Option<Self>, LocalError> {
        let path = memory_file(folder);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LocalError::Data { path, error }),
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| LocalError::Damaged { path, error })
    }

    /// Writes it down.
    pub(super) fn save(&self, folder: &Path) -> Result<(), LocalError> {
        let path = memory_file(folder);
        let text = serde_json::to_string_pretty(self).map_err(|error| LocalError::Damaged {
            path: path.clone(),
            error,
        })?;
        replace(&path, &text)
    }
}
