//! The ISR is a part of the replicas, and a leader is in it.

use super::Invariant;
use crate::observation::Observation;

/// See the module.
pub(super) struct InSyncReplicas;

impl Invariant for InSyncReplicas {
    fn name(&self) -> &'static str {
        "leader in ISR in replicas"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        for state in &seen.states {
            for ((topic, partition), entry) in Observation::partitions(state) {
                let stranger = entry.isr.iter().any(|id| !entry.replicas.contains(id));
                let outside = entry
                    .leader
                    .is_some_and(|leader| !entry.isr.contains(&leader));
                if stranger || outside {
                    return Err(format!(
                        "{topic}-{partition} as broker {} knows it: leader {:?}, ISR {:?}, replicas {:?}",
                        state.broker_id, entry.leader, entry.isr, entry.replicas
                    ));
                }
            }
        }
        Ok(())
    }
}
