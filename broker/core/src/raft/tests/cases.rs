//! What a quorum does, one behaviour each.

use super::quorum::Quorum;
use crate::ids::BrokerId;
use crate::raft::{
    CommittedLog, Entry, EntryType, HardState, Message, MessageType, Persisted, ProposeError,
    RaftConfig, RaftError, RaftNode, Role, Snapshot,
};

fn with_leader(size: i32, seed: u64) -> (Quorum, BrokerId) {
    let mut quorum = Quorum::new(size, seed);
    quorum.run(60);
    let leader = quorum.leader().expect("a leader within 60 ticks");
    (quorum, leader)
}

#[test]
fn a_single_voter_leads_and_commits() {
    let (mut quorum, leader) = with_leader(1, 1);
    quorum.propose(leader, "a").unwrap();
    quorum.settle();
    assert_eq!(quorum.state(leader), ["a"]);
    quorum.crash(leader);
    quorum.restart(leader);
    quorum.run(60);
    assert_eq!(quorum.state(leader), ["a"]);
    quorum.check_nothing_lost();
}

#[test]
fn only_a_leader_without_other_members_does_without_ticks() {
    let (mut quorum, leader) = with_leader(1, 1);
    assert!(!quorum.node(leader).needs_ticks());
    quorum.crash(leader);
    quorum.restart(leader);
    assert!(quorum.node(leader).needs_ticks(), "it has to be elected");
    let (mut quorum, _) = with_leader(3, 1);
    for id in quorum.ids() {
        assert!(quorum.node(id).needs_ticks(), "{id}");
    }
}

#[test]
fn every_seed_elects_and_replicates() {
    for seed in 0..50 {
        let (mut quorum, leader) = with_leader(3, seed);
        for data in ["a", "b", "c"] {
            quorum.propose(leader, data).unwrap();
        }
        quorum.run(5);
        for id in quorum.ids() {
            assert_eq!(quorum.state(id), ["a", "b", "c"], "seed {seed}");
        }
    }
}

#[test]
fn followers_refuse_proposals_and_name_the_leader() {
    let (mut quorum, leader) = with_leader(3, 7);
    let follower = quorum.ids().into_iter().find(|id| *id != leader).unwrap();
    let refused = quorum.propose(follower, "a");
    assert_eq!(
        refused,
        Err(ProposeError::NotLeader {
            leader: Some(leader)
        })
    );
}

#[test]
fn a_leader_may_not_propose_before_its_first_entry_is_applied() {
    let mut quorum = Quorum::new(1, 3);
    let id = BrokerId(0);
    while quorum.node(id).leader().is_none() {
        quorum.tick(id);
    }
    let refused = quorum.propose(id, "early");
    assert!(matches!(refused, Err(ProposeError::NotLeader { .. })));
    quorum.settle();
    quorum.propose(id, "now").unwrap();
}

#[test]
fn a_crashed_leader_is_replaced_and_comes_back_as_follower() {
    let (mut quorum, old) = with_leader(3, 11);
    quorum.propose(old, "a").unwrap();
    quorum.settle();
    quorum.crash(old);
    quorum.run(60);
    let new = quorum.leader().unwrap();
    assert_ne!(new, old);
    quorum.propose(new, "b").unwrap();
    quorum.settle();
    quorum.restart(old);
    quorum.run(10);
    assert_eq!(quorum.leader(), Some(new));
    assert_eq!(quorum.state(old), ["a", "b"]);
}

#[test]
fn a_leader_cut_off_steps_down_and_its_entry_is_replaced() {
    let (mut quorum, old) = with_leader(3, 13);
    quorum.cut_off(old);
    quorum.propose(old, "lost").unwrap();
    quorum.run(80);
    let new = quorum.leader().unwrap();
    assert_ne!(new, old);
    assert!(matches!(
        quorum.propose(old, "refused"),
        Err(ProposeError::NotLeader { .. })
    ));
    quorum.propose(new, "kept").unwrap();
    quorum.settle();
    quorum.heal();
    quorum.run(20);
    assert_eq!(
        quorum.leader(),
        Some(new),
        "pre-vote: who comes back does not disturb"
    );
    for id in quorum.ids() {
        assert_eq!(quorum.state(id), ["kept"]);
    }
}

