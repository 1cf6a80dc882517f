//! Reading: what a consumer or a follower may see from an offset on, as a file range, and where its log parts from ours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use taffrail_core::error::ErrorKind;
use taffrail_core::fetch_session::Position;
use taffrail_core::ids::{BrokerEpoch, BrokerId, LeaderEpoch};
use taffrail_core::metadata::Image;
use taffrail_core::producer::Producers;
use taffrail_core::replica::{
    EpochEnd, FetchCheck, FetchedFrom, FollowerFetch, check_fetch, check_leader_epoch,
};
use taffrail_core::time::Instant;
use taffrail_log::{AbortedTransaction, Disk, FileRange, Log, LogError, ReadLimits};

use super::{Partition, Replica, Role, storage_error};
use crate::env::Env;
use crate::replication::{VisibleEnd, Waiter};

/// What a consumer wants to see of transactions (Kafka's `IsolationLevel`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// All that is replicated.
    ReadUncommitted,
    /// Up to the first transaction that is open; and it is told which ones were aborted.
    ReadCommitted,
}

impl Isolation {
    /// The level that a request names; an unknown one sees all, as in Kafka.
    pub(crate) fn from_wire(level: i8) -> Self {
        if level == 1 {
            Self::ReadCommitted
        } else {
            Self::ReadUncommitted
        }
    }
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetcher {
    Consumer(Isolation),
    Follower {
        broker: BrokerId,
        broker_epoch: Option<BrokerEpoch>,
    },
}

/// A consumer that may read from a replica near it (KIP-392): where it stands, and by which listener it came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nearby<'a> {
    pub(crate) image: &'a Image,
    pub(crate) rack: &'a str,
    pub(crate) listener: &'a str,
}

impl Nearby<'_> {
    /// Whether a broker stands in the consumer's rack and can be reached by it. A consumer that names no rack is near nobody.
    fn has(&self, broker: BrokerId) -> bool {
        !self.rack.is_empty()
            && self.image.rack(broker) == Some(self.rack)
            && self.image.listener(broker, self.listener).is_some()
    }
}

/// One partition of a fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRequest<'a> {
    pub(crate) position: Position,
    pub(crate) fetcher: Fetcher,
    /// A consumer that may also read from followers; `None` where everybody reads from leaders.
    pub(crate) nearby: Option<Nearby<'a>>,
    pub(crate) bytes_max: usize,
    /// Whether the first batch is returned even if it alone is larger.
    pub(crate) min_one: bool,
    /// Whether the leader takes note of a follower's progress: once per fetch.
    pub(crate) note_follower: bool,
    /// A moment before which the fetch was certainly not made up.
    pub(crate) made_after: Option<Instant>,
}

impl ReadRequest<'_> {
    /// What a consumer may see of a log (exclusive end), and what it waits for.
    fn visible(&self, high_watermark: i64, last_stable_offset: i64) -> (VisibleEnd, i64) {
        match self.fetcher {
            Fetcher::Consumer(Isolation::ReadUncommitted) => {
                (VisibleEnd::HighWatermark, high_watermark)
            }
            Fetcher::Consumer(Isolation::ReadCommitted) => {
                (VisibleEnd::LastStable, last_stable_offset)
            }
            Fetcher::Follower { .. } => (VisibleEnd::LogEnd, i64::MAX),
        }
    }

    fn limits(&self, end_offset: i64) -> ReadLimits {
        ReadLimits {
            max_bytes: self.bytes_max,
            min_one: self.min_one,
            end_offset,
        }
    }
}

