//! The follower's side: what to ask the leader for, and what to do with its answer, under one lock.

use std::time::Duration;

use taffrail_core::controller::Impairment;
use taffrail_core::ids::LeaderEpoch;
use taffrail_core::replica::{FetchPosition, FetchedPartition, FollowerAction, WaitReason};
use taffrail_core::time::Instant;
use taffrail_log::{Disk, Log, LogError, RoomFor};

use super::read::end_of_epoch;
use super::repair::Soundness;
use super::upkeep::log_failure;
use super::{Partition, Replica, Role};
use crate::env::Env;
use crate::producer_snapshots;

/// A replica whose records are not durable yet looks again after this.
const FLUSH_PAUSE: Duration = Duration::from_millis(500);

/// A replica with a damaged log fetches nothing until the damage is dropped, which wakes it; so that its leader cannot
/// take it for one that has caught up.
const DAMAGED_PAUSE: Duration = Duration::from_secs(1);

/// What the fetcher does next about a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowerStep {
    /// Fetch on, from wherever the partition now stands.
    Fetch,
    /// Ask the leader where its log starts, and tell `handle_leader_log_start`.
    AskLogStart(LeaderEpoch),
    /// Ask again at this time, or when the metadata changes.
    Wait(Instant),
    /// This replica does not follow any more.
    Leave,
}

impl<E: Env> Partition<E> {
    /// The fetch to send now, if this replica follows; `Err` says when to ask again. The leader counts what it is told,
    /// so with `taffrail.flush=ack` it is told nothing beyond what is durable.
    pub(crate) fn fetch_position(&self, now: Instant) -> Result<FetchPosition, FollowerStep> {
        let replica = self.lock();
        match &replica.role {
            Role::Follower(_) if matches!(replica.soundness, Soundness::Damaged { .. }) => {
                Err(FollowerStep::Wait(now + DAMAGED_PAUSE))
            }
            Role::Follower(_) if replica.owes_flush() => Err(FollowerStep::Wait(now + FLUSH_PAUSE)),
            Role::Follower(follower) => follower
                .fetch_position(now)
                .ok_or_else(|| waiting(follower, now)),
            Role::Leader(_) | Role::Idle => Err(FollowerStep::Leave),
        }
    }

    /// Whether records must be made durable before the leader may hear of them.
    pub(crate) fn owes_flush(&self) -> bool {
        self.lock().owes_flush()
    }

    /// The leader answered. `records` are whole batches as the leader has them.
    pub(crate) fn handle_fetched(
        &self,
        env: &E,
        asked: &FetchPosition,
        answer: &FetchedPartition,
        records: &[u8],
    ) -> FollowerStep {
        let now = env.now();
        let mut guard = self.lock();
        let replica = &mut *guard;
        let (Some(log), Role::Follower(follower)) = (&mut replica.log, &mut replica.role) else {
            return FollowerStep::Leave;
        };
        let action = follower.handle_fetched(now, asked, answer, |epoch| end_of_epoch(log, epoch));
        if matches!(replica.soundness, Soundness::Damaged { .. }) {
            // An answer to what was asked before.
            follower.handle_failed(now);
            return FollowerStep::Wait(now + DAMAGED_PAUSE);
        }
        match action {
            FollowerAction::Append => self.append_fetched(replica, env, asked, answer, records),
            FollowerAction::AppendNothing => self.append_fetched(replica, env, asked, answer, &[]),
            other => self.act(replica, env, other),
        }
    }

    /// The leader of `asked_in` told its earliest offset.
    pub(crate) fn handle_leader_log_start(
        &self,
        env: &E,
        asked_in: LeaderEpoch,
        log_start_offset: i64,
    ) -> FollowerStep {
        let now = env.now();
        let mut guard = self.lock();
        let replica = &mut *guard;
        let Role::Follower(follower) = &mut replica.role else {
            return FollowerStep::Leave;
        };
        let action = follower.handle_leader_log_start(now, asked_in, log_start_offset);
        self.act(replica, env, action)
    }

    /// The leader could not be asked.
    pub(crate) fn handle_fetch_failed(&self, now: Instant) -> FollowerStep {
        let mut replica = self.lock();
        let Role::Follower(follower) = &mut replica.role else {
            return FollowerStep::Leave;
        };
        follower.handle_failed(now);
        waiting(follower, now)
    }

    fn act(&self, replica: &mut Replica<E>, env: &E, action: FollowerAction) -> FollowerStep {
        let (now, wall_ms) = (env.now(), env.wall_ms());
        let (Some(log), Role::Follower(follower)) = (&mut replica.log, &mut replica.role) else {
            return FollowerStep::Leave;
        };
        let done = match action {
            FollowerAction::Ignore | FollowerAction::Append | FollowerAction::AppendNothing => {
                return FollowerStep::Fetch;
            }
            FollowerAction::AskLogStart => {
                return FollowerStep::AskLogStart(follower.leader_epoch());
            }
            FollowerAction::Wait(reason) => {
                match reason {
                    WaitReason::Metadata(error) | WaitReason::Error(error) => {
                        tracing::debug!(partition = %self.name(), ?error, "the leader refused a fetch");
                    }
                }
                return waiting(follower, now);
            }
            FollowerAction::TruncateTo(offset) => {
                tracing::info!(partition = %self.name(), offset, log_end_offset = log.log_end_offset(), "truncating to where the leader's log parts");
                log.truncate_to(offset, wall_ms).map(|log_end_offset| {
                    follower.handle_truncated(Replica::<E>::local_log(log));
                    producer_snapshots::truncate(log, log_end_offset, &mut replica.producers, now);
                })
            }
            FollowerAction::RestartAt(offset) => {
                tracing::info!(partition = %self.name(), offset, "starting the log anew where the leader's begins");
                log.truncate_fully_and_start_at(offset, wall_ms).map(|()| {
                    follower.handle_restarted(offset);
                    replica.producers.handle_restarted();
                })
            }
        };
        if let Err(error) = done {
            tracing::warn!(partition = %self.name(), %error, "the follower could not do what it must");
            follower.handle_failed(now);
            return waiting(follower, now);
        }
        replica.high_watermark = follower.high_watermark();
        replica.waiters.wake_fetches();
        FollowerStep::Fetch
    }

