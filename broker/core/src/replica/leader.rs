//! The leader's view of one partition: who is in step, what is committed, which in-sync set to propose.
//!
//! ## The in-sync set
//!
//! | state | append, fetch, time | answer `Committed` | `NotApplied` | `AwaitMetadata`, `Unknown` | newer metadata |
//! |---|---|---|---|---|---|
//! | settled | a replica that reached HW and the epoch start joins: *pending expand*; one that lagged too long leaves: *pending shrink* | ignored | ignored | ignored | take it |
//! | pending expand | no new proposal; HW counts ISR ∪ joining | take it: *settled* | drop it: *settled*, pause; asked again if an unanswered copy may be on its way | the same again after a pause | take it, drop the proposal: *settled* |
//! | pending shrink | no new proposal; HW counts the committed ISR | take it: *settled* | drop it: *settled*, pause | the same again after a pause | take it, drop the proposal: *settled* |
//!
//! One proposal is in flight at a time, named by an id, so that a late answer to a settled one changes nothing
//! (KAFKA-12686). Until it is settled the high watermark counts whoever may be in the ISR by either outcome: the
//! *maximal* ISR (KIP-497). An expansion that may have been committed unseen is therefore never forgotten: it is
//! asked again, unchanged, until an answer or newer metadata settles it.
//!
//! ## The high watermark
//!
//! The smallest log end offset over the maximal ISR and over eligible replicas that are caught up in time but not in
//! it: without the latter a follower could never reach the high watermark of a busy leader that is alone in its
//! ISR. It stands still while the committed ISR is smaller than min(`min.insync.replicas`, replicas) (KIP-966), or while
//! replicas outside of it are eligible to lead: the controller may go by a larger `min.insync.replicas` than this broker
//! does, while a changed configuration is being rolled out, and may elect any of them. It never goes back. With leader at 5 and followers at 5 and 4 it is 4; when the slow one fetches from 5, it is 5.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch};
use crate::time::Instant;

use super::isr::{AlterPartitionAnswer, Pending, Proposal};
use super::progress::{BrokerStanding, PartitionState, Replica};

/// Pause before an unanswered proposal is sent again: ten tries a second at most from one partition.
const RESEND_AFTER: Duration = Duration::from_millis(100);
/// Pause before asking again what newer metadata should have settled: it comes within a heartbeat or so.
const RESEND_AWAITED_AFTER: Duration = Duration::from_secs(1);
/// How long a copy of a proposal that its sender gave up may still reach a controller. Until then a refusal of a later
/// copy proves nothing.
const COPY_LIVES: Duration = Duration::from_secs(10);
/// Pause after a refusal, so that a replica that the controller finds ineligible is not proposed at every fetch.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(500);

/// The configuration that replication of one partition depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `replica.lag.time.max.ms`: how long an in-sync replica may not have had all of the log.
    pub replica_lag_time_max: Duration,
    /// `replica.lag.max.messages`: how many records an in-sync replica may lack; `None` = no such rule.
    pub replica_lag_messages_max: Option<i64>,
    /// `min.insync.replicas` of the topic; counts only up to the number of replicas.
    pub min_insync_replicas: usize,
    /// `taffrail.flush=ack`: the leader counts for itself only what is fsynced.
    pub flush_ack: bool,
}

/// The leader's own log at the moment it starts to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderLog {
    /// First kept offset.
    pub log_start_offset: i64,
    /// Offset of the next record (exclusive end). The new leader epoch starts here.
    pub log_end_offset: i64,
    /// Everything below is fsynced; counts only with `flush_ack`.
    pub flushed_offset: i64,
    /// The high watermark of the checkpoint, or of the previous role of this replica. Taken within the log's bounds.
    pub high_watermark: i64,
}

/// A fetch by a follower whose epochs and position were found good ([`check_fetch`](super::check_fetch)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    /// Who fetches.
    pub broker: BrokerId,
    /// The registration of the fetcher; `None` = not said (−1 on the wire).
    pub broker_epoch: Option<BrokerEpoch>,
    /// The next offset it wants, so its log end offset; with `taffrail.flush=ack` all below is fsynced there.
    pub fetch_offset: i64,
    /// Its first kept offset.
    pub log_start_offset: i64,
    /// A moment before which this fetch was certainly not made up, as causes and effects show it and not clocks; `None` =
    /// nothing is known. A request may lie in a socket for as long as this process stands still.
    pub made_after: Option<Instant>,
    /// The leader's log end offset when the read was made, before it waited for more.
    pub leader_log_end_offset: i64,
}