#[test]
fn nothing_is_committed_before_a_majority_has_synced() {
    let (mut quorum, leader) = with_leader(3, 17);
    quorum.propose(leader, "a").unwrap();
    // Messages travel, but no disk syncs.
    for _ in 0..20 {
        for id in quorum.ids() {
            quorum.tick(id);
        }
        while quorum.deliver() {}
    }
    for id in quorum.ids() {
        assert!(quorum.state(id).is_empty());
    }
}

#[test]
fn leadership_is_handed_over() {
    let (mut quorum, leader) = with_leader(3, 19);
    let to = quorum.ids().into_iter().find(|id| *id != leader).unwrap();
    quorum.node(leader).transfer_leader(to);
    assert_eq!(quorum.propose(leader, "a"), Err(ProposeError::Busy));
    quorum.run(3);
    assert_eq!(quorum.leader(), Some(to));
    quorum.propose(to, "b").unwrap();
    quorum.settle();
    assert_eq!(quorum.state(leader), ["b"]);
}

#[test]
fn a_voter_far_behind_gets_a_snapshot_even_if_the_first_is_lost() {
    let (mut quorum, leader) = with_leader(3, 23);
    let behind = quorum.ids().into_iter().find(|id| *id != leader).unwrap();
    quorum.cut_off(behind);
    for number in 0..40 {
        quorum.propose(leader, &format!("{number}")).unwrap();
        quorum.settle();
    }
    quorum.compact(leader);
    quorum.heal();
    // Everything is lost while the leader finds out and sends the snapshot.
    quorum.loss_percent = 50;
    quorum.run(20);
    quorum.loss_percent = 0;
    quorum.run(300);
    let leader = quorum.leader().unwrap();
    assert_eq!(quorum.state(behind), quorum.state(leader));
    let installed = quorum
        .history()
        .iter()
        .any(|line| line.starts_with(&format!("{behind} installs")));
    assert!(installed, "{:#?}", quorum.history());
    assert_eq!(quorum.state(behind).len(), 40);
}

#[test]
fn the_committed_log_is_read_in_pieces_or_as_a_snapshot() {
    let (mut quorum, leader) = with_leader(3, 31);
    for number in 0..20 {
        quorum.propose(leader, &format!("{number:02}")).unwrap();
        quorum.settle();
    }
    let last = quorum.node(leader).commit_index();
    let mut check = |index, bytes_max, expected: &str| {
        let text = match quorum.node(leader).committed_log(index, bytes_max) {
            CommittedLog::Entries(entries) => {
                let indexes = entries
                    .iter()
                    .map(|entry| (entry.index + 20 - last).to_string());
                indexes.collect::<Vec<_>>().join(" ")
            }
            CommittedLog::Snapshot(snapshot) => format!("snapshot {}", snapshot.index + 20 - last),
        };
        assert_eq!(text, expected, "{index} {bytes_max}");
    };
    // Numbered as the data, of two bytes each.
    let first = last - 19;
    check(first, 6, "1 2 3");
    check(first, 0, "1");
    check(last, 100, "20");
    check(last + 1, 100, "");
    check(last + 100, 100, "");
    quorum.compact(leader);
    let CommittedLog::Snapshot(snapshot) = quorum.node(leader).committed_log(1, 0) else {
        panic!("the first entries are gone");
    };
    assert_eq!(snapshot.index, last);
    assert!(
        matches!(quorum.node(leader).committed_log(last, 0), CommittedLog::Entries(entries) if entries.len() == 1)
    );
}

#[test]
fn too_much_uncommitted_is_refused() {
    let mut config = RaftConfig::new(BrokerId(0), vec![BrokerId(0)], 1);
    config.uncommitted_bytes_max = 1000;
    config.message_bytes_max = 100;
    let mut node = RaftNode::new(&config, Persisted::default()).unwrap();
    let mut leads = false;
    while !leads {
        node.handle_tick();
        while let Some(ready) = node.ready().unwrap() {
            leads |= matches!(ready.role, Some(Role::Leader { .. }));
            assert!(node.handle_persisted(ready.number).is_empty());
        }
    }
    node.propose(vec![0; 900]).unwrap();
    assert_eq!(node.propose(vec![0; 900]), Err(ProposeError::Busy));
}

