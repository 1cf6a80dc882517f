//! Incremental fetch sessions (KIP-227): a fetch names only what changed, an answer holds only what is new.
//!
//! [`Sessions`] is one broker's cache. [`Sessions::handle_fetch`] takes the session out as a [`FetchContext`], which
//! the caller keeps while it reads and waits, without holding the cache; [`Sessions::handle_answered`] puts it back.

mod cache;
mod context;
mod session;

#[cfg(test)]
mod tests;

pub use cache::{Limits, SessionFetch, Sessions};
pub use context::{Answer, FetchContext, FetchKind};
pub use session::{CachedPartition, PartitionKey, Position, Slot, TopicKey};
