//! Changes of role: what the metadata says of a partition becomes leader, follower or neither.

use std::sync::Arc;

use taffrail_core::config::{FlushPolicy, TopicConfig};
use taffrail_core::controller::Impairment;
use taffrail_core::error::ErrorKind;
use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::Image;
use taffrail_core::replica::{
    AlterPartitionAnswer, Follower, Leader, LeaderLog, PartitionState, Proposal, Settings,
};
use taffrail_core::time::Instant;
use taffrail_log::{Log, LogConfig};

use super::repair::Soundness;
use super::{Partition, Replica, Role};
use crate::env::Env;

/// What the metadata made of this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoleChange {
    /// It leads.
    Leads,
    /// It follows this broker.
    Follows(BrokerId),
    /// Nobody leads.
    Idle,
}

impl<E: Env> Partition<E> {
    /// Takes the state of the partition in `image`, and the standing of the brokers that hold it.
    pub(crate) fn apply_metadata(
        &self,
        image: &Image,
        now: Instant,
    ) -> Result<RoleChange, ErrorKind> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let Some(state) = image.partition(self.id) else {
            return Ok(RoleChange::Idle);
        };
        if replica.is_offline() {
            // Whatever the metadata still says: the controller is being told.
            replica.become_idle();
            return Ok(RoleChange::Idle);
        }
        if state.leader == Some(self.me) && std::mem::replace(&mut replica.full, false) {
            // A leader without room refuses records itself.
            self.impairments.remove(self.id, Impairment::Full);
        }
        match state.leader {
            Some(leader) if leader == self.me => self.lead(replica, image, now),
            Some(leader) => {
                follow(replica, leader, state.leader_epoch);
                Ok(RoleChange::Follows(leader))
            }
            None => {
                replica.become_idle();
                Ok(RoleChange::Idle)
            }
        }
    }

    fn lead(
        &self,
        replica: &mut Replica<E>,
        image: &Image,
        now: Instant,
    ) -> Result<RoleChange, ErrorKind> {
        let Some(state) = PartitionState::from_image(image, self.id) else {
            return Ok(RoleChange::Idle);
        };
        let Some(log) = &mut replica.log else {
            return Ok(RoleChange::Idle);
        };
        let newly = !matches!(&replica.role, Role::Leader(leader) if leader.leader_epoch() >= state.leader_epoch);
        if newly && replica.soundness == Soundness::Refetching {
            // Elected without proof of anything: what it has is what there is.
            self.is_sound_again(&mut replica.soundness);
        }
        if newly {
            // Noted before anybody is served, so that an epoch without records can be answered for (KAFKA-7415).
            log.assign_epoch(state.leader_epoch.0).map_err(|error| {
                tracing::error!(partition = %self.name(), %error, "cannot lead: the leader epoch could not be noted");
                super::storage_error(&error)
            })?;
        }
        let mut effects = std::mem::take(&mut replica.effects);
        match &mut replica.role {
            Role::Leader(leader) => leader.handle_metadata(now, &state, &mut effects),
            Role::Follower(_) | Role::Idle => {
                let high_watermark = replica.high_watermark();
                let Some(log) = &replica.log else {
                    return Ok(RoleChange::Idle);
                };
                let log_now = LeaderLog {
                    log_start_offset: log.log_start_offset(),
                    log_end_offset: log.log_end_offset(),
                    flushed_offset: log.recovery_point(),
                    high_watermark,
                };
                let leader = Leader::new(self.me, &state, log_now, replica.settings, now);
                replica.high_watermark = leader.high_watermark();
                replica.unseen_bytes = 0;
                replica.role = Role::Leader(leader);
            }
        }
        if newly {
            tracing::debug!(partition = %self.name(), epoch = state.leader_epoch.0, "leads");
            replica.wake_all();
        }
        self.settle(replica, effects);
        if replica.flush_ack {
            self.flushes.push(self.id);
        }
        Ok(RoleChange::Leads)
    }

    /// The controller's answer to an ISR proposal.
    pub(crate) fn handle_alter_partition_answer(
        &self,
        now: Instant,
        proposal: &Proposal,
        answer: AlterPartitionAnswer,
    ) {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let mut effects = std::mem::take(&mut replica.effects);
        // Ids begin anew with each leadership, so an answer must also be to this one.
        if let Role::Leader(leader) = &mut replica.role
            && leader.leader_epoch() == proposal.leader_epoch
        {
            leader.handle_alter_partition_answer(now, proposal.id, answer, &mut effects);
        }
        self.settle(replica, effects);
    }

    /// Time passed: followers may have lagged for too long, proposals may be due again, producers may have expired.
    pub(crate) fn handle_timeout(&self, now: Instant) {
        let mut guard = self.lock();
        let replica = &mut *guard;
        if replica
            .producers
            .next_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            replica.producers.handle_timeout(now);
        }
        let Role::Leader(leader) = &mut replica.role else {
            return;
        };
        if leader.next_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        let mut effects = std::mem::take(&mut replica.effects);
        leader.handle_timeout(now, &mut effects);
        self.settle(replica, effects);
    }

    /// The topic's configuration changed.
    pub(crate) fn handle_config(
        &self,
        config: &TopicConfig,
        log_config: LogConfig,
        settings: Settings,
        now: Instant,
    ) {
        self.throttled.set(config, self.id, self.me);
        let log_config = Arc::new(log_config);
        *self.log_config.write().expect("no panic while locked") = Arc::clone(&log_config);
        let mut guard = self.lock();
        let replica = &mut *guard;
        if let Some(log) = &mut replica.log {
            log.set_config(log_config);
        }
        replica.flush_ack = config.flush == FlushPolicy::Ack;
        replica.settings = settings;
        let mut effects = std::mem::take(&mut replica.effects);
        if let Role::Leader(leader) = &mut replica.role {
            leader.handle_settings(now, settings, &mut effects);
        }
        self.settle(replica, effects);
        if replica.flush_ack {
            self.flushes.push(self.id);
        }
    }

    /// Takes the log out, for deletion or closing. Whoever waits looks again and finds the replica gone.
    pub(crate) fn take_log(&self) -> Option<Log<E::Disk>> {
        let mut replica = self.lock();
        replica.high_watermark = replica.high_watermark();
        replica.role = Role::Idle;
        replica.wake_all();
        replica.log.take()
    }

    /// Takes the producers out, for the snapshot of a log that is about to be closed.
    pub(super) fn take_producers(&self) -> taffrail_core::producer::Producers {
        let mut replica = self.lock();
        let empty = taffrail_core::producer::Producers::new(Default::default(), Instant::ZERO);
        std::mem::replace(&mut replica.producers, empty)
    }

    /// Resigns: nothing is served any more, though the metadata may still name this broker for a moment.
    pub(crate) fn resign(&self) {
        self.lock().become_idle();
    }

    /// Its log directory failed: it serves nothing any more. Tells whether it did until now.
    pub(crate) fn go_offline(&self) -> bool {
        let mut replica = self.lock();
        replica.become_idle();
        !std::mem::replace(&mut replica.told_offline, true)
    }
}