/// What must be done after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The high watermark (exclusive) moved up: complete produce requests, wake fetches, checkpoint in time.
    HighWatermark(i64),
    /// The smallest log start offset over live replicas moved up: complete DeleteRecords.
    LowWatermark(i64),
    /// Send this to the controller, and give its answer to [`Leader::handle_alter_partition_answer`].
    AlterPartition(Proposal),
}

/// Whether an acks=all produce may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// Not every in-sync replica has it.
    Waiting,
    /// Committed by enough replicas.
    Committed,
    /// Replicated, but meanwhile by too few: NOT_ENOUGH_REPLICAS_AFTER_APPEND.
    TooFew,
}

/// State of a partition that this broker leads. See the module for its rules.
#[derive(Clone, Debug)]
pub struct Leader {
    pub(super) me: BrokerId,
    /// Where this broker's own replica stands in `replicas`.
    pub(super) own: usize,
    pub(super) settings: Settings,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) partition_epoch: PartitionEpoch,
    /// The committed ELR has members.
    pub(super) has_eligible: bool,
    pub(super) epoch_start_offset: i64,
    pub(super) log_start_offset: i64,
    pub(super) log_end_offset: i64,
    pub(super) flushed_offset: i64,
    pub(super) high_watermark: i64,
    pub(super) low_watermark: Option<i64>,
    pub(super) replicas: Vec<Replica>,
    pub(super) pending: Option<Pending>,
    pub(super) proposal_id_last: u64,
    pub(super) propose_not_before: Instant,
}

impl Leader {
    /// Starts to lead. The caller has noted the leader epoch's start in the log before it serves anyone.
    pub fn new(
        me: BrokerId,
        state: &PartitionState,
        log: LeaderLog,
        settings: Settings,
        now: Instant,
    ) -> Leader {
        let mut leader = Leader {
            me,
            own: 0,
            settings,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            has_eligible: state.has_eligible,
            epoch_start_offset: log.log_end_offset,
            log_start_offset: log.log_start_offset,
            log_end_offset: log.log_end_offset,
            flushed_offset: log.flushed_offset.min(log.log_end_offset),
            high_watermark: log
                .high_watermark
                .min(log.log_end_offset)
                .max(log.log_start_offset),
            low_watermark: None,
            replicas: Vec::with_capacity(state.replicas.len()),
            pending: None,
            proposal_id_last: 0,
            propose_not_before: now,
        };
        leader.take_replicas(state, now);
        leader.raise_high_watermark(now);
        leader.low_watermark = leader.smallest_log_start();
        leader
    }

    /// The leader's log grew to `log_end_offset` (exclusive).
    pub fn handle_append(&mut self, now: Instant, log_end_offset: i64, effects: &mut Vec<Effect>) {
        assert!(
            log_end_offset >= self.log_end_offset,
            "a leader's log only grows"
        );
        self.log_end_offset = log_end_offset;
        self.note_own_log();
        self.advance(now, effects);
    }

    /// All below `flushed_offset` is fsynced here.
    pub fn handle_flushed(&mut self, now: Instant, flushed_offset: i64, effects: &mut Vec<Effect>) {
        self.flushed_offset = self
            .flushed_offset
            .max(flushed_offset.min(self.log_end_offset));
        self.advance(now, effects);
    }

    /// The leader's first kept offset moved up, by retention or DeleteRecords (never past the high watermark).
    pub fn handle_log_start(&mut self, log_start_offset: i64, effects: &mut Vec<Effect>) {
        assert!(
            log_start_offset <= self.high_watermark,
            "nothing above the high watermark is deleted"
        );
        self.log_start_offset = self.log_start_offset.max(log_start_offset);
        self.note_own_log();
        self.advance_low_watermark(effects);
    }