/// What was found.
pub(crate) struct ReadResult<E: Env> {
    pub(crate) error: Option<ErrorKind>,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) log_start_offset: i64,
    pub(crate) diverging: Option<EpochEnd>,
    /// Whether what is read counts as that of a throttled replica.
    pub(crate) throttled: bool,
    /// Whether the follower is to fetch again at once.
    pub(crate) wanted_again: bool,
    /// The replica that the consumer is sent to instead of getting records.
    pub(crate) preferred_read_replica: Option<BrokerId>,
    /// For a consumer that wants to leave them out: the aborted transactions that have records in the range, by first offset.
    pub(crate) aborted: Option<Vec<AbortedTransaction>>,
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
            throttled: false,
            wanted_again: false,
            preferred_read_replica: None,
            aborted: None,
            range: None,
        }
    }

    /// Nothing yet but the numbers of a replica.
    fn of<D: Disk>(log: &Log<D>, producers: &Producers, high_watermark: i64) -> Self {
        Self {
            error: None,
            high_watermark,
            last_stable_offset: last_stable_offset(log, producers, high_watermark),
            log_start_offset: log.log_start_offset(),
            diverging: None,
            throttled: false,
            wanted_again: false,
            preferred_read_replica: None,
            aborted: None,
            range: None,
        }
    }

    /// Adds which transactions of what was read were aborted, for whoever wants to know.
    fn add_aborted<D: Disk<File = <E::Disk as Disk>::File>>(
        &mut self,
        request: &ReadRequest<'_>,
        log: &Log<D>,
    ) -> Result<(), LogError> {
        if request.fetcher != Fetcher::Consumer(Isolation::ReadCommitted) {
            return Ok(());
        }
        let offset = request.position.fetch_offset;
        self.aborted = Some(match &self.range {
            Some(range) => log.aborted_in(offset, range, self.last_stable_offset)?,
            None => Vec::new(),
        });
        Ok(())
    }

    /// Whether the position is good to read from; if not, this is the answer.
    fn check_position<D: Disk>(&mut self, position: &Position, log: &Log<D>) -> bool {
        let from = FetchedFrom {
            fetch_offset: position.fetch_offset,
            last_fetched_epoch: position.last_fetched_epoch,
        };
        let (log_start_offset, log_end_offset) = (log.log_start_offset(), log.log_end_offset());
        match check_fetch(from, log_start_offset, log_end_offset, |epoch| {
            end_of_epoch(log, epoch)
        }) {
            FetchCheck::Read => return true,
            FetchCheck::Diverging(end) => self.diverging = Some(end),
            // A follower learns where the log starts with the very answer, so that it need not ask.
            FetchCheck::Refused(error) => self.error = Some(error),
        }
        false
    }
}

