//! The high watermark stands still while fewer replicas are in sync than `min.insync.replicas` asks for (KIP-966).
//!
//! Told from two looks at a leader between which its epoch and its metadata stayed the same: an ISR that grows and
//! shrinks again in between leaves a trace there.

use std::collections::BTreeMap;

use super::Invariant;
use crate::history::PartitionName;
use crate::observation::Observation;
use crate::simulation::MIN_INSYNC_REPLICAS;

/// See the module.
#[derive(Default)]
pub(super) struct FrozenHighWatermark {
    before: BTreeMap<(PartitionName, i32), Look>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    metadata_index: i64,
    leader_epoch: i32,
    in_sync: usize,
    high_watermark: i64,
}

impl Invariant for FrozenHighWatermark {
    fn name(&self) -> &'static str {
        "too few in sync commit nothing"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        let before = std::mem::take(&mut self.before);
        for state in &seen.states {
            for (name, entry) in Observation::partitions(state) {
                let Some(local) = entry.local.as_ref().filter(|local| local.role == "leader")
                else {
                    continue;
                };
                let followers = local.followers.iter();
                let look = Look {
                    metadata_index: state.metadata_index,
                    leader_epoch: entry.leader_epoch,
                    in_sync: 1 + followers.filter(|follower| follower.in_sync).count(),
                    high_watermark: local.high_watermark,
                };
                let needed = MIN_INSYNC_REPLICAS.min(1 + local.followers.len());
                let key = (name, state.broker_id);
                if let Some(earlier) = before.get(&key)
                    && look.in_sync < needed
                    && (Look {
                        high_watermark: earlier.high_watermark,
                        ..look
                    }) == *earlier
                    && look.high_watermark != earlier.high_watermark
                {
                    return Err(format!(
                        "{} on broker {}: the high watermark went from {} to {} with {} of {needed} in sync",
                        key.0, key.1, earlier.high_watermark, look.high_watermark, look.in_sync
                    ));
                }
                self.before.insert(key, look);
            }
        }
        Ok(())
    }
}
