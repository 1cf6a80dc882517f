//! Members that come and go: from one voter to three, a voter that is replaced, and both under random faults.

use super::quorum::Quorum;
use crate::ids::BrokerId;
use crate::raft::{
    Entry, EntryType, MembershipChange, Message, MessageType, Persisted, ProposeError, RaftConfig,
    RaftError, RaftNode,
};

const STEPS: u64 = 1500;
const SEEDS: u64 = 40;

/// Brings a member in as far as one more step does, as the shell does it: learner, log, voter.
fn step_towards_three(quorum: &mut Quorum, leader: BrokerId) {
    let (voters, learners) = quorum.members(leader);
    for id in quorum.ids() {
        // Refused while an earlier change is under way; the next step tries again.
        if !voters.contains(&id.0) && !learners.contains(&id.0) {
            let _ = quorum.change(leader, MembershipChange::AddLearner(id));
        } else if learners.contains(&id.0) {
            if !quorum.has_log(id) {
                quorum.restore(id, leader);
            }
            let progress = quorum.node(leader).progress().into_iter();
            let mut of_it = progress.filter(|progress| progress.voter == id);
            let matched = of_it.next().map_or(0, |progress| progress.matched);
            if matched >= quorum.node(leader).commit_index() {
                let _ = quorum.change(leader, MembershipChange::AddVoter(id));
            }
        }
    }
}

#[test]
fn one_voter_becomes_three_and_then_survives_the_loss_of_the_first() {
    let mut quorum = Quorum::new(1, 5);
    quorum.run(60);
    let first = quorum.leader().unwrap();
    quorum.propose(first, "a").unwrap();
    for _ in 0..2 {
        quorum.newcomer();
    }
    for _ in 0..12 {
        step_towards_three(&mut quorum, first);
        quorum.run(10);
    }
    for id in quorum.ids() {
        assert_eq!(quorum.members(id), (vec![0, 1, 2], vec![]));
        assert_eq!(quorum.state(id), ["a"]);
    }
    quorum.crash(first);
    quorum.run(60);
    let next = quorum.leader().filter(|next| *next != first).unwrap();
    quorum.propose(next, "b").unwrap();
    quorum.run(10);
    assert_eq!(quorum.state(next), ["a", "b"]);
    // Its log begins with itself as the only voter, and still it does not lead alone.
    quorum.cut_off(first);
    quorum.restart(first);
    quorum.run(100);
    assert_ne!(quorum.leader(), Some(first));
    quorum.heal();
    quorum.run(60);
    assert_eq!(quorum.state(first), ["a", "b"]);
}

#[test]
fn a_member_follows_a_leader_that_it_has_not_heard_of() {
    let mut quorum = Quorum::new(3, 5);
    quorum.run(60);
    let leader = quorum.leader().unwrap();
    let absent = quorum.ids().into_iter().find(|id| *id != leader).unwrap();
    quorum.crash(absent);
    let new = quorum.newcomer();
    for _ in 0..6 {
        step_towards_three(&mut quorum, leader);
        quorum.run(10);
    }
    assert!(quorum.members(leader).0.contains(&new.0));
    quorum.node(leader).transfer_leader(new);
    quorum.run(60);
    assert_eq!(quorum.leader(), Some(new));
    // The only vote that is left to win is that of the one who never heard of it.
    quorum.propose(new, "a").unwrap();
    quorum.run(10);
    quorum.crash(leader);
    quorum.restart(absent);
    quorum.run(100);
    assert_eq!(quorum.state(absent), ["a"]);
    assert!(quorum.members(absent).0.contains(&new.0));
}

#[test]
fn only_sensible_changes_are_proposed_and_one_at_a_time() {
    let mut quorum = Quorum::new(3, 5);
    quorum.run(60);
    let leader = quorum.leader().unwrap();
    let other = quorum.ids().into_iter().find(|id| *id != leader).unwrap();
    let new = quorum.newcomer();
    for change in [
        MembershipChange::AddLearner(other),
        MembershipChange::AddVoter(new),
        MembershipChange::AddVoter(other),
        MembershipChange::Remove(new),
        MembershipChange::Remove(leader),
        MembershipChange::AddLearner(BrokerId(-1)),
    ] {
        let refused = quorum.change(leader, change);
        assert!(
            matches!(refused, Err(ProposeError::NotPossible(_))),
            "{change:?}"
        );
    }
    quorum
        .change(leader, MembershipChange::Remove(other))
        .unwrap();
    let second = quorum.change(leader, MembershipChange::AddLearner(new));
    assert_eq!(second, Err(ProposeError::Busy));
    quorum.run(10);
    assert!(!quorum.members(leader).0.contains(&other.0));
    quorum
        .change(leader, MembershipChange::AddLearner(new))
        .unwrap();
}

