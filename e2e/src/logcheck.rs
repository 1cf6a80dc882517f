//! Compares what a cluster acknowledged with what is read back, partition by partition.
//!
//! The definitions follow Jepsen's Kafka workload: an acknowledged record must be read; a record whose fate is unknown may or may
//! not be there; a record that was refused must not be there; no offset may ever show two records; with an idempotent producer no
//! record stands at two offsets and none overtakes another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What the producer was told about one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged at this offset.
    Acknowledged(i64),
    /// A timeout, a lost connection or another error that leaves the fate open.
    Unknown,
    /// Refused before it was written: it must never be read.
    Refused,
}

/// One record that was sent. Sequences of a partition count from 0 in the order of sending.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The partition it was sent to.
    pub partition: i32,
    /// Its number within the partition.
    pub sequence: u64,
    /// What came back.
    pub outcome: Outcome,
}

/// One record that was read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The partition it came from.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// The sequence that its value carries, or `None` if the value is not what any producer made.
    pub sequence: Option<u64>,
}

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Acknowledged, and not read.
    Lost {
        /// Partition.
        partition: i32,
        /// Sequence.
        sequence: u64,
    },
    /// At more than one offset.
    Duplicated {
        /// Partition.
        partition: i32,
        /// Sequence.
        sequence: u64,
    },
    /// Behind a record that was sent later.
    Reordered {
        /// Partition.
        partition: i32,
        /// Sequence.
        sequence: u64,
    },
    /// Acknowledged at one offset and read at another.
    Moved {
        /// Partition.
        partition: i32,
        /// Sequence.
        sequence: u64,
    },
    /// Refused, and read all the same.
    Ghost {
        /// Partition.
        partition: i32,
        /// Sequence.
        sequence: u64,
    },
    /// Never sent, or damaged.
    Foreign {
        /// Partition.
        partition: i32,
        /// Offset.
        offset: i64,
    },
    /// Two readers, or one reader twice, saw different records at one offset.
    Inconsistent {
        /// Partition.
        partition: i32,
        /// Offset.
        offset: i64,
    },
    /// One reader went back or jumped over a record that another one saw.
    Skipped {
        /// Partition.
        partition: i32,
        /// Offset.
        offset: i64,
    },
}

/// The anomalies of one run; empty is a pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Sorted, each once.
    pub anomalies: BTreeSet<Anomaly>,
    /// How many records were acknowledged.
    pub acknowledged: usize,
}

impl Verdict {
    /// Fails with the first anomalies unless there are none.
    pub fn must_hold(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.anomalies.is_empty(), "{self}");
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acknowledged, {} anomalies",
            self.acknowledged,
            self.anomalies.len()
        )?;
        for anomaly in self.anomalies.iter().take(20) {
            write!(f, "\n  {anomaly:?}")?;
        }
        Ok(())
    }
}

/// Checks a run of idempotent producers, one per partition, against what `readers` saw, each in the order in which it read.
///
/// The readers together must have read each partition from its start to an end that was fetched after the last acknowledgement.
pub fn check(sent: &[Sent], readers: &[Vec<Read>]) -> Verdict {
    let mut anomalies = BTreeSet::new();
    let outcomes: BTreeMap<(i32, u64), Outcome> = sent
        .iter()
        .map(|s| ((s.partition, s.sequence), s.outcome))
        .collect();

    // The log as the readers saw it: per partition, offset to sequence.
    let mut logs: BTreeMap<i32, BTreeMap<i64, u64>> = BTreeMap::new();
    let mut offsets: BTreeMap<i32, BTreeSet<i64>> = BTreeMap::new();
    for read in readers.iter().flatten() {
        let (partition, offset) = (read.partition, read.offset);
        offsets.entry(partition).or_default().insert(offset);
        let Some(sequence) = read
            .sequence
            .filter(|s| outcomes.contains_key(&(partition, *s)))
        else {
            anomalies.insert(Anomaly::Foreign { partition, offset });
            continue;
        };
        let earlier = logs.entry(partition).or_default().insert(offset, sequence);
        if earlier.is_some_and(|e| e != sequence) {
            anomalies.insert(Anomaly::Inconsistent { partition, offset });
        }
    }

    for (&partition, log) in &logs {
        check_order(partition, log, &mut anomalies);
    }
    for reader in readers {
        check_reader(reader, &offsets, &mut anomalies);
    }

    let mut acknowledged = 0;
    for (&(partition, sequence), &outcome) in &outcomes {
        let log = logs.get(&partition);
        let mut places = log
            .into_iter()
            .flatten()
            .filter(|(_, s)| **s == sequence)
            .map(|(offset, _)| *offset);
        match outcome {
            Outcome::Unknown => {}
            Outcome::Refused => {
                if places.next().is_some() {
                    anomalies.insert(Anomaly::Ghost {
                        partition,
                        sequence,
                    });
                }
            }
            Outcome::Acknowledged(offset) => {
                acknowledged += 1;
                // Almost every record stands where it was acknowledged: the search above runs only for the others.
                if log.and_then(|l| l.get(&offset)) == Some(&sequence) {
                    continue;
                }
                let anomaly = if places.next().is_some() {
                    Anomaly::Moved {
                        partition,
                        sequence,
                    }
                } else {
                    Anomaly::Lost {
                        partition,
                        sequence,
                    }
                };
                anomalies.insert(anomaly);
            }
        }
    }
    Verdict {
        anomalies,
        acknowledged,
    }
}

