//! An acknowledged acks=all record is in every replica whose high watermark is beyond it, at the offset that its
//! producer was told; and whoever leads in the newest epoch has all of them.

use std::collections::BTreeMap;

use super::Invariant;
use crate::history::{Event, PartitionName};
use crate::observation::{Observation, ReplicaLog};

/// See the module.
#[derive(Default)]
pub(super) struct AcknowledgedRecords {
    seen: usize,
    /// By partition and offset.
    acknowledged: BTreeMap<PartitionName, BTreeMap<i64, Vec<u8>>>,
    /// By partition, the newest epoch that anybody knew of: a leader of an older one may lack what newer ones have.
    epochs: BTreeMap<PartitionName, i32>,
}

impl Invariant for AcknowledgedRecords {
    fn name(&self) -> &'static str {
        "acknowledged records are kept"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        let acknowledged = &mut self.acknowledged;
        seen.history.since::<String>(self.seen, |_, event| {
            let Event::Acknowledged {
                partition,
                offset,
                values,
                ..
            } = event
            else {
                return Ok(());
            };
            let of_partition = acknowledged.entry(partition.clone()).or_default();
            for (offset, value) in (*offset..).zip(values) {
                let before = of_partition.insert(offset, value.clone());
                if before.is_some_and(|before| before != *value) {
                    return Err(format!(
                        "two records were acknowledged at offset {offset} of {partition}"
                    ));
                }
            }
            Ok(())
        })?;
        self.seen = seen.history.len();
        for state in &seen.states {
            for (name, entry) in Observation::partitions(state) {
                let newest = self.epochs.entry(name).or_default();
                *newest = (*newest).max(entry.leader_epoch);
            }
        }
        for (name, acknowledged) in &self.acknowledged {
            let epoch = self.epochs.get(name).copied().unwrap_or(-1);
            for (broker, log) in seen.replicas.get(name).into_iter().flatten() {
                let leads = leads(seen, *broker, name, epoch);
                let end = if leads { i64::MAX } else { log.high_watermark };
                check_log(acknowledged, log, end)
                    .map_err(|wrong| format!("{name} on broker {broker}: {wrong}"))?;
            }
        }
        Ok(())
    }
}

/// Whether a broker leads a partition in an epoch, and acts so.
fn leads(seen: &Observation, broker: i32, name: &PartitionName, epoch: i32) -> bool {
    seen.state_of(broker).is_some_and(|state| {
        Observation::partitions(state).any(|(found, entry)| {
            found == *name
                && (entry.leader, entry.leader_epoch) == (Some(broker), epoch)
                && (entry.local.as_ref()).is_some_and(|local| local.role == "leader")
        })
    })
}

fn check_log(
    acknowledged: &BTreeMap<i64, Vec<u8>>,
    log: &ReplicaLog,
    end: i64,
) -> Result<(), String> {
    let stored: BTreeMap<i64, Vec<u8>> = log
        .batches
        .iter()
        .flat_map(|batch| batch.records())
        .collect();
    for (offset, value) in acknowledged.range(log.log_start_offset..end) {
        match stored.get(offset) {
            Some(found) if found == value => {}
            Some(_) => {
                return Err(format!(
                    "another record stands at acknowledged offset {offset}"
                ));
            }
            None => {
                return Err(format!(
                    "acknowledged offset {offset} is lost (log end {}, high watermark {})",
                    log.log_end_offset, log.high_watermark
                ));
            }
        }
    }
    Ok(())
}
