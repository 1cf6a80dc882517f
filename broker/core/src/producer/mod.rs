//! Idempotent and transactional producers of one partition: sequence numbers checked, duplicates found, transactions followed
//! from their first batch to their marker, state bounded and expired.
//!
//! A leader asks [`Producers::check`] before an append and calls [`Producers::handle_append`] after it; a follower and
//! recovery only do the latter, for what a leader accepted is not judged again. Nothing here is written anywhere: the
//! state follows from the log, and a snapshot only shortens the way (Kafka's `ProducerStateManager`).

mod entry;
mod refused;
mod states;
mod transactions;
mod verification;

#[cfg(test)]
mod tests;

pub use entry::{BATCHES_KEPT, Batch, BatchKind, KeptBatch, Marker, last_sequence};
pub use states::{Admission, Known, Producers, Settings, SnapshotEntry, Truncation};
pub use transactions::{EndedTransaction, MarkerFrom};
pub use verification::VerificationGuard;