    /// A follower fetched.
    ///
    /// # Errors
    /// [`ErrorKind::NotLeaderOrFollower`] if it holds no replica by the metadata known here, or if it fetches as an
    /// incarnation that is older than the registered one (KIP-903). Nothing is recorded then.
    pub fn handle_follower_fetch(
        &mut self,
        now: Instant,
        fetch: FollowerFetch,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ErrorKind> {
        let replica = self
            .replicas
            .iter_mut()
            .find(|replica| replica.broker == fetch.broker && fetch.broker != self.me)
            .ok_or(ErrorKind::NotLeaderOrFollower)?;
        let newest = replica.standing.epoch().max(replica.fetched_epoch);
        if fetch.broker_epoch.is_some() && fetch.broker_epoch < newest {
            return Err(ErrorKind::NotLeaderOrFollower);
        }
        let log_start_moved = replica.log_start_offset != Some(fetch.log_start_offset);
        replica.record_fetch(
            now,
            fetch.fetch_offset,
            fetch.log_start_offset,
            fetch.leader_log_end_offset,
            fetch.broker_epoch,
        );
        replica.followed_after = replica.followed_after.max(fetch.made_after);
        let outside = !replica.in_isr && !replica.joining;
        if outside {
            self.propose_expand(now, effects);
        }
        self.advance(now, effects);
        if log_start_moved {
            self.advance_low_watermark(effects);
        }
        Ok(())
    }

    /// The committed metadata of the partition, or of a broker that holds a replica, changed. A partition epoch that
    /// is not newer only refreshes what is known of the brokers. With a newer leader epoch this broker leads anew:
    /// the epoch starts at the present log end, and what followers fetched in the old one no longer counts.
    /// State in which another broker leads is none of a leader's: the caller makes a follower of the replica then.
    pub fn handle_metadata(
        &mut self,
        now: Instant,
        state: &PartitionState,
        effects: &mut Vec<Effect>,
    ) {
        if state.leader_epoch > self.leader_epoch {
            self.leader_epoch = state.leader_epoch;
            self.epoch_start_offset = self.log_end_offset;
            self.replicas.iter_mut().for_each(Replica::reset);
            self.take_partition(now, state);
        } else if state.leader_epoch == self.leader_epoch
            && (state.partition_epoch > self.partition_epoch
                || (state.partition_epoch == self.partition_epoch && !self.has_replicas_of(state)))
        {
            self.take_partition(now, state);
        } else {
            for replica in &mut self.replicas {
                if let Some((_, standing)) = state
                    .replicas
                    .iter()
                    .find(|(broker, _)| *broker == replica.broker)
                {
                    replica.standing = *standing;
                }
            }
        }
        self.settle(now, effects);
    }

    /// Whether the replicas are those of the metadata. The answer to a proposal that was sent again tells an ISR and a partition epoch, and
    /// a reassignment may have come in between: then the epoch is known and its replicas are not.
    fn has_replicas_of(&self, state: &PartitionState) -> bool {
        let is_known = |id: &BrokerId| self.replicas.iter().any(|replica| replica.broker == *id);
        state.replicas.len() == self.replicas.len()
            && state.replicas.iter().all(|(id, _)| is_known(id))
    }

    /// The configuration changed.
    pub fn handle_settings(&mut self, now: Instant, settings: Settings, effects: &mut Vec<Effect>) {
        self.settings = settings;
        self.settle(now, effects);
    }

    /// The answer to the proposal `id`. Answers to settled proposals are ignored.
    pub fn handle_alter_partition_answer(
        &mut self,
        now: Instant,
        id: u64,
        answer: AlterPartitionAnswer,
        effects: &mut Vec<Effect>,
    ) {
        let Some(pending) = self
            .pending
            .as_mut()
            .filter(|pending| pending.proposal.id == id)
        else {
            return;
        };
        match answer {
            AlterPartitionAnswer::Committed {
                leader_epoch,
                partition_epoch,
                isr,
                has_eligible,
            } => {
                let older =
                    leader_epoch != self.leader_epoch || partition_epoch < self.partition_epoch;
                if older || !isr.contains(&self.me) {
                    // Not an answer to this leader; metadata will tell.
                    pending.resend_at = Some(now + RESEND_AWAITED_AFTER);
                    return;
                }
                self.pending = None;
                self.partition_epoch = partition_epoch;
                self.has_eligible = has_eligible;
                self.take_isr(now, &isr);
                self.settle(now, effects);
            }
            AlterPartitionAnswer::NotApplied
                if pending
                    .unanswered_at
                    .is_some_and(|at| now.saturating_since(at) < COPY_LIVES) =>
            {
                pending.resend_at = Some(now + RESEND_AWAITED_AFTER);
            }
            AlterPartitionAnswer::NotApplied => {
                self.pending = None;
                self.replicas
                    .iter_mut()
                    .for_each(|replica| replica.joining = false);
                self.propose_not_before = now + PAUSE_AFTER_REFUSAL;
                self.advance(now, effects);
            }
            AlterPartitionAnswer::AwaitMetadata => {
                pending.resend_at = Some(now + RESEND_AWAITED_AFTER)
            }
            AlterPartitionAnswer::Unknown => {
                pending.resend_at = Some(now + RESEND_AFTER);
                pending.unanswered_at = Some(now);
            }
        }
    }

    /// Time passed: replicas that lag leave, and unanswered proposals are sent again.
    pub fn handle_timeout(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        match &mut self.pending {
            Some(pending) => {
                if pending.resend_at.is_some_and(|at| at <= now) {
                    pending.resend_at = None;
                    self.proposal_id_last += 1;
                    pending.proposal.id = self.proposal_id_last;
                    effects.push(Effect::AlterPartition(pending.proposal.clone()));
                }
            }
            None => self.propose_shrink(now, effects),
        }
        // A caught-up replica outside the ISR held the high watermark; time may have ended that.
        let (log_end_offset, lag_time_max) =
            (self.log_end_offset, self.settings.replica_lag_time_max);
        for replica in &mut self.replicas {
            if !replica.in_isr && !replica.caught_up(now, log_end_offset, lag_time_max) {
                replica.last_caught_up = None;
            }
        }
        self.advance(now, effects);
    }

    /// When to call [`Leader::handle_timeout`]; `None` = nothing will happen by time alone.
    pub fn next_deadline(&self) -> Option<Instant> {
        if let Some(pending) = &self.pending {
            return pending.resend_at;
        }
        // The limit itself is still in time, hence the nanosecond.
        let too_long = self.settings.replica_lag_time_max + Duration::from_nanos(1);
        self.followers()
            .filter(|replica| replica.log_end_offset != Some(self.log_end_offset))
            .filter_map(|replica| {
                if replica.in_isr && self.lags_in_messages(replica) {
                    return Some(self.propose_not_before);
                }
                Some((replica.last_caught_up? + too_long).max(self.propose_not_before))
            })
            .min()
    }

    /// The epoch in which this broker leads.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The newest committed partition epoch known.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// Where this leader epoch starts in the log.
    pub fn epoch_start_offset(&self) -> i64 {
        self.epoch_start_offset
    }

    /// First kept offset of the leader.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }

    /// Offset of the leader's next record (exclusive end).
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    /// Exclusive: records below it are committed and may be shown to consumers.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The smallest log start offset over live replicas; `None` until all of them fetched in this epoch.
    pub fn low_watermark(&self) -> Option<i64> {
        self.low_watermark
    }

    /// The high watermark as ListOffsets(latest) may show it: after an election it may stand below what an earlier
    /// leader showed, until it reaches the start of this epoch.
    ///
    /// # Errors
    /// [`ErrorKind::OffsetNotAvailable`] until then.
    pub fn exposed_high_watermark(&self) -> Result<i64, ErrorKind> {
        if self.high_watermark < self.epoch_start_offset {
            return Err(ErrorKind::OffsetNotAvailable);
        }
        Ok(self.high_watermark)
    }

    /// All replicas in the order of the assignment, the leader's own among them.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The committed in-sync replicas in the order of the assignment.
    pub fn isr(&self) -> impl Iterator<Item = BrokerId> + '_ {
        self.replicas
            .iter()
            .filter(|replica| replica.in_isr)
            .map(|replica| replica.broker)
    }

