//! A follower of one partition: where it fetches from, and what it does with what the leader answered.
//!
//! | the leader answered | action | then |
//! |---|---|---|
//! | data or nothing new | append what [`FetchPosition::takes`] accepts | [`Follower::handle_append`]: high watermark, log start; fetch on |
//! | diverging epoch | truncate to where the logs part, by epochs alone | [`Follower::handle_truncated`]; fetch on, it may part again |
//! | OFFSET_OUT_OF_RANGE, leader's log starts above our end | start the log anew there | [`Follower::handle_restarted`]; fetch on |
//! | OFFSET_OUT_OF_RANGE, start not known | ask the leader for its log start | [`Follower::handle_leader_log_start`] |
//! | NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, unknown topic | wait for metadata, here or there | [`Follower::handle_leader`], or ask again after a pause that grows |
//! | anything else | wait | ask again after a pause that grows |
//! | no error, for a position of this epoch that we have passed | [`Follower::handle_append`] without records: high watermark, log start | fetch on |
//! | anything else for a position that is no longer ours | ignore | |
//!
//! The divergence is looked at before the high watermark of the same answer is (KAFKA-14704), and the high watermark
//! is never a point of truncation (KIP-101).

use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::{BrokerId, LeaderEpoch};
use crate::time::Instant;

use super::fetch_check::EpochEnd;

/// The pause after a leader refused; the next one is twice as long, up to one of those below. Often the leader has only
/// not yet applied the metadata that the follower has applied already, and acks=all waits for the two to meet.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause after an error that only time mends (Kafka's `replica.fetch.backoff.ms` is 1 s; a local peer mends sooner).
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(200);
/// Longest wait for metadata before asking the same leader again, in case the answer came from its own stale view.
const PAUSE_AWAITING_METADATA: Duration = Duration::from_secs(1);

/// The follower's own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLog {
    /// First kept offset.
    pub log_start_offset: i64,
    /// Offset of the next record (exclusive end). With `taffrail.flush=ack` the caller fsyncs before it tells.
    pub log_end_offset: i64,
    /// Leader epoch of the last record; `None` = the log has none.
    pub last_epoch: Option<LeaderEpoch>,
}

/// What to put into a fetch, and how to know its answer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPosition {
    /// The leader epoch expected.
    pub leader_epoch: LeaderEpoch,
    /// The next offset wanted.
    pub fetch_offset: i64,
    /// The epoch of the last record here; `None` = none (−1 on the wire).
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// First kept offset here.
    pub log_start_offset: i64,
}

impl FetchPosition {
    /// Whether a batch of this epoch may be appended from the answer to this fetch. One of a later epoch came by a
    /// leader that the follower has not agreed its log with; it and all after it are left out (KAFKA-18723).
    pub fn takes(&self, batch_epoch: LeaderEpoch) -> bool {
        batch_epoch <= self.leader_epoch
    }
}

/// One partition of a fetch answer, without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    /// The error; `None` = none.
    pub error: Option<ErrorKind>,
    /// The leader's high watermark.
    pub high_watermark: i64,
    /// The leader's first kept offset; `None` = not said (−1 on the wire).
    pub log_start_offset: Option<i64>,
    /// Where the logs part, if they do.
    pub diverging: Option<EpochEnd>,
}

/// What to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerAction {
    /// The answer is to an older question.
    Ignore,
    /// Append the batches that [`FetchPosition::takes`], none included, and call [`Follower::handle_append`].
    Append,
    /// The records are here already, by another answer to a fetch that was under way at the same time: call
    /// [`Follower::handle_append`] with the log as it is. A leader does not tell the same high watermark twice.
    AppendNothing,
    /// Truncate the log and its epoch cache to this offset (exclusive end) and call [`Follower::handle_truncated`].
    /// The offset may equal the log end: the epoch cache is trimmed all the same (KAFKA-10706).
    TruncateTo(i64),
    /// Drop the whole log and start it at this offset; then call [`Follower::handle_restarted`].
    RestartAt(i64),
    /// Ask the leader for its earliest offset (ListOffsets) and call [`Follower::handle_leader_log_start`].
    AskLogStart,
    /// Do nothing until [`Follower::next_deadline`] or new metadata.
    Wait(WaitReason),
}

/// Why a follower waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The leader is not, or no longer, what the metadata here says.
    Metadata(ErrorKind),
    /// Something that time may mend.
    Error(ErrorKind),
}

/// What moved by an append; `None` = did not move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// The new high watermark (exclusive).
    pub high_watermark: Option<i64>,
    /// Delete what is below: the leader did.
    pub log_start_offset: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fetching,
    AskingLogStart,
    Waiting { until: Instant },
}

