//! Clients that do everything right are never refused for good.

use super::Invariant;
use crate::history::Event;
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct Refusals {
    seen: usize,
}

impl Invariant for Refusals {
    fn name(&self) -> &'static str {
        "no errors that do not pass"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        seen.history
            .since::<String>(self.seen, |_, event| match event {
                Event::Refused { what, error } => Err(format!("{what} was refused: {error}")),
                _ => Ok(()),
            })?;
        self.seen = seen.history.len();
        Ok(())
    }
}
