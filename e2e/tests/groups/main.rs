//! What consumer groups promise, as real clients and Kafka's own tool see it.

mod damaged_log;
mod first_group;
mod lost_member;
mod offsets;
mod stale_coordinator;
mod static_members;
mod tool;
