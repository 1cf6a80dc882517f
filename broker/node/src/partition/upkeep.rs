//! What is done to a replica from time to time: retention, DeleteRecords, high watermark checkpoints.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_log::{CheckpointKind, LogError, Retired};

use super::{Partition, Role, storage_error};
use crate::env::Env;
use crate::replication::Waiter;

/// What DeleteRecords did.
pub(crate) struct Deletion<E: Env> {
    /// Where the log starts now.
    pub(crate) offset: i64,
    /// Segments whose files are to be removed.
    pub(crate) retired: Option<Retired<E::Disk>>,
    /// Whether every live replica starts there, too.
    pub(crate) reached: bool,
}

impl<E: Env> Partition<E> {
    /// Notes the high watermark for the next checkpoint.
    pub(crate) fn publish_high_watermark(&self) {
        let replica = self.lock();
        if let Some(log) = &replica.log {
            log.directory().publish(
                CheckpointKind::HighWatermark,
                &self.topic,
                self.id.partition,
                replica.high_watermark(),
            );
        }
    }

    /// Takes out the segments that are too old or too many; the caller removes their files.
    pub(crate) fn retire_segments(&self, wall_ms: i64) -> Option<Retired<E::Disk>> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let high_watermark = replica.high_watermark();
        let log = replica.log.as_mut()?;
        let retired = log.retire_segments(wall_ms, high_watermark);
        let log_start_offset = log.log_start_offset();
        match retired {
            Ok(retired) => {
                if retired.segments > 0 {
                    tracing::info!(
                        partition = %self.name(),
                        segments = retired.segments,
                        bytes = retired.bytes,
                        log_start_offset,
                        "retention removed old segments"
                    );
                    self.note_log_start(replica, log_start_offset);
                }
                Some(retired)
            }
            Err(error) => {
                log_failure(&self.name(), "retention", &error);
                None
            }
        }
    }

    /// Gives back what is kept for the next segment.
    pub(crate) fn give_back_room(&self) {
        if let Some(log) = &mut self.lock().log {
            log.give_back_room();
        }
    }

    /// DeleteRecords: moves the log start up. Registers the waiter unless all live replicas are there already.
    pub(crate) fn delete_records(
        &self,
        offset: i64,
        wall_ms: i64,
        waiter: &Arc<Waiter>,
    ) -> Result<Deletion<E>, ErrorKind> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let (Some(log), Role::Leader(leader)) = (&mut replica.log, &replica.role) else {
            return Err(ErrorKind::NotLeaderOrFollower);
        };
        if !log.config().delete {
            return Err(ErrorKind::PolicyViolation);
        }
        let high_watermark = leader.high_watermark();
        let wanted = if offset == -1 { high_watermark } else { offset };
        if wanted > high_watermark || wanted < 0 {
            return Err(ErrorKind::OffsetOutOfRange);
        }
        let mut retired = None;
        if wanted > log.log_start_offset() {
            retired = Some(
                log.delete_records(wanted, high_watermark, wall_ms)
                    .map_err(|error| storage_error(&error))?,
            );
            let log_start_offset = log.log_start_offset();
            self.note_log_start(replica, log_start_offset);
        }
        let reached = low_watermark(&replica.role).is_some_and(|low| low >= wanted);
        if !reached {
            replica
                .low_watermark_waiters
                .retain(|other| Arc::strong_count(other) > 1 && !other.is_over());
            replica.low_watermark_waiters.push(Arc::clone(waiter));
            // Followers learn of the new start with their next answer, so they get one now.
            replica.waiters.wake_fetches();
        }
        Ok(Deletion {
            offset: wanted,
            retired,
            reached,
        })
    }

    /// The smallest log start over the live replicas, if this broker leads.
    pub(crate) fn low_watermark(&self) -> Result<Option<i64>, ErrorKind> {
        match &self.lock().role {
            role @ Role::Leader(_) => Ok(low_watermark(role)),
            Role::Follower(_) | Role::Idle => Err(ErrorKind::NotLeaderOrFollower),
        }
    }

    fn note_log_start(&self, replica: &mut super::Replica<E>, log_start_offset: i64) {
        let mut effects = std::mem::take(&mut replica.effects);
        match &mut replica.role {
            Role::Leader(leader) => leader.handle_log_start(log_start_offset, &mut effects),
            Role::Follower(follower) => follower.handle_log_start(log_start_offset),
            Role::Idle => replica.high_watermark = replica.high_watermark.max(log_start_offset),
        }
        self.settle(replica, effects);
    }
}

fn low_watermark(role: &Role) -> Option<i64> {
    match role {
        Role::Leader(leader) => leader.low_watermark(),
        Role::Follower(_) | Role::Idle => None,
    }
}

pub(super) fn log_failure(name: &str, what: &str, error: &LogError) {
    match error {
        // Said once, when it was poisoned.
        LogError::Poisoned { .. } => tracing::debug!(partition = name, %error, what, "not done"),
        _ => tracing::warn!(partition = name, %error, what, "not done"),
    }
}
