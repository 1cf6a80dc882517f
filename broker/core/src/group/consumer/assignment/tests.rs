//! Steps of a member, and that nothing ever has two owners.

use proptest::prelude::*;

use super::super::assignor::{Assignor, Subscriber};
use super::*;

fn topic(number: u8) -> TopicId {
    TopicId([number; 16])
}

fn partitions(all: &[(u8, &[i32])]) -> Partitions {
    let all = all.iter();
    all.map(|(number, some)| (topic(*number), some.iter().copied().collect()))
        .collect()
}

fn held(all: &[(u8, i32, i32)]) -> Held {
    let mut held = Held::new();
    for (number, partition, epoch) in all {
        let topic = held.entry(topic(*number)).or_default();
        topic.insert(*partition, *epoch);
    }
    held
}

fn both() -> BTreeSet<TopicId> {
    [topic(1), topic(2)].into()
}

/// A heartbeat that reports what the member has.
fn reports(owned: &Partitions) -> Reported<'_> {
    Reported {
        owned: Some(owned),
        subscription_changed: false,
    }
}

/// A heartbeat that says nothing.
const SILENT: Reported<'static> = Reported {
    owned: None,
    subscription_changed: false,
};

fn target<'a>(
    epoch: i32,
    partitions: &'a Partitions,
    subscribed: &'a BTreeSet<TopicId>,
) -> Target<'a> {
    Target {
        epoch,
        partitions,
        subscribed,
    }
}

fn free(_: TopicId, _: i32) -> bool {
    false
}

#[test]
fn a_new_member_gets_what_is_free_and_the_rest_when_it_is_released() {
    let (wanted, subscribed) = (partitions(&[(1, &[0, 1])]), both());
    let to = target(7, &wanted, &subscribed);
    let first = CurrentAssignment::new();
    let second = first
        .next(to, SILENT, |_, partition| partition == 1)
        .expect("a step");
    assert_eq!(second.state, MemberState::UnreleasedPartitions);
    assert_eq!((second.member_epoch, second.previous_member_epoch), (7, 0));
    assert_eq!(second.assigned, held(&[(1, 0, 7)]));
    let third = second.next(to, SILENT, free).expect("a step");
    assert_eq!(third.state, MemberState::Stable);
    assert_eq!(third.assigned, held(&[(1, 0, 7), (1, 1, 7)]));
    assert_eq!(third.next(to, SILENT, free), None);
}

#[test]
fn a_member_stays_in_its_epoch_until_it_reports_that_it_gave_up() {
    let stable = CurrentAssignment {
        member_epoch: 3,
        assigned: held(&[(1, 0, 2), (1, 1, 3)]),
        ..CurrentAssignment::new()
    };
    let (wanted, subscribed) = (partitions(&[(1, &[0]), (2, &[5])]), both());
    let to = target(4, &wanted, &subscribed);
    let revoking = stable.next(to, SILENT, free).expect("a step");
    assert_eq!(revoking.state, MemberState::UnrevokedPartitions);
    assert_eq!(revoking.member_epoch, 3);
    assert_eq!(revoking.assigned, held(&[(1, 0, 2)]));
    assert_eq!(revoking.pending_revocation, held(&[(1, 1, 3)]));

    assert_eq!(revoking.next(to, SILENT, free), None, "it says nothing");
    let both_owned = partitions(&[(1, &[0, 1])]);
    assert_eq!(revoking.next(to, reports(&both_owned), free), None);
    let done = revoking.next(to, reports(&partitions(&[(1, &[0])])), free);
    let done = done.expect("a step");
    assert_eq!(
        (done.state, done.member_epoch, done.previous_member_epoch),
        (MemberState::Stable, 4, 3)
    );
    assert_eq!(done.assigned, held(&[(1, 0, 2), (2, 5, 4)]));
    assert!(done.pending_revocation.is_empty());
}

#[test]
fn what_the_member_does_not_have_any_more_need_not_be_given_up() {
    let stable = CurrentAssignment {
        member_epoch: 3,
        assigned: held(&[(1, 0, 3), (1, 1, 3)]),
        ..CurrentAssignment::new()
    };
    let (wanted, subscribed) = (partitions(&[(1, &[0])]), both());
    let owned = partitions(&[(1, &[0])]);
    let next = stable.next(target(4, &wanted, &subscribed), reports(&owned), free);
    let next = next.expect("a step");
    assert_eq!((next.state, next.member_epoch), (MemberState::Stable, 4));
    assert_eq!(next.assigned, held(&[(1, 0, 3)]));
}

#[test]
fn what_is_subscribed_to_no_more_goes_before_there_is_a_target_without_it() {
    let stable = CurrentAssignment {
        member_epoch: 3,
        assigned: held(&[(1, 0, 3), (2, 0, 3)]),
        ..CurrentAssignment::new()
    };
    let wanted = partitions(&[(1, &[0]), (2, &[0])]);
    let subscribed = [topic(1)].into();
    let to = target(3, &wanted, &subscribed);
    let changed = |owned| Reported {
        owned,
        subscription_changed: true,
    };
    let next = stable.next(to, changed(None), free).expect("a step");
    assert_eq!(next.state, MemberState::UnrevokedPartitions);
    assert_eq!(next.assigned, held(&[(1, 0, 3)]));
    assert_eq!(next.pending_revocation, held(&[(2, 0, 3)]));

    let gone = partitions(&[(1, &[0])]);
    let next = stable.next(to, changed(Some(&gone)), free).expect("a step");
    assert_eq!(next.state, MemberState::Stable);
    assert_eq!(next.assigned, held(&[(1, 0, 3)]));
    assert!(next.pending_revocation.is_empty());

    // A target that is older than the subscription does not give it back.
    let next = stable.next(target(4, &wanted, &subscribed), reports(&gone), free);
    assert_eq!(next.expect("a step").assigned, held(&[(1, 0, 3)]));
}

