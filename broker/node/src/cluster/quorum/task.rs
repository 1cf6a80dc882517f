//! The task of a voter. One turn: take what has arrived, let Raft and the controller have it, then do what they ask in
//! Raft's order: send, apply what is committed, take on a new role, write to disk, send what waited for the disk.
//! Everything that arrived together is written together.

mod lead;
mod members;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::controller::{Controller, ControllerConfig};
use taffrail_core::ids::{BrokerId, Incarnation};
use taffrail_core::metadata::{Image, Record};
use taffrail_core::raft::{Entry, Message, RaftError, RaftNode, Snapshot};
use taffrail_core::time::Instant;
use tokio::sync::mpsc;

use super::link::Link;
use super::pending::PendingReplies;
use super::{Decide, Decided, Event, QuorumProgress, Release};
use crate::broker::Broker;
use crate::cluster::metadata_log::{DAMAGED_ADVICE, MetadataLog, MetadataLogError};
use crate::cluster::records::RecordError;
use crate::cluster::seat::{self, SeatLost};
use crate::cluster::{records, search};
use crate::env::Env;
use members::{Heard, Removal};

/// Events taken in one turn before anything is written.
const EVENTS_PER_TURN: usize = 256;

/// The pause before a write is tried again that found no room.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// A voter of the quorum.
pub(in crate::cluster) struct Task<E: Env> {
    broker: Arc<Broker<E>>,
    raft: RaftNode,
    /// Away only while it writes.
    log: Option<MetadataLog<E::Disk>>,
    snapshot_after_bytes: u64,
    events: mpsc::Receiver<Event>,
    /// To all other members.
    links: BTreeMap<BrokerId, Link>,
    /// For links to new members.
    sender: mpsc::Sender<Event>,
    /// When each other member was heard of last, and with which directory.
    heard: BTreeMap<BrokerId, Heard>,
    /// A removal that is asked for.
    removal: Option<Removal>,
    /// When this member last asked whether it still is one.
    knocked_at: Instant,
    tick: Duration,
    next_tick: Instant,
    /// The committed metadata, and the last index in it.
    image: Arc<Image>,
    applied: u64,
    leadership: Option<Leadership>,
    config: ControllerConfig,
    /// A decision could not be proposed: the next tick is soon enough for another try.
    stalled: bool,
    leader_look: Option<LeaderLook>,
    /// It gives up its seat.
    seat_lost: Option<SeatLost>,
}

/// A look for the leader is under way.
struct LeaderLook {
    /// Another connection of it was lost meanwhile.
    again: Option<(BrokerId, Incarnation)>,
}

/// What exists only while this voter leads.
struct Leadership {
    term: u64,
    controller: Controller,
    /// The last index that was proposed.
    proposed: u64,
    pending: PendingReplies,
}

/// What a task is made of.
pub(in crate::cluster) struct Parts<E: Env> {
    pub(in crate::cluster) raft: RaftNode,
    pub(in crate::cluster) log: MetadataLog<E::Disk>,
    pub(in crate::cluster) image: Image,
    pub(in crate::cluster) applied: u64,
    pub(in crate::cluster) tick: Duration,
    pub(in crate::cluster) snapshot_after_bytes: u64,
    pub(in crate::cluster) config: ControllerConfig,
}

impl<E: Env> Task<E> {
    /// Puts the voter together and opens the links to the others.
    pub(in crate::cluster) fn new(
        broker: &Arc<Broker<E>>,
        parts: Parts<E>,
        sender: &mpsc::Sender<Event>,
        events: mpsc::Receiver<Event>,
    ) -> Self {
        let mut task = Self {
            broker: Arc::clone(broker),
            raft: parts.raft,
            log: Some(parts.log),
            snapshot_after_bytes: parts.snapshot_after_bytes,
            events,
            links: BTreeMap::new(),
            sender: sender.clone(),
            heard: BTreeMap::new(),
            removal: None,
            knocked_at: broker.env.now(),
            tick: parts.tick,
            next_tick: broker.env.now() + parts.tick,
            image: Arc::new(parts.image),
            applied: parts.applied,
            leadership: None,
            config: parts.config,
            stalled: false,
            leader_look: None,
            seat_lost: None,
        };
        task.link_members();
        task
    }

    /// Applies what was committed before the start, so that the broker starts with what it knew; alone in its quorum it
    /// also takes the lead at once instead of waiting for a rival.
    pub(in crate::cluster) async fn begin(&mut self) -> Result<(), String> {
        self.drive().await?;
        self.publish();
        if self.raft.members().0 == [self.broker.id] {
            // An election timeout is at most twenty ticks.
            for _ in 0..100 {
                if self.leadership.is_some() {
                    break;
                }
                self.raft.handle_tick();
                self.drive().await?;
            }
        }
        Ok(())
    }

