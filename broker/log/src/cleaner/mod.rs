//! The log cleaner: of the records of each key it leaves the newest, at its offset, and closes up what is left (compaction;
//! Kafka's `LogCleaner`, KIP-58, KIP-354, KIP-534). **Nothing runs it yet**: no part of the broker calls this module, and a topic
//! with `cleanup.policy=compact` keeps every record.
//!
//! ```text
//!   log start      first dirty offset               first uncleanable offset     active segment
//!      | clean: one record a key, but for what was not finished | dirty | not to be touched yet |
//! ```
//!
//! A cleaning goes through the dirty part and notes the newest offset of each key in a map of bounded size; where the map is
//! full the dirty part ends for this time. Then it goes through all segments from the first on and writes what stays into new
//! ones, several into one where they fit. Each group of old segments is swapped for its new one at once, and by itself: whether
//! the groups behind it follow now or after a crash makes no difference to what a reader sees in the end, for what a group lost
//! is newer in a later one. Only when all are done may the first dirty offset move.
//!
//! Whoever runs it, for one log:
//! 1. [`Log::dirty_range`](crate::Log::dirty_range) and [`DirtyRange::is_due`] tell whether there is enough to do;
//! 2. [`Log::begin_cleaning`](crate::Log::begin_cleaning), under the log's lock, gives a [`Cleaning`];
//! 3. [`Cleaning::step`] does a part, without the lock, and how fast is the caller's to say ([`CleanerRate`]); when it says
//!    [`CleaningStep::Swap`], [`Log::swap_cleaned`](crate::Log::swap_cleaned) is called under the lock and the files of what was
//!    replaced are removed without it;
//! 4. at [`CleaningStep::Done`] its end goes into the [`CleanerCheckpoint`].
//!
//! The old segments stay what they are until the swap, so a cleaning may be given up at any moment. If the log was truncated,
//! moved, or lost segments to retention meanwhile, or is not to be compacted any more, the swap says so and changes nothing. An
//! error of a cleaning that is [current](crate::Log::is_current) is damage of this log, which should be set aside and told.

mod checkpoint;
mod group;
pub(crate) mod leftovers;
mod offset_map;
mod output;
mod pass;
mod range;
mod rate;
mod retain;
mod source;
mod transactions;

pub use checkpoint::CleanerCheckpoint;
pub use pass::{Cleaning, CleaningProgress, CleaningStep};
pub use range::{CompactionConfig, DirtyRange};
pub use rate::CleanerRate;
pub use retain::{ActiveProducers, LastRecord};

pub(crate) use pass::{Begin, Ready};
pub(crate) use source::{Source, Sources};