/// What comes of an entry that a peer claims is committed, and that changes the members of a quorum of one.
fn apply_from_peer(change: MembershipChange) -> Result<(), RaftError> {
    let config = RaftConfig::new(BrokerId(0), vec![BrokerId(0)], 1);
    let mut node = RaftNode::new(&config, Persisted::default()).unwrap();
    let mut message = Message::new(MessageType::Append, BrokerId(1), BrokerId(0));
    (message.term, message.commit) = (5, 1);
    message.entries = vec![Entry {
        entry_type: EntryType::Membership,
        term: 5,
        index: 1,
        data: Vec::new(),
        context: change.to_bytes().to_vec(),
    }];
    node.handle_message(message).unwrap();
    while let Some(ready) = node.ready()? {
        let _ = node.handle_persisted(ready.number);
    }
    assert_eq!(node.applied_index(), 1);
    Ok(())
}

#[test]
fn an_impossible_change_of_members_from_a_peer_is_an_error() {
    for change in [
        MembershipChange::Remove(BrokerId(0)),
        MembershipChange::Remove(BrokerId(7)),
        MembershipChange::AddVoter(BrokerId(7)),
        MembershipChange::AddLearner(BrokerId(0)),
    ] {
        let applied = apply_from_peer(change);
        assert!(
            matches!(applied, Err(RaftError::ImpossibleChange { index: 1, .. })),
            "{change:?}: {applied:?}"
        );
    }
    assert_eq!(
        apply_from_peer(MembershipChange::AddLearner(BrokerId(7))),
        Ok(())
    );
}

#[test]
fn a_voter_that_comes_to_lead_and_commits_its_own_removal_stands_down() {
    let mut quorum = Quorum::new(3, 5);
    quorum.run(60);
    let old = quorum.leader().unwrap();
    let mut others = quorum.ids().into_iter().filter(|id| *id != old);
    let (removed, third) = (others.next().unwrap(), others.next().unwrap());
    quorum.cut_off(third);
    quorum
        .change(old, MembershipChange::Remove(removed))
        .unwrap();
    quorum.tick(old);
    while quorum.deliver() {}
    while quorum.sync(removed) {}
    // The removed one alone has the entry, and nobody else may lead without it.
    quorum.crash(old);
    quorum.heal();
    quorum.run(100);
    assert!(
        !quorum.members(removed).0.contains(&removed.0),
        "it led, and committed that"
    );
    assert_ne!(quorum.leader(), Some(removed));
    quorum.restart(old);
    quorum.run(100);
    let leader = quorum.leader().unwrap();
    assert_ne!(leader, removed);
    assert_eq!(
        quorum.members(leader).0,
        [old.0.min(third.0), old.0.max(third.0)]
    );
    quorum.propose(leader, "a").unwrap();
    quorum.run(10);
    for id in [old, third] {
        assert_eq!(quorum.state(id), ["a"]);
    }
}

#[test]
fn a_snapshot_remembers_the_members_and_a_restart_counts_their_changes_once() {
    let mut quorum = Quorum::new(1, 9);
    quorum.run(60);
    let first = quorum.leader().unwrap();
    let new = quorum.newcomer();
    for _ in 0..6 {
        step_towards_three(&mut quorum, first);
        quorum.run(10);
    }
    assert_eq!(quorum.members(first).0, [0, 1]);
    for compacts in [false, true] {
        if compacts {
            quorum.compact(first);
        }
        quorum.crash(first);
        quorum.crash(new);
        quorum.restart(first);
        quorum.restart(new);
        quorum.run(80);
        assert_eq!(quorum.members(first).0, [0, 1]);
        assert_eq!(quorum.members(new).0, [0, 1]);
    }
}

#[test]
fn members_come_and_go_under_faults_and_nothing_is_lost() {
    for seed in 0..SEEDS {
        let result = std::panic::catch_unwind(|| run(seed));
        if let Err(panic) = result {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn run(seed: u64) {
    let mut quorum = Quorum::new(1 + 2 * (seed % 2) as i32, seed);
    quorum.run(60);
    while quorum.ids().len() < 4 {
        quorum.newcomer();
    }
    quorum.loss_percent = seed % 4 * 5;
    let mut proposals = 0;
    for _ in 0..STEPS {
        let id = BrokerId(quorum.random(4) as i32);
        match quorum.random(1000) {
            0..350 => quorum.tick(id),
            350..700 => {
                quorum.shuffle();
                quorum.deliver();
            }
            700..880 => {
                quorum.sync(id);
            }
            880..920 => {
                if let Some(leader) = quorum.leader() {
                    proposals += 1;
                    let _ = quorum.propose(leader, &format!("{proposals}"));
                }
            }
            920..955 => {
                if let Some(leader) = quorum.leader() {
                    step_towards_three(&mut quorum, leader);
                }
            }
            955..962 => {
                if let Some(leader) = quorum.leader()
                    && quorum.members(leader).0.len() > 2
                {
                    let _ = quorum.change(leader, MembershipChange::Remove(id));
                }
            }
            962..970 => quorum.compact(id),
            970..980 => {
                if quorum.is_up(id) {
                    quorum.crash(id);
                } else if quorum.has_log(id) {
                    quorum.restart(id);
                }
            }
            980..985 => quorum.cut_off(id),
            985..993 => quorum.heal(),
            _ => {
                if let Some(leader) = quorum.leader() {
                    quorum.node(leader).transfer_leader(id);
                }
            }
        }
    }
    quorum.end_well();
}
