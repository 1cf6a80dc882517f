//! The judge: reads a history twice and reports every anomaly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::anomaly::{AnomalyKind, Report};
use super::cycles::cycles;
use super::event::{Event, KeyReads, Kind, TxnSend};
use super::exposed::Exposed;
use super::key_log::{KeyLog, Write};
pub use super::lines::HistoryError;
use super::lines::for_each_event;
use super::order::Orders;

/// How many values a history may have unless more is asked for; about 200 bytes of memory each.
pub const VALUES_MAX: u64 = 20_000_000;

/// Judges the history in `path`.
pub fn check(path: &Path, values_max: u64) -> Result<Report, HistoryError> {
    let mut report = Report::default();
    let mut facts = Facts {
        values_max,
        ..Facts::default()
    };
    let mut exposed = Exposed::default();
    for_each_event(path, |line, event| {
        exposed.observe(line, &event, &mut report)?;
        facts.gather(line, event, &mut report)
    })?;
    facts.settle();
    facts.judge(&mut report);
    let mut orders = Orders::new(&facts.keys, &facts.unordered);
    for_each_event(path, |line, event| {
        orders.observe(line, &event, &mut report);
        Ok(())
    })?;
    Ok(report)
}

/// What the first reading of a history gathers.
#[derive(Debug, Default)]
struct Facts {
    keys: BTreeMap<String, KeyLog>,
    txns: Vec<Txn>,
    /// The transaction that each process has under way.
    open: BTreeMap<u32, u32>,
    /// Processes whose sends may stand twice and out of order.
    unordered: BTreeSet<u32>,
    values: u64,
    values_max: u64,
}

/// One transaction, for what concerns all of it at once.
#[derive(Debug)]
pub(super) struct Txn {
    pub(super) line: u64,
    pub(super) kind: Kind,
    /// Key and value of what it sent.
    pub(super) sends: Vec<(String, u64)>,
    /// Key and value of what it read, if it succeeded.
    pub(super) reads: Vec<(String, u64)>,
}

impl Facts {
    fn gather(&mut self, line: u64, event: Event, report: &mut Report) -> Result<(), HistoryError> {
        match event {
            Event::Send {
                kind,
                process,
                key,
                value,
                offset,
            } => self.send(line, kind, process, (key, value, offset), None),
            Event::Poll { kind, polls, .. } => self.poll(line, kind, &polls, report).map(drop),
            Event::Txn {
                kind,
                process,
                sends,
                polls,
            } => self.txn(line, kind, process, (sends, &polls), report),
            Event::Producer {
                process,
                idempotent,
            } => {
                if !idempotent {
                    self.unordered.insert(process);
                }
                Ok(())
            }
            Event::Assign { .. }
            | Event::Latest { .. }
            | Event::Commit { .. }
            | Event::Committed { .. }
            | Event::Time { .. }
            | Event::Note { .. } => Ok(()),
        }
    }

    fn send(
        &mut self,
        line: u64,
        kind: Kind,
        process: u32,
        (key, value, offset): TxnSend,
        txn: Option<u32>,
    ) -> Result<(), HistoryError> {
        let write = self.write(line, &key, value)?;
        match write.kind {
            Some(Kind::Ok | Kind::Fail | Kind::Info) => {
                let problem = format!("value {value} of {key} is sent a second time");
                return Err(HistoryError::at(line, problem));
            }
            Some(Kind::Invoke) if write.process != process => {
                let problem = format!("value {value} of {key} was sent by {}", write.process);
                return Err(HistoryError::at(line, problem));
            }
            Some(Kind::Invoke) | None => {}
        }
        write.kind = Some(kind);
        write.process = process;
        write.txn = txn;
        write.offset = offset;
        if kind == Kind::Ok
            && let (Some(offset), Some(log)) = (offset, self.keys.get_mut(&key))
        {
            log.place(offset, Some(value));
        }
        Ok(())
    }

    /// Enters what was read and gives its values if the poll succeeded.
    fn poll(
        &mut self,
        line: u64,
        kind: Kind,
        polls: &[KeyReads],
        report: &mut Report,
    ) -> Result<Vec<(String, u64)>, HistoryError> {
        let mut values = Vec::new();
        for (key, reads) in polls {
            for &(offset, value) in reads {
                report.read += 1;
                match value {
                    Some(value) => {
                        self.write(line, key, value)?.read |= kind == Kind::Ok;
                        values.push((key.clone(), value));
                    }
                    None => report.add(AnomalyKind::Damaged, || {
                        format!("line {line}: {key} at offset {offset}")
                    }),
                }
                if let Some(log) = self.keys.get_mut(key) {
                    log.place(offset, value);
                }
            }
        }
        Ok(values)
    }

    fn txn(
        &mut self,
        line: u64,
        kind: Kind,
        process: u32,
        (sends, polls): (Vec<TxnSend>, &[KeyReads]),
        report: &mut Report,
    ) -> Result<(), HistoryError> {
        let number = u32::try_from(self.txns.len())
            .map_err(|_| HistoryError::at(line, "more than 4294967295 transactions"))?;
        let reads = self.poll(line, kind, polls, report)?;
        let own: BTreeSet<(&str, u64)> = sends
            .iter()
            .map(|(key, value, _)| (key.as_str(), *value))
            .collect();
        for (key, value) in &reads {
            if own.contains(&(key.as_str(), *value)) {
                report.add(AnomalyKind::PrecommittedRead, || {
                    format!("line {line}: value {value} of {key}")
                });
            }
        }
        let txn = Txn {
            line,
            kind,
            sends: sends
                .iter()
                .map(|(key, value, _)| (key.clone(), *value))
                .collect(),
            reads: if kind == Kind::Ok { reads } else { Vec::new() },
        };
        // What began is completed in place, so that a transaction is one whatever became of it.
        let number = match self.open.remove(&process) {
            Some(open) if kind != Kind::Invoke => {
                self.txns[open as usize] = txn;
                open
            }
            Some(_) => {
                let problem = format!("process {process} begins a second transaction");
                return Err(HistoryError::at(line, problem));
            }
            None => {
                self.txns.push(txn);
                number
            }
        };
        if kind == Kind::Invoke {
            self.open.insert(process, number);
        }
        for send in sends {
            self.send(line, kind, process, send, Some(number))?;
        }
        Ok(())
    }

