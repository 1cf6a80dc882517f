//! Log start ≤ high watermark ≤ log end in every replica, and the high watermark that is shown never goes back: in
//! fetches while one leader leads, in ListOffsets for ever.

use std::collections::BTreeMap;

use super::Invariant;
use crate::history::Event;
use crate::observation::Observation;
use crate::simulation::TOPIC;

/// See the module.
#[derive(Default)]
pub(super) struct HighWatermark {
    seen: usize,
    /// By partition: what was shown, with the number of the event, the epoch and the kind of question.
    shown: BTreeMap<i32, Vec<Shown>>,
}

#[derive(Clone, Copy)]
struct Shown {
    event: usize,
    leader_epoch: i32,
    high_watermark: i64,
}

impl Invariant for HighWatermark {
    fn name(&self) -> &'static str {
        "the high watermark never goes back"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        for state in &seen.states {
            for ((topic, partition), entry) in Observation::partitions(state) {
                let Some(local) = &entry.local else { continue };
                let (start, end) = (local.log_start_offset, local.log_end_offset);
                if !(start..=end).contains(&local.high_watermark) {
                    return Err(format!(
                        "{topic}-{partition} on broker {}: high watermark {} is not from {start} to {end}",
                        state.broker_id, local.high_watermark
                    ));
                }
            }
        }
        let shown = &mut self.shown;
        seen.history.since::<String>(self.seen, |number, event| match event {
            Event::Fetched {
                partition,
                leader_epoch,
                asked,
                high_watermark,
                ..
            } => {
                let shown = shown.entry(*partition).or_default();
                check_shown(shown, *partition, *asked, *high_watermark, |before| {
                    before == *leader_epoch
                })?;
                shown.push(Shown {
                    event: number,
                    leader_epoch: *leader_epoch,
                    high_watermark: *high_watermark,
                });
                Ok(())
            }
            Event::EndOffset {
                partition,
                leader_epoch,
                asked,
                offset,
            } => {
                let shown = shown.entry(*partition).or_default();
                check_shown(shown, *partition, *asked, *offset, |before| {
                    before <= *leader_epoch
                })?;
                shown.push(Shown {
                    event: number,
                    leader_epoch: *leader_epoch,
                    high_watermark: *offset,
                });
                Ok(())
            }
            _ => Ok(()),
        })?;
        self.seen = seen.history.len();
        Ok(())
    }
}

/// Nothing that was shown before the question, in an epoch that counts, is beyond the answer.
fn check_shown(
    shown: &[Shown],
    partition: i32,
    asked: usize,
    high_watermark: i64,
    counts: impl Fn(i32) -> bool,
) -> Result<(), String> {
    let beyond = shown.iter().find(|before| {
        before.event < asked
            && counts(before.leader_epoch)
            && before.high_watermark > high_watermark
    });
    match beyond {
        Some(before) => Err(format!(
            "{TOPIC}-{partition}: {} was shown in epoch {}, and {high_watermark} to a later question",
            before.high_watermark, before.leader_epoch
        )),
        None => Ok(()),
    }
}
