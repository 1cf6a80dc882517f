//! Histories of what clients did to a cluster and what it answered, and the checker that finds every answer that must not have been given.
//!
//! A history is a file of JSON lines ([`event::Event`] says each form), written while a cluster is tormented. The definitions follow
//! Jepsen's Kafka workload; [`anomaly::AnomalyKind`] lists what is looked for. A key is one partition; a value is a number that is sent to
//! a key once and never again.
//!
//! A file is read twice: first for which value stands at which offset and what became of each send, then for the order in which each
//! process saw them. Memory grows with the number of values and with nothing else.

pub mod anomaly;
pub mod check;
mod cycles;
pub mod event;
mod exposed;
mod key_log;
mod lines;
mod order;
pub mod recorder;

/// The format and the anomalies, as `taffrail-logcheck --help` prints them.
pub const FORMAT: &str = r##"Format: one JSON object a line, in the order in which things ended; empty lines and lines that begin with # are left out.
A key is a partition (a string), a value a number that is sent to its key once. A process sends or polls one thing after another.
KIND is ok (it was done), fail (it was certainly not done), info (nobody knows) or invoke (it begins now).

  {"f":"send","kind":KIND,"process":1,"key":"t/0","value":7,"offset":12}
      invoke may be left out, but then every send must end with a line; offset is told by ok, and by info where it is known
  {"f":"poll","kind":KIND,"process":2,"polls":[["t/0",[[12,7],[13,8]]]],"rebalanced":["t/0"]}
      offset and value of each record; null as value is a record that no client sent like this (damaged).
      rebalanced: keys that were assigned anew since the poll before, so that this one need not go on where that one ended
  {"f":"txn","kind":KIND,"process":1,"sends":[["t/0",9,14]],"polls":[["t/1",[[3,1]]]]}
      one transaction; the offset of a send may be null
  {"f":"assign","process":2,"keys":["t/0"]}          the process reads these keys from another place from now on
  {"f":"producer","process":1,"idempotent":false}    its sends may stand twice and out of order
  {"f":"latest","kind":KIND,"process":3,"key":"t/0","epoch":4,"offset":15,"current":true}
      the end that ListOffsets(latest) told, and by which leader epoch; invoke and ok are both needed. current: afterwards every
      other broker was asked, and none knew of a newer leader epoch
  {"f":"commit","kind":KIND,"process":2,"group":"g","key":"t/0","offset":15}      a group's commit; invoke is needed
  {"f":"committed","kind":KIND,"process":2,"group":"g","key":"t/0","offset":15}   what OffsetFetch told, null for none; invoke is needed
  {"f":"time","ms":1200}                             milliseconds since the start, for people
  {"f":"note","text":"broker 1 killed"}              anything, for people

Anomalies:
  inconsistent-offsets      one offset showed two values
  aborted-read              (G1a) a value was read whose send certainly failed
  precommitted-read         a transaction read what it wrote itself
  lost-write                a value was acknowledged and not read, although a later one of its key was
  unseen                    a value was acknowledged and not read by the end
  duplicate                 one value at two offsets, or acknowledged at one and read at another
  damaged, foreign          a record that no client sent like this; a value that no line of the history sent
  poll-skip                 a process read on behind a record that it had not read
  nonmonotonic-poll         a process read on at or before what it had read
  int-poll-skip, int-nonmonotonic-poll                 the same within one poll
  nonmonotonic-send, int-nonmonotonic-send             a later send of a process stands before an earlier one
  nonmonotonic-latest       the end of a key went back within one leader epoch, or for a current leader
  latest-below-acknowledged the end that a current leader told was below a record acknowledged before
  nonmonotonic-commit       a committed offset went back
  lost-commit               a committed offset was forgotten
  G1c                       transactions that read from each other in a circle

Exit codes: 0 no anomaly, 1 anomalies, 2 the history cannot be read."##;
