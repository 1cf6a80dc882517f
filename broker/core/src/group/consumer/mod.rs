//! The coordinator's part of consumer groups of the new protocol (KIP-848): who is to have which partitions, and how members get from
//! what they have to that without two of them ever having the same one. Nothing calls it yet: brokers serve classic groups only.

pub mod assignment;
pub mod assignor;

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TopicId;

/// Partitions by topic; no topic is without any.
pub type Partitions = BTreeMap<TopicId, BTreeSet<i32>>;
