//! What a consumer was shown stays: the same record at the same offset for everybody, no gap between records, nothing
//! beyond the high watermark, and never an end of the log before what was read. (That the log starts behind it is no wonder
//! where old segments are deleted.)

use std::collections::BTreeMap;

use super::Invariant;
use crate::history::{Event, PartitionName};
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct ConsumerView {
    seen: usize,
    shown: BTreeMap<PartitionName, BTreeMap<i64, Vec<u8>>>,
}

impl Invariant for ConsumerView {
    fn name(&self) -> &'static str {
        "what consumers were shown stays"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        let shown = &mut self.shown;
        seen.history.since::<String>(self.seen, |_, event| match event {
            Event::Fetched {
                partition,
                leader_epoch,
                position,
                high_watermark,
                records,
                ..
            } => {
                let place = format!("{partition} in epoch {leader_epoch}");
                let shown = shown.entry(partition.clone()).or_default();
                for ((offset, value), expected) in records.iter().zip(*position..) {
                    if *offset != expected {
                        return Err(format!("{place}: offset {offset} came instead of {expected}"));
                    }
                    if *offset >= *high_watermark {
                        return Err(format!(
                            "{place}: offset {offset} was shown with a high watermark of {high_watermark}"
                        ));
                    }
                    let before = shown.entry(*offset).or_insert_with(|| value.clone());
                    if before != value {
                        return Err(format!("{place}: the record at offset {offset} has changed"));
                    }
                }
                Ok(())
            }
            Event::OutOfRange {
                partition,
                leader_epoch,
                log_start_offset,
                position,
            } if log_start_offset <= position => Err(format!(
                "{partition} in epoch {leader_epoch}: a consumer had read to {position}, which is out of range"
            )),
            _ => Ok(()),
        })?;
        self.seen = seen.history.len();
        Ok(())
    }
}
