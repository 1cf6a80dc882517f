//! A request that names another leader epoch than the leader's is not answered (KIP-320).

use super::Invariant;
use crate::history::Event;
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct EpochFence {
    seen: usize,
}

impl Invariant for EpochFence {
    fn name(&self) -> &'static str {
        "other epochs are fenced"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        seen.history
            .since::<String>(self.seen, |_, event| match event {
                Event::Unfenced {
                    partition,
                    leader_epoch,
                } => Err(format!(
                    "{partition}: a question in epoch {leader_epoch}, in which nobody leads, was answered"
                )),
                _ => Ok(()),
            })?;
        self.seen = seen.history.len();
        Ok(())
    }
}
