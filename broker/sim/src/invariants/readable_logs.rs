//! A replica's files hold what its broker says: batches without a gap from the log start to the log end, each whole.

use taffrail_protocol::records::crc_matches;

use super::Invariant;
use crate::observation::{Observation, ReplicaLog};

/// See the module.
pub(super) struct ReadableLogs;

impl Invariant for ReadableLogs {
    fn name(&self) -> &'static str {
        "logs can be read"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        for (name, replicas) in &seen.replicas {
            for (broker, log) in replicas {
                check_log(log).map_err(|wrong| format!("{name} on broker {broker}: {wrong}"))?;
            }
        }
        Ok(())
    }
}

fn check_log(log: &ReplicaLog) -> Result<(), String> {
    let mut next = log.log_start_offset;
    for batch in &log.batches {
        let base_offset = batch.header.base_offset;
        if base_offset > next {
            return Err(format!("nothing from offset {next} to {base_offset}"));
        }
        if !crc_matches(&batch.bytes) {
            return Err(format!("the batch at offset {base_offset} is damaged"));
        }
        next = next.max(batch.last_offset() + 1);
    }
    if next == log.log_end_offset {
        Ok(())
    } else {
        Err(format!("ends at {next}, not at {}", log.log_end_offset))
    }
}
