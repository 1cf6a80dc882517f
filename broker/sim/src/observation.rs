//! What can be seen of a cluster from outside at one moment: what the brokers say, what is in their logs, and what
//! clients were told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use taffrail_log::Disk;
use taffrail_node::{AdminState, PartitionEntry};
use taffrail_protocol::records::{BATCH_HEADER_LENGTH, BatchHeader, Batches, RecordIter};

use crate::cluster::{Cluster, LOG_DIRECTORIES};
use crate::disk::SimDisk;
use crate::history::{History, PartitionName};

/// One look at the cluster.
pub(crate) struct Observation {
    /// What each running broker says.
    pub states: Vec<AdminState>,
    /// The replicas of the running brokers, if they were looked at: by partition, then by broker.
    pub replicas: BTreeMap<PartitionName, BTreeMap<i32, ReplicaLog>>,
    /// What clients were told so far.
    pub history: History,
}

/// The log of one replica as its files have it.
pub(crate) struct ReplicaLog {
    /// First kept offset.
    pub log_start_offset: i64,
    /// Exclusive end of what is committed, as the broker says.
    pub high_watermark: i64,
    /// Exclusive end of the log, as the broker says.
    pub log_end_offset: i64,
    /// Whole batches in order of offset, up to the end of the log.
    pub batches: Vec<StoredBatch>,
}

/// One batch of a log.
pub(crate) struct StoredBatch {
    /// Its header.
    pub header: BatchHeader,
    /// All of its bytes.
    pub bytes: Vec<u8>,
}

impl StoredBatch {
    /// The offset of its last record.
    pub(crate) fn last_offset(&self) -> i64 {
        self.header.base_offset + i64::from(self.header.last_offset_delta)
    }

    /// Offsets and values of its records; what cannot be read is left out.
    pub(crate) fn records(&self) -> Vec<(i64, Vec<u8>)> {
        let records = RecordIter::new(&self.header, &self.bytes[BATCH_HEADER_LENGTH..]);
        let values = records.filter_map(Result::ok);
        values
            .map(|record| (record.offset, record.value.unwrap_or_default().to_vec()))
            .collect()
    }
}

impl Observation {
    /// What the brokers say.
    pub(crate) fn of_states(cluster: &Cluster, history: &History) -> Observation {
        Observation {
            states: (0..cluster.size())
                .filter_map(|broker| cluster.state(broker))
                .collect(),
            replicas: BTreeMap::new(),
            history: history.clone(),
        }
    }

    /// What the brokers say and what is in their logs.
    pub(crate) fn of_everything(cluster: &Cluster, history: &History) -> Observation {
        let mut observation = Self::of_states(cluster, history);
        for state in &observation.states {
            let disk = cluster.disk(state.broker_id as usize);
            for topic in &state.topics {
                for partition in &topic.partitions {
                    let name = PartitionName {
                        topic: topic.name.clone(),
                        topic_id: topic.topic_id.clone(),
                        partition: partition.partition,
                    };
                    if let Some(log) = replica_log(disk, &name, partition) {
                        observation
                            .replicas
                            .entry(name)
                            .or_default()
                            .insert(state.broker_id, log);
                    }
                }
            }
        }
        observation
    }

    /// What a broker says, if it runs.
    pub(crate) fn state_of(&self, broker: i32) -> Option<&AdminState> {
        self.states.iter().find(|state| state.broker_id == broker)
    }

    /// The state of the broker that knows most of the metadata.
    pub(crate) fn newest(&self) -> Option<&AdminState> {
        self.states.iter().max_by_key(|state| state.metadata_index)
    }

    /// Every partition as a broker knows it.
    pub(crate) fn partitions(
        state: &AdminState,
    ) -> impl Iterator<Item = (PartitionName, &PartitionEntry)> {
        state.topics.iter().flat_map(|topic| {
            let named = |partition: &PartitionEntry| PartitionName {
                topic: topic.name.clone(),
                topic_id: topic.topic_id.clone(),
                partition: partition.partition,
            };
            topic
                .partitions
                .iter()
                .map(move |partition| (named(partition), partition))
        })
    }
}

fn replica_log(
    disk: &SimDisk,
    name: &PartitionName,
    partition: &PartitionEntry,
) -> Option<ReplicaLog> {
    // What stands in a failed directory counts again once the broker has started on it.
    let local = partition.local.as_ref()?;
    if local.role == "offline" {
        return None;
    }
    let folder = format!("{}-{}", name.topic, name.partition);
    let folders = LOG_DIRECTORIES.map(|directory| Path::new(directory).join(&folder));
    // One of the same name may be of a topic that is no more.
    let is_of_topic = |folder: &PathBuf| {
        let metadata = disk.peek(&folder.join("partition.metadata"));
        metadata.is_some_and(|text| String::from_utf8_lossy(&text).contains(&name.topic_id))
    };
    let (folder, mut entries) = (folders.into_iter())
        .filter(is_of_topic)
        .find_map(|folder| Some((folder.clone(), disk.list(&folder).ok()?)))?;
    entries.sort();
    let mut batches: Vec<StoredBatch> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.name.ends_with(".log")) {
        let path = folder.join(&entry.name);
        // What is in it nobody promises until it is fetched anew.
        if disk.is_rotten(&path) {
            return None;
        }
        let bytes = disk.peek(&path)?;
        for batch in Batches::new(&bytes) {
            let Ok((header, range)) = batch else { break };
            let next = batches.last().map(|batch| batch.last_offset() + 1);
            // Behind the end of a file that is used again stands what it held before.
            if header.base_offset >= local.log_end_offset
                || next.is_some_and(|next| header.base_offset < next)
            {
                break;
            }
            batches.push(StoredBatch {
                header,
                bytes: bytes[range].to_vec(),
            });
        }
    }
    Some(ReplicaLog {
        log_start_offset: local.log_start_offset,
        high_watermark: local.high_watermark,
        log_end_offset: local.log_end_offset,
        batches,
    })
}
