//! The ISR is a part of the replicas, a leader is in it, and a fenced broker is not.

use std::collections::BTreeSet;

use super::Invariant;
use crate::observation::Observation;

/// See the module.
pub(super) struct InSyncReplicas;

impl Invariant for InSyncReplicas {
    fn name(&self) -> &'static str {
        "leader in ISR in replicas, nobody fenced in ISR"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        for state in &seen.states {
            let fenced: BTreeSet<i32> = (state.brokers.iter())
                .filter(|broker| broker.fenced)
                .map(|broker| broker.id)
                .collect();
            for (name, entry) in Observation::partitions(state) {
                let stranger = entry.isr.iter().any(|id| !entry.replicas.contains(id));
                let outside = entry
                    .leader
                    .is_some_and(|leader| !entry.isr.contains(&leader));
                let absent = entry.isr.iter().any(|id| fenced.contains(id));
                if stranger || outside || absent {
                    return Err(format!(
                        "{name} as broker {} knows it: leader {:?}, ISR {:?}, replicas {:?}, fenced {fenced:?}",
                        state.broker_id, entry.leader, entry.isr, entry.replicas
                    ));
                }
            }
        }
        Ok(())
    }
}