    /// Whether nobody else can have led before `moment`: all others that may be elected, so those of the ISR and those that a
    /// proposal under way adds to it, still followed this leader after it. Never while there are eligible leader replicas, which
    /// may be elected, too, and of which this leader does not know who they are; it decides nothing then anyway. An unclean
    /// election is beyond that.
    pub fn led_until(&self, moment: Instant) -> bool {
        let mut replicas = self.replicas.iter();
        !self.has_eligible && replicas.all(|replica| self.is_known_to_follow_after(replica, moment))
    }

    /// Whether [`Leader::led_until`] waits for a fetch of this broker.
    pub fn needs_fetch_of(&self, broker: BrokerId, moment: Instant) -> bool {
        let mut replicas = self.replicas.iter();
        let replica = replicas.find(|replica| replica.broker == broker);
        replica.is_some_and(|replica| !self.is_known_to_follow_after(replica, moment))
    }

    fn is_known_to_follow_after(&self, replica: &Replica, moment: Instant) -> bool {
        let may_lead = replica.in_isr || replica.joining;
        replica.broker == self.me || !may_lead || replica.followed_after >= Some(moment)
    }

    /// Size of the committed ISR.
    pub fn isr_len(&self) -> usize {
        self.replicas
            .iter()
            .filter(|replica| replica.in_isr)
            .count()
    }

