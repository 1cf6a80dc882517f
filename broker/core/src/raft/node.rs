//! One voter: events in, `Ready` out. It keeps the crate's rules of order, so that the shell has only those of `Ready`.

mod members;

use std::collections::{BTreeMap, VecDeque};

use raft::{ProgressState, RawNode, SnapshotStatus, StateRole, eraftpb};

use super::convert;
use super::logger;
use super::storage::MemoryLog;
use super::types::{
    CommittedLog, Entry, Message, MessageType, Persist, Persisted, ProposeError, RaftError, Ready,
    Role, Snapshot, VoterProgress,
};
use crate::ids::BrokerId;

/// Ticks between the campaigns of two voters that learned at the same time that their leader is gone. Enough for the
/// first one's votes to be asked for, written and counted.
const CAMPAIGN_SPREAD_TICKS: usize = 3;

/// What a voter is started with. Times are in ticks; the shell decides how long a tick is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaftConfig {
    /// This voter.
    pub id: BrokerId,
    /// The founders: the voters of a quorum that has no snapshot yet, the same for all of them, for ever. Entries change who
    /// votes, and later a snapshot says.
    pub voters: Vec<BrokerId>,
    /// Where election timeouts are drawn from. Voters should differ; a simulation repeats it.
    pub seed: u64,
    /// A follower that hears nothing for this long, plus up to as much again, asks to be elected; a leader that
    /// hears from no majority for this long steps down.
    pub election_ticks: usize,
    /// A leader lets its followers hear from it this often.
    pub heartbeat_ticks: usize,
    /// Entries in one message, in bytes; one entry always fits.
    pub message_bytes_max: u64,
    /// Messages under way to one follower.
    pub messages_in_flight_max: usize,
    /// Proposed and not committed, in bytes; more is refused with `ProposeError::Busy`.
    pub uncommitted_bytes_max: u64,
    /// Entries kept below the newest snapshot for followers that are a little behind.
    pub entries_kept: u64,
}

impl RaftConfig {
    /// The defaults: 10 and 2 ticks (with ticks of 50 ms an election after 0.5 to 1 s), 1 MiB and 256 messages in
    /// flight to each of two followers, 16 MiB uncommitted, 4,096 entries kept.
    pub fn new(id: BrokerId, voters: Vec<BrokerId>, seed: u64) -> Self {
        Self {
            id,
            voters,
            seed,
            election_ticks: 10,
            heartbeat_ticks: 2,
            message_bytes_max: 1 << 20,
            messages_in_flight_max: 256,
            uncommitted_bytes_max: 16 << 20,
            entries_kept: 4096,
        }
    }
}

/// A voter of the metadata quorum.
///
/// The shell calls one of the `handle_*` or `propose`, then takes `ready()` until it is `None`, then does what they say.
pub struct RaftNode {
    raw: RawNode<MemoryLog>,
    election_ticks: usize,
    entries_kept: u64,
    /// SplitMix64; election timeouts only.
    random: u64,
    /// The term and role that the current election timeout was drawn for.
    drawn_for: (u64, StateRole),
    election_timeout: usize,
    reported: Role,
    /// The index and term of the last entry handed out to be applied.
    applied: (u64, u64),
    /// Numbers of `Ready`s not yet persisted, each with the messages that wait for it.
    unpersisted: VecDeque<(u64, Vec<Message>)>,
    /// The `Ready` whose snapshot is not yet persisted.
    installing: Option<u64>,
    /// For how many ticks a follower has been waiting for a snapshot.
    snapshot_ticks: BTreeMap<u64, usize>,
    /// Ticks until this voter asks to be elected because its leader's process is gone.
    campaign_in: Option<usize>,
}

