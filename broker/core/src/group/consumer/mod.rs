//! The coordinator's part of one consumer group of the new protocol (KIP-848): who is to have which partitions, and how members get from
//! what they have to that without two of them ever having the same one. Nothing calls it yet: brokers serve classic groups only.
//!
//! [`ConsumerGroup`] decides as the classic coordinator does: the caller appends a decision's records, applies them, and only then asks
//! again. Subscriptions by regular expression and members of the classic protocol in such a group are not part of it yet, and the records of
//! a decision are as many as the members whose target changes: whoever calls it must have room for them in one batch.

pub mod assignment;
pub mod assignor;
mod describe;
mod group;
mod heartbeat;
mod record;
mod request;

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TopicId;

pub use describe::{ConsumerGroupState, DescribedConsumer, DescribedConsumerGroup};
pub use group::{ConsumerGroup, ConsumerSettings};
pub use record::{ConsumerRecord, GroupEpoch, MemberMetadata};
pub use request::{ConsumerDecision, ConsumerHeartbeat, ConsumerReply, Topics};

/// Partitions by topic; no topic is without any.
pub type Partitions = BTreeMap<TopicId, BTreeSet<i32>>;

#[cfg(test)]
mod tests;
