//! Voters with simulated disks and network. After each step it checks: one leader per term, the same entries committed
//! everywhere, and nothing acknowledged lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::BrokerId;
use crate::raft::{
    Entry, HardState, MembershipChange, Message, Persist, Persisted, ProposeError, RaftConfig,
    RaftError, RaftNode, Role, Snapshot,
};

pub(super) struct Quorum {
    seed: u64,
    random: u64,
    founders: Vec<BrokerId>,
    voters: BTreeMap<BrokerId, Voter>,
    network: VecDeque<Message>,
    /// Pairs of voters whose messages are lost.
    cut: BTreeSet<(BrokerId, BrokerId)>,
    /// Messages lost of 100.
    pub(super) loss_percent: u64,
    leaders: BTreeMap<u64, BrokerId>,
    committed: BTreeMap<u64, Entry>,
    acknowledged: BTreeSet<Vec<u8>>,
    history: Vec<String>,
}

struct Voter {
    node: Option<RaftNode>,
    disk: Persisted,
    /// What it would write with the next frame: a commit index that moves alone is not on the disk yet.
    hard_state: HardState,
    /// Written but not yet synced, with their numbers.
    unsynced: VecDeque<(u64, Persist)>,
    role: Role,
    /// What it has applied: the state is the list of all data.
    state: Vec<Vec<u8>>,
    applied: u64,
    proposed: BTreeMap<u64, (u64, Vec<u8>)>,
}

impl Voter {
    fn down() -> Self {
        Self {
            node: None,
            disk: Persisted::default(),
            hard_state: HardState::default(),
            unsynced: VecDeque::new(),
            role: Role::Follower {
                leader: None,
                term: 0,
            },
            state: Vec::new(),
            applied: 0,
            proposed: BTreeMap::new(),
        }
    }
}

impl Quorum {
    pub(super) fn new(size: i32, seed: u64) -> Self {
        let mut quorum = Self {
            seed,
            random: seed,
            founders: (0..size).map(BrokerId).collect(),
            voters: BTreeMap::new(),
            network: VecDeque::new(),
            cut: BTreeSet::new(),
            loss_percent: 0,
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            history: Vec::new(),
        };
        for id in (0..size).map(BrokerId) {
            quorum.voters.insert(id, Voter::down());
        }
        for id in (0..size).map(BrokerId) {
            quorum.restart(id);
        }
        quorum
    }

    pub(super) fn ids(&self) -> Vec<BrokerId> {
        self.voters.keys().copied().collect()
    }

    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// The voter loses its memory and what it had not synced, or stops somewhere in its oldest write.
    pub(super) fn crash(&mut self, id: BrokerId) {
        self.history.push(format!("crash {id}"));
        let stage = self.random(4);
        let voter = self.voters.get_mut(&id).unwrap();
        voter.node = None;
        let oldest = voter.unsynced.pop_front();
        voter.unsynced.clear();
        let Some((_, persist)) = oldest.filter(|_| stage > 0) else {
            return;
        };
        if stage == 1 && persist.snapshot.is_some() {
            // The entries that it replaces are still there.
            voter.disk.snapshot = persist.snapshot;
            return;
        }
        // A frame is on the disk as a whole or not at all.
        write(voter, persist);
    }

    /// The voter is down and its disk is lost; it starts on what `leader` gives.
    pub(super) fn restore(&mut self, id: BrokerId, leader: BrokerId) {
        let image = encode(&self.voters[&leader].state);
        let node = self.node(leader);
        let (term, snapshot) = (node.term(), node.restore_voter(id, image));
        let snapshot = snapshot.expect("the leader has committed an entry of its term");
        // What its earlier life sent does not arrive any more.
        self.network.retain(|message| message.from != id);
        let voter = self.voters.get_mut(&id).unwrap();
        voter.unsynced.clear();
        voter.disk = Persisted {
            hard_state: HardState {
                term,
                vote: Some(leader),
                commit: snapshot.index,
            },
            snapshot: Some(snapshot),
            entries: Vec::new(),
        };
        self.restart(id);
    }

    /// A machine without a log, which is no member yet.
    pub(super) fn newcomer(&mut self) -> BrokerId {
        let id = BrokerId(self.voters.len() as i32);
        self.voters.insert(id, Voter::down());
        id
    }

    /// Has the leader change the members.
    pub(super) fn change(
        &mut self,
        leader: BrokerId,
        change: MembershipChange,
    ) -> Result<u64, ProposeError> {
        let changed = self.node(leader).propose_change(change, b"");
        if changed.is_ok() {
            self.history.push(format!("{leader} proposes {change:?}"));
        }
        changed
    }

    pub(super) fn members(&mut self, id: BrokerId) -> (Vec<i32>, Vec<i32>) {
        let (voters, learners) = self.node(id).members();
        let numbers = |ids: Vec<BrokerId>| ids.into_iter().map(|id| id.0).collect();
        (numbers(voters), numbers(learners))
    }