/// Duplicates and overtaking within one partition's log.
fn check_order(partition: i32, log: &BTreeMap<i64, u64>, anomalies: &mut BTreeSet<Anomaly>) {
    let mut seen = BTreeSet::new();
    let mut highest = None;
    for &sequence in log.values() {
        if !seen.insert(sequence) {
            anomalies.insert(Anomaly::Duplicated {
                partition,
                sequence,
            });
        } else if highest.is_some_and(|h| sequence < h) {
            anomalies.insert(Anomaly::Reordered {
                partition,
                sequence,
            });
        }
        highest = highest.max(Some(sequence));
    }
}

/// One reader reads every offset that any reader saw, from its first one on, once and in order.
fn check_reader(
    reader: &[Read],
    offsets: &BTreeMap<i32, BTreeSet<i64>>,
    anomalies: &mut BTreeSet<Anomaly>,
) {
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    for read in reader {
        let (partition, offset) = (read.partition, read.offset);
        if let Some(before) = last.insert(partition, offset) {
            let next = offsets
                .get(&partition)
                .and_then(|seen| seen.range(before + 1..).next());
            if next != Some(&offset) {
                anomalies.insert(Anomaly::Skipped { partition, offset });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One partition; sequences are given in order, as (sequence, outcome).
    fn run(sent: &[(u64, Outcome)], readers: &[&[(i64, Option<u64>)]]) -> Vec<Anomaly> {
        let sent: Vec<Sent> = sent
            .iter()
            .map(|&(sequence, outcome)| Sent {
                partition: 0,
                sequence,
                outcome,
            })
            .collect();
        let readers: Vec<Vec<Read>> = readers
            .iter()
            .map(|r| {
                r.iter()
                    .map(|&(offset, sequence)| Read {
                        partition: 0,
                        offset,
                        sequence,
                    })
                    .collect()
            })
            .collect();
        check(&sent, &readers).anomalies.into_iter().collect()
    }

    #[test]
    fn each_planted_fault_is_found_and_nothing_else() {
        use Outcome::{Acknowledged, Refused, Unknown};
        let two: &[(u64, Outcome)] = &[(0, Acknowledged(0)), (1, Acknowledged(1))];
        type Case<'a> = (
            &'a str,
            &'a [(u64, Outcome)],
            &'a [&'a [(i64, Option<u64>)]],
            Vec<Anomaly>,
        );
        let cases: &[Case<'_>] = &[
            ("all there", two, &[&[(0, Some(0)), (1, Some(1))]], vec![]),
            (
                "gap of a control record",
                &[(0, Acknowledged(0)), (1, Acknowledged(2))],
                &[&[(0, Some(0)), (2, Some(1))]],
                vec![],
            ),
            (
                "unknown and absent",
                &[(0, Acknowledged(0)), (1, Unknown)],
                &[&[(0, Some(0))]],
                vec![],
            ),
            (
                "unknown and there",
                &[(0, Unknown), (1, Acknowledged(1))],
                &[&[(0, Some(0)), (1, Some(1))]],
                vec![],
            ),
            (
                "last one lost",
                two,
                &[&[(0, Some(0))]],
                vec![Anomaly::Lost {
                    partition: 0,
                    sequence: 1,
                }],
            ),
            (
                "nothing read",
                &[(0, Acknowledged(0))],
                &[&[]],
                vec![Anomaly::Lost {
                    partition: 0,
                    sequence: 0,
                }],
            ),
            (
                "twice",
                two,
                &[&[(0, Some(0)), (1, Some(1)), (2, Some(1))]],
                vec![Anomaly::Duplicated {
                    partition: 0,
                    sequence: 1,
                }],
            ),
            (
                "overtaken",
                &[(0, Acknowledged(1)), (1, Acknowledged(0))],
                &[&[(0, Some(1)), (1, Some(0))]],
                vec![Anomaly::Reordered {
                    partition: 0,
                    sequence: 0,
                }],
            ),
            (
                "elsewhere",
                &[(0, Acknowledged(0))],
                &[&[(5, Some(0))]],
                vec![Anomaly::Moved {
                    partition: 0,
                    sequence: 0,
                }],
            ),
            (
                "refused but there",
                &[(0, Refused)],
                &[&[(0, Some(0))]],
                vec![Anomaly::Ghost {
                    partition: 0,
                    sequence: 0,
                }],
            ),
            (
                "never sent",
                two,
                &[&[(0, Some(0)), (1, Some(1)), (2, Some(9))]],
                vec![Anomaly::Foreign {
                    partition: 0,
                    offset: 2,
                }],
            ),
            (
                "damaged",
                two,
                &[&[(0, Some(0)), (1, Some(1)), (2, None)]],
                vec![Anomaly::Foreign {
                    partition: 0,
                    offset: 2,
                }],
            ),
            (
                "two truths",
                &[(0, Acknowledged(0)), (1, Unknown)],
                &[&[(0, Some(1))], &[(0, Some(0))]],
                vec![Anomaly::Inconsistent {
                    partition: 0,
                    offset: 0,
                }],
            ),
            (
                "a reader jumps",
                &[
                    (0, Acknowledged(0)),
                    (1, Acknowledged(1)),
                    (2, Acknowledged(2)),
                ],
                &[
                    &[(0, Some(0)), (1, Some(1)), (2, Some(2))],
                    &[(0, Some(0)), (2, Some(2))],
                ],
                vec![Anomaly::Skipped {
                    partition: 0,
                    offset: 2,
                }],
            ),
        ];
        for (name, sent, readers, expected) in cases {
            assert_eq!(&run(sent, readers), expected, "{name}");
        }
    }
}
