//! A replica whose log is damaged: it says so, gives up its place to others that are whole, and fetches the damaged part anew.
//!
//! | state | meaning | fetches | ends |
//! |---|---|---|---|
//! | `Sound` | nothing is known to be wrong | yes | a check finds damage: `Damaged` |
//! | `Damaged` | the log cannot be trusted from a segment on | no | the controller knows, and the replica is out of ISR and ELR, with another leader: the segment and all behind it go, `Refetching`; or retention removed it: `Sound` |
//! | `Refetching` | committed records are missing | yes | all that is committed is here: `Sound` |
//!
//! In the last two the controller is told so with each heartbeat: it takes the replica out of the ISR as soon as another member
//! is left that may lead, and lets it in again only when it is sound. The last one in the ISR stays as it is, for
//! what it has is all there is.
//!
//! Being out of the ISR in the metadata that is known here is not enough: its leader may have asked to take it back before
//! the damage was found, and the records that it then counts for would be gone. So nothing is dropped before the controller
//! has answered a report of this damage, and all that it had decided until then is followed here.

use taffrail_core::controller::Impairment;
use taffrail_core::metadata::Image;
use taffrail_core::time::Instant;
use taffrail_log::{CheckStep, SegmentCheck};

use super::{Partition, Replica, Role};
use crate::env::Env;
use crate::producer_snapshots;

/// What is known of a log's bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Soundness {
    /// Nothing bad.
    #[default]
    Sound,
    /// Damaged from the segment with this base offset on.
    Damaged { base_offset: i64 },
    /// The damaged part was dropped and is being fetched.
    Refetching,
}

impl Soundness {
    /// For people; none while nothing is wrong.
    pub(super) fn damage(&self) -> Option<&'static str> {
        match self {
            Self::Sound => None,
            Self::Damaged { .. } => Some("damaged"),
            Self::Refetching => Some("refetching"),
        }
    }
}

/// What came of an attempt to mend a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repair {
    /// There is nothing to mend any more.
    Sound,
    /// Others have to take over first, or there are none.
    Waits,
    /// The damaged part is gone: it has to be fetched from this leader.
    Fetch(taffrail_core::ids::BrokerId),
}

impl<E: Env> Partition<E> {
    /// A check of the segment that holds `offset`, if there is one to make.
    pub(crate) fn begin_check(&self, offset: i64, active: bool) -> Option<SegmentCheck<E::Disk>> {
        let mut replica = self.lock();
        let log = replica.log.as_mut()?;
        if log.poisoned().is_some() {
            return None;
        }
        log.begin_check(offset, active).unwrap_or_else(|error| {
            tracing::warn!(partition = %self.name(), %error, "a segment could not be checked");
            None
        })
    }

    /// A check has ended. Damage that still counts changes what this replica may do.
    pub(crate) fn finish_check(&self, check: &SegmentCheck<E::Disk>, outcome: &CheckStep) {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let Some(log) = &mut replica.log else { return };
        let counts = log.finish_check(check);
        let CheckStep::Damaged(reason) = outcome else {
            return;
        };
        if !counts || replica.soundness != Soundness::Sound {
            return;
        }
        let base_offset = check.base_offset();
        tracing::error!(
            partition = %self.name(),
            role = replica.role.name(),
            reason,
            "the log is damaged: other replicas take over, and this one fetches it anew from offset {base_offset} on"
        );
        replica.soundness = Soundness::Damaged { base_offset };
        self.impairments.add(self.id, Impairment::Damaged);
    }

    /// A closed segment that was sent to readers without being checked.
    pub(crate) fn unchecked_read(&self) -> Option<i64> {
        self.lock().log.as_ref()?.unchecked_read()
    }

    /// Drops the damaged part of the log once nobody counts on it, nor will. `image` is the metadata that this replica follows,
    /// up to `index` at least.
    pub(crate) fn try_repair(
        &self,
        index: u64,
        image: &Image,
        now: Instant,
        wall_ms: i64,
    ) -> Repair {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let Soundness::Damaged { base_offset } = replica.soundness else {
            return Repair::Sound;
        };
        let Some(log) = &mut replica.log else {
            return Repair::Sound;
        };
        if !log.has_segment(base_offset) {
            tracing::info!(partition = %self.name(), base_offset, "the damaged part of the log is gone");
            self.is_sound_again(&mut replica.soundness);
            return Repair::Sound;
        }
        let Role::Follower(follower) = &mut replica.role else {
            return Repair::Waits;
        };
        let counted_on = image
            .partition(self.id)
            .is_none_or(|state| state.isr.contains(&self.me) || state.elr.contains(&self.me));
        let told_at = self.impairments.told_at(self.id, Impairment::Damaged);
        let follows =
            told_at.is_some_and(|told| u64::try_from(told).is_ok_and(|told| told <= index));
        if counted_on || !follows {
            return Repair::Waits;
        }
        match log.drop_damaged_segment(base_offset, wall_ms) {
            Ok(log_end_offset) => {
                tracing::info!(partition = %self.name(), log_end_offset, leader = %follower.leader(), "dropped the damaged part of the log, to fetch it anew");
                follower.handle_truncated(Replica::<E>::local_log(log));
                replica.high_watermark = follower.high_watermark();
                producer_snapshots::truncate(log, log_end_offset, &mut replica.producers, now);
                replica.soundness = Soundness::Refetching;
                Repair::Fetch(follower.leader())
            }
            Err(error) => {
                super::upkeep::log_failure(&self.name(), "repair", &error);
                Repair::Waits
            }
        }
    }

    pub(super) fn is_sound_again(&self, soundness: &mut Soundness) {
        *soundness = Soundness::Sound;
        self.impairments.remove(self.id, Impairment::Damaged);
    }
}