impl RaftNode {
    /// Starts a voter on what it persisted. Committed entries after the snapshot are handed out again: the shell's
    /// image starts at the snapshot.
    pub fn new(config: &RaftConfig, persisted: Persisted) -> Result<Self, RaftError> {
        let voters = config.voters.iter().copied().map(convert::id_to_raft);
        let bootstrap = eraftpb::ConfState::from((voters, []));
        let log = MemoryLog::new(persisted, bootstrap)?;
        let snapshot_index = log.snapshot_index();
        let library_config = raft::Config {
            id: convert::id_to_raft(config.id),
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            min_election_tick: config.election_ticks,
            max_election_tick: 2 * config.election_ticks,
            applied: snapshot_index,
            max_size_per_msg: config.message_bytes_max,
            max_inflight_msgs: config.messages_in_flight_max,
            max_uncommitted_size: config.uncommitted_bytes_max,
            check_quorum: true,
            pre_vote: true,
            ..raft::Config::default()
        };
        let raw = RawNode::new(&library_config, log, &logger::to_tracing())
            .map_err(|_| RaftError::Malformed("raft configuration is refused"))?;
        let term = raw.raft.term;
        let mut node = Self {
            raw,
            election_ticks: config.election_ticks,
            entries_kept: config.entries_kept,
            random: config.seed
                ^ u64::from(config.id.0.unsigned_abs()).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            drawn_for: (term, StateRole::Follower),
            election_timeout: config.election_ticks,
            reported: Role::Follower { leader: None, term },
            applied: (snapshot_index, 0),
            unpersisted: VecDeque::new(),
            installing: None,
            snapshot_ticks: BTreeMap::new(),
            campaign_in: None,
        };
        node.draw_election_timeout();
        node.settle();
        Ok(node)
    }

    /// Whether anything depends on ticks. A leader that has its quorum for itself has nobody to keep informed and nobody to hear
    /// from.
    pub fn needs_ticks(&self) -> bool {
        let own_id = self.raw.raft.id;
        let alone = self.raw.raft.prs().iter().all(|(id, _)| *id == own_id);
        !(alone && self.raw.raft.state == StateRole::Leader)
    }

    /// A tick of time passed.
    pub fn handle_tick(&mut self) {
        if self.installing.is_some() {
            // Before a campaign the crate looks at all entries that are not applied, and those below the snapshot are gone.
            // Until the snapshot is on disk this voter could not win one anyway.
            return;
        }
        self.raw.tick();
        self.count_down_to_campaign();
        self.give_up_on_lost_snapshots();
        self.settle();
    }

    /// The process of the leader is known to have ended, so that there is no lease left to wait for: this voter grants
    /// votes at once, and asks for some within a few ticks. The voters that learn it together do so one after the
    /// other, by their ids, lest they split the votes. Does nothing unless this voter follows that leader.
    ///
    /// Being wrong costs an election and nothing else: terms and votes are as ever.
    pub fn handle_leader_gone(&mut self, leader: BrokerId) {
        if self.leader() != Some(leader) || self.raw.raft.state != StateRole::Follower {
            return;
        }
        let (own, gone) = (self.raw.raft.id, convert::id_to_raft(leader));
        let voters = self.raw.raft.prs().conf().to_conf_state().voters;
        if !voters.contains(&own) {
            return;
        }
        let before = voters.iter().filter(|id| **id < own && **id != gone);
        let before = before.count();
        let term = self.term();
        self.raw.raft.become_follower(term, raft::INVALID_ID);
        self.campaign_in = Some(1 + before * CAMPAIGN_SPREAD_TICKS);
        self.settle();
    }

    /// A peer's message arrived. An error leaves this voter as it was.
    pub fn handle_message(&mut self, message: Message) -> Result<(), RaftError> {
        self.check_sender(&message)?;
        self.check_log(&message)?;
        if message.message_type == MessageType::TimeoutNow && self.installing.is_some() {
            // As in `handle_tick`; whoever hands over leadership gives up after an election timeout.
            return Ok(());
        }
        let converted = convert::message_to_raft(message)?;
        // The only errors of a step are about proposals and unknown peers, and neither gets here.
        let _ = self.raw.step(converted);
        self.settle();
        Ok(())
    }

