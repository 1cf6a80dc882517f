//! The ISR is a part of the replicas, a leader is in it, and a fenced broker is not. Eligible leader replicas (KIP-966) are other replicas,
//! and there are none once the ISR has `min.insync.replicas` members.

use std::collections::BTreeSet;

use super::Invariant;
use crate::observation::Observation;
use crate::simulation::MIN_INSYNC_REPLICAS;

/// See the module.
pub(super) struct InSyncReplicas;

impl Invariant for InSyncReplicas {
    fn name(&self) -> &'static str {
        "leader in ISR in replicas, nobody fenced in ISR, ELR apart from it"
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
                let enough = MIN_INSYNC_REPLICAS.min(entry.replicas.len());
                let needless = entry.isr.len() >= enough && !entry.elr.is_empty();
                let eligible = |id: &i32| entry.replicas.contains(id) && !entry.isr.contains(id);
                let wrong = !entry.elr.iter().all(eligible);
                if stranger || outside || absent || needless || wrong {
                    return Err(format!(
                        "{name} as broker {} knows it: leader {:?}, ISR {:?}, ELR {:?}, replicas {:?}, fenced {fenced:?}",
                        state.broker_id, entry.leader, entry.isr, entry.elr, entry.replicas
                    ));
                }
            }
        }
        Ok(())
    }
}
