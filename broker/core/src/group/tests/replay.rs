//! Live state, replayed log and replayed compacted log are one and the same; nothing waits without an owner.

use proptest::prelude::*;

use super::world::{World, commit, join, sync};
use crate::group::*;
use crate::ids::TopicId;
use crate::time::Instant;

#[derive(Clone, Debug)]
enum Step {
    /// A new member, static or not, asked to come back with its id or not.
    Join {
        instance: Option<u8>,
        known_id_first: bool,
    },
    /// A member that exists joins again; with changed metadata or not.
    Rejoin {
        who: prop::sample::Index,
        changed: bool,
    },
    Sync {
        who: prop::sample::Index,
    },
    Heartbeat {
        who: prop::sample::Index,
    },
    Leave {
        who: prop::sample::Index,
    },
    Commit {
        who: Option<prop::sample::Index>,
        partition: i32,
        offset: i64,
    },
    Pass {
        ms: u64,
    },
    DeleteGroup,
    DeleteOffset {
        partition: i32,
    },
    RemoveTopic,
    FailOver,
}

fn step() -> impl Strategy<Value = Step> {
    let who = any::<prop::sample::Index>;
    prop_oneof![
        4 => (prop::option::weighted(0.3, 0..3_u8), any::<bool>())
            .prop_map(|(instance, known_id_first)| Step::Join { instance, known_id_first }),
        8 => (who(), prop::bool::weighted(0.2)).prop_map(|(who, changed)| Step::Rejoin { who, changed }),
        8 => who().prop_map(|who| Step::Sync { who }),
        4 => who().prop_map(|who| Step::Heartbeat { who }),
        2 => who().prop_map(|who| Step::Leave { who }),
        4 => (prop::option::of(who()), 0..3_i32, 0..100_i64)
            .prop_map(|(who, partition, offset)| Step::Commit { who, partition, offset }),
        6 => prop_oneof![1..4_000_u64, 1..70_000_u64, Just(8 * 24 * 3_600 * 1_000)]
            .prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::DeleteGroup),
        1 => (0..3_i32).prop_map(|partition| Step::DeleteOffset { partition }),
        1 => Just(Step::RemoveTopic),
        1 => Just(Step::FailOver),
    ]
}

/// The members that a client could be: those in the group and those that were told an id.
fn who(world: &World, index: &prop::sample::Index) -> Option<(String, Option<String>, i32)> {
    let group = world.coordinator.group("g")?;
    let classic = group.classic();
    let mut known: Vec<(String, Option<String>)> = classic
        .members()
        .iter()
        .map(|(id, member)| (id.clone(), member.group_instance_id.clone()))
        .collect();
    known.extend(classic.pending_members().map(|id| (id.to_owned(), None)));
    if known.is_empty() {
        return None;
    }
    let (id, instance) = index.get(&known).clone();
    Some((id, instance, classic.generation()))
}

fn run(world: &mut World, step: &Step) {
    match step {
        Step::Join {
            instance,
            known_id_first,
        } => {
            world.join(&JoinGroup {
                group_instance_id: instance.map(|instance| format!("i{instance}")),
                requires_known_member_id: *known_id_first,
                ..join("")
            });
        }
        Step::Rejoin {
            who: index,
            changed,
        } => {
            if let Some((id, instance, _)) = who(world, index) {
                let metadata = super::world::bytes(if *changed { "changed" } else { "m" });
                world.join(&JoinGroup {
                    group_instance_id: instance,
                    protocols: vec![("range".to_owned(), metadata)],
                    ..join(&id)
                });
            }
        }
        Step::Sync { who: index } => {
            if let Some((id, instance, generation)) = who(world, index) {
                let request = sync(&id, generation, &[(&id, "mine")]);
                world.sync(&SyncGroup {
                    group_instance_id: instance,
                    ..request
                });
            }
        }
        Step::Heartbeat { who: index } => {
            if let Some((id, _, generation)) = who(world, index) {
                let _ = world.heartbeat(&id, generation);
            }
        }
        Step::Leave { who: index } => {
            if let Some((id, instance, _)) = who(world, index) {
                world.leave(&id, instance.as_deref());
            }
        }
        Step::Commit {
            who: index,
            partition,
            offset,
        } => {
            let member = index.as_ref().and_then(|index| who(world, index));
            let (id, generation) =
                member.map_or((String::new(), -1), |(id, _, generation)| (id, generation));
            world.commit(&commit(&id, generation, &[("t", *partition, *offset)]));
        }
        Step::Pass { ms } => world.pass(*ms),
        Step::DeleteGroup => {
            world.delete_group("g");
        }
        Step::DeleteOffset { partition } => {
            let _ = world.delete_offsets(&[("t", &[*partition])]);
        }
        Step::RemoveTopic => world.remove_topic(TopicId::ZERO, "t"),
        Step::FailOver => world.fail_over(),
    }
}

