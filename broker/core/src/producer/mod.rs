//! Idempotent producers of one partition: sequence numbers checked, duplicates found, state bounded and expired.
//!
//! A leader asks [`Producers::check`] before an append and calls [`Producers::handle_append`] after it; a follower and
//! recovery only do the latter, for what a leader accepted is not judged again. Nothing here is written anywhere: the
//! state follows from the log, and a snapshot only shortens the way (Kafka's `ProducerStateManager`).

mod entry;
mod refused;
mod states;

#[cfg(test)]
mod tests;

pub use entry::{BATCHES_KEPT, Batch, KeptBatch, last_sequence};
pub use states::{Admission, Known, Producers, Settings, SnapshotEntry, Truncation};
