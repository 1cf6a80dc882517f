//! Log start ≤ high watermark ≤ log end in every replica, and the high watermark that is shown never goes back: in
//! fetches while one leader leads, in ListOffsets for ever.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::Invariant;
use crate::history::{Event, PartitionName};
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct HighWatermark {
    seen: usize,
    shown: BTreeMap<PartitionName, Shown>,
}

/// What was shown of one partition: by epoch, numbers of events and the highest that was shown up to each.
#[derive(Default)]
struct Shown(BTreeMap<i32, Vec<(usize, i64)>>);

impl Invariant for HighWatermark {
    fn name(&self) -> &'static str {
        "the high watermark never goes back"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        for state in &seen.states {
            for (name, entry) in Observation::partitions(state) {
                // Of a replica whose directory failed in the middle of a change nobody uses anything until the next start.
                let in_use = entry.local.as_ref().filter(|local| local.role != "offline");
                let Some(local) = in_use else { continue };
                let (start, end) = (local.log_start_offset, local.log_end_offset);
                if !(start..=end).contains(&local.high_watermark) {
                    return Err(format!(
                        "{name} on broker {}: high watermark {} is not from {start} to {end}",
                        state.broker_id, local.high_watermark
                    ));
                }
            }
        }
        let shown = &mut self.shown;
        seen.history
            .since::<String>(self.seen, |number, event| match event {
                Event::Fetched {
                    partition,
                    leader_epoch,
                    asked,
                    high_watermark,
                    ..
                } => shown
                    .entry(partition.clone())
                    .or_default()
                    .add(
                        number,
                        *asked,
                        *leader_epoch..=*leader_epoch,
                        *high_watermark,
                    )
                    .map_err(|wrong| format!("{partition}: {wrong}")),
                Event::EndOffset {
                    partition,
                    leader_epoch,
                    asked,
                    offset,
                } => shown
                    .entry(partition.clone())
                    .or_default()
                    .add(number, *asked, i32::MIN..=*leader_epoch, *offset)
                    .map_err(|wrong| format!("{partition}: {wrong}")),
                _ => Ok(()),
            })?;
        self.seen = seen.history.len();
        Ok(())
    }
}

impl Shown {
    /// Nothing that was shown in these epochs before the question is beyond the answer, which is of the last of them.
    fn add(
        &mut self,
        number: usize,
        asked: usize,
        epochs: RangeInclusive<i32>,
        high_watermark: i64,
    ) -> Result<(), String> {
        let leader_epoch = *epochs.end();
        for (epoch, shown) in self.0.range(epochs) {
            let before = shown.partition_point(|(event, _)| *event < asked);
            if let Some((_, highest)) = before.checked_sub(1).map(|last| shown[last])
                && highest > high_watermark
            {
                return Err(format!(
                    "{highest} was shown in epoch {epoch}, and {high_watermark} to a later question in epoch {leader_epoch}"
                ));
            }
        }
        let shown = self.0.entry(leader_epoch).or_default();
        let highest = shown
            .last()
            .map_or(high_watermark, |(_, highest)| high_watermark.max(*highest));
        shown.push((number, highest));
        Ok(())
    }
}