    pub(super) fn has_log(&self, id: BrokerId) -> bool {
        self.voters[&id].disk != Persisted::default()
    }

    pub(super) fn restart(&mut self, id: BrokerId) {
        self.history.push(format!("restart {id}"));
        let mut config = RaftConfig::new(id, self.founders.clone(), self.seed);
        config.entries_kept = 5;
        config.message_bytes_max = 200;
        let voter = self.voters.get_mut(&id).unwrap();
        voter.node = Some(RaftNode::new(&config, voter.disk.clone()).unwrap());
        voter.hard_state = voter.disk.hard_state;
        voter.role = Role::Follower {
            leader: None,
            term: 0,
        };
        voter.proposed.clear();
        let snapshot = voter.disk.snapshot.as_ref();
        voter.applied = snapshot.map_or(0, |snapshot| snapshot.index);
        voter.state = snapshot.map_or_else(Vec::new, |snapshot| decode(&snapshot.data));
    }

    pub(super) fn is_up(&self, id: BrokerId) -> bool {
        self.voters[&id].node.is_some()
    }

    pub(super) fn cut_off(&mut self, id: BrokerId) {
        self.history.push(format!("cut off {id}"));
        for other in self.ids() {
            self.cut.insert((id, other));
            self.cut.insert((other, id));
        }
    }

    pub(super) fn heal(&mut self) {
        self.history.push("heal".to_owned());
        self.cut.clear();
    }

    pub(super) fn leader(&self) -> Option<BrokerId> {
        let leads = |(id, voter): (&BrokerId, &Voter)| match voter.role {
            Role::Leader { term } if voter.node.is_some() => Some((term, *id)),
            _ => None,
        };
        self.voters.iter().filter_map(leads).max().map(|(_, id)| id)
    }

    pub(super) fn node(&mut self, id: BrokerId) -> &mut RaftNode {
        self.voters.get_mut(&id).unwrap().node.as_mut().unwrap()
    }

    pub(super) fn propose(&mut self, id: BrokerId, data: &str) -> Result<u64, ProposeError> {
        let voter = self.voters.get_mut(&id).unwrap();
        let node = voter.node.as_mut().unwrap();
        let index = node.propose(data.as_bytes().to_vec())?;
        voter
            .proposed
            .insert(index, (node.term(), data.as_bytes().to_vec()));
        Ok(index)
    }

    pub(super) fn tick(&mut self, id: BrokerId) {
        if let Some(node) = &mut self.voters.get_mut(&id).unwrap().node {
            node.handle_tick();
        }
        self.process(id);
    }

    /// Ticks all, and delivers and syncs everything, so many times.
    pub(super) fn run(&mut self, ticks: usize) {
        for _ in 0..ticks {
            for id in self.ids() {
                self.tick(id);
            }
            self.settle();
        }
    }

    pub(super) fn settle(&mut self) {
        loop {
            for id in self.ids() {
                self.process(id);
                while self.sync(id) {}
            }
            if !self.deliver() {
                break;
            }
        }
    }

    /// Delivers or loses the oldest message; false if there is none.
    pub(super) fn deliver(&mut self) -> bool {
        let Some(message) = self.network.pop_front() else {
            return false;
        };
        let lost = self.loss_percent > 0 && self.random(100) < self.loss_percent;
        if lost || self.cut.contains(&(message.from, message.to)) {
            return true;
        }
        let to = message.to;
        if let Some(node) = &mut self.voters.get_mut(&to).unwrap().node {
            match node.handle_message(message) {
                // The answer of a member that is none any more.
                Ok(()) | Err(RaftError::UnknownVoter) => {}
                Err(error) => panic!("{error}: {:#?}", self.history),
            }
        }
        self.process(to);
        true
    }

    /// Makes a random message in flight the next one.
    pub(super) fn shuffle(&mut self) {
        if !self.network.is_empty() {
            let position = self.random(self.network.len() as u64) as usize;
            self.network.swap(0, position);
        }
    }

    /// Syncs the oldest write; false if there is none.
    pub(super) fn sync(&mut self, id: BrokerId) -> bool {
        let voter = self.voters.get_mut(&id).unwrap();
        let Some((number, persist)) = voter.unsynced.pop_front() else {
            return false;
        };
        write(voter, persist);
        if let Some(node) = &mut voter.node {
            self.network.extend(node.handle_persisted(number));
        }
        self.process(id);
        true
    }

