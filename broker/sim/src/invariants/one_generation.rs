//! All members of a generation were given their parts by the same leader, each its own.

use std::collections::BTreeMap;

use super::Invariant;
use crate::history::Event;
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct OneGeneration {
    seen: usize,
    /// By group and generation: who gave out the parts.
    leaders: BTreeMap<(String, i32), String>,
}

impl Invariant for OneGeneration {
    fn name(&self) -> &'static str {
        "a generation has one leader"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        let leaders = &mut self.leaders;
        seen.history.since::<String>(self.seen, |_, event| {
            let Event::Assigned {
                group,
                generation,
                member,
                assignment,
            } = event
            else {
                return Ok(());
            };
            let place = format!("generation {generation} of group {group}, member {member}");
            let text = String::from_utf8_lossy(assignment).into_owned();
            let parts: Vec<&str> = text.split(' ').collect();
            let [leader, of_generation, for_member] = parts[..] else {
                return Err(format!("{place}: was given {text:?}"));
            };
            if of_generation != generation.to_string() || for_member != member {
                return Err(format!("{place}: was given what belongs to {text:?}"));
            }
            let known = leaders
                .entry((group.clone(), *generation))
                .or_insert_with(|| leader.to_owned());
            if known != leader {
                return Err(format!(
                    "{place}: {leader} gave out parts, and so did {known}"
                ));
            }
            Ok(())
        })?;
        self.seen = seen.history.len();
        Ok(())
    }
}