    /// The standing of a broker that holds a replica, as last told.
    pub fn standing(&self, broker: BrokerId) -> Option<BrokerStanding> {
        self.replicas
            .iter()
            .find(|replica| replica.broker == broker)
            .map(|replica| replica.standing)
    }

    /// min(`min.insync.replicas`, replicas): what acks=all needs, and what lets the high watermark move.
    pub fn min_isr(&self) -> usize {
        self.settings
            .min_insync_replicas
            .min(self.replicas.len())
            .max(1)
    }

    /// The proposal that is not settled yet.
    pub fn proposal(&self) -> Option<&Proposal> {
        self.pending.as_ref().map(|pending| &pending.proposal)
    }

    /// Asked before an append with acks=all.
    ///
    /// # Errors
    /// [`ErrorKind::NotEnoughReplicas`] if the committed ISR is too small, by this broker's configuration or by the
    /// controller's; nothing may be appended then.
    pub fn check_append(&self) -> Result<(), ErrorKind> {
        if self.isr_len() < self.min_isr() || self.has_eligible {
            return Err(ErrorKind::NotEnoughReplicas);
        }
        Ok(())
    }

    /// Whether an acks=all append that ended at `end_offset` (exclusive) may be answered
    /// (Kafka's `Partition.checkEnoughReplicasReachOffset`).
    pub fn acknowledgement(&self, end_offset: i64) -> Acknowledgement {
        #[cfg(feature = "mutants")]
        if taffrail_mutants::is_planted(taffrail_mutants::Mutant::AckBeforeReplication) {
            return Acknowledgement::Committed;
        }
        if self.high_watermark < end_offset {
            return Acknowledgement::Waiting;
        }
        let maximal = self
            .replicas
            .iter()
            .filter(|replica| replica.in_isr || replica.joining)
            .count();
        if maximal < self.min_isr() {
            return Acknowledgement::TooFew;
        }
        Acknowledgement::Committed
    }

    fn take_partition(&mut self, now: Instant, state: &PartitionState) {
        self.partition_epoch = state.partition_epoch;
        self.has_eligible = state.has_eligible;
        self.pending = None;
        self.take_replicas(state, now);
    }

    fn take_replicas(&mut self, state: &PartitionState, now: Instant) {
        let mut known = std::mem::take(&mut self.replicas);
        for (broker, standing) in &state.replicas {
            let mut replica = match known.iter().position(|replica| replica.broker == *broker) {
                Some(position) => known.swap_remove(position),
                None => Replica::new(*broker, *standing),
            };
            replica.standing = *standing;
            self.replicas.push(replica);
        }
        self.take_isr(now, &state.isr);
        self.own = self
            .replicas
            .iter()
            .position(|replica| replica.broker == self.me && replica.in_isr)
            .expect("the leader is in the ISR, which is a subset of the replicas");
        self.note_own_log();
    }

    fn note_own_log(&mut self) {
        let own = &mut self.replicas[self.own];
        own.log_end_offset = Some(self.log_end_offset);
        own.log_start_offset = Some(self.log_start_offset);
    }

    fn followers(&self) -> impl Iterator<Item = &Replica> {
        self.replicas
            .iter()
            .filter(|replica| replica.broker != self.me)
    }

    /// Takes a committed ISR. A replica that enters it gets the full time to catch up.
    fn take_isr(&mut self, now: Instant, isr: &[BrokerId]) {
        for replica in &mut self.replicas {
            let member = isr.contains(&replica.broker);
            if member && (!replica.in_isr || replica.last_caught_up.is_none()) {
                replica.last_caught_up = Some(now);
            }
            replica.in_isr = member;
            replica.joining = false;
        }
    }

    /// After the committed state, the standing of brokers or the settings changed, everything may follow.
    fn settle(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.propose_expand(now, effects);
        self.advance(now, effects);
        self.advance_low_watermark(effects);
    }
}
