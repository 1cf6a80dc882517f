//! The steps of the matrix and what came of one. `../README.md` says what a client does in each.

use std::fmt;

use serde::Deserialize;

/// The steps in the order in which each client runs them.
pub(crate) const STEPS: [&str; 13] = [
    "create",
    "produce",
    "assign",
    "group",
    "resume",
    "topics",
    "configs",
    "partitions",
    "delete-records",
    "delete-topic",
    "groups",
    "transactions",
    "kip848",
];

/// What only Kafka's command-line tools do.
pub(crate) const TOOLS: [&str; 6] = [
    "reassign",
    "elect",
    "log-dirs",
    "quorum",
    "perf",
    "verifiable",
];

/// Steps of capabilities that this version does not have. They are tried all the same: the table says what the broker answered.
pub(crate) const LATER: [&str; 2] = ["transactions", "kip848"];

/// One line that a client's program printed.
#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    pub(crate) step: String,
    pub(crate) ok: bool,
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) absent: bool,
    #[serde(default)]
    pub(crate) refused: bool,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It works; what the client has to say.
    Passed(String),
    /// The library has no call for it, or no way to say it.
    Absent(String),
    /// The broker said clearly that it does not do this.
    Refused(String),
    /// Anything else, a time-out too.
    Failed(String),
}

impl From<Line> for Outcome {
    fn from(line: Line) -> Self {
        match line {
            Line { ok: true, .. } => Self::Passed(line.detail),
            Line { absent: true, .. } => Self::Absent(line.detail),
            Line { refused: true, .. } => Self::Refused(line.detail),
            Line { .. } => Self::Failed(line.detail),
        }
    }
}

impl Outcome {
    /// Whether a run with this outcome of that step is not green.
    pub(crate) fn fails(&self, step: &str) -> bool {
        match self {
            Self::Passed(_) | Self::Absent(_) => false,
            Self::Refused(_) | Self::Failed(_) => !LATER.contains(&step),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(detail) => write!(f, "passed: {detail}"),
            Self::Absent(detail) => write!(f, "absent: {detail}"),
            Self::Refused(detail) => write!(f, "refused: {detail}"),
            Self::Failed(detail) => write!(f, "failed: {detail}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(line: &str) -> Outcome {
        serde_json::from_str::<Line>(line).unwrap().into()
    }

    #[test]
    fn lines_are_told_apart_and_only_later_capabilities_may_be_refused() {
        let cases = [
            (
                r#"{"step":"s","ok":true,"detail":"d"}"#,
                Outcome::Passed("d".into()),
                false,
                false,
            ),
            (
                r#"{"step":"s","ok":false,"detail":"d","absent":true}"#,
                Outcome::Absent("d".into()),
                false,
                false,
            ),
            (
                r#"{"step":"s","ok":false,"detail":"d","refused":true}"#,
                Outcome::Refused("d".into()),
                true,
                false,
            ),
            (
                r#"{"step":"s","ok":false,"detail":"d"}"#,
                Outcome::Failed("d".into()),
                true,
                false,
            ),
        ];
        for (line, expected, fails, fails_later) in cases {
            let found = outcome(line);
            assert_eq!(found, expected, "{line}");
            assert_eq!(found.fails("produce"), fails, "{line}");
            assert_eq!(found.fails("transactions"), fails_later, "{line}");
        }
    }
}
