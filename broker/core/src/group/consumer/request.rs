//! ConsumerGroupHeartbeat, free of wire versions, and what it may say.

use crate::error::{ApiError, ErrorKind};
use crate::ids::TopicId;

use super::Partitions;
use super::assignor::Assignor;
use super::record::ConsumerRecord;

/// The epoch of a member that joins.
pub(super) const JOIN: i32 = 0;
/// The epoch of a member that leaves.
pub(super) const LEAVE: i32 = -1;
/// The epoch of a static member that leaves and comes back soon.
pub(super) const LEAVE_FOR_A_WHILE: i32 = -2;

/// Says of a topic's name what its id is and how many partitions it has, if there is one.
pub trait Topics {
    /// Of the topic of this name.
    fn topic(&self, name: &str) -> Option<(TopicId, i32)>;
}

impl<F: Fn(&str) -> Option<(TopicId, i32)>> Topics for F {
    fn topic(&self, name: &str) -> Option<(TopicId, i32)> {
        self(name)
    }
}

/// ConsumerGroupHeartbeat. What is `None` is as it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerHeartbeat {
    /// Chosen by the client.
    pub member_id: String,
    /// The member's epoch, or 0 to join, -1 to leave, -2 to leave as a static member for a while.
    pub member_epoch: i32,
    /// Of a static member, in each heartbeat.
    pub instance_id: Option<String>,
    /// `client.rack`.
    pub rack_id: Option<String>,
    /// `max.poll.interval.ms`.
    pub rebalance_timeout_ms: Option<i32>,
    /// The names of the topics that it subscribes to.
    pub subscribed_topic_names: Option<Vec<String>>,
    /// The assignor that it would like to have.
    pub server_assignor: Option<String>,
    /// What it has.
    pub owned: Option<Partitions>,
    /// From the request header; empty if null.
    pub client_id: String,
    /// The address of the connection, as Kafka prints it (`/127.0.0.1`).
    pub client_host: String,
}

impl ConsumerHeartbeat {
    /// Checks what does not depend on the group (Kafka's `throwIfConsumerGroupHeartbeatRequestIsInvalid`).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] with what is missing or wrong, and [`ErrorKind::UnsupportedAssignor`].
    pub fn check(&self) -> Result<(), ApiError> {
        let invalid = |message: &str| Err(ApiError::new(ErrorKind::InvalidRequest, message));
        if self.member_id.is_empty() {
            return invalid("a member must have an id");
        }
        let is_empty = |text: &Option<String>| text.as_deref() == Some("");
        if is_empty(&self.instance_id) || is_empty(&self.rack_id) {
            return invalid("an instance id or a rack is left out or has a name");
        }
        match self.member_epoch {
            JOIN if self.rebalance_timeout_ms.is_none() => {
                return invalid("a member that joins must say its rebalance timeout");
            }
            JOIN if self.owned.as_ref().is_none_or(|owned| !owned.is_empty()) => {
                return invalid("a member that joins has no partitions, and must say so");
            }
            JOIN if self.subscribed_topic_names.is_none() => {
                return invalid("a member that joins must say what it subscribes to");
            }
            LEAVE_FOR_A_WHILE if self.instance_id.is_none() => {
                return invalid("only a static member leaves with epoch -2");
            }
            i32::MIN..LEAVE_FOR_A_WHILE => {
                return invalid("a member epoch is not below -2");
            }
            _ => {}
        }
        if let Some(name) = &self.server_assignor
            && name.parse::<Assignor>().is_err()
        {
            let known = Assignor::ALL.map(Assignor::name).join(", ");
            let message = format!("there is no assignor {name:?}; there are {known}");
            return Err(ApiError::new(ErrorKind::UnsupportedAssignor, message));
        }
        Ok(())
    }

    /// Whether it says all there is to say, as a client does that is not sure what the coordinator knows.
    pub(super) fn is_full(&self) -> bool {
        self.rebalance_timeout_ms.is_some()
            && self.subscribed_topic_names.is_some()
            && self.owned.is_some()
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerReply {
    /// The member's.
    pub member_id: String,
    /// What it must name next; -1 or -2 if it left.
    pub member_epoch: i32,
    /// What it may use from now on; nothing if that did not change.
    pub assignment: Option<Partitions>,
}

/// Records to append and apply, and the reply to release when they are replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerDecision {
    /// They belong together in one batch.
    pub records: Vec<ConsumerRecord>,
    /// The reply.
    pub reply: ConsumerReply,
}
