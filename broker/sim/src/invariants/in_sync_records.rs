//! Every running member of an ISR has all that is acknowledged and all that its leader takes for committed
//! (KIP-966's LeaderCandidateCompleteness): any of them may lead next.
//!
//! A member counts if the newest metadata that anybody ever had names it, its leader of the newest epoch counts it, and
//! its process is the one that is registered: one that has just come back is in the ISR until the controller hears of it.

use std::collections::BTreeMap;

use taffrail_node::PartitionEntry;

use super::Invariant;
use crate::history::{Event, PartitionName};
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct InSyncRecords {
    seen: usize,
    /// By partition: exclusive end of what was acknowledged.
    acknowledged: BTreeMap<PartitionName, i64>,
    /// The newest index of the metadata, with what it says of partitions and brokers.
    newest_index: i64,
    partitions: BTreeMap<PartitionName, PartitionEntry>,
    epochs: BTreeMap<i32, i64>,
}

impl Invariant for InSyncRecords {
    fn name(&self) -> &'static str {
        "in-sync replicas have what is committed"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        self.learn(seen)?;
        for (name, partition) in &self.partitions {
            let Some((leader, local)) = leading(seen, name, partition) else {
                continue;
            };
            let acknowledged = self.acknowledged.get(name).copied().unwrap_or(0);
            let committed = local.high_watermark.max(acknowledged);
            let counted = local.followers.iter().filter(|follower| follower.in_sync);
            for member in counted.map(|follower| follower.broker) {
                let Some(end) = self.log_end_of(seen, name, partition, member) else {
                    continue;
                };
                if end < committed {
                    return Err(format!(
                        "{name}: broker {member} is in the ISR of broker {leader} and ends at {end}, with {acknowledged} \
                         acknowledged and a high watermark of {}",
                        local.high_watermark
                    ));
                }
            }
        }
        Ok(())
    }
}

impl InSyncRecords {
    fn learn(&mut self, seen: &Observation) -> Result<(), String> {
        let acknowledged = &mut self.acknowledged;
        seen.history.since::<String>(self.seen, |_, event| {
            if let Event::Acknowledged {
                partition,
                offset,
                values,
                ..
            } = event
            {
                let end = acknowledged.entry(partition.clone()).or_default();
                *end = (*end).max(offset + values.len() as i64);
            }
            Ok(())
        })?;
        self.seen = seen.history.len();
        if let Some(newest) = seen.newest()
            && newest.metadata_index >= self.newest_index
        {
            self.newest_index = newest.metadata_index;
            self.partitions = Observation::partitions(newest)
                .map(|(name, entry)| (name, entry.clone()))
                .collect();
            self.epochs = (newest.brokers.iter())
                .map(|broker| (broker.id, broker.epoch))
                .collect();
        }
        Ok(())
    }

    /// Where a member's log ends, if it is one whose word counts.
    fn log_end_of(
        &self,
        seen: &Observation,
        name: &PartitionName,
        partition: &PartitionEntry,
        member: i32,
    ) -> Option<i64> {
        let state = seen.state_of(member)?;
        let registered = self.epochs.get(&member).copied();
        if !partition.isr.contains(&member)
            || registered.is_none()
            || state.broker_epoch != registered
        {
            return None;
        }
        let own = Observation::partitions(state).find(|(found, _)| found == name)?;
        Some(own.1.local.as_ref()?.log_end_offset)
    }
}

/// The running leader of the newest epoch with what it says of the partition.
fn leading<'a>(
    seen: &'a Observation,
    name: &PartitionName,
    partition: &PartitionEntry,
) -> Option<(i32, &'a taffrail_node::LocalReplica)> {
    let leader = partition.leader?;
    let state = seen.state_of(leader)?;
    let (_, entry) = Observation::partitions(state).find(|(found, _)| found == name)?;
    let local = entry.local.as_ref()?;
    (entry.leader_epoch == partition.leader_epoch && local.role == "leader")
        .then_some((leader, local))
}
