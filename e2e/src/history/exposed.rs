//! Ends of keys and committed offsets: what was told once must not be taken back.
//!
//! Each answer is compared with what was known when its question was asked, since answers may overtake each other.

use std::collections::BTreeMap;

use super::anomaly::{AnomalyKind, Report};
use super::event::{Event, Kind};
use super::lines::HistoryError;

/// What is known so far, and what was known when each open question was asked.
#[derive(Debug, Default)]
pub(super) struct Exposed {
    keys: BTreeMap<String, Ends>,
    asked: BTreeMap<(u32, String), Ends>,
    groups: BTreeMap<(String, String), Commits>,
    group_asked: BTreeMap<(u32, String, String), Commits>,
}

/// What a key has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// Behind the last record acknowledged.
    acknowledged: i64,
    /// The highest end that a current leader told.
    current: i64,
    /// The newest epoch that answered, and the highest end that it told.
    of_epoch: Option<(i32, i64)>,
}

/// What a group has committed for a key.
#[derive(Clone, Copy, Debug, Default)]
struct Commits {
    /// The highest offset acknowledged or told.
    highest: Option<i64>,
    /// The lowest offset of a commit whose fate is unknown: it may take effect at any time.
    unknown: Option<i64>,
}

impl Commits {
    /// The lowest answer that is right.
    fn floor(&self) -> Option<i64> {
        match (self.highest, self.unknown) {
            (Some(highest), Some(unknown)) => Some(highest.min(unknown)),
            (highest, _) => highest,
        }
    }
}

impl Exposed {
    pub(super) fn observe(
        &mut self,
        line: u64,
        event: &Event,
        report: &mut Report,
    ) -> Result<(), HistoryError> {
        match event {
            Event::Send {
                kind: Kind::Ok,
                key,
                offset: Some(offset),
                ..
            } => self.acknowledge(key, *offset),
            Event::Txn {
                kind: Kind::Ok,
                sends,
                ..
            } => {
                for (key, _, offset) in sends {
                    if let Some(offset) = offset {
                        self.acknowledge(key, *offset);
                    }
                }
            }
            Event::Latest {
                kind,
                process,
                key,
                epoch,
                offset,
                current,
            } => match (kind, offset) {
                (Kind::Invoke, _) => {
                    let known = self.keys.get(key).copied().unwrap_or_default();
                    self.asked.insert((*process, key.clone()), known);
                }
                (Kind::Ok, Some(offset)) => {
                    let answer = (line, key.as_str(), *epoch, *offset, *current);
                    let asked = self.asked.remove(&(*process, key.clone()));
                    let known = asked.ok_or_else(|| never_asked(line))?;
                    self.tell_end(answer, known, report);
                }
                (Kind::Ok, None) => {
                    return Err(HistoryError::at(line, "an end that was told has an offset"));
                }
                (Kind::Fail | Kind::Info, _) => {
                    self.asked.remove(&(*process, key.clone()));
                }
            },
            Event::Commit {
                kind,
                process,
                group,
                key,
                offset,
            } => {
                let question = (*process, group.clone(), key.clone());
                self.commit(line, *kind, question, *offset, report)?;
            }
            Event::Committed {
                kind,
                process,
                group,
                key,
                offset,
            } => {
                let question = (*process, group.clone(), key.clone());
                self.committed(line, *kind, question, *offset, report)?;
            }
            Event::Send { .. }
            | Event::Txn { .. }
            | Event::Poll { .. }
            | Event::Assign { .. }
            | Event::Producer { .. }
            | Event::Time { .. }
            | Event::Note { .. } => {}
        }
        Ok(())
    }

    fn acknowledge(&mut self, key: &str, offset: i64) {
        let known = self.ends(key);
        known.acknowledged = known.acknowledged.max(offset + 1);
    }

