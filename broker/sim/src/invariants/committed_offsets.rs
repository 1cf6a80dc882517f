//! A group is told the offset that it committed last, or one of those whose fate it does not know.

use std::collections::{BTreeMap, BTreeSet};

use super::Invariant;
use crate::history::Event;
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct CommittedOffsets {
    seen: usize,
    /// By group, what it may be told.
    possible: BTreeMap<String, Possible>,
}

#[derive(Default)]
struct Possible {
    committed: Option<i64>,
    unknown: BTreeSet<i64>,
}

impl Invariant for CommittedOffsets {
    fn name(&self) -> &'static str {
        "committed offsets are kept"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        let possible = &mut self.possible;
        seen.history.since::<String>(self.seen, |_, event| {
            match event {
                Event::Committed { group, offset } => {
                    possible.entry(group.clone()).or_default().committed = Some(*offset);
                }
                Event::CommitUnknown { group, offset } => {
                    possible
                        .entry(group.clone())
                        .or_default()
                        .unknown
                        .insert(*offset);
                }
                Event::CommittedOffset { group, offset } => {
                    let of_group = possible.entry(group.clone()).or_default();
                    let committed = of_group.committed.unwrap_or(-1);
                    if committed != *offset && !of_group.unknown.contains(offset) {
                        return Err(format!(
                            "group {group} committed {committed} and was told {offset}"
                        ));
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        self.seen = seen.history.len();
        Ok(())
    }
}
