//! Reading a coordinator back from its partition of `__consumer_offsets`, off the event loop.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{Coordinator, Settings};
use taffrail_core::ids::{LeaderEpoch, TopicPartition};
use taffrail_core::time::Instant;
use taffrail_log::LogError;
use taffrail_protocol::records::{BatchHeader, Batches, crc_matches};

use super::bytes;
use super::shard::Shard;
use crate::broker::Broker;
use crate::env::Env;
use crate::partition::{OwnReadError, Partition};

/// Bytes read at once (Kafka's `offsets.load.buffer.size` is 5 MiB).
const CHUNK_BYTES: usize = 1 << 20;

/// Pause after a load failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The same after it met damage, which ends with the leadership of another replica; all of the log is read again at each try.
const DAMAGED_PAUSE: Duration = Duration::from_secs(10);

/// Why a coordinator was not read back.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LoadError {
    /// Passes by itself: the role comes a moment later, or has gone.
    #[error("this broker has not taken the partition over yet")]
    NotLeader,
    /// The log does not hold what was written. A group must not be told what it says.
    #[error(
        "the log is damaged at offset {offset} ({what}): no group of this partition is served until a replica that is whole leads"
    )]
    Damaged { offset: i64, what: String },
    /// The disk refuses.
    #[error("the log cannot be read at offset {offset} ({what})")]
    Unreadable { offset: i64, what: String },
}

impl LoadError {
    fn of_read(offset: i64, error: OwnReadError) -> Self {
        let what = error.to_string();
        match error {
            OwnReadError::NoLog => Self::NotLeader,
            OwnReadError::Log(LogError::Corrupt { .. }) => Self::Damaged { offset, what },
            OwnReadError::Log(_) | OwnReadError::File(_) => Self::Unreadable { offset, what },
        }
    }

    fn pause(&self) -> Duration {
        match self {
            Self::NotLeader | Self::Unreadable { .. } => RETRY_PAUSE,
            Self::Damaged { .. } => DAMAGED_PAUSE,
        }
    }
}

impl From<ErrorKind> for LoadError {
    /// A partition that is not here, or not led here in that epoch.
    fn from(_: ErrorKind) -> Self {
        Self::NotLeader
    }
}

/// Begins to load; the coordinator becomes active when it is done, if this broker still leads in this epoch.
pub(super) fn start<E: Env>(broker: &Arc<Broker<E>>, id: TopicPartition, epoch: LeaderEpoch) {
    let loader = Arc::clone(broker);
    broker.env.spawn(async move {
        // Tried again as long as it is wanted: a role not taken yet, or a disk, may mend.
        let mut is_told = false;
        while loader.groups.is_loading(id.partition, epoch) && !loader.is_stopping() {
            match try_load(&loader, id, epoch).await {
                Ok(shard) => loader.groups.activate(&loader, id.partition, shard),
                Err(error) => {
                    note(&loader, id, epoch, &error, &mut is_told);
                    let again = loader.env.now() + error.pause();
                    loader.env.sleep_until(again).await;
                }
            }
        }
    });
}

/// Takes note of a load that failed: has a damaged replica checked, so that another one leads and this one is mended, and tells
/// of it once.
fn note<E: Env>(
    broker: &Broker<E>,
    id: TopicPartition,
    epoch: LeaderEpoch,
    error: &LoadError,
    is_told: &mut bool,
) {
    let offset = match error {
        LoadError::NotLeader => {
            tracing::debug!(partition = %id, %error, "the coordinator is not loaded yet");
            return;
        }
        LoadError::Damaged { offset, .. } | LoadError::Unreadable { offset, .. } => *offset,
    };
    let partition = broker.partition(id);
    if let Some(partition) = &partition {
        partition.suspect(offset);
    }
    broker
        .groups
        .note_trouble(id.partition, epoch, error.to_string());
    if !std::mem::replace(is_told, true) {
        let name = partition.map_or_else(|| id.to_string(), |held| held.name());
        tracing::warn!(partition = %name, %error, "a group coordinator cannot be loaded");
    }
}

async fn try_load<E: Env>(
    broker: &Arc<Broker<E>>,
    id: TopicPartition,
    epoch: LeaderEpoch,
) -> Result<Arc<Shard<E>>, LoadError> {
    let partition = broker.partition(id).ok_or(LoadError::NotLeader)?;
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
) -> Result<(Coordinator, i64), LoadError> {
    let mut coordinator = Coordinator::new(broker.groups.settings);
    let (start_offset, end_offset) = partition.own_range(epoch)?;
    for_each_batch(
        start_offset..end_offset,
        |offset| {
            partition
                .read_own(offset, end_offset, CHUNK_BYTES)
                .map_err(|error| LoadError::of_read(offset, error))
        },
        |header, batch| bytes::apply_batch(&mut coordinator, header, batch),
    )?;
    Ok((coordinator, end_offset))
}

/// Takes the batches of a range of offsets, until it ends or nothing more can be read of it: its last batches may have been
/// taken by a compaction (KAFKA-9065). A consumer compares the checksums of what it reads; here that is the coordinator.
fn for_each_batch(
    offsets: Range<i64>,
    mut read: impl FnMut(i64) -> Result<Vec<u8>, LoadError>,
    mut take: impl FnMut(&BatchHeader, &[u8]),
) -> Result<(), LoadError> {
    let mut offset = offsets.start;
    while offset < offsets.end {
        let chunk = read(offset)?;
        let before = offset;
        for batch in Batches::new(&chunk) {
            let damaged = |what: String| LoadError::Damaged { offset, what };
            let (header, range) = batch.map_err(|error| damaged(error.to_string()))?;
            let batch = &chunk[range];
            if !crc_matches(batch) {
                return Err(damaged("a checksum does not match".to_owned()));
            }
            // A batch's base offset is not in its checksum.
            let last_offset = header.last_offset();
            if last_offset < offset || last_offset >= offsets.end {
                return Err(damaged(format!("a batch ends at offset {last_offset}")));
            }
            take(&header, batch);
            offset = last_offset + 1;
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
    fn a_load_that_meets_damage_fails_and_says_where() {
        let whole = |offsets: Range<i64>| batches(&[offsets]).remove(0).1;
        // A byte of a batch's value, of its base offset, and of its length.
        let flipped = |position: usize| {
            let mut bytes = whole(3..6);
            let position = position.min(bytes.len() - 1);
            bytes[position] ^= 4;
            bytes
        };
        let check = |second: &[u8]| {
            let log = [whole(0..3), second.to_vec(), whole(6..10)].concat();
            let mut taken = Vec::new();
            let loaded = for_each_batch(
                0..10,
                |_| Ok(log.clone()),
                |header, _| taken.push(header.base_offset),
            );
            let at = match loaded {
                Err(LoadError::Damaged { offset, .. }) => offset,
                other => panic!("{other:?}"),
            };
            assert_eq!((at, taken), (3, vec![0]));
        };
        check(&flipped(usize::MAX));
        check(&flipped(0));
        check(&flipped(11));
        check(&whole(0..3));
    }

    #[test]
    fn a_log_that_is_not_here_is_no_damage() {
        let of = |error| LoadError::of_read(7, error);
        assert_eq!(of(OwnReadError::NoLog), LoadError::NotLeader);
        let file = OwnReadError::File(std::io::Error::other("the disk has gone"));
        let (offset, what) = (7, "the disk has gone".to_owned());
        assert_eq!(of(file), LoadError::Unreadable { offset, what });
    }
}
