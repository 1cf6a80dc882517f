//! Coordinators that are about to begin, and who waits for them.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::partition_for;
use taffrail_core::ids::{BrokerId, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_core::time::Instant;

use super::OFFSETS_TOPIC;
use super::shard::Shard;
use crate::broker::Broker;
use crate::env::Env;

/// How long a request waits for a coordinator that is about to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

/// Until when a request that has just come waits.
pub(super) fn begins_by<E: Env>(broker: &Broker<E>) -> Instant {
    broker.env.now() + BEGINS_WITHIN
}

/// The coordinator of a group, also of the one without a name; also one that begins just now. Whoever asks for the first
/// coordinator of a cluster is told who it will be before that broker has made its replicas, and a client that is sent away then
/// (librdkafka) comes back after seconds.
pub(super) async fn shard_soon<E: Env>(
    broker: &Broker<E>,
    group_id: &str,
    deadline: Instant,
) -> Result<Arc<Shard<E>>, ErrorKind> {
    loop {
        // Before the look: what changes after it is heard of.
        let changed = broker.groups.changed.notified();
        let image = broker.cluster.image();
        let found = broker.groups.shard_of_any(&image, group_id);
        let begins = match found {
            // Another replica has to lead before one that cannot be read is of use, which takes longer.
            Err(ErrorKind::CoordinatorLoadInProgress) => {
                broker.groups.is_loading_well(&image, group_id)
            }
            Err(ErrorKind::NotCoordinator) => may_coordinate(&image, broker.id, group_id),
            _ => false,
        };
        if !begins || broker.env.now() >= deadline {
            return found;
        }
        tokio::select! {
            biased;
            () = changed => {}
            () = broker.env.sleep_until(deadline) => {}
        }
    }
}

/// Whether the metadata names this broker, or has no such topic yet.
fn may_coordinate(image: &Image, me: BrokerId, group_id: &str) -> bool {
    let Some(topic) = image.topic_by_name(OFFSETS_TOPIC) else {
        return true;
    };
    let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let id = TopicPartition::new(topic.id, partition_for(group_id, count));
    image
        .partition(id)
        .is_some_and(|state| state.leader == Some(me))
}