impl<E: Env> Partition<E> {
    /// Reads from a position. With a waiter, registers it under the same lock if there was nothing wrong.
    pub(crate) fn read(
        &self,
        now: Instant,
        request: &ReadRequest<'_>,
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
    pub(crate) fn count_read(&self, now: Instant, fetcher: Fetcher, bytes: usize, throttled: bool) {
        if throttled {
            self.throttles.leader.record(now, bytes);
        }
        match fetcher {
            Fetcher::Consumer(_) => self.metrics.bytes_out.inc_by(bytes as u64),
            Fetcher::Follower { .. } => self.metrics.replication_bytes_out.inc_by(bytes as u64),
        }
    }

    fn try_read(
        &self,
        now: Instant,
        request: &ReadRequest<'_>,
        waiter: Option<&Arc<Waiter>>,
    ) -> Result<ReadResult<E>, ErrorKind> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        if request.nearby.is_some() && matches!(replica.role, Role::Follower(_)) {
            return self.read_as_follower(replica, request, waiter);
        }
        let mut effects = std::mem::take(&mut replica.effects);
        let (Some(log), Role::Leader(leader)) = (&mut replica.log, &mut replica.role) else {
            return Err(ErrorKind::NotLeaderOrFollower);
        };
        check_leader_epoch(request.position.current_leader_epoch, leader.leader_epoch())?;
        let mut result = ReadResult::of(log, &replica.producers, leader.high_watermark());
        if !result.check_position(&request.position, log) {
            return Ok(result);
        }
        let fetch_offset = request.position.fetch_offset;
        if let Some(nearby) = request.nearby
            && let Some(other) =
                leader.preferred_read_replica(fetch_offset, |broker| nearby.has(broker))
        {
            result.preferred_read_replica = Some(other);
            return Ok(result);
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
                fetch_offset,
                log_start_offset: request.position.log_start_offset,
                made_after: request.made_after,
                leader_log_end_offset: log.log_end_offset(),
            };
            leader.handle_follower_fetch(now, fetch, &mut effects)?;
            // This very fetch may have moved it: what is answered is one snapshot, taken after.
            result.high_watermark = leader.high_watermark();
            result.last_stable_offset =
                last_stable_offset(log, &replica.producers, result.high_watermark);
        }
        if let Fetcher::Follower { broker, .. } = request.fetcher {
            result.wanted_again = replica.proof_waiters.need_fetch_of(leader, broker);
            result.throttled = self.throttled.as_leader.load(Ordering::Relaxed)
                && !leader.isr().any(|member| member == broker);
            if result.throttled && self.throttles.leader.is_exceeded(now) {
                // Nothing now, and not woken by more of what it may not have: the fetch asks again when its wait is over.
                self.settle(replica, effects);
                return Ok(result);
            }
        }
        let (end, end_offset) = request.visible(result.high_watermark, result.last_stable_offset);
        #[cfg(feature = "mutants")]
        let end_offset = end_offset.saturating_add(i64::from(taffrail_mutants::is_planted(
            taffrail_mutants::Mutant::ReadBeyondHighWatermark,
        )));
        let range = log.read(fetch_offset, request.limits(end_offset));
        let found_data = matches!(range, Ok(Some(_)));
        let found_damage = matches!(range, Err(LogError::Corrupt { .. }));
        if found_damage || (found_data && replica_is_stuck(&mut replica.stuck, request)) {
            self.suspects.push(self.id, fetch_offset);
        }
        // Whatever the read came to: what the follower's progress led to must not be lost.
        self.settle(replica, effects);
        result.range = range.map_err(|error| self.read_failed(fetch_offset, &error))?;
        if let Some(log) = &replica.log {
            result
                .add_aborted(request, log)
                .map_err(|error| self.read_failed(fetch_offset, &error))?;
        }
        if let Some(waiter) = waiter {
            replica.waiters.add_fetch(end, waiter);
        }
        Ok(result)
    }

    /// A consumer reads from a follower near it, up to what this follower knows to be committed. An offset that it does not have
    /// is out of range here; the consumer then asks the leader, which knows.
    fn read_as_follower(
        &self,
        replica: &mut Replica<E>,
        request: &ReadRequest<'_>,
        waiter: Option<&Arc<Waiter>>,
    ) -> Result<ReadResult<E>, ErrorKind> {
        let (Some(log), Role::Follower(follower)) = (&mut replica.log, &replica.role) else {
            return Err(ErrorKind::NotLeaderOrFollower);
        };
        let expected = request.position.current_leader_epoch;
        check_leader_epoch(expected, follower.leader_epoch())?;
        let mut result = ReadResult::of(log, &replica.producers, follower.high_watermark());
        if !result.check_position(&request.position, log) {
            return Ok(result);
        }
        let fetch_offset = request.position.fetch_offset;
        let (end, end_offset) = request.visible(result.high_watermark, result.last_stable_offset);
        result.range = log
            .read(fetch_offset, request.limits(end_offset))
            .map_err(|error| self.read_failed(fetch_offset, &error))?;
        result
            .add_aborted(request, log)
            .map_err(|error| self.read_failed(fetch_offset, &error))?;
        if let Some(waiter) = waiter {
            replica.waiters.add_fetch(end, waiter);
        }
        Ok(result)
    }

    fn read_failed(&self, offset: i64, error: &LogError) -> ErrorKind {
        tracing::warn!(partition = %self.name(), offset, %error, "read failed");
        storage_error(error)
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
    /// `bytes_max`; the caller has seen that this broker leads. Empty at the end. Nothing has compared their checksums.
    pub(crate) fn read_own(
        &self,
        offset: i64,
        end_offset: i64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, OwnReadError> {
        let range = {
            let mut replica = self.lock();
            let log = replica.log.as_mut().ok_or(OwnReadError::NoLog)?;
            let offset = offset.max(log.log_start_offset());
            log.read(
                offset,
                ReadLimits {
                    max_bytes: bytes_max,
                    min_one: true,
                    end_offset,
                },
            )?
        };
        let mut bytes = Vec::new();
        if let Some(range) = range {
            range.read_into(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// A coordinator has seen that this log may be damaged around an offset.
    pub(crate) fn suspect(&self, offset: i64) {
        self.suspects.push(self.id, offset);
    }
}

/// Why a coordinator cannot read its log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnReadError {
    #[error("this broker has no log of it")]
    NoLog,
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    File(#[from] std::io::Error),
}

/// The exclusive end of what read_committed may see. A transaction that began below the log start is open from there on.
pub(super) fn last_stable_offset<D: Disk>(
    log: &Log<D>,
    producers: &Producers,
    high_watermark: i64,
) -> i64 {
    producers
        .last_stable_offset(high_watermark)
        .max(log.log_start_offset().min(high_watermark))
}

/// A follower that is given the same data again and again does not take it: perhaps it is damaged here, which nobody sees
/// who sends it from file to socket.
const STUCK_FETCHES: u32 = 3;

fn replica_is_stuck(stuck: &mut BTreeMap<BrokerId, (i64, u32)>, request: &ReadRequest) -> bool {
    let Fetcher::Follower { broker, .. } = request.fetcher else {
        return false;
    };
    if !request.note_follower {
        return false;
    }
    let offset = request.position.fetch_offset;
    let (asked, times) = stuck.entry(broker).or_insert((offset, 0));
    if *asked != offset {
        (*asked, *times) = (offset, 0);
    }
    *times += 1;
    if *times < STUCK_FETCHES {
        return false;
    }
    *times = 0;
    true
}

/// This log's epoch cache as the cores ask it.
pub(super) fn end_of_epoch<D: Disk>(log: &Log<D>, epoch: LeaderEpoch) -> Option<EpochEnd> {
    let end = log.epochs().end_offset_for(epoch.0, log.log_end_offset())?;
    Some(EpochEnd {
        epoch: LeaderEpoch(end.epoch),
        end_offset: end.end_offset,
    })
}
