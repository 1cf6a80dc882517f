//! The second reading: whether each process read on where it had ended, and whether its sends stand in their order.
//!
//! Offsets may have gaps, so places are counted by the records that anybody saw: the index of an offset is its rank among those.

use std::collections::{BTreeMap, BTreeSet};

use super::anomaly::{AnomalyKind, Report};
use super::event::{Event, KeyReads, Kind};
use super::key_log::KeyLog;

/// Where each process is, while the history goes by.
pub(super) struct Orders<'a> {
    offsets: BTreeMap<&'a str, Vec<i64>>,
    unordered: &'a BTreeSet<u32>,
    /// Index of the last record that a process read of a key.
    read: BTreeMap<(u32, String), usize>,
    /// Offset of the last record that a process sent to a key.
    sent: BTreeMap<(u32, String), i64>,
}

impl<'a> Orders<'a> {
    pub(super) fn new(keys: &'a BTreeMap<String, KeyLog>, unordered: &'a BTreeSet<u32>) -> Self {
        let offsets = keys
            .iter()
            .map(|(key, log)| (key.as_str(), log.log.keys().copied().collect()))
            .collect();
        Self {
            offsets,
            unordered,
            read: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    pub(super) fn observe(&mut self, line: u64, event: &Event, report: &mut Report) {
        match event {
            Event::Send {
                kind: Kind::Ok,
                process,
                key,
                offset: Some(offset),
                ..
            } => {
                self.send(
                    (line, *process, key, *offset),
                    AnomalyKind::NonmonotonicSend,
                    report,
                );
            }
            Event::Poll {
                kind,
                process,
                polls,
                rebalanced,
            } => self.poll(line, *kind, *process, polls, rebalanced, report),
            Event::Txn {
                kind,
                process,
                sends,
                polls,
            } => {
                self.poll(line, *kind, *process, polls, &[], report);
                if *kind == Kind::Ok {
                    let mut seen = BTreeSet::new();
                    for (key, _, offset) in sends {
                        let Some(offset) = offset else { continue };
                        let anomaly = if seen.insert(key) {
                            AnomalyKind::NonmonotonicSend
                        } else {
                            AnomalyKind::IntNonmonotonicSend
                        };
                        self.send((line, *process, key, *offset), anomaly, report);
                    }
                }
            }
            Event::Assign { process, keys } => {
                for key in keys {
                    self.read.remove(&(*process, key.clone()));
                }
            }
            Event::Send { .. }
            | Event::Producer { .. }
            | Event::Latest { .. }
            | Event::Commit { .. }
            | Event::Committed { .. }
            | Event::Time { .. }
            | Event::Note { .. } => {}
        }
    }

    fn send(
        &mut self,
        (line, process, key, offset): (u64, u32, &str, i64),
        anomaly: AnomalyKind,
        report: &mut Report,
    ) {
        if self.unordered.contains(&process) {
            return;
        }
        if let Some(before) = self.sent.insert((process, key.to_owned()), offset)
            && offset <= before
        {
            report.add(anomaly, || {
                format!("line {line}: process {process}, {key} at offset {offset} after {before}")
            });
        }
    }

    fn poll(
        &mut self,
        line: u64,
        kind: Kind,
        process: u32,
        polls: &[KeyReads],
        rebalanced: &[String],
        report: &mut Report,
    ) {
        if kind == Kind::Invoke {
            return;
        }
        if kind != Kind::Ok {
            // A client that failed goes back to where it was, or elsewhere.
            self.read.retain(|(who, _), _| *who != process);
            return;
        }
        for key in rebalanced {
            self.read.remove(&(process, key.clone()));
        }
        for (key, reads) in polls {
            let Some(offsets) = self.offsets.get(key.as_str()) else {
                continue;
            };
            let place = (process, key.clone());
            let mut last = self.read.get(&place).copied();
            let mut within = false;
            for (offset, _) in reads {
                let Ok(index) = offsets.binary_search(offset) else {
                    continue;
                };
                // Assigned anew in the middle of this poll, perhaps: only what lies between polls is known.
                let judged = !(within && rebalanced.contains(key));
                if let Some(before) = last.filter(|before| judged && index != before + 1) {
                    let anomaly = match (within, index > before) {
                        (false, true) => AnomalyKind::PollSkip,
                        (false, false) => AnomalyKind::NonmonotonicPoll,
                        (true, true) => AnomalyKind::IntPollSkip,
                        (true, false) => AnomalyKind::IntNonmonotonicPoll,
                    };
                    report.add(anomaly, || {
                        let before = offsets[before];
                        format!("line {line}: process {process}, {key} at offset {offset} after {before}")
                    });
                }
                (last, within) = (Some(index), true);
            }
            if let Some(index) = last {
                self.read.insert(place, index);
            }
        }
    }
}