    /// A snapshot of what the voter has applied, written at once.
    pub(super) fn compact(&mut self, id: BrokerId) {
        let drop_entries = self.random(2) == 0;
        let voter = self.voters.get_mut(&id).unwrap();
        let Some(node) = &mut voter.node else {
            return;
        };
        if let Some(snapshot) = node.compact(voter.applied, encode(&voter.state)) {
            self.history
                .push(format!("compact {id} to {}", snapshot.index));
            if drop_entries {
                voter
                    .disk
                    .entries
                    .retain(|entry| entry.index > snapshot.index);
                voter.disk.hard_state = voter.hard_state;
            }
            voter.disk.snapshot = Some(snapshot);
        }
    }

    pub(super) fn state(&self, id: BrokerId) -> Vec<String> {
        let state = self.voters[&id].state.iter();
        state
            .map(|data| String::from_utf8(data.clone()).unwrap())
            .collect()
    }

    pub(super) fn history(&self) -> &[String] {
        &self.history
    }

    /// The faults end: everybody who was one of the quorum is started again, and then there is a leader, whose voters all agree
    /// with it, and nothing was lost.
    pub(super) fn end_well(&mut self) {
        self.heal();
        self.loss_percent = 0;
        for id in self.ids() {
            let was_of_it = self.founders.contains(&id) || self.has_log(id);
            if !self.is_up(id) && was_of_it {
                self.restart(id);
            }
        }
        self.run(400);
        let Some(leader) = self.leader() else {
            panic!("no leader: {:#?}", self.history);
        };
        if let Err(error) = self.propose(leader, "last") {
            panic!("{error}: {:#?}", self.history);
        }
        self.run(10);
        let state = self.state(leader);
        assert_eq!(state.last().map(String::as_str), Some("last"));
        for id in self.members(leader).0 {
            assert_eq!(self.state(BrokerId(id)), state, "{:#?}", self.history);
        }
        self.check_nothing_lost();
    }

    pub(super) fn check_nothing_lost(&self) {
        let committed: BTreeSet<_> = self.committed.values().map(|entry| &entry.data).collect();
        for data in &self.acknowledged {
            assert!(
                committed.contains(data),
                "lost {data:?}: {:#?}",
                self.history
            );
        }
    }

    fn process(&mut self, id: BrokerId) {
        loop {
            let voter = self.voters.get_mut(&id).unwrap();
            let Some(node) = &mut voter.node else {
                return;
            };
            let Some(ready) = node.ready().unwrap() else {
                return;
            };
            self.network.extend(ready.messages);
            if let Some(Snapshot { index, data, .. }) = ready.install {
                assert!(index > voter.applied, "a snapshot goes back");
                voter.state = decode(&data);
                voter.applied = index;
                self.history.push(format!("{id} installs {index}"));
            }
            for entry in ready.committed {
                assert_eq!(entry.index, voter.applied + 1, "each entry once, in order");
                voter.applied = entry.index;
                if !entry.data.is_empty() {
                    voter.state.push(entry.data.clone());
                }
                let proposed = voter.proposed.remove(&entry.index);
                if let Some((term, data)) = proposed
                    && term == entry.term
                {
                    assert_eq!(data, entry.data);
                    self.acknowledged.insert(data);
                }
                let known = self
                    .committed
                    .entry(entry.index)
                    .or_insert_with(|| entry.clone());
                assert_eq!(
                    *known, entry,
                    "two entries committed at one index: {:#?}",
                    self.history
                );
            }
            if let Some(role) = ready.role {
                self.history.push(format!("{id} is {role:?}"));
                voter.role = role;
                voter.proposed.clear();
                if let Role::Leader { term } = role {
                    let leader = *self.leaders.entry(term).or_insert(id);
                    assert_eq!(leader, id, "two leaders in term {term}");
                    let all_known: Vec<u64> = self.committed.keys().copied().collect();
                    let newest = all_known.last().copied().unwrap_or(0);
                    assert!(
                        voter.applied >= newest,
                        "a leader starts behind what is committed"
                    );
                }
            }
            let (number, persist) = (ready.number, ready.persist);
            voter.unsynced.push_back((number, persist));
        }
    }
}

/// As the metadata log: a commit index that moved alone is written with what comes next.
fn write(voter: &mut Voter, persist: Persist) {
    if let Some(hard_state) = persist.hard_state {
        voter.hard_state = hard_state;
    }
    let disk = &mut voter.disk;
    if persist.snapshot.is_none() && !persist.must_sync && persist.entries.is_empty() {
        return;
    }
    if let Some(snapshot) = persist.snapshot {
        disk.entries.clear();
        disk.snapshot = Some(snapshot);
    }
    if let Some(first) = persist.entries.first() {
        disk.entries.retain(|entry| entry.index < first.index);
        disk.entries.extend(persist.entries);
    }
    disk.hard_state = voter.hard_state;
}

fn encode(state: &[Vec<u8>]) -> Vec<u8> {
    state.join(&b'\n')
}

fn decode(data: &[u8]) -> Vec<Vec<u8>> {
    let lines = data.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
    lines.filter(|line| !line.is_empty()).collect()
}
