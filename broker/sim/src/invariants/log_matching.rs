//! Where two replicas have a batch of the same epoch at the same offset, it is the same batch, byte for byte; and below
//! both high watermarks they have the same batches.

use std::collections::BTreeMap;

use super::Invariant;
use crate::observation::{Observation, ReplicaLog, StoredBatch};

/// See the module.
pub(super) struct LogMatching;

impl Invariant for LogMatching {
    fn name(&self) -> &'static str {
        "logs match"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        for (name, replicas) in &seen.replicas {
            let logs: Vec<(&i32, &ReplicaLog)> = replicas.iter().collect();
            for (index, (one, log)) in logs.iter().enumerate() {
                for (other, other_log) in &logs[index + 1..] {
                    check_pair(log, other_log)
                        .map_err(|wrong| format!("{name} on brokers {one} and {other}: {wrong}"))?;
                }
            }
        }
        Ok(())
    }
}

fn check_pair(one: &ReplicaLog, other: &ReplicaLog) -> Result<(), String> {
    let committed = one.high_watermark.min(other.high_watermark);
    let start = one.log_start_offset.max(other.log_start_offset);
    let by_offset = |log: &'_ ReplicaLog| -> BTreeMap<i64, usize> {
        let offsets = log.batches.iter().map(|batch| batch.header.base_offset);
        offsets.zip(0..).collect()
    };
    let (ones, others) = (by_offset(one), by_offset(other));
    for (offset, index) in &ones {
        let batch = &one.batches[*index];
        match others.get(offset).map(|index| &other.batches[*index]) {
            Some(twin) if is_same(batch, twin) => {}
            Some(twin) => {
                let (epoch, twin_epoch) = (epoch_of(batch), epoch_of(twin));
                if epoch == twin_epoch {
                    return Err(format!(
                        "different batches of epoch {epoch} at offset {offset}"
                    ));
                }
                if *offset < committed {
                    return Err(format!(
                        "batches of epochs {epoch} and {twin_epoch} at offset {offset}, below high watermark {committed}"
                    ));
                }
            }
            None if batch.last_offset() >= start && batch.last_offset() < committed => {
                return Err(format!(
                    "only one has the batch at offset {offset}, below high watermark {committed}"
                ));
            }
            None => {}
        }
    }
    Ok(())
}

fn is_same(one: &StoredBatch, other: &StoredBatch) -> bool {
    one.bytes == other.bytes
}

fn epoch_of(batch: &StoredBatch) -> i32 {
    batch.header.partition_leader_epoch
}