/// Keeps the last record of each key, in the order of these.
fn compact(log: &[Record]) -> Vec<Record> {
    let key = |record: &Record| match record {
        Record::Offset {
            group_id,
            topic,
            partition,
            ..
        } => (group_id.clone(), Some((topic.clone(), *partition))),
        Record::Group { group_id, .. } => (group_id.clone(), None),
    };
    let mut kept: Vec<Record> = Vec::new();
    for (index, record) in log.iter().enumerate() {
        if !log[index + 1..]
            .iter()
            .any(|later| key(later) == key(record))
        {
            kept.push(record.clone());
        }
    }
    kept
}

fn replay<'a>(records: impl IntoIterator<Item = &'a Record>, now: Instant) -> Coordinator {
    let mut coordinator = Coordinator::new(Settings::default());
    for record in records {
        coordinator.apply(record);
    }
    coordinator.handle_loaded(now);
    coordinator
}

fn check(world: &World) {
    world.coordinator.assert_protocols_are_counted();
    let now = world.now();
    let live = world.coordinator.snapshot();
    let replayed = replay(&world.log, now);
    assert_eq!(replayed.snapshot(), live);
    let compacted = compact(&world.log);
    assert_eq!(replay(&compacted, now).snapshot(), live);
    assert_eq!(
        replay(compacted.iter().rev(), now).snapshot(),
        live,
        "whatever the order of keys"
    );
    assert_eq!(replay(&live, now).snapshot(), live);
    let Some(group) = world.coordinator.group("g") else {
        return;
    };
    let classic = group.classic();
    // A settled group is the same group for a new coordinator.
    if classic.state() == State::Stable {
        let record = classic.record("g");
        assert_eq!(
            replayed.group("g").map(|group| group.classic().record("g")),
            Some(record)
        );
    }
    let members = classic.members();
    if !members.is_empty() {
        assert!(
            classic
                .leader()
                .is_some_and(|leader| members.contains_key(leader))
        );
    }
    for member in members.values() {
        // Everyone has either a request that waits or a session that ends; nobody stays for ever.
        let waits = member.awaiting_join.is_some() || member.awaiting_sync.is_some();
        assert!(waits || member.deadline.is_some());
        match classic.state() {
            State::PreparingRebalance => assert!(member.awaiting_sync.is_none()),
            State::CompletingRebalance => assert!(member.awaiting_join.is_none()),
            State::Stable => assert!(!waits),
            State::Empty | State::Dead => panic!("members in {}", classic.state()),
        }
    }
    if members
        .values()
        .any(|member| member.awaiting_join.is_some() || member.awaiting_sync.is_some())
    {
        assert!(world.coordinator.next_deadline().is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn live_state_is_what_the_log_says(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new(Settings::default());
        for step in &steps {
            run(&mut world, step);
            check(&world);
        }
    }

    /// A member that does as it is told ends in a stable generation, whatever others began and left undone.
    #[test]
    fn an_obedient_member_gets_its_assignment(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(Settings::default());
        for step in &steps {
            run(&mut world, step);
        }
        let mut id = String::new();
        let mut rounds = 0;
        while !(world.state() == State::Stable && world.classic().members().contains_key(&id)) {
            rounds += 1;
            prop_assert!(rounds < 20, "{:?}", world.coordinator.group("g"));
            let token = world.join(&join(&id));
            for _ in 0..200 {
                if world.joined(token).is_none() {
                    world.pass(1_000);
                }
            }
            let reply = world.joined(token).expect("a rebalance ends").clone();
            id = if reply.error.is_some() { String::new() } else { reply.member_id };
            let token = world.sync(&sync(&id, reply.generation, &[(&id, "all")]));
            for _ in 0..200 {
                if world.synced(token).is_none() {
                    world.pass(1_000);
                }
            }
            prop_assert!(world.synced(token).is_some(), "a leader that is silent is replaced");
        }
    }
}

#[test]
fn replay_takes_tombstones_of_what_never_was() {
    let mut coordinator = Coordinator::new(Settings::default());
    coordinator.apply(&Record::Group {
        group_id: "g".into(),
        value: None,
    });
    coordinator.apply(&Record::Offset {
        group_id: "g".into(),
        topic: "t".into(),
        partition: 0,
        value: None,
    });
    coordinator.handle_loaded(Instant::ZERO);
    assert_eq!(coordinator.groups().count(), 0);
}
