//! Reading a coordinator back from its partition of `__consumer_offsets`, off the event loop.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{Coordinator, Settings};
use taffrail_core::ids::{LeaderEpoch, TopicPartition};
use taffrail_core::time::Instant;
use taffrail_protocol::records::{BatchHeader, Batches};

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
    let (start_offset, end_offset) = partition.own_range(epoch)?;
    for_each_batch(
        start_offset..end_offset,
        |offset| partition.read_own(offset, end_offset, CHUNK_BYTES),
        |header, batch| bytes::apply_batch(&mut coordinator, header, batch),
    )?;
    Ok((coordinator, end_offset))
}

/// Takes the batches of a range of offsets, until it ends or nothing more can be read of it: its last batches may have been
/// taken by a compaction (KAFKA-9065).
fn for_each_batch(
    offsets: Range<i64>,
    mut read: impl FnMut(i64) -> Result<Vec<u8>, ErrorKind>,
    mut take: impl FnMut(&BatchHeader, &[u8]),
) -> Result<(), ErrorKind> {
    let mut offset = offsets.start;
    while offset < offsets.end {
        let chunk = read(offset)?;
        let before = offset;
        for batch in Batches::new(&chunk) {
            let (header, range) = batch.map_err(|_| ErrorKind::CorruptMessage)?;
            take(&header, &chunk[range]);
            offset = offset.max(header.last_offset() + 1);
        }
        if offset == before {
            break;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use taffrail_protocol::records::RecordBatchBuilder;

    use super::*;

    /// What is left of a log that ends at offset 10.
    fn batches(offsets: &[Range<i64>]) -> Vec<(i64, Vec<u8>)> {
        let batch = |offsets: &Range<i64>| {
            let mut batch = RecordBatchBuilder::new(offsets.start, 0);
            for _ in offsets.clone() {
                batch.push(Some(b"key"), None, &[]);
            }
            (offsets.end, batch.build())
        };
        offsets.iter().map(batch).collect()
    }

    #[test]
    fn a_load_ends_where_nothing_more_can_be_read_whatever_the_last_offset() {
        let check = |left: &[Range<i64>]| {
            let left_in_log = batches(left);
            let mut reads = 0;
            let read = |offset: i64| {
                reads += 1;
                assert!(reads <= left.len() + 1, "it reads {offset} without end");
                let next = left_in_log.iter().find(|(end, _)| *end > offset);
                Ok(next.map_or_else(Vec::new, |(_, bytes)| bytes.clone()))
            };
            let mut taken = Vec::new();
            let loaded = for_each_batch(0..10, read, |header, _| taken.push(header.base_offset));
            assert_eq!(loaded, Ok(()));
            let expected: Vec<i64> = left.iter().map(|offsets| offsets.start).collect();
            assert_eq!(taken, expected);
        };
        check(&[0..3, 3..10]);
        check(&[0..3, 5..7]);
        check(&[4..5, 8..9]);
        check(&[]);
    }

    #[test]
    fn a_load_that_meets_damage_fails() {
        let read = |_: i64| Ok(vec![1; 100]);
        let loaded = for_each_batch(0..10, read, |_, _| {});
        assert_eq!(loaded, Err(ErrorKind::CorruptMessage));
    }
}
