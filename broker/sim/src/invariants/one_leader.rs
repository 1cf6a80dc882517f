//! A leader epoch has one leader, and epochs never go back as the metadata goes on.

use std::collections::BTreeMap;

use super::Invariant;
use crate::history::PartitionName;
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct OneLeader {
    /// By partition and epoch.
    leaders: BTreeMap<(PartitionName, i32), i32>,
    /// By partition: the newest metadata index and the epoch in it.
    newest: BTreeMap<PartitionName, (i64, i32)>,
}

impl Invariant for OneLeader {
    fn name(&self) -> &'static str {
        "one leader per epoch"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        for state in &seen.states {
            for (name, entry) in Observation::partitions(state) {
                let (index, epoch) = (state.metadata_index, entry.leader_epoch);
                let newest = self.newest.entry(name.clone()).or_insert((index, epoch));
                if index >= newest.0 {
                    if epoch < newest.1 {
                        return Err(format!(
                            "{name}: epoch {epoch} at index {index} comes after epoch {} at index {}",
                            newest.1, newest.0
                        ));
                    }
                    *newest = (index, epoch);
                }
                let Some(leader) = entry.leader else { continue };
                let known = *self.leaders.entry((name.clone(), epoch)).or_insert(leader);
                if known != leader {
                    return Err(format!(
                        "{name}: brokers {known} and {leader} lead in epoch {epoch}"
                    ));
                }
            }
        }
        Ok(())
    }
}