    /// Runs until the broker stops; an error is one that it must stop for.
    pub(in crate::cluster) async fn run(mut self) {
        let broker = Arc::clone(&self.broker);
        if let Err(reason) = self.serve().await {
            tracing::error!(broker = %broker.id, %reason, "the metadata quorum lost this voter");
            broker.fail(reason);
        } else if let Some(lost) = self.seat_lost {
            drop(self);
            broker.cluster.set_leader(None);
            broker.cluster.give_up_seat(&broker, lost);
        }
    }

    async fn serve(&mut self) -> Result<(), String> {
        loop {
            let deadline = self.next_deadline();
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(event) => self.handle_event(event)?,
                    None => return Ok(()),
                },
                () = self.broker.env.sleep_until(deadline.unwrap_or_default()), if deadline.is_some() => {}
            }
            for _ in 1..EVENTS_PER_TURN {
                let Ok(event) = self.events.try_recv() else {
                    break;
                };
                self.handle_event(event)?;
            }
            if self.seat_lost.is_none() {
                self.handle_time();
                self.drive().await?;
                self.notice_removal();
            }
            if self.seat_lost.is_some() {
                return Ok(());
            }
            self.compact_if_large().await?;
        }
    }

    /// When time alone has something for this voter to do.
    fn next_deadline(&self) -> Option<Instant> {
        let controller = self
            .leadership
            .as_ref()
            .and_then(|leadership| leadership.controller.next_deadline());
        let controller = controller.filter(|_| !self.stalled);
        // Ticks that were left out are not made up for: with the next one, whenever it comes, they go on.
        let tick = (self.stalled || self.raft.needs_ticks()).then_some(self.next_tick);
        [controller, tick].into_iter().flatten().min()
    }

    fn handle_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Messages(messages, directory) => {
                if let Some(message) = messages.first() {
                    self.note_heard(message.from, directory);
                }
                for message in messages {
                    self.handle_message(message)?;
                }
            }
            Event::Replaced(recorded) => {
                let own = self.broker.cluster.own_seat();
                if seat::speaks_against(Some(recorded), own.directory, own.since) {
                    self.seat_lost = Some(SeatLost::Replaced(recorded.directory));
                }
            }
            Event::OldCopy { had } => {
                let end = self.broker.cluster.seat.log_end();
                if end < had {
                    self.seat_lost = Some(SeatLost::OldCopy { end, had });
                }
            }
            Event::Removed { since } => {
                if self.broker.cluster.own_seat().since < since {
                    self.seat_lost = Some(SeatLost::Removed);
                }
            }
            Event::Unreachable(peer) => self.raft.handle_unreachable(peer),
            Event::Decide(decide) => self.decide(decide),
            Event::Describe(reply) => {
                if self.leadership.is_some() {
                    let progress = QuorumProgress {
                        term: self.raft.term(),
                        commit_index: self.raft.commit_index(),
                        voters: self.raft.progress(),
                    };
                    // Whoever asked may have given up.
                    let _ = reply.send(progress);
                }
            }
            Event::VoterState {
                asker,
                wants,
                reply,
            } => {
                let snapshot = if wants { self.restore(asker)? } else { None };
                // Whoever asked may have given up.
                let _ = reply.send((self.standing_to(asker), snapshot));
            }
            Event::AddLearner { learner, reply } => {
                let reply: Release = Box::new(move || {
                    let _ = reply.send(());
                });
                self.add_learner(learner, reply);
            }
            Event::ChangeVoters(wish, answer) => self.change_voters(&wish, answer),
            Event::HandOver => self.hand_over(),
            Event::ConnectionLost { peer, incarnation } => self.lose_connection(peer, incarnation),
            Event::Looked(suspect, sighting) => {
                if let Some(leadership) = &mut self.leadership {
                    let now = self.broker.env.now();
                    leadership.controller.handle_look(now, &suspect, sighting);
                }
            }
            Event::Confirmed(suspect, sightings) => {
                if let Some(leadership) = &mut self.leadership {
                    let now = self.broker.env.now();
                    let controller = &mut leadership.controller;
                    controller.handle_confirmation(now, &suspect, &sightings);
                }
            }
            Event::LookedForLeader { leader, term, gone } => {
                if gone && self.raft.term() == term {
                    tracing::info!(%leader, term, "the leader of the metadata quorum is gone");
                    self.raft.handle_leader_gone(leader);
                }
                let again = self.leader_look.take().and_then(|look| look.again);
                if let Some((peer, incarnation)) = again {
                    self.lose_connection(peer, incarnation);
                }
            }
        }
        Ok(())
    }

    /// A leader has the controller find out about the broker, whoever it is; a follower cares for its leader.
    fn lose_connection(&mut self, peer: BrokerId, incarnation: Incarnation) {
        if self.broker.is_stopping() {
            return;
        }
        if let Some(leadership) = &mut self.leadership {
            let now = self.broker.env.now();
            let controller = &mut leadership.controller;
            controller.handle_connection_lost(now, peer, incarnation);
            return;
        }
        let processes = &self.broker.cluster.voter_processes;
        if self.raft.leader() != Some(peer) || processes.is_outdated(peer, incarnation) {
            return;
        }
        match &mut self.leader_look {
            Some(look) => look.again = Some((peer, incarnation)),
            None => {
                self.leader_look = Some(LeaderLook { again: None });
                search::start_for_leader(&self.broker, peer, incarnation, self.raft.term());
            }
        }
    }

    fn handle_message(&mut self, message: Message) -> Result<(), String> {
        let from = message.from;
        match self.raft.handle_message(message) {
            Ok(()) => Ok(()),
            Err(RaftError::LostLog) => Err(format!(
                "this voter's metadata log lacks entries that it had acknowledged to broker {from}: its disk lost them, \
                 and it must not vote on what is left. While all other voters run, remove its folder {} and start this \
                 broker again: its log is then restored from theirs",
                crate::cluster::metadata_log::FOLDER
            )),
            Err(error) => {
                tracing::warn!(%from, %error, "refused a raft message");
                Ok(())
            }
        }
    }

    /// After a long stall one tick is enough: what arrived meanwhile was taken first.
    fn handle_time(&mut self) {
        let now = self.broker.env.now();
        if now >= self.next_tick {
            self.stalled = false;
            self.raft.handle_tick();
            self.knock_if_forgotten();
            self.note_voter_logs();
            let following = self.next_tick + self.tick;
            self.next_tick = if following > now {
                following
            } else {
                now + self.tick
            };
        }
        let due = |leadership: &Leadership| {
            leadership
                .controller
                .next_deadline()
                .is_some_and(|due| due <= now)
        };
        if self.leadership.as_ref().is_some_and(due) {
            self.decide(Box::new(|controller, now| {
                let decision = controller.handle_timeout(now);
                log_fenced(&decision.records);
                Decided {
                    records: decision.records,
                    release: Box::new(|| {}),
                }
            }));
        }
        self.promote_learner();
        if let Some(leadership) = &mut self.leadership {
            for search in leadership.controller.take_searches(now) {
                search::start(&self.broker, search);
            }
        }
    }

    /// Has the controller decide, proposes what it decided, and keeps the reply until that is committed.
    fn decide(&mut self, decide: Decide) {
        let now = self.broker.env.now();
        let Some(leadership) = &mut self.leadership else {
            return;
        };
        let decided = decide(&mut leadership.controller, now);
        if !decided.records.is_empty() {
            match propose(&mut self.raft, &decided.records) {
                Ok(index) => {
                    leadership.controller.apply(index as i64, &decided.records);
                    leadership.proposed = index;
                }
                Err(reason) => {
                    // Nothing was appended or applied; whoever asked tries again.
                    tracing::warn!(%reason, "a decision of the controller was not proposed");
                    self.stalled = true;
                    return;
                }
            }
        }
        if leadership.proposed <= self.applied {
            (decided.release)();
        } else {
            leadership
                .pending
                .push(leadership.proposed, decided.release);
        }
    }

    /// Does all that Raft asks for.
    async fn drive(&mut self) -> Result<(), String> {
        let damaged = |error: RaftError| format!("{error}. {DAMAGED_ADVICE}");
        while let Some(ready) = self.raft.ready().map_err(damaged)? {
            self.send(ready.messages);
            if let Some(snapshot) = &ready.install {
                self.install(snapshot)?;
            }
            if !ready.committed.is_empty() {
                self.apply(&ready.committed)?;
            }
            self.link_members();
            if let Some(role) = ready.role {
                self.take_role(role);
            }
            if !ready.persist.is_empty() {
                let persist = Arc::new(ready.persist);
                self.write(move |log| log.persist(&persist)).await?;
            }
            let waited = self.raft.handle_persisted(ready.number);
            self.broker.cluster.seat.set_log_end(self.raft.last_index());
            self.send(waited);
        }
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            let (broker, sender, to) = (&self.broker, &self.sender, message.to);
            // The answer to a member that this one has not heard of yet; the link goes again once it is sent.
            let link = self.links.entry(to);
            let link = link.or_insert_with(|| Link::new(broker, to, sender.clone()));
            link.send(message);
        }
    }

    /// Writes off the event loop: an fsync may take long, and connections share its threads. While there is no room this
    /// voter stands still, which the others take for its absence, and goes on when there is.
    async fn write(
        &mut self,
        write: impl Fn(&mut MetadataLog<E::Disk>) -> Result<(), MetadataLogError>
        + Clone
        + Send
        + 'static,
    ) -> Result<(), String> {
        let mut told = false;
        loop {
            match self.try_write(write.clone()).await? {
                Ok(()) => {
                    if told {
                        tracing::info!(broker = %self.broker.id, "the metadata log has room again");
                    }
                    return Ok(());
                }
                Err(error @ MetadataLogError::Full { .. }) if !self.broker.is_stopping() => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::error!(broker = %self.broker.id, %error, "this broker takes no part in the metadata quorum until there is room");
                    }
                    let again = self.broker.env.now() + FULL_PAUSE;
                    self.broker.env.sleep_until(again).await;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    async fn try_write(
        &mut self,
        write: impl FnOnce(&mut MetadataLog<E::Disk>) -> Result<(), MetadataLogError> + Send + 'static,
    ) -> Result<Result<(), MetadataLogError>, String> {
        let Some(mut log) = self.log.take() else {
            return Err("the metadata log is gone".to_string());
        };
        let (log, written) = self
            .broker
            .env
            .run_blocking(move || {
                let written = write(&mut log);
                (log, written)
            })
            .await;
        self.log = Some(log);
        Ok(written)
    }

    fn install(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        let index = snapshot.index;
        let image = records::replay(&snapshot.data).map_err(|error| {
            format!("metadata snapshot {index} cannot be used: {error}. {DAMAGED_ADVICE}")
        })?;
        tracing::info!(index, "installed a metadata snapshot");
        self.image = Arc::new(image);
        self.applied = index;
        self.broker.cluster.history.clear();
        self.publish();
        Ok(())
    }

    fn apply(&mut self, committed: &[Entry]) -> Result<(), String> {
        let mut own = 0;
        let mut without_proof = 0;
        for entry in committed {
            let unusable = |error: RecordError| {
                let index = entry.index;
                format!("metadata entry {index} cannot be used: {error}. {DAMAGED_ADVICE}")
            };
            let records = records::decode(&entry.data).map_err(unusable)?;
            let is_own = self
                .leadership
                .as_ref()
                .is_some_and(|leadership| leadership.term == entry.term);
            for record in &records {
                let image = Arc::make_mut(&mut self.image);
                without_proof += u64::from(is_own && image.is_election_without_proof(record));
                image
                    .try_apply(record)
                    .map_err(|contradiction| unusable(contradiction.into()))?;
            }
            self.applied = entry.index;
            self.broker
                .cluster
                .history
                .push(entry.index, entry.data.clone());
            if is_own {
                own = entry.index;
            }
        }
        // Whoever decided counts, once it is committed: over all brokers no election is then counted twice, and only one that
        // was committed by another leader than its own is not counted.
        let metrics = self.broker.metrics();
        metrics.unclean_leader_elections.inc_by(without_proof);
        self.publish();
        if let Some(leadership) = &mut self.leadership {
            // An entry of another term at the index of one of ours means that ours is lost.
            leadership.pending.release(own);
        }
        Ok(())
    }

    fn publish(&self) {
        let now = self.broker.env.now();
        self.broker
            .cluster
            .published
            .publish(self.applied, Arc::clone(&self.image), now);
    }

    /// Replaces what was written by a snapshot, once it is large.
    async fn compact_if_large(&mut self) -> Result<(), String> {
        let large = self
            .log
            .as_ref()
            .is_some_and(|log| log.bytes_since_snapshot() > self.snapshot_after_bytes);
        if !large {
            return Ok(());
        }
        let data = records::encode(&self.image.snapshot()).map_err(|error| error.to_string())?;
        let Some(snapshot) = self.raft.compact(self.applied, data) else {
            return Ok(());
        };
        tracing::info!(
            index = snapshot.index,
            bytes = snapshot.data.len(),
            "took a metadata snapshot"
        );
        let snapshot = Arc::new(snapshot);
        self.write(move |log| log.compact(&snapshot)).await
    }
}

/// What time alone leads to: brokers that were not heard from, or were found gone.
fn log_fenced(records: &[Record]) {
    let partitions = |record: &&Record| matches!(record, Record::Partition { .. });
    let moved = records.iter().filter(partitions).count();
    for record in records {
        if let Record::BrokerState {
            broker,
            fenced: true,
            ..
        } = record
        {
            tracing::warn!(%broker, partitions = moved, "fences a broker that is gone or was not heard from");
        }
    }
}

fn propose(raft: &mut RaftNode, records: &[Record]) -> Result<u64, String> {
    let data = records::encode(records).map_err(|error| error.to_string())?;
    raft.propose(data).map_err(|error| error.to_string())
}
