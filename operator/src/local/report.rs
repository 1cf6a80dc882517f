//! What `local status` shows, as the run writes it into the data folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use taffrail_crds::{ClusterStatus, TopicStatus};

use super::LocalError;
use super::broker_file::Told;
use super::folder::status_file;
use crate::object::ObjectKey;

/// The content of `status.json`, and of `local status -o json` (which sets `running` from the folder's lock).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Whether a run has the folder at this moment.
    pub(super) running: bool,
    /// The supervisor's process id.
    pub(super) pid: u32,
    /// The manifest file.
    pub(super) file: PathBuf,
    /// The data folder.
    pub(super) data_dir: PathBuf,
    /// First port.
    pub(super) base_port: u16,
    /// For Kafka clients.
    pub(super) bootstrap_servers: String,
    /// The operator's own metrics.
    pub(super) metrics: String,
    /// The Cluster.
    pub(super) cluster: ClusterReport,
    /// Its brokers.
    pub(super) brokers: Vec<BrokerReport>,
    /// Brokers that are not wanted any more and have not stopped yet.
    #[serde(default)]
    pub(super) leaving: Vec<i32>,
    /// Topic objects.
    pub(super) topics: Vec<TopicReport>,
    /// Topics that outlived their object (deletionPolicy: Retain).
    pub(super) kept: Vec<KeptReport>,
    /// What is wrong with the file as it stands, if the run goes on with what it said before.
    pub(super) file_error: Option<String>,
}

/// The Cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterReport {
    /// The object.
    pub(super) object: ObjectKey,
    /// Its status.
    pub(super) status: ClusterStatus,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BrokerReport {
    /// Broker id.
    pub(super) id: i32,
    /// Its process, if it runs.
    pub(super) pid: Option<u32>,
    /// running, restarting, stopping or stopped.
    pub(super) state: String,
    /// Whether it serves clients.
    pub(super) ready: bool,
    /// How often it died and was started again.
    pub(super) restarts: u32,
    /// Address for clients.
    pub(super) client: String,
    /// Address of metrics and probes.
    pub(super) metrics: String,
    /// Its properties file.
    pub(super) config: PathBuf,
    /// The Cluster's configuration that it was started with.
    pub(super) spec_config: BTreeMap<String, String>,
    /// The volumes that it was started with.
    pub(super) volumes: Vec<String>,
    /// What it was told of its cluster when it was started. Missing where an older run wrote.
    #[serde(default)]
    pub(super) told: Option<Told>,
    /// What it prints.
    pub(super) log: PathBuf,
}

/// A Topic object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopicReport {
    /// The object.
    pub(super) object: ObjectKey,
    /// Its status.
    pub(super) status: TopicStatus,
    /// Its partitions.
    pub(super) partitions: Vec<PartitionReport>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartitionReport {
    /// Index.
    pub(super) partition: i32,
    /// The broker that leads it.
    pub(super) leader: Option<i32>,
    /// Assigned replicas.
    pub(super) replicas: Vec<i32>,
    /// Those in sync.
    pub(super) isr: Vec<i32>,
}

/// A topic that outlived its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeptReport {
    /// Topic name.
    pub(super) topic: String,
    /// The object that was removed.
    pub(super) object: ObjectKey,
    /// Why it is still there.
    pub(super) message: String,
}

impl Report {
    /// The last report in a folder.
    pub(super) fn load(folder: &Path) -> Result<Self, LocalError> {
        let path = status_file(folder);
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LocalError::NothingHere(folder.to_owned()),
            _ => LocalError::Data {
                path: path.clone(),
                error,
            },
        })?;
        serde_json::from_str(&text).map_err(|error| LocalError::Damaged { path, error })
    }
}