#[test]
fn the_same_seed_repeats_the_same_run() {
    let run = |seed| {
        let (mut quorum, leader) = with_leader(3, seed);
        quorum.crash(leader);
        quorum.run(100);
        quorum.history().to_vec()
    };
    assert_eq!(run(5), run(5));
    let runs: Vec<_> = (0..10).map(run).collect();
    assert!(runs.iter().any(|other| *other != runs[0]), "seeds differ");
}

#[test]
fn persisted_state_that_does_not_fit_is_refused() {
    let entry = |index, term| Entry {
        entry_type: EntryType::Normal,
        term,
        index,
        data: Vec::new(),
        context: Vec::new(),
    };
    let snapshot = |index, term| Snapshot {
        index,
        term,
        voters: vec![BrokerId(0)],
        ..Snapshot::default()
    };
    let hard_state = |term, commit| HardState {
        term,
        vote: None,
        commit,
    };
    let check = |hard_state, snapshot, entries: &[Entry], accepted: bool| {
        let persisted = Persisted {
            hard_state,
            snapshot,
            entries: entries.to_vec(),
        };
        let config = RaftConfig::new(BrokerId(0), vec![BrokerId(0)], 1);
        let started = RaftNode::new(&config, persisted);
        assert_eq!(started.is_ok(), accepted, "{started:?}");
    };
    check(hard_state(0, 0), None, &[], true);
    check(hard_state(2, 1), None, &[entry(1, 1), entry(2, 2)], true);
    check(hard_state(2, 0), Some(snapshot(5, 2)), &[], true);
    check(
        hard_state(2, 6),
        Some(snapshot(5, 2)),
        &[entry(4, 1), entry(5, 2), entry(6, 2)],
        true,
    );
    check(hard_state(2, 0), None, &[entry(2, 1)], false);
    check(hard_state(2, 0), None, &[entry(1, 1), entry(3, 1)], false);
    check(hard_state(2, 0), None, &[entry(1, 2), entry(2, 1)], false);
    // Stops in between writes: the hard state is missing, or the entries that a snapshot replaces are still there.
    check(hard_state(1, 0), None, &[entry(1, 2)], true);
    check(
        hard_state(1, 0),
        Some(snapshot(5, 2)),
        &[entry(5, 1), entry(6, 1)],
        true,
    );
    check(hard_state(2, 7), None, &[entry(1, 2)], false);
    check(
        hard_state(2, 0),
        Some(snapshot(5, 2)),
        &[entry(7, 2)],
        false,
    );
    check(hard_state(2, 0), Some(snapshot(0, 0)), &[], false);
}

#[test]
fn messages_that_no_peer_sends_are_refused() {
    let (mut quorum, leader) = with_leader(3, 29);
    let follower = quorum.ids().into_iter().find(|id| *id != leader).unwrap();
    let term = quorum.node(leader).term();
    let message = |message_type, change: &dyn Fn(&mut Message)| {
        let mut message = Message::new(message_type, leader, follower);
        message.term = term;
        change(&mut message);
        message
    };
    let mut check = |message: Message, expected: RaftError| {
        assert_eq!(quorum.node(follower).handle_message(message), Err(expected));
    };
    use MessageType::{Append, Heartbeat, Snapshot as SnapshotMessage};
    check(
        message(Append, &|m| m.term = 0),
        RaftError::Malformed("term is zero"),
    );
    check(
        message(MessageType::AppendResponse, &|m| m.from = BrokerId(9)),
        RaftError::UnknownVoter,
    );
    check(
        message(Append, &|m| m.from = BrokerId(-1)),
        RaftError::UnknownVoter,
    );
    check(
        message(Append, &|m| m.to = BrokerId(9)),
        RaftError::UnknownVoter,
    );
    check(message(Append, &|m| m.from = m.to), RaftError::UnknownVoter);
    check(
        message(Heartbeat, &|m| m.commit = 1_000),
        RaftError::LostLog,
    );
    check(
        message(SnapshotMessage, &|_| {}),
        RaftError::Malformed("snapshot is missing"),
    );
    let with_entries = |indexes: &'static [u64]| {
        move |message: &mut Message| {
            let entry = |index: &u64| Entry {
                entry_type: EntryType::Normal,
                term: 1,
                index: *index,
                data: Vec::new(),
                context: Vec::new(),
            };
            message.entries = indexes.iter().map(entry).collect();
        }
    };
    let gap = RaftError::Malformed("entries do not follow each other");
    check(message(Append, &with_entries(&[2])), gap);
    check(message(Append, &with_entries(&[1, 3])), gap);
    check(
        message(Heartbeat, &with_entries(&[1])),
        RaftError::Malformed("only Append carries entries"),
    );
}