impl<E: Env> Replica<E> {
    fn become_idle(&mut self) {
        if !matches!(self.role, Role::Idle) {
            self.high_watermark = self.high_watermark();
            self.role = Role::Idle;
            self.wake_all();
        }
    }
}

fn follow<E: Env>(
    replica: &mut Replica<E>,
    leader: BrokerId,
    leader_epoch: taffrail_core::ids::LeaderEpoch,
) {
    match &mut replica.role {
        Role::Follower(follower) => {
            let newer = leader_epoch > follower.leader_epoch();
            follower.handle_leader(leader, leader_epoch);
            if newer {
                // Consumers that read here have to learn of the epoch.
                replica.wake_all();
            }
        }
        Role::Leader(current) if current.leader_epoch() >= leader_epoch => {}
        Role::Leader(_) | Role::Idle => {
            let high_watermark = replica.high_watermark();
            #[cfg(feature = "mutants")]
            if taffrail_mutants::is_planted(taffrail_mutants::Mutant::TruncateToHighWatermark)
                && let Some(log) = &mut replica.log
            {
                let cut = log.truncate_to(high_watermark, 0);
                cut.expect("a planted fault finds a log that can be cut");
            }
            let Some(log) = &replica.log else { return };
            let follower = Follower::new(
                leader,
                leader_epoch,
                Replica::<E>::local_log(log),
                high_watermark,
            );
            replica.high_watermark = follower.high_watermark();
            replica.unseen_bytes = 0;
            replica.role = Role::Follower(follower);
            replica.wake_all();
        }
    }
}