/// What happens to a group.
#[derive(Clone, Debug)]
enum Event {
    /// A member's heartbeat, with what it owns or not; the answer may be lost.
    Heartbeat {
        member: usize,
        full: bool,
        lost: bool,
    },
    /// A member subscribes to these from its next heartbeat on.
    Subscribe { member: usize, topics: Vec<u8> },
    /// A member dies, and another one with its number joins.
    Replace { member: usize },
    /// The coordinator makes a new target.
    Retarget { range: bool },
}

fn event() -> impl Strategy<Value = Event> {
    let member = 0..4_usize;
    prop_oneof![
        8 => (member.clone(), any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(member, full, lost)| Event::Heartbeat { member, full, lost }),
        1 => (member.clone(), prop::collection::vec(0..3_u8, 0..3))
            .prop_map(|(member, topics)| Event::Subscribe { member, topics }),
        1 => member.prop_map(|member| Event::Replace { member }),
        2 => any::<bool>().prop_map(|range| Event::Retarget { range }),
    ]
}

/// A member as the coordinator and as the client sees it.
struct Member {
    id: String,
    topics: BTreeSet<TopicId>,
    /// Whether the coordinator has not heard of the subscription yet.
    changed: bool,
    current: CurrentAssignment,
    target: Partitions,
    /// What the client uses.
    owned: Partitions,
}

struct World {
    members: Vec<Member>,
    epoch: i32,
    born: usize,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            members: Vec::new(),
            epoch: 1,
            born: 0,
        };
        for _ in 0..4 {
            let member = world.newborn();
            world.members.push(member);
        }
        world
    }

    fn newborn(&mut self) -> Member {
        self.born += 1;
        Member {
            id: format!("member-{}", self.born),
            topics: (0..3).map(topic).collect(),
            changed: false,
            current: CurrentAssignment::new(),
            target: Partitions::new(),
            owned: Partitions::new(),
        }
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Heartbeat { member, full, lost } => self.heartbeat(*member, *full, *lost),
            Event::Subscribe { member, topics } => {
                let member = &mut self.members[*member];
                member.topics = topics.iter().map(|number| topic(*number)).collect();
                member.changed = true;
            }
            Event::Replace { member } => self.members[*member] = self.newborn(),
            Event::Retarget { range } => self.retarget(*range),
        }
    }

    fn retarget(&mut self, range: bool) {
        let assignor = if range {
            Assignor::Range
        } else {
            Assignor::Uniform
        };
        let members: Vec<Subscriber> = self
            .members
            .iter()
            .map(|member| Subscriber {
                id: member.id.clone(),
                instance_id: None,
                topics: member.topics.clone(),
                assigned: member.target.clone(),
            })
            .collect();
        let topics = (0..3)
            .map(|number| (topic(number), 3 + i32::from(number)))
            .collect();
        let mut assigned = assignor.assign(&members, &topics);
        for member in &mut self.members {
            member.target = assigned.remove(&member.id).expect("every member's");
        }
        self.epoch += 1;
    }

    fn heartbeat(&mut self, index: usize, full: bool, lost: bool) {
        let member = &self.members[index];
        let reported = Reported {
            owned: full.then_some(&member.owned),
            subscription_changed: member.changed,
        };
        let to = target(self.epoch, &member.target, &member.topics);
        let others = |topic, partition| {
            let mut others = self.members.iter().enumerate();
            others.any(|(other, member)| other != index && has(&member.current, topic, partition))
        };
        let next = member.current.next(to, reported, others);
        let member = &mut self.members[index];
        member.changed = false;
        if let Some(next) = next {
            member.current = next;
        }
        if !lost {
            // The client gives up what it is not told, then takes what it is told.
            let told = member.current.assigned.iter();
            member.owned = told
                .map(|(topic, some)| (*topic, some.keys().copied().collect()))
                .collect();
        }
    }

    /// Nothing has two owners, for the coordinator or for the clients.
    fn check(&self) {
        let (mut given, mut used) = (BTreeSet::new(), BTreeSet::new());
        for member in &self.members {
            for held in [&member.current.assigned, &member.current.pending_revocation] {
                for (topic, some) in held {
                    assert!(!some.is_empty());
                    for partition in some.keys() {
                        assert!(given.insert((*topic, *partition)), "given twice");
                    }
                }
            }
            for (topic, some) in &member.owned {
                for partition in some {
                    assert!(used.insert((*topic, *partition)), "used by two");
                    let allowed = has(&member.current, *topic, *partition);
                    assert!(allowed, "used by a member that may not");
                }
            }
        }
    }
}

fn has(current: &CurrentAssignment, topic: TopicId, partition: i32) -> bool {
    [&current.assigned, &current.pending_revocation]
        .into_iter()
        .any(|held| {
            held.get(&topic)
                .is_some_and(|some| some.contains_key(&partition))
        })
}

proptest! {
    #[test]
    fn no_partition_has_two_owners_and_everybody_gets_to_the_target(
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut world = World::new();
        for event in &events {
            world.take(event);
            world.check();
        }
        world.retarget(false);
        // To hear what an older target takes away, to say that it went, the same for this target, and to get what others gave up.
        for _ in 0..5 {
            for member in 0..world.members.len() {
                world.heartbeat(member, true, false);
                world.check();
            }
        }
        for member in &world.members {
            let current = &member.current;
            prop_assert_eq!((current.state, current.member_epoch), (MemberState::Stable, world.epoch));
            prop_assert_eq!(&member.owned, &member.target);
        }
    }
}