    /// A message to this peer could not be delivered: it is sent less until it answers.
    pub fn handle_unreachable(&mut self, peer: BrokerId) {
        let peer = convert::id_to_raft(peer);
        self.raw.report_unreachable(peer);
        if self.waits_for_snapshot(peer) {
            self.raw.report_snapshot(peer, SnapshotStatus::Failure);
        }
        self.settle();
    }

    /// Everything that the `Ready`s up to this number asked to persist is on disk. Returns the messages that waited for
    /// that, to be sent now.
    #[must_use]
    pub fn handle_persisted(&mut self, number: u64) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some((first, _)) = self.unpersisted.front()
            && *first <= number
        {
            let waiting = self.unpersisted.pop_front();
            messages.extend(waiting.into_iter().flat_map(|(_, messages)| messages));
        }
        self.raw.on_persist_ready(number);
        if self
            .installing
            .is_some_and(|installing| installing <= number)
        {
            self.installing = None;
            self.raw.advance_apply();
        }
        self.settle();
        messages
    }

    /// Appends records to the log if this voter leads and has reported so in a `Ready`. Returns the entry's index; the
    /// entry is committed when it comes back in `Ready::committed` with the term of `Role::Leader`.
    pub fn propose(&mut self, data: Vec<u8>) -> Result<u64, ProposeError> {
        self.check_leads()?;
        let proposed = self.raw.propose(Vec::new(), data);
        self.settle();
        match proposed {
            Ok(()) => Ok(self.last_index()),
            Err(_) => Err(ProposeError::Busy),
        }
    }

    fn check_leads(&self) -> Result<(), ProposeError> {
        let leads = Role::Leader { term: self.term() };
        if self.reported == leads && self.raw.raft.state == StateRole::Leader {
            return Ok(());
        }
        Err(ProposeError::NotLeader {
            leader: self.leader(),
        })
    }

    /// Asks a follower that is up to date to take over. Until it has, or an election timeout has passed, proposals are
    /// refused with `ProposeError::Busy`. Does nothing unless this voter leads.
    pub fn transfer_leader(&mut self, to: BrokerId) {
        if self.raw.raft.state == StateRole::Leader {
            self.raw.transfer_leader(convert::id_to_raft(to));
            self.settle();
        }
    }

    /// The image at `index`, which must have been handed out as committed, stands for all entries up to it from now on.
    /// Returns the snapshot to persist, or `None` if there is a newer one or `index` is unknown. Writing it needs no order
    /// with other writes: until it is on disk, the older snapshot and the entries after it must stay.
    pub fn compact(&mut self, index: u64, image: Vec<u8>) -> Option<Snapshot> {
        if index > self.applied.0 || self.installing.is_some() {
            return None;
        }
        let kept = self.entries_kept;
        self.raw.mut_store().compact(index, image, kept)
    }

    /// What is to be done next; `None` if nothing. After an error this voter must be dropped.
    pub fn ready(&mut self) -> Result<Option<Ready>, RaftError> {
        if !self.raw.has_ready() && self.role() == self.reported {
            return Ok(None);
        }
        let mut library = self.raw.ready();
        let number = library.number();
        let mut ready = Ready {
            number,
            messages: convert_messages(library.take_messages()),
            ..Ready::default()
        };
        let waiting = convert_messages(library.take_persisted_messages());
        self.unpersisted.push_back((number, waiting));
        if !library.snapshot().is_empty() {
            let snapshot = library.snapshot().clone();
            ready.install = Some(convert::snapshot_from_raft(&snapshot));
            ready.persist.snapshot.clone_from(&ready.install);
            self.applied = (snapshot.get_metadata().index, snapshot.get_metadata().term);
            self.installing = Some(number);
            self.raw.mut_store().install(snapshot);
        }
        let committed = library.take_committed_entries();
        self.change_members(&committed)?;
        ready.committed = convert_entries(&committed);
        if let Some(last) = ready.committed.last() {
            self.applied = (last.index, last.term);
        }
        ready.persist = self.keep(&library, ready.persist.snapshot.take());
        self.raw.advance_append_async(library);
        if self.installing.is_none() {
            self.raw.advance_apply();
        }
        let role = self.role();
        if role != self.reported {
            self.reported = role;
            ready.role = Some(role);
        }
        self.settle();
        Ok(Some(ready))
    }

    /// What a broker that is no voter and has applied everything before `index` needs next. Entries are committed and at
    /// least one, unless there is none yet; then no more than `bytes_max` of data.
    pub fn committed_log(&self, index: u64, bytes_max: u64) -> CommittedLog {
        let index = index.max(1);
        let log = self.raw.store();
        if index > self.applied.0 {
            return CommittedLog::Entries(Vec::new());
        }
        match log.read(index, self.applied.0, bytes_max) {
            Some(entries) => CommittedLog::Entries(entries),
            // Entries are dropped only once a snapshot stands for them.
            None => CommittedLog::Snapshot(log.newest_snapshot().unwrap_or_default()),
        }
    }

    /// The newest term that this voter has seen.
    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// Who leads, as far as known; this voter itself from its election on, before it may propose.
    pub fn leader(&self) -> Option<BrokerId> {
        convert::id_from_raft(self.raw.raft.leader_id)
    }

    /// The index of the newest entry, persisted or not.
    pub fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// The last index known as committed.
    pub fn commit_index(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// The last index handed out to be applied.
    pub fn applied_index(&self) -> u64 {
        self.applied.0
    }

    /// How far each voter and learner is, by id; empty unless this voter leads.
    pub fn progress(&self) -> Vec<VoterProgress> {
        if self.raw.raft.state != StateRole::Leader {
            return Vec::new();
        }
        let own_id = self.raw.raft.id;
        let (all_voters, _) = self.members();
        let mut voters: Vec<_> = self.raw.raft.prs().iter().collect();
        voters.sort_unstable_by_key(|(id, _)| **id);
        let voters = voters.into_iter().filter_map(|(id, progress)| {
            let voter = convert::id_from_raft(*id)?;
            Some(VoterProgress {
                voter,
                votes: all_voters.contains(&voter),
                matched: progress.matched,
                recently_active: *id == own_id || progress.recent_active,
            })
        });
        voters.collect()
    }

    fn role(&self) -> Role {
        let term = self.term();
        if self.raw.raft.state != StateRole::Leader {
            let leader = self.leader();
            return Role::Follower { leader, term };
        }
        // The first entry of a term is the no-op that its leader appends: with it, all before it is applied.
        if self.applied.1 == term {
            Role::Leader { term }
        } else {
            Role::Follower { leader: None, term }
        }
    }

    /// Makes what is to be persisted readable for the crate, and says it to the shell.
    fn keep(&mut self, library: &raft::Ready, snapshot: Option<Snapshot>) -> Persist {
        let log = self.raw.mut_store();
        log.append(library.entries());
        if let Some(hard_state) = library.hs() {
            log.set_hard_state(hard_state.clone());
        }
        Persist {
            snapshot,
            entries: convert_entries(library.entries()),
            hard_state: library.hs().map(convert::hard_state_from_raft),
            must_sync: library.must_sync(),
        }
    }

    /// Members that this one has not heard of yet may lead it or ask for its vote; an answer comes only from those it asked.
    fn check_sender(&self, message: &Message) -> Result<(), RaftError> {
        let progress = self.raw.raft.prs();
        let is_answer = match message.message_type {
            MessageType::AppendResponse
            | MessageType::RequestVoteResponse
            | MessageType::HeartbeatResponse
            | MessageType::RequestPreVoteResponse => true,
            MessageType::Append
            | MessageType::RequestVote
            | MessageType::Snapshot
            | MessageType::Heartbeat
            | MessageType::TimeoutNow
            | MessageType::RequestPreVote => false,
        };
        let may_send = |id: BrokerId| {
            id.0 >= 0 && (!is_answer || progress.get(convert::id_to_raft(id)).is_some())
        };
        let is_for_me = message.to.0 >= 0 && convert::id_to_raft(message.to) == self.raw.raft.id;
        if is_for_me && message.from != message.to && may_send(message.from) {
            Ok(())
        } else {
            Err(RaftError::UnknownVoter)
        }
    }

    /// Refuses what could only be true if this voter, or the sender, had lost entries; the crate would stop the process.
    fn check_log(&self, message: &Message) -> Result<(), RaftError> {
        let log = &self.raw.raft.raft_log;
        // A leader that restarted may hear of entries of its last term that it lost with its unsynced writes.
        let leads = self.raw.raft.state == StateRole::Leader;
        match message.message_type {
            MessageType::Heartbeat
                if message.term >= self.term() && message.commit > log.last_index() =>
            {
                Err(RaftError::LostLog)
            }
            MessageType::AppendResponse
                if leads
                    && message.term == self.term()
                    && !message.reject
                    && message.index > log.last_index() =>
            {
                Err(RaftError::Malformed(
                    "acknowledges entries that do not exist",
                ))
            }
            _ => Ok(()),
        }
    }

    fn count_down_to_campaign(&mut self) {
        let Some(ticks) = self.campaign_in.take() else {
            return;
        };
        let raft = &self.raw.raft;
        if raft.state != StateRole::Follower
            || raft.leader_id != raft::INVALID_ID
            || !raft.promotable()
        {
            // An election is under way, or over; or this one is no voter any more.
            return;
        }
        if ticks > 1 {
            self.campaign_in = Some(ticks - 1);
        } else {
            // The only errors of a step are about proposals and unknown peers.
            let _ = self.raw.campaign();
        }
    }

    fn waits_for_snapshot(&self, peer: u64) -> bool {
        let progress = self.raw.raft.prs().get(peer);
        progress.is_some_and(|progress| progress.state == ProgressState::Snapshot)
    }

    /// A leader sends nothing else to a follower that it sent a snapshot. If that got lost without the shell's noticing, it is
    /// sent again after this many election timeouts without an answer.
    fn give_up_on_lost_snapshots(&mut self) {
        const ELECTION_TIMEOUTS: usize = 10;
        if self.raw.raft.state != StateRole::Leader {
            self.snapshot_ticks.clear();
            return;
        }
        let peers: Vec<u64> = self.raw.raft.prs().iter().map(|(id, _)| *id).collect();
        for peer in peers {
            if !self.waits_for_snapshot(peer) {
                self.snapshot_ticks.remove(&peer);
                continue;
            }
            let ticks = self.snapshot_ticks.entry(peer).or_default();
            *ticks += 1;
            if *ticks > ELECTION_TIMEOUTS * self.election_ticks {
                *ticks = 0;
                self.raw.report_snapshot(peer, SnapshotStatus::Failure);
            }
        }
    }

    /// Puts our election timeout in the place of the one that the crate drew from the thread's generator, which it does
    /// whenever term or role change. Called after everything that may change them.
    fn settle(&mut self) {
        let now = (self.term(), self.raw.raft.state);
        if now != self.drawn_for {
            self.drawn_for = now;
            self.draw_election_timeout();
        }
        self.raw
            .raft
            .set_randomized_election_timeout(self.election_timeout);
    }

    fn draw_election_timeout(&mut self) {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let range = self.election_ticks as u64;
        self.election_timeout = self.election_ticks + (mixed % range) as usize;
    }
}

fn convert_messages(messages: Vec<eraftpb::Message>) -> Vec<Message> {
    messages
        .iter()
        .filter_map(convert::message_from_raft)
        .collect()
}

fn convert_entries(entries: &[eraftpb::Entry]) -> Vec<Entry> {
    entries.iter().map(convert::entry_from_raft).collect()
}

impl std::fmt::Debug for RaftNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RaftNode")
            .field("role", &self.reported)
            .field("term", &self.term())
            .field("commit_index", &self.commit_index())
            .field("last_index", &self.last_index())
            .finish_non_exhaustive()
    }
}