    fn append_fetched(
        &self,
        replica: &mut Replica<E>,
        env: &E,
        asked: &FetchPosition,
        answer: &FetchedPartition,
        records: &[u8],
    ) -> FollowerStep {
        let (now, wall_ms) = (env.now(), env.wall_ms());
        let (Some(log), Role::Follower(follower)) = (&mut replica.log, &mut replica.role) else {
            return FollowerStep::Leave;
        };
        if !records.is_empty() {
            let appended = append_with_room(log, records, asked.leader_epoch.0, wall_ms);
            let full = matches!(appended, Err(LogError::DiskFull { .. }));
            if std::mem::replace(&mut replica.full, full) != full {
                self.note_full(full);
            }
            let appended = match appended {
                Ok(appended) => appended,
                Err(error) => {
                    // Tried again twice a second, told once.
                    if !std::mem::replace(&mut replica.append_failing, true) {
                        tracing::warn!(partition = %self.name(), leader = %follower.leader(), offset = asked.fetch_offset, %error, "what the leader sent could not be appended");
                    }
                    follower.handle_failed(now);
                    return waiting(follower, now);
                }
            };
            replica.append_failing = false;
            if appended.rolled.is_some() {
                self.flushes.push(self.id);
            }
            let (records, producers) = (&records[..appended.bytes], &mut replica.producers);
            let noted = producer_snapshots::note_all(log, producers, now, records, appended.rolled);
            if let Err(error) = noted {
                // The log is closed for good: its directory goes offline.
                log_failure(&self.name(), "note a transaction", &error);
                follower.handle_failed(now);
                return waiting(follower, now);
            }
            self.flushes.note_appended(appended.bytes as u64);
            replica.unseen_bytes += i64::try_from(appended.bytes).unwrap_or(i64::MAX);
            self.metrics
                .replication_bytes_in
                .inc_by(appended.bytes as u64);
        }
        let local = Replica::<E>::local_log(log);
        let advance = follower.handle_append(local.log_end_offset, local.last_epoch, answer);
        if replica.soundness == Soundness::Refetching
            && local.log_end_offset >= answer.high_watermark
        {
            tracing::info!(partition = %self.name(), log_end_offset = local.log_end_offset, "the log is whole again");
            self.is_sound_again(&mut replica.soundness);
        }
        if let Some(log_start_offset) = advance.log_start_offset {
            follow_log_start(self.name(), log, log_start_offset, env);
        }
        if let Some(high_watermark) = advance.high_watermark {
            replica.show_up_to(high_watermark);
        }
        FollowerStep::Fetch
    }

    /// A follower without room leaves the ISR at once, instead of holding up every producer until it counts as lagging.
    fn note_full(&self, full: bool) {
        if full {
            self.impairments.add(self.id, Impairment::Full);
        } else {
            self.impairments.remove(self.id, Impairment::Full);
        }
    }

    /// A follower that found no room may join the ISR again once there is some. It does not wait for the next records: they may
    /// not come before it is in the ISR, and a fetch session leaves out what has nothing new.
    pub(crate) fn look_for_room(&self) {
        let mut replica = self.lock();
        let log = replica.log.as_ref();
        let has_room = |log: &Log<E::Disk>| log.directory().has_room(1, RoomFor::Replication);
        if log.is_some_and(has_room) && std::mem::replace(&mut replica.full, false) {
            self.note_full(false);
        }
    }

    /// Whether this replica follows, and whom.
    pub(crate) fn leader_followed(&self) -> Option<taffrail_core::ids::BrokerId> {
        match &self.lock().role {
            Role::Follower(follower) => Some(follower.leader()),
            Role::Leader(_) | Role::Idle => None,
        }
    }
}

/// A follower leaves half of the reserve to what must be written for the broker to go on.
fn append_with_room<D: Disk>(
    log: &mut Log<D>,
    records: &[u8],
    leader_epoch: i32,
    wall_ms: i64,
) -> Result<taffrail_log::Appended, LogError> {
    let bytes = records.len() as u64;
    if log.directory().has_room(bytes, RoomFor::Replication) {
        log.append_follower(records, leader_epoch, wall_ms)
    } else {
        Err(LogError::DiskFull {
            path: log.directory().path().display().to_string(),
        })
    }
}

/// Moves the log start up with the leader's; files that are not needed any more go in the background.
fn follow_log_start<E: Env>(name: String, log: &mut Log<E::Disk>, log_start_offset: i64, env: &E) {
    match log.advance_log_start_to(log_start_offset, env.wall_ms()) {
        Ok(retired) if retired.segments == 0 => {}
        Ok(retired) => {
            let remover = env.clone();
            env.spawn(async move {
                if let Err(error) = remover.run_blocking(move || retired.remove()).await {
                    tracing::warn!(partition = name, %error, "files of deleted segments are still there");
                }
            });
        }
        Err(error) => {
            tracing::warn!(partition = name, %error, "the leader's log start could not be followed");
        }
    }
}

fn waiting(follower: &taffrail_core::replica::Follower, now: Instant) -> FollowerStep {
    FollowerStep::Wait(follower.next_deadline().unwrap_or(now))
}