/// State of a partition that this broker follows.
#[derive(Clone, Debug)]
pub struct Follower {
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    log: LocalLog,
    high_watermark: i64,
    phase: Phase,
    /// How often the leader of this epoch has refused one fetch after the other.
    refusals: u32,
}

impl Follower {
    /// Starts to follow. `high_watermark` is that of the checkpoint, or of the previous role of this replica.
    pub fn new(
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        log: LocalLog,
        high_watermark: i64,
    ) -> Follower {
        Follower {
            leader,
            leader_epoch,
            log,
            high_watermark: high_watermark
                .min(log.log_end_offset)
                .max(log.log_start_offset),
            phase: Phase::Fetching,
            refusals: 0,
        }
    }

    /// The metadata names a leader. A newer epoch makes every outstanding answer stale, also with the same leader
    /// (KAFKA-7164); it ends every wait.
    pub fn handle_leader(&mut self, leader: BrokerId, leader_epoch: LeaderEpoch) {
        if leader_epoch > self.leader_epoch {
            self.leader = leader;
            self.leader_epoch = leader_epoch;
            self.phase = Phase::Fetching;
            self.refusals = 0;
        }
    }

    /// The fetch to send now; `None` while waiting.
    pub fn fetch_position(&self, now: Instant) -> Option<FetchPosition> {
        let ready = match self.phase {
            Phase::Fetching => true,
            Phase::AskingLogStart => false,
            Phase::Waiting { until } => until <= now,
        };
        ready.then_some(FetchPosition {
            leader_epoch: self.leader_epoch,
            fetch_offset: self.log.log_end_offset,
            last_fetched_epoch: self.log.last_epoch,
            log_start_offset: self.log.log_start_offset,
        })
    }

    /// The leader answered a fetch from `asked`. `end_of_epoch` looks up this replica's epoch cache: the largest
    /// epoch not above the asked one and where it ends. Call under the same lock as the action that follows
    /// (KAFKA-13207).
    pub fn handle_fetched(
        &mut self,
        now: Instant,
        asked: &FetchPosition,
        answer: &FetchedPartition,
        end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<EpochEnd>,
    ) -> FollowerAction {
        if asked.leader_epoch != self.leader_epoch {
            return FollowerAction::Ignore;
        }
        if asked.fetch_offset != self.log.log_end_offset {
            // Whatever was appended since came from this leader in this epoch, so that its high watermark holds for it.
            let is_overtaken = asked.fetch_offset < self.log.log_end_offset
                && answer.error.is_none()
                && answer.diverging.is_none();
            return if is_overtaken {
                FollowerAction::AppendNothing
            } else {
                FollowerAction::Ignore
            };
        }
        match answer.error {
            None => {
                self.phase = Phase::Fetching;
                self.refusals = 0;
                match answer.diverging {
                    Some(leader_end) => {
                        FollowerAction::TruncateTo(self.truncation_point(leader_end, end_of_epoch))
                    }
                    None => FollowerAction::Append,
                }
            }
            Some(ErrorKind::OffsetOutOfRange) => self.out_of_range(now, answer.log_start_offset),
            Some(
                error @ (ErrorKind::NotLeaderOrFollower
                | ErrorKind::FencedLeaderEpoch
                | ErrorKind::UnknownTopicId
                | ErrorKind::UnknownTopicOrPartition
                | ErrorKind::InconsistentTopicId),
            ) => {
                self.pause(now, PAUSE_AWAITING_METADATA);
                FollowerAction::Wait(WaitReason::Metadata(error))
            }
            Some(error) => self.wait(now, error),
        }
    }

    /// The leader could not be asked, or the local log could not do what was wanted but may later.
    pub fn handle_failed(&mut self, now: Instant) {
        self.phase = Phase::Waiting {
            until: now + PAUSE_AFTER_ERROR,
        };
    }

    /// The log took what was accepted of an answer, which may be nothing. The high watermark follows the leader's up
    /// to our own log end, and only then may the log start follow.
    pub fn handle_append(
        &mut self,
        log_end_offset: i64,
        last_epoch: Option<LeaderEpoch>,
        answer: &FetchedPartition,
    ) -> Advance {
        assert!(
            log_end_offset >= self.log.log_end_offset,
            "an append does not shorten a log"
        );
        self.log.log_end_offset = log_end_offset;
        self.log.last_epoch = last_epoch;
        let mut advance = Advance::default();
        let high_watermark = answer.high_watermark.min(log_end_offset);
        if high_watermark > self.high_watermark {
            self.high_watermark = high_watermark;
            advance.high_watermark = Some(high_watermark);
        }
        if let Some(start) = answer.log_start_offset {
            let start = start.min(self.high_watermark);
            if start > self.log.log_start_offset {
                self.log.log_start_offset = start;
                advance.log_start_offset = Some(start);
            }
        }
        self.assert_order();
        advance
    }

