//! The lines of a history, one by one.

use serde::{Deserialize, Serialize};

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It begins.
    Invoke,
    /// It was done.
    Ok,
    /// It was certainly not done.
    Fail,
    /// Nobody knows.
    Info,
}

/// Offset and value of each record of one key; no value for a record that no client sent like this.
pub type KeyReads = (String, Vec<(i64, Option<u64>)>);

/// Key, value and offset of one record that a transaction sent; no offset where none was told.
pub type TxnSend = (String, u64, Option<i64>);

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "f", rename_all = "lowercase", deny_unknown_fields)]
pub enum Event {
    /// One record sent.
    Send {
        /// How far.
        kind: Kind,
        /// Who.
        process: u32,
        /// Where to.
        key: String,
        /// What.
        value: u64,
        /// Where it was put.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<i64>,
    },
    /// Records read.
    Poll {
        /// How far.
        kind: Kind,
        /// Who.
        process: u32,
        /// What.
        polls: Vec<KeyReads>,
        /// Keys that were assigned anew since the last poll.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rebalanced: Vec<String>,
    },
    /// A transaction.
    Txn {
        /// How far.
        kind: Kind,
        /// Who.
        process: u32,
        /// What it sent.
        #[serde(default)]
        sends: Vec<TxnSend>,
        /// What it read.
        #[serde(default)]
        polls: Vec<KeyReads>,
    },
    /// A process reads these keys from another place from now on.
    Assign {
        /// Who.
        process: u32,
        /// Which.
        keys: Vec<String>,
    },
    /// What is known of a producer.
    Producer {
        /// Who.
        process: u32,
        /// Whether its sends stand once and in order.
        idempotent: bool,
    },
    /// ListOffsets(latest).
    Latest {
        /// How far.
        kind: Kind,
        /// Who asked.
        process: u32,
        /// Of what.
        key: String,
        /// The answering leader's epoch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<i32>,
        /// The end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<i64>,
        /// Whether every other broker knew of no newer epoch afterwards.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        current: bool,
    },
    /// A group's commit.
    Commit {
        /// How far.
        kind: Kind,
        /// Who.
        process: u32,
        /// For which group.
        group: String,
        /// Of what.
        key: String,
        /// The next offset to read.
        offset: i64,
    },
    /// What a group has committed.
    Committed {
        /// How far.
        kind: Kind,
        /// Who asked.
        process: u32,
        /// Of which group.
        group: String,
        /// Of what.
        key: String,
        /// The answer; nothing for none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<i64>,
    },
    /// When the lines behind this one were written.
    Time {
        /// Milliseconds since the start.
        ms: u64,
    },
    /// For people.
    Note {
        /// Anything.
        text: String,
    },
}