    fn write(&mut self, line: u64, key: &str, value: u64) -> Result<&mut Write, HistoryError> {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.to_owned(), KeyLog::default());
        }
        let Some(log) = self.keys.get_mut(key) else {
            return Err(HistoryError::at(line, "a key that was entered is gone"));
        };
        let values = &mut self.values;
        let write = log.writes.entry(value).or_insert_with(|| {
            *values += 1;
            Write::default()
        });
        if *values > self.values_max {
            let max = self.values_max;
            return Err(HistoryError::TooMany { line, max });
        }
        Ok(write)
    }

    /// Places what was sent with unknown fate and a known offset, now that it is known whether it was committed.
    fn settle(&mut self) {
        let committed = self.committed_txns();
        for log in self.keys.values_mut() {
            let late: Vec<(i64, u64)> = log
                .writes
                .iter()
                .filter(|(_, write)| write.kind != Some(Kind::Ok))
                .filter(|(_, write)| must_have_committed(write, &committed))
                .filter_map(|(value, write)| Some((write.offset?, *value)))
                .collect();
            for (offset, value) in late {
                log.place(offset, Some(value));
            }
        }
    }

    /// For each transaction, whether it must have been committed: it said so, or something that it wrote was read.
    fn committed_txns(&self) -> Vec<bool> {
        let was_read = |key: &String, value: &u64| {
            let write = self.keys.get(key).and_then(|log| log.writes.get(value));
            write.is_some_and(|write| write.read)
        };
        self.txns
            .iter()
            .map(|txn| match txn.kind {
                Kind::Ok => true,
                Kind::Fail => false,
                Kind::Info | Kind::Invoke => {
                    txn.sends.iter().any(|(key, value)| was_read(key, value))
                }
            })
            .collect()
    }

    fn judge(&self, report: &mut Report) {
        let committed = self.committed_txns();
        report.keys = self.keys.len();
        for (key, log) in &self.keys {
            for offset in &log.inconsistent {
                report.add(AnomalyKind::InconsistentOffsets, || {
                    let others = log.elsewhere.range((*offset, None)..(*offset + 1, None));
                    let others: Vec<_> = others.map(|(_, value)| value).collect();
                    format!(
                        "{key} at offset {offset}: {:?} and {others:?}",
                        log.log.get(offset)
                    )
                });
            }
            self.judge_values(key, log, &committed, report);
        }
        for cycle in cycles(&self.txns) {
            report.add(AnomalyKind::G1c, || {
                let lines: Vec<String> = cycle.iter().map(|line| format!("line {line}")).collect();
                format!("each read from the next: {}", lines.join(", "))
            });
        }
    }

    fn judge_values(&self, key: &str, log: &KeyLog, committed: &[bool], report: &mut Report) {
        let places = log.places();
        // Up to here all that was acknowledged must have been read: a later value of this key was.
        let bound = log
            .writes
            .iter()
            .filter(|(_, write)| write.read)
            .filter_map(|(value, _)| places.get(value)?.iter().min())
            .max();
        for (value, write) in &log.writes {
            let stands = places.get(value).map(Vec::as_slice).unwrap_or_default();
            match write.kind {
                Some(Kind::Ok) => report.acknowledged += 1,
                Some(Kind::Fail) => report.failed += 1,
                Some(Kind::Info | Kind::Invoke) => report.unknown += 1,
                None => report.add(AnomalyKind::Foreign, || {
                    format!("value {value} of {key} at offsets {stands:?}")
                }),
            }
            if write.kind == Some(Kind::Fail) && write.read {
                report.add(AnomalyKind::AbortedRead, || {
                    format!("value {value} of {key} at offsets {stands:?}")
                });
            }
            if stands.len() > 1 && !self.unordered.contains(&write.process) {
                report.add(AnomalyKind::Duplicate, || {
                    format!("value {value} of {key} at offsets {stands:?}")
                });
            }
            if !write.read && must_have_committed(write, committed) {
                let lost = stands.iter().max().is_some_and(|last| Some(last) <= bound);
                let kind = if lost {
                    AnomalyKind::LostWrite
                } else {
                    AnomalyKind::Unseen
                };
                report.add(kind, || {
                    format!(
                        "value {value} of {key}, sent by process {}, acknowledged at offset {:?}",
                        write.process, write.offset
                    )
                });
            }
        }
    }
}

fn must_have_committed(write: &Write, committed: &[bool]) -> bool {
    match (write.kind, write.txn) {
        (Some(Kind::Fail) | None, _) => false,
        (Some(Kind::Ok), _) => true,
        (Some(Kind::Info | Kind::Invoke), Some(txn)) => {
            committed.get(txn as usize).copied().unwrap_or(false)
        }
        (Some(Kind::Info | Kind::Invoke), None) => write.read,
    }
}