    /// The log was truncated by epoch. A high watermark above the new end goes with it: only an unclean election
    /// leads there.
    pub fn handle_truncated(&mut self, log: LocalLog) {
        self.log = log;
        self.high_watermark = self
            .high_watermark
            .min(log.log_end_offset)
            .max(log.log_start_offset);
        self.assert_order();
    }

    /// The log was dropped and starts anew at `offset`.
    pub fn handle_restarted(&mut self, offset: i64) {
        self.log = LocalLog {
            log_start_offset: offset,
            log_end_offset: offset,
            last_epoch: None,
        };
        self.high_watermark = offset;
        self.phase = Phase::Fetching;
        self.refusals = 0;
    }

    /// The leader of epoch `asked_in` told its earliest offset.
    pub fn handle_leader_log_start(
        &mut self,
        now: Instant,
        asked_in: LeaderEpoch,
        leader_log_start_offset: i64,
    ) -> FollowerAction {
        if asked_in != self.leader_epoch || self.phase != Phase::AskingLogStart {
            return FollowerAction::Ignore;
        }
        self.out_of_range(now, Some(leader_log_start_offset))
    }

    /// When [`Follower::fetch_position`] answers again; `None` = now, or after what was asked for is done.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Fetching | Phase::AskingLogStart => None,
            Phase::Waiting { until } => Some(until),
        }
    }

    /// Whom to fetch from.
    pub fn leader(&self) -> BrokerId {
        self.leader
    }

    /// In which epoch.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// What is known of the own log.
    pub fn log(&self) -> LocalLog {
        self.log
    }

    /// Exclusive: records below it are committed, as far as this replica knows.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The log start of this replica moved for a local reason (retention).
    pub fn handle_log_start(&mut self, log_start_offset: i64) {
        self.log.log_start_offset = self.log.log_start_offset.max(log_start_offset);
        self.high_watermark = self.high_watermark.max(self.log.log_start_offset);
        self.assert_order();
    }

    /// Where to cut, given where the leader's log ends in the epoch that both may share (KIP-279): if we know that
    /// epoch, the smaller of the two ends; else the end of the largest epoch we have below it, from where the next
    /// fetch compares again; with no such epoch, nothing of ours is shared above the leader's end.
    fn truncation_point(
        &self,
        leader_end: EpochEnd,
        end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<EpochEnd>,
    ) -> i64 {
        let cut = match end_of_epoch(leader_end.epoch) {
            Some(local) if local.epoch == leader_end.epoch => {
                local.end_offset.min(leader_end.end_offset)
            }
            Some(local) => local.end_offset,
            None => leader_end.end_offset,
        };
        cut.clamp(self.log.log_start_offset, self.log.log_end_offset)
    }

    /// Our log end is not in the leader's range. If the leader deleted past it, all of ours is gone there too. A log
    /// without records loses nothing by starting anew. Otherwise the ranges do overlap by now: ask again.
    fn out_of_range(
        &mut self,
        now: Instant,
        leader_log_start_offset: Option<i64>,
    ) -> FollowerAction {
        let Some(start) = leader_log_start_offset else {
            self.phase = Phase::AskingLogStart;
            return FollowerAction::AskLogStart;
        };
        let empty = self.log.log_start_offset == self.log.log_end_offset;
        if start > self.log.log_end_offset || (empty && start != self.log.log_end_offset) {
            self.phase = Phase::Fetching;
            return FollowerAction::RestartAt(start);
        }
        self.wait(now, ErrorKind::OffsetOutOfRange)
    }

    fn wait(&mut self, now: Instant, error: ErrorKind) -> FollowerAction {
        self.pause(now, PAUSE_AFTER_ERROR);
        FollowerAction::Wait(WaitReason::Error(error))
    }

    /// The leader refused: it is asked again after a pause, the longer the more often it has.
    fn pause(&mut self, now: Instant, longest: Duration) {
        let doubled = 2u32.checked_pow(self.refusals);
        let pause = doubled.and_then(|times| PAUSE_FIRST.checked_mul(times));
        self.phase = Phase::Waiting {
            until: now + pause.map_or(longest, |pause| pause.min(longest)),
        };
        self.refusals = self.refusals.saturating_add(1);
    }

    fn assert_order(&self) {
        assert!(
            self.log.log_start_offset <= self.high_watermark
                && self.high_watermark <= self.log.log_end_offset,
            "log start <= high watermark <= log end"
        );
    }
}
