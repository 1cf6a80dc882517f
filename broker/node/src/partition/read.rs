//! Reading: what a consumer or a follower may see from an offset on, as a file range, and where its log parts from ours.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::fetch_session::Position;
use taffrail_core::ids::{BrokerEpoch, BrokerId, LeaderEpoch};
use taffrail_core::replica::{
    EpochEnd, FetchCheck, FetchedFrom, FollowerFetch, check_fetch, check_leader_epoch,
};
use taffrail_core::time::Instant;
use taffrail_log::{Disk, FileRange, Log, OffsetSpec, ReadLimits, TimestampOffset};

use super::{Partition, Role, storage_error};
use crate::env::Env;
use crate::replication::{VisibleEnd, Waiter};

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetcher {
    Consumer,
    Follower {
        broker: BrokerId,
        broker_epoch: Option<BrokerEpoch>,
    },
}

/// One partition of a fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRequest {
    pub(crate) position: Position,
    pub(crate) fetcher: Fetcher,
    pub(crate) bytes_max: usize,
    /// Whether the first batch is returned even if it alone is larger.
    pub(crate) min_one: bool,
    /// Whether the leader takes note of a follower's progress: once per fetch.
    pub(crate) note_follower: bool,
}

/// What was found.
pub(crate) struct ReadResult<E: Env> {
    pub(crate) error: Option<ErrorKind>,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) log_start_offset: i64,
    pub(crate) diverging: Option<EpochEnd>,
    pub(crate) range: Option<FileRange<<E::Disk as Disk>::File>>,
}

impl<E: Env> ReadResult<E> {
    /// Nothing but an error.
    pub(crate) fn refused(error: ErrorKind) -> Self {
        Self {
            error: Some(error),
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging: None,
            range: None,
        }
    }
}

impl<E: Env> Partition<E> {
    /// Reads from a position. With a waiter, registers it under the same lock if there was nothing wrong.
    pub(crate) fn read(
        &self,
        now: Instant,
        request: &ReadRequest,
        waiter: Option<&Arc<Waiter>>,
    ) -> ReadResult<E> {
        let result = self
            .try_read(now, request, waiter)
            .unwrap_or_else(ReadResult::refused);
        if result.error.is_some() {
            self.metrics.failed_fetch.inc();
        }
        result
    }

    /// Counts what was sent.
    pub(crate) fn count_read(&self, fetcher: Fetcher, bytes: usize) {
        match fetcher {
            Fetcher::Consumer => self.metrics.bytes_out.inc_by(bytes as u64),
            Fetcher::Follower { .. } => self.metrics.replication_bytes_out.inc_by(bytes as u64),
        }
    }

