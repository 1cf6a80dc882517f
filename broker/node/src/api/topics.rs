//! What the APIs that name topics have in common: legal names, internal topics, permissions, waiting to see a change.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::controller::Decision;
use taffrail_core::error::{ApiError, ErrorKind};
use taffrail_core::ids::TopicId;
use taffrail_core::metadata::Image;
use taffrail_core::time::Instant;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::CreateTopicsResponse;

use crate::access::{Access, Operation, Principal, Resource};
use crate::broker::Broker;
use crate::env::Env;

/// The operations that a topic knows, as the bits of Kafka's `AclOperation` codes: read, write, create, delete, alter,
/// describe, describe configs, alter configs.
pub(crate) const TOPIC_OPERATIONS: i32 = bits(&[3, 4, 5, 6, 7, 8, 10, 11]);
/// Those that a group knows: read, delete, describe, describe configs, alter configs.
pub(crate) const GROUP_OPERATIONS: i32 = bits(&[3, 6, 8, 10, 11]);
/// Those that the cluster knows: create, alter, describe, cluster action, describe configs, alter configs, idempotent write.
pub(crate) const CLUSTER_OPERATIONS: i32 = bits(&[5, 7, 8, 9, 10, 11, 12]);

/// Longest topic name: a folder `<topic>-<partition>` and its renamed forms must fit into 255 bytes (Kafka's `Topic`).
const NAME_BYTES_MAX: usize = 249;

const fn bits(codes: &[u32]) -> i32 {
    let mut bits = 0;
    let mut position = 0;
    while position < codes.len() {
        bits |= 1 << codes[position];
        position += 1;
    }
    bits
}

/// Whether a topic may be called so.
pub(crate) fn is_legal(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX && name.bytes().all(legal)
}

/// Whether a topic is the brokers' own.
pub(crate) fn is_internal(name: &str) -> bool {
    taffrail_core::controller::is_internal_topic(name)
}

pub(crate) fn may_describe<E: Env>(broker: &Broker<E>, principal: &Principal, name: &str) -> bool {
    allows(broker, principal, Operation::Describe, name)
}

pub(crate) fn may_create<E: Env>(broker: &Broker<E>, principal: &Principal, name: &str) -> bool {
    allows(broker, principal, Operation::Create, name)
}

/// Whether somebody may do something to a topic.
pub(crate) fn allows<E: Env>(
    broker: &Broker<E>,
    principal: &Principal,
    operation: Operation,
    name: &str,
) -> bool {
    broker.authorizer.allows(
        principal,
        Access {
            resource: Resource::Topic,
            operation,
        },
        name,
    )
}

/// Waits until this broker's image has the topics that were created, so that the next request about them finds them.
pub(crate) async fn wait_until_visible<E: Env>(
    broker: &Arc<Broker<E>>,
    response: &CreateTopicsResponse,
    deadline: Instant,
) {
    let created: Vec<TopicId> = response
        .topics
        .iter()
        .filter(|topic| topic.error_code == ErrorCode::None.code() && !topic.topic_id.is_zero())
        .map(|topic| TopicId(topic.topic_id.0))
        .collect();
    broker
        .cluster
        .wait_for_image(deadline, |image| {
            created.iter().all(|id| image.topic(*id).is_some())
        })
        .await;
}

/// The longest that a request may wait for the controller, whatever it asks for.
const TIMEOUT_MS_MAX: i32 = 60_000;
/// The least, since a timeout of 0 would never be met.
const TIMEOUT_MS_MIN: i32 = 100;
/// How long an answer waits until this broker sees a change, after which it goes without.
const NEWS_TIMEOUT: Duration = Duration::from_millis(500);

/// Most partitions that one request may name where the controller looks at each of them. Each takes some bytes on the wire, and some
/// hundred once there is an answer about it.
const PARTITIONS_NAMED_MAX: usize = 100_000;

/// Refuses a request that names too many partitions.
pub(crate) fn check_count(partitions: usize) -> Result<(), ApiError> {
    if partitions <= PARTITIONS_NAMED_MAX {
        return Ok(());
    }
    let message = format!(
        "The request names {partitions} partitions; it may name at most {PARTITIONS_NAMED_MAX}. Send it in parts."
    );
    Err(ApiError::new(ErrorKind::InvalidRequest, message))
}

/// Until when a request waits for the controller.
pub(crate) fn deadline<E: Env>(broker: &Broker<E>, timeout_ms: i32) -> Instant {
    let timeout = timeout_ms
        .clamp(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX)
        .unsigned_abs();
    broker.env.now() + Duration::from_millis(timeout.into())
}

/// Waits until this broker's image is newer than `index`, for changes that leave no trace one could look for.
pub(crate) async fn wait_for_news<E: Env>(broker: &Arc<Broker<E>>, index: u64) {
    let deadline = broker.env.now() + NEWS_TIMEOUT;
    tokio::select! {
        biased;
        _ = broker.cluster.image_changed(index) => {}
        () = broker.env.sleep_until(deadline) => {}
    }
}

/// The name of a topic that exists; its id in text if it does not.
pub(crate) fn name_of(image: &Image, id: TopicId) -> String {
    image
        .topic(id)
        .map_or_else(|| id.to_string(), |topic| topic.name.clone())
}

/// A decision whose reply is told in other words.
pub(crate) fn map_reply<A, B>(decision: Decision<A>, map: impl FnOnce(A) -> B) -> Decision<B> {
    Decision {
        records: decision.records,
        reply: map(decision.reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_make_no_folder_are_illegal() {
        let check = |name: &str, expected: bool| assert_eq!(is_legal(name), expected, "{name}");
        check("orders", true);
        check("a.b_c-D9", true);
        check(&"t".repeat(249), true);
        check(&"t".repeat(250), false);
        check("", false);
        check(".", false);
        check("..", false);
        check("...", true);
        check("a/b", false);
        check("a b", false);
        check("ä", false);
    }

    #[test]
    fn operations_are_kafkas_numbers() {
        assert_eq!((TOPIC_OPERATIONS, CLUSTER_OPERATIONS), (3576, 8096));
    }
}
