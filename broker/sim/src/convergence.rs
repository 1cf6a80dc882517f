//! What must be true of a cluster some time after the last fault. Each question is answered with what is still missing.

use std::collections::BTreeMap;

use crate::client::ReadBack;
use crate::cluster::Cluster;
use crate::faults::rotten_file;
use crate::history::{Event, History, PartitionName};
use crate::observation::{Observation, ReplicaLog, StoredBatch};

/// Every broker is up and ready.
pub(crate) fn not_ready(cluster: &Cluster) -> Option<String> {
    (cluster.joined().into_iter()).find_map(|broker| {
        let missing = cluster.not_ready(broker)?;
        Some(format!("broker {broker} {missing}"))
    })
}

/// Every broker is ready and has the same metadata; every partition has a leader and all of its replicas in the ISR.
pub(crate) fn not_healed(cluster: &Cluster, history: &History) -> Option<String> {
    if let Some(missing) = not_ready(cluster) {
        return Some(missing);
    }
    for broker in cluster.joined() {
        if let Some(file) = rotten_file(cluster.disk(broker)) {
            return Some(format!("{file} of broker {broker} is still damaged"));
        }
    }
    let seen = Observation::of_states(cluster, history);
    let index = seen.newest()?.metadata_index;
    for state in &seen.states {
        if state.metadata_index != index {
            return Some(format!(
                "broker {} has the metadata up to {} of {index}",
                state.broker_id, state.metadata_index
            ));
        }
        for (name, entry) in Observation::partitions(state) {
            if let Some(damage) = entry.local.as_ref().and_then(|local| local.damage) {
                return Some(format!("{name} on broker {} is {damage}", state.broker_id));
            }
            if entry.leader.is_none() || entry.isr.len() < entry.replicas.len() {
                return Some(format!(
                    "{name}: leader {:?}, ISR {:?} of {:?}",
                    entry.leader, entry.isr, entry.replicas
                ));
            }
        }
    }
    None
}

/// Exactly the assigned brokers hold a partition, all with the same offsets and, from where the last of them starts on,
/// the same bytes.
pub(crate) fn not_equal(cluster: &Cluster, history: &History) -> Option<String> {
    let seen = Observation::of_everything(cluster, history);
    let newest = seen.newest()?;
    for (name, entry) in Observation::partitions(newest) {
        let empty = BTreeMap::new();
        let replicas = seen.replicas.get(&name).unwrap_or(&empty);
        let mut assigned = entry.replicas.clone();
        assigned.sort_unstable();
        let holders: Vec<i32> = replicas.keys().copied().collect();
        if holders != assigned {
            return Some(format!(
                "{name}: assigned to {assigned:?}, held by {holders:?}"
            ));
        }
        let ends: Vec<(i64, i64)> = (replicas.values())
            .map(|log| (log.high_watermark, log.log_end_offset))
            .collect();
        let first = ends.first()?;
        if first.0 != first.1 || ends.iter().any(|end| end != first) {
            return Some(format!("{name}: high watermarks and log ends are {ends:?}"));
        }
        let start = replicas.values().map(|log| log.log_start_offset).max()?;
        let mut logs = replicas.iter();
        let (one, log) = logs.next()?;
        for (other, other_log) in logs {
            if !from(log, start).eq(from(other_log, start)) {
                return Some(format!(
                    "{name}: brokers {one} and {other} have other bytes"
                ));
            }
        }
    }
    None
}

fn from(log: &ReplicaLog, start: i64) -> impl Iterator<Item = &[u8]> {
    let kept = move |batch: &&StoredBatch| batch.last_offset() >= start;
    log.batches.iter().filter(kept).map(|batch| &*batch.bytes)
}

/// What was read has every acknowledged record from its start on.
pub(crate) fn not_read(
    read: &BTreeMap<PartitionName, ReadBack>,
    history: &History,
) -> Option<String> {
    let judged = history.since(0, |_, event| {
        let Event::Acknowledged {
            partition,
            offset,
            values,
            ..
        } = event
        else {
            return Ok(());
        };
        // The topic that comes and goes is not read.
        let Some(found) = read.get(partition) else {
            return Ok(());
        };
        for (offset, value) in (*offset..).zip(values) {
            if offset >= found.start && found.records.get(&offset) != Some(value) {
                return Err(format!(
                    "{partition}: acknowledged offset {offset} is missing or another, read from {} on",
                    found.start
                ));
            }
        }
        Ok(())
    });
    judged.err()
}
