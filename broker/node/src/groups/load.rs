//! Reading a coordinator back from its partition of `__consumer_offsets`, off the event loop.

use std::collections::BTreeSet;
use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{Coordinator, Decision};
use taffrail_core::ids::{LeaderEpoch, TopicPartition};
use taffrail_protocol::records::Batches;

use super::bytes;
use super::shard::Shard;
use crate::broker::Broker;
use crate::env::Env;
use crate::partition::Partition;

/// Bytes read at once (Kafka's `offsets.load.buffer.size` is 5 MiB).
const CHUNK_BYTES: usize = 1 << 20;

/// Begins to load; the coordinator becomes active when it is done, if this broker still leads in this epoch.
pub(super) fn start<E: Env>(broker: &Arc<Broker<E>>, id: TopicPartition, epoch: LeaderEpoch) {
    let loader = Arc::clone(broker);
    broker.env.spawn(async move {
        let Some(partition) = loader.partition(id) else { return };
        let blocking = (Arc::clone(&loader), Arc::clone(&partition));
        let loaded = loader.env.run_blocking(move || load(&blocking.0, &blocking.1, epoch)).await;
        match loaded {
            Ok((mut coordinator, end_offset)) => {
                coordinator.handle_loaded(loader.env.now());
                let groups = coordinator.groups().count();
                tracing::debug!(partition = %partition.name(), groups, end_offset, "coordinator loaded");
                let shard = Shard::new(partition, epoch, coordinator, end_offset);
                loader.groups.activate(&loader, id.partition, shard);
            }
            Err(ErrorKind::NotLeaderOrFollower) => {
                tracing::debug!(partition = %partition.name(), "leads no more: the coordinator is not loaded");
            }
            Err(error) => {
                tracing::error!(partition = %partition.name(), ?error, "the coordinator could not be loaded");
            }
        }
    });
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

/// Offsets of deleted topics go, in every coordinator here.
pub(super) fn forget_topics<E: Env>(broker: &Arc<Broker<E>>, topics: BTreeSet<String>) {
    for shard in broker.groups.active() {
        let forgotten = shard.decide(broker, |turn| Decision {
            records: turn.coordinator.handle_topics_removed(&topics),
            reply: (),
        });
        if let Err(error) = forgotten {
            tracing::debug!(partition = %shard.partition().name(), ?error, "offsets of deleted topics stay for now");
        }
    }
}