#[test]
fn followers_that_know_their_leader_is_gone_elect_another_within_a_few_ticks() {
    for seed in 0..50 {
        let (mut quorum, old) = with_leader(3, seed);
        quorum.propose(old, "a").unwrap();
        quorum.settle();
        quorum.crash(old);
        let others: Vec<BrokerId> = quorum.ids().into_iter().filter(|id| *id != old).collect();
        for id in &others {
            quorum.node(*id).handle_leader_gone(old);
        }
        quorum.run(2);
        assert_eq!(quorum.leader(), Some(others[0]), "seed {seed}");
        assert_eq!(quorum.state(others[1]), ["a"]);
        quorum.check_nothing_lost();
    }
}

#[test]
fn a_gone_leader_is_replaced_also_where_the_first_in_line_does_not_know_or_lacks_entries() {
    for seed in 0..50 {
        let (mut quorum, old) = with_leader(3, seed);
        let others: Vec<BrokerId> = quorum.ids().into_iter().filter(|id| *id != old).collect();
        let behind = seed % 2 == 0;
        if behind {
            quorum.cut_off(others[0]);
        }
        quorum.propose(old, "a").unwrap();
        quorum.settle();
        quorum.crash(old);
        quorum.heal();
        if behind {
            quorum.node(others[0]).handle_leader_gone(old);
        }
        quorum.node(others[1]).handle_leader_gone(old);
        // The one that does not know keeps its lease for 10 ticks after the leader's last heartbeat.
        quorum.run(if behind { 8 } else { 40 });
        assert!(
            quorum.leader().is_some_and(|leader| leader != old),
            "seed {seed}"
        );
        quorum.check_nothing_lost();
    }
}

#[test]
fn a_leader_that_is_wrongly_held_for_gone_stays() {
    let (mut quorum, leader) = with_leader(3, 5);
    let term = quorum.node(leader).term();
    let follower = quorum.ids().into_iter().find(|id| *id != leader).unwrap();
    quorum.node(follower).handle_leader_gone(leader);
    assert_eq!(quorum.node(follower).leader(), None);
    quorum.node(leader).handle_leader_gone(leader);
    quorum.run(40);
    assert_eq!(quorum.leader(), Some(leader));
    assert_eq!(
        quorum.node(leader).term(),
        term,
        "the others kept their lease"
    );
}

#[test]
fn a_voter_whose_disk_was_lost_is_restored_and_counts_again() {
    for seed in 0..30 {
        let (mut quorum, leader) = with_leader(3, seed);
        for data in ["a", "b", "c"] {
            quorum.propose(leader, data).unwrap();
            quorum.settle();
        }
        let others: Vec<BrokerId> = quorum
            .ids()
            .into_iter()
            .filter(|id| *id != leader)
            .collect();
        quorum.crash(others[0]);
        if seed % 2 == 0 {
            quorum.propose(leader, "d").unwrap();
        }
        quorum.run(3);
        quorum.restore(others[0], leader);
        quorum.crash(others[1]);
        quorum.run(5);
        quorum.propose(leader, "e").unwrap();
        quorum.run(5);
        let state = quorum.state(others[0]);
        assert_eq!(state.last().map(String::as_str), Some("e"), "seed {seed}");
        assert_eq!(state, quorum.state(leader));
        quorum.check_nothing_lost();
    }
}

#[test]
fn only_a_leader_gives_snapshots_to_voters_that_lost_their_disk() {
    let (mut quorum, leader) = with_leader(3, 3);
    let others: Vec<BrokerId> = quorum
        .ids()
        .into_iter()
        .filter(|id| *id != leader)
        .collect();
    let given = quorum.node(others[0]).restore_voter(others[1], Vec::new());
    assert_eq!(given, None);
}