    fn tell_end(
        &mut self,
        (line, key, epoch, offset, current): (u64, &str, Option<i32>, i64, bool),
        known: Ends,
        report: &mut Report,
    ) {
        report.ends += 1;
        let of_epoch = known
            .of_epoch
            .filter(|(newest, _)| Some(*newest) == epoch)
            .map_or(0, |(_, end)| end);
        let floor = if current {
            of_epoch.max(known.current)
        } else {
            of_epoch
        };
        if offset < floor {
            report.add(AnomalyKind::NonmonotonicLatest, || {
                format!(
                    "line {line}: {key} ends at {offset} (epoch {epoch:?}), it ended at {floor}"
                )
            });
        }
        if current && offset < known.acknowledged {
            report.add(AnomalyKind::LatestBelowAcknowledged, || {
                let last = known.acknowledged - 1;
                format!("line {line}: {key} ends at {offset}, offset {last} was acknowledged")
            });
        }
        let now = self.ends(key);
        if current {
            now.current = now.current.max(offset);
        }
        if let Some(epoch) = epoch {
            now.of_epoch = match now.of_epoch {
                Some((newest, end)) if newest > epoch => Some((newest, end)),
                Some((newest, end)) if newest == epoch => Some((newest, end.max(offset))),
                Some(_) | None => Some((epoch, offset)),
            };
        }
    }

    fn commit(
        &mut self,
        line: u64,
        kind: Kind,
        (process, group, key): (u32, String, String),
        offset: i64,
        report: &mut Report,
    ) -> Result<(), HistoryError> {
        let question = (process, group.clone(), key.clone());
        let now = self.groups.entry((group, key)).or_default();
        match kind {
            Kind::Invoke => {
                self.group_asked.insert(question, *now);
            }
            Kind::Fail => {
                self.group_asked.remove(&question);
            }
            Kind::Info => {
                now.unknown = Some(now.unknown.map_or(offset, |u| u.min(offset)));
                self.group_asked.remove(&question);
            }
            Kind::Ok => {
                let known = self.group_asked.remove(&question);
                let known = known.ok_or_else(|| never_asked(line))?;
                report.commits += 1;
                if let Some(floor) = known.floor().filter(|floor| offset < *floor) {
                    report.add(AnomalyKind::NonmonotonicCommit, || {
                        format!(
                            "line {line}: {} of {} committed {offset} after {floor}",
                            question.1, question.2
                        )
                    });
                }
                now.highest = now.highest.max(Some(offset));
            }
        }
        Ok(())
    }

    fn committed(
        &mut self,
        line: u64,
        kind: Kind,
        question: (u32, String, String),
        offset: Option<i64>,
        report: &mut Report,
    ) -> Result<(), HistoryError> {
        let (_, group, key) = question.clone();
        let now = self.groups.entry((group, key)).or_default();
        match kind {
            Kind::Invoke => {
                self.group_asked.insert(question, *now);
            }
            Kind::Fail | Kind::Info => {
                self.group_asked.remove(&question);
            }
            Kind::Ok => {
                let known = self.group_asked.remove(&question);
                let known = known.ok_or_else(|| never_asked(line))?;
                match (known.floor(), offset) {
                    (Some(floor), None) => report.add(AnomalyKind::LostCommit, || {
                        format!(
                            "line {line}: {} of {} knows no offset, {floor} was committed",
                            question.1, question.2
                        )
                    }),
                    (Some(floor), Some(offset)) if offset < floor => {
                        report.add(AnomalyKind::NonmonotonicCommit, || {
                            format!(
                                "line {line}: {} of {} is at {offset}, {floor} was committed",
                                question.1, question.2
                            )
                        });
                    }
                    (Some(_) | None, _) => {}
                }
                now.highest = now.highest.max(offset);
            }
        }
        Ok(())
    }

    fn ends(&mut self, key: &str) -> &mut Ends {
        self.keys.entry(key.to_owned()).or_default()
    }
}

fn never_asked(line: u64) -> HistoryError {
    HistoryError::at(
        line,
        "an answer whose question (invoke) the history does not have",
    )
}
