//! Reading a coordinator back from its partition of `__consumer_offsets`, off the event loop.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{Coordinator, Settings};
use taffrail_core::ids::{LeaderEpoch, TopicPartition};
use taffrail_core::time::Instant;
use taffrail_protocol::records::Batches;

use super::bytes;
use super::shard::Shard;
use crate::broker::Broker;
use crate::env::Env;
use crate::partition::Partition;

/// Bytes read at once (Kafka's `offsets.load.buffer.size` is 5 MiB).
const CHUNK_BYTES: usize = 1 << 20;

/// Pause after a load failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Begins to load; the coordinator becomes active when it is done, if this broker still leads in this epoch.
pub(super) fn start<E: Env>(broker: &Arc<Broker<E>>, id: TopicPartition, epoch: LeaderEpoch) {
    let loader = Arc::clone(broker);
    broker.env.spawn(async move {
        // Tried again as long as it is wanted: a disk that was full, or a role not taken yet, may mend.
        while loader.groups.is_loading(id.partition, epoch) && !loader.is_stopping() {
            match try_load(&loader, id, epoch).await {
                Ok(shard) => loader.groups.activate(&loader, id.partition, shard),
                Err(error) => {
                    tracing::debug!(partition = %id, ?error, "the coordinator is not loaded yet");
                    loader.env.sleep_until(loader.env.now() + RETRY_PAUSE).await;
                }
            }
        }
    });
}

async fn try_load<E: Env>(
    broker: &Arc<Broker<E>>,
    id: TopicPartition,
    epoch: LeaderEpoch,
) -> Result<Arc<Shard<E>>, ErrorKind> {
    let partition = broker.partition(id).ok_or(ErrorKind::NotLeaderOrFollower)?;
    let blocking = (Arc::clone(broker), Arc::clone(&partition));
    let loaded = broker
        .env
        .run_blocking(move || load(&blocking.0, &blocking.1, epoch))
        .await;
    let (mut coordinator, end_offset) = loaded?;
    coordinator.handle_loaded(broker.env.now());
    let groups = coordinator.groups().count();
    tracing::debug!(partition = %partition.name(), groups, end_offset, "coordinator loaded");
    Ok(Shard::new(partition, epoch, coordinator, end_offset))
}

/// Applies every record of the log. Nobody but the coordinator appends to it, so its end stands still meanwhile.
fn load<E: Env>(
    broker: &Broker<E>,
    partition: &Partition<E>,
    epoch: LeaderEpoch,
) -> Result<(Coordinator, i64), ErrorKind> {
    let mut coordinator = Coordinator::new(broker.groups.settings);
    let (mut offset, end_offset) = partition.own_range(epoch)?;
    while offset < end_offset {
        let chunk = partition.read_own(offset, end_offset, CHUNK_BYTES)?;
        let before = offset;
        for batch in Batches::new(&chunk) {
            let (header, range) = batch.map_err(|_| ErrorKind::CorruptMessage)?;
            bytes::apply_batch(&mut coordinator, &header, &chunk[range]);
            offset = offset.max(header.last_offset() + 1);
        }
        if offset == before {
            // Nothing readable is left below the end: a compaction took it.
            break;
        }
    }
    Ok((coordinator, end_offset))
}

/// Applies whatever batches stand in a log, as a load does; for the fuzz target.
pub fn try_log(log: &[u8]) {
    let mut coordinator = Coordinator::new(Settings::default());
    for batch in Batches::new(log) {
        let Ok((header, range)) = batch else { return };
        bytes::apply_batch(&mut coordinator, &header, &log[range]);
    }
    coordinator.handle_loaded(Instant::ZERO);
}