    fn try_read(
        &self,
        now: Instant,
        request: &ReadRequest,
        waiter: Option<&Arc<Waiter>>,
    ) -> Result<ReadResult<E>, ErrorKind> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let mut effects = std::mem::take(&mut replica.effects);
        let (Some(log), Role::Leader(leader)) = (&mut replica.log, &mut replica.role) else {
            return Err(ErrorKind::NotLeaderOrFollower);
        };
        check_leader_epoch(request.position.current_leader_epoch, leader.leader_epoch())?;
        let from = FetchedFrom {
            fetch_offset: request.position.fetch_offset,
            last_fetched_epoch: request.position.last_fetched_epoch,
        };
        let (log_start_offset, log_end_offset) = (log.log_start_offset(), log.log_end_offset());
        let mut result = ReadResult {
            error: None,
            high_watermark: leader.high_watermark(),
            last_stable_offset: leader.high_watermark(),
            log_start_offset,
            diverging: None,
            range: None,
        };
        match check_fetch(from, log_start_offset, log_end_offset, |epoch| {
            end_of_epoch(log, epoch)
        }) {
            FetchCheck::Read => {}
            FetchCheck::Diverging(end) => {
                result.diverging = Some(end);
                return Ok(result);
            }
            FetchCheck::Refused(error) => {
                // A follower learns where the log starts with the very answer, so that it need not ask.
                return Ok(ReadResult {
                    error: Some(error),
                    ..result
                });
            }
        }
        if let Fetcher::Follower {
            broker,
            broker_epoch,
        } = request.fetcher
            && request.note_follower
        {
            let fetch = FollowerFetch {
                broker,
                broker_epoch,
                fetch_offset: from.fetch_offset,
                log_start_offset: request.position.log_start_offset,
                leader_log_end_offset: log_end_offset,
            };
            leader.handle_follower_fetch(now, fetch, &mut effects)?;
            // This very fetch may have moved it: what is answered is one snapshot, taken after.
            result.high_watermark = leader.high_watermark();
            result.last_stable_offset = leader.high_watermark();
        }
        let (end, end_offset) = match request.fetcher {
            // Without transactions both isolation levels see the same: every committed record is stable: the last stable offset is the high watermark.
            Fetcher::Consumer => (VisibleEnd::HighWatermark, result.high_watermark),
            Fetcher::Follower { .. } => (VisibleEnd::LogEnd, i64::MAX),
        };
        let limits = ReadLimits {
            max_bytes: request.bytes_max,
            min_one: request.min_one,
            end_offset,
        };
        let range = log.read(from.fetch_offset, limits);
        // Whatever the read came to: what the follower's progress led to must not be lost.
        self.settle(replica, effects);
        result.range = range.map_err(|error| {
            tracing::warn!(partition = %self.name(), offset = from.fetch_offset, %error, "read failed");
            storage_error(&error)
        })?;
        if let Some(waiter) = waiter {
            replica.waiters.add_fetch(end, waiter);
        }
        Ok(result)
    }

    /// ListOffsets: an offset by timestamp or by name, as far as the asker may see.
    pub(crate) fn offset_for(
        &self,
        spec: OffsetSpec,
        fetcher: Fetcher,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<(Option<TimestampOffset>, LeaderEpoch), ErrorKind> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let (Some(log), Role::Leader(leader)) = (&mut replica.log, &mut replica.role) else {
            return Err(ErrorKind::NotLeaderOrFollower);
        };
        check_leader_epoch(current_leader_epoch, leader.leader_epoch())?;
        let end_offset = match fetcher {
            Fetcher::Consumer => leader.exposed_high_watermark().map_err(|error| match spec {
                OffsetSpec::Earliest => ErrorKind::UnknownServerError,
                _ => error,
            }),
            Fetcher::Follower { .. } => Ok(log.log_end_offset()),
        };
        let end_offset = match (end_offset, spec) {
            (Ok(end_offset), _) => end_offset,
            (Err(_), OffsetSpec::Earliest) => leader.high_watermark(),
            (Err(error), _) => return Err(error),
        };
        let found = log
            .find_offset(spec, end_offset)
            .map_err(|error| storage_error(&error))?;
        let epoch = found
            .as_ref()
            .and_then(|found| log.epochs().epoch_at(found.offset))
            .map_or(leader.leader_epoch(), LeaderEpoch);
        Ok((found, epoch))
    }

    /// OffsetForLeaderEpoch: where an epoch ends in the leader's log; none for an epoch that it does not know of.
    pub(crate) fn end_of_epoch(
        &self,
        epoch: LeaderEpoch,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<EpochEnd>, ErrorKind> {
        let replica = self.lock();
        let (Some(log), Role::Leader(leader)) = (&replica.log, &replica.role) else {
            return Err(ErrorKind::NotLeaderOrFollower);
        };
        check_leader_epoch(current_leader_epoch, leader.leader_epoch())?;
        Ok(end_of_epoch(log, epoch).map(|end| EpochEnd {
            end_offset: end.end_offset.max(log.log_start_offset()),
            ..end
        }))
    }

    /// Log start and log end of a partition that this broker leads in this epoch.
    pub(crate) fn own_range(&self, leader_epoch: LeaderEpoch) -> Result<(i64, i64), ErrorKind> {
        let replica = self.lock();
        match (&replica.log, &replica.role) {
            (Some(log), Role::Leader(leader)) if leader.leader_epoch() == leader_epoch => {
                Ok((log.log_start_offset(), log.log_end_offset()))
            }
            _ => Err(ErrorKind::NotLeaderOrFollower),
        }
    }

    /// What a coordinator replays: the batches from `offset` on below `end_offset`, as bytes, at most about
    /// `bytes_max`; the caller has seen that this broker leads. Empty at the end.
    pub(crate) fn read_own(
        &self,
        offset: i64,
        end_offset: i64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, ErrorKind> {
        let range = {
            let mut replica = self.lock();
            let log = replica.log.as_mut().ok_or(ErrorKind::NotLeaderOrFollower)?;
            let offset = offset.max(log.log_start_offset());
            log.read(
                offset,
                ReadLimits {
                    max_bytes: bytes_max,
                    min_one: true,
                    end_offset,
                },
            )
            .map_err(|error| storage_error(&error))?
        };
        let mut bytes = Vec::new();
        if let Some(range) = range {
            range.read_into(&mut bytes).map_err(|error| {
                tracing::warn!(partition = %self.name(), %error, "read failed");
                ErrorKind::KafkaStorageError
            })?;
        }
        Ok(bytes)
    }
}

/// This log's epoch cache as the cores ask it.
pub(super) fn end_of_epoch<D: Disk>(log: &Log<D>, epoch: LeaderEpoch) -> Option<EpochEnd> {
    let end = log.epochs().end_offset_for(epoch.0, log.log_end_offset())?;
    Some(EpochEnd {
        epoch: LeaderEpoch(end.epoch),
        end_offset: end.end_offset,
    })
}
