//! What an idempotent producer sent is in a committed log at most once, and in the order in which it was sent.

use std::collections::{BTreeMap, BTreeSet};

use super::Invariant;
use crate::history::Event;
use crate::observation::Observation;

/// See the module.
#[derive(Default)]
pub(super) struct Idempotence {
    seen: usize,
    producers: BTreeSet<u32>,
}

impl Invariant for Idempotence {
    fn name(&self) -> &'static str {
        "idempotent producers' records stand once and in order"
    }

    fn check(&mut self, seen: &Observation) -> Result<(), String> {
        let producers = &mut self.producers;
        seen.history.since::<String>(self.seen, |_, event| {
            if let Event::Acknowledged {
                producer,
                idempotent: true,
                ..
            } = event
            {
                producers.insert(*producer);
            }
            Ok(())
        })?;
        self.seen = seen.history.len();
        for (name, replicas) in &seen.replicas {
            for (broker, log) in replicas {
                let mut last: BTreeMap<u32, u64> = BTreeMap::new();
                let records = log.batches.iter().flat_map(|batch| batch.records());
                for (offset, value) in records {
                    let Some((producer, number)) = sent(&value) else {
                        continue;
                    };
                    if !producers.contains(&producer) {
                        continue;
                    }
                    let before = last.insert(producer, number);
                    if before.is_some_and(|before| before >= number) {
                        return Err(format!(
                            "{name} on broker {broker}: record {number} of producer {producer} at offset \
                             {offset} stands behind record {}",
                            before.unwrap_or(0)
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Producer and number out of a value: `producer-partition-number;…`.
fn sent(value: &[u8]) -> Option<(u32, u64)> {
    let text = std::str::from_utf8(value).ok()?.split(';').next()?;
    let mut parts = text.split('-');
    let producer = parts.next()?.parse().ok()?;
    let number = parts.nth(1)?.parse().ok()?;
    Some((producer, number))
}
