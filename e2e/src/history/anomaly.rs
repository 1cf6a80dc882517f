//! What must not happen, and the report of what did.

use std::collections::BTreeMap;
use std::fmt;

/// How many examples of each kind a report keeps.
const EXAMPLES_MAX: usize = 10;

/// The kinds of wrong answers, as `taffrail-logcheck --help` explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnomalyKind {
    /// One offset showed two values.
    InconsistentOffsets,
    /// A failed send was read.
    AbortedRead,
    /// A transaction read its own write.
    PrecommittedRead,
    /// Acknowledged, not read, although a later one was.
    LostWrite,
    /// Acknowledged, and not read by the end.
    Unseen,
    /// At two offsets.
    Duplicate,
    /// A record that no client sent like this.
    Damaged,
    /// A value that the history did not send.
    Foreign,
    /// A gap between two polls.
    PollSkip,
    /// A step back between two polls.
    NonmonotonicPoll,
    /// A gap within one poll.
    IntPollSkip,
    /// A step back within one poll.
    IntNonmonotonicPoll,
    /// A step back between two sends.
    NonmonotonicSend,
    /// A step back within one transaction.
    IntNonmonotonicSend,
    /// The end of a key went back.
    NonmonotonicLatest,
    /// The end of a key was below an acknowledged record.
    LatestBelowAcknowledged,
    /// A committed offset went back.
    NonmonotonicCommit,
    /// A committed offset was forgotten.
    LostCommit,
    /// Transactions that read from each other in a circle.
    G1c,
}

impl AnomalyKind {
    /// Every kind.
    pub const ALL: [Self; 19] = [
        Self::InconsistentOffsets,
        Self::AbortedRead,
        Self::PrecommittedRead,
        Self::LostWrite,
        Self::Unseen,
        Self::Duplicate,
        Self::Damaged,
        Self::Foreign,
        Self::PollSkip,
        Self::NonmonotonicPoll,
        Self::IntPollSkip,
        Self::IntNonmonotonicPoll,
        Self::NonmonotonicSend,
        Self::IntNonmonotonicSend,
        Self::NonmonotonicLatest,
        Self::LatestBelowAcknowledged,
        Self::NonmonotonicCommit,
        Self::LostCommit,
        Self::G1c,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::InconsistentOffsets => "inconsistent-offsets",
            Self::AbortedRead => "aborted-read",
            Self::PrecommittedRead => "precommitted-read",
            Self::LostWrite => "lost-write",
            Self::Unseen => "unseen",
            Self::Duplicate => "duplicate",
            Self::Damaged => "damaged",
            Self::Foreign => "foreign",
            Self::PollSkip => "poll-skip",
            Self::NonmonotonicPoll => "nonmonotonic-poll",
            Self::IntPollSkip => "int-poll-skip",
            Self::IntNonmonotonicPoll => "int-nonmonotonic-poll",
            Self::NonmonotonicSend => "nonmonotonic-send",
            Self::IntNonmonotonicSend => "int-nonmonotonic-send",
            Self::NonmonotonicLatest => "nonmonotonic-latest",
            Self::LatestBelowAcknowledged => "latest-below-acknowledged",
            Self::NonmonotonicCommit => "nonmonotonic-commit",
            Self::LostCommit => "lost-commit",
            Self::G1c => "G1c",
        }
    }
}

/// Every anomaly counted, the first of each kind told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many of each kind.
    pub counts: BTreeMap<AnomalyKind, u64>,
    /// The first of each kind, in words.
    pub examples: BTreeMap<AnomalyKind, Vec<String>>,
    /// Keys that the history names.
    pub keys: usize,
    /// Values acknowledged.
    pub acknowledged: u64,
    /// Values of unknown fate.
    pub unknown: u64,
    /// Values that certainly were not written.
    pub failed: u64,
    /// Records read, each as often as it was.
    pub read: u64,
    /// Ends of keys told (ListOffsets).
    pub ends: u64,
    /// Commits of groups acknowledged.
    pub commits: u64,
}

impl Report {
    /// Enters one.
    pub(super) fn add(&mut self, kind: AnomalyKind, words: impl FnOnce() -> String) {
        *self.counts.entry(kind).or_default() += 1;
        let examples = self.examples.entry(kind).or_default();
        if examples.len() < EXAMPLES_MAX {
            examples.push(words());
        }
    }

    /// How many in all.
    pub fn anomalies(&self) -> u64 {
        self.counts.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} keys; {} records acknowledged, {} of unknown fate, {} refused; {} read; {} ends told, {} commits; {} anomalies",
            self.keys,
            self.acknowledged,
            self.unknown,
            self.failed,
            self.read,
            self.ends,
            self.commits,
            self.anomalies()
        )?;
        for (kind, count) in &self.counts {
            write!(f, "\n{} × {count}", kind.name())?;
            for example in self.examples.get(kind).into_iter().flatten() {
                write!(f, "\n  {example}")?;
            }
        }
        Ok(())
    }
}
