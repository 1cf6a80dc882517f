//! What assignors give, and that they give everything once, evenly, and without moving more than they must.

use proptest::prelude::*;

use super::*;

fn topic(number: u8) -> TopicId {
    TopicId([number; 16])
}

fn member(id: &str, topics: &[u8], assigned: &[(u8, &[i32])]) -> Subscriber {
    let assigned = assigned.iter();
    Subscriber {
        id: id.to_owned(),
        instance_id: None,
        topics: topics.iter().map(|number| topic(*number)).collect(),
        assigned: assigned
            .map(|(number, partitions)| (topic(*number), partitions.iter().copied().collect()))
            .collect(),
    }
}

fn sizes(partitions: &[i32]) -> BTreeMap<TopicId, i32> {
    (0..).map(topic).zip(partitions.iter().copied()).collect()
}

/// `member: topic.partition …`, to be compared with what a person wrote down.
fn told(assigned: &BTreeMap<String, Partitions>) -> Vec<String> {
    let of = |partitions: &Partitions| {
        let all = partitions
            .iter()
            .flat_map(|(topic, some)| some.iter().map(|one| format!("{}.{one}", topic.0[0])));
        all.collect::<Vec<_>>().join(" ")
    };
    let members = assigned.iter();
    members
        .map(|(id, has)| format!("{id}: {}", of(has)))
        .collect()
}

#[test]
fn range_gives_the_same_numbers_of_all_topics_to_the_same_member() {
    let members = [
        member("a", &[0, 1], &[]),
        member("b", &[0, 1], &[]),
        member("c", &[0], &[]),
    ];
    let assigned = Assignor::Range.assign(&members, &sizes(&[5, 4]));
    let expected = ["a: 0.0 0.1 1.0 1.1", "b: 0.2 0.3 1.2 1.3", "c: 0.4"];
    assert_eq!(told(&assigned), expected);
}

#[test]
fn range_puts_static_members_first_so_that_they_keep_their_ranges() {
    let mut members = [
        member("a", &[0], &[]),
        member("b", &[0], &[]),
        member("c", &[0], &[]),
    ];
    members[1].instance_id = Some("second".to_owned());
    members[2].instance_id = Some("first".to_owned());
    let assigned = Assignor::Range.assign(&members, &sizes(&[4]));
    assert_eq!(told(&assigned), ["a: 0.3", "b: 0.2", "c: 0.0 0.1"]);
    members[2].id = "z".to_owned();
    let assigned = Assignor::Range.assign(&members, &sizes(&[4]));
    assert_eq!(told(&assigned), ["a: 0.3", "b: 0.2", "z: 0.0 0.1"]);
}

#[test]
fn uniform_takes_for_a_new_member_only_what_it_needs() {
    let members = [
        member("a", &[0], &[(0, &[0, 1, 2])]),
        member("b", &[0], &[(0, &[3, 4, 5])]),
        member("c", &[0], &[]),
    ];
    let assigned = Assignor::Uniform.assign(&members, &sizes(&[6]));
    assert_eq!(told(&assigned), ["a: 0.0 0.1", "b: 0.3 0.4", "c: 0.2 0.5"]);
}

#[test]
fn uniform_takes_away_what_is_not_subscribed_or_does_not_exist() {
    let members = [
        member("a", &[1], &[(0, &[0, 1]), (1, &[0, 7])]),
        member("b", &[0, 1, 2], &[(1, &[1])]),
    ];
    let assigned = Assignor::Uniform.assign(&members, &sizes(&[2, 2]));
    assert_eq!(told(&assigned), ["a: 1.0 1.1", "b: 0.0 0.1"]);
}

#[test]
fn assignors_are_known_by_their_names() {
    for assignor in Assignor::ALL {
        assert_eq!(assignor.name().parse(), Ok(assignor));
    }
    assert_eq!(
        "sticky".parse::<Assignor>(),
        Err(ErrorKind::UnsupportedAssignor)
    );
}

#[test]
fn a_group_without_members_or_topics_is_no_trouble() {
    for assignor in Assignor::ALL {
        assert!(assignor.assign(&[], &sizes(&[3])).is_empty());
        let alone = [member("a", &[0], &[(0, &[0])])];
        assert_eq!(told(&assignor.assign(&alone, &BTreeMap::new())), ["a: "]);
    }
}

/// Members with any subscriptions, that have had any partitions, those of others and of topics that are gone, too.
fn members(same: bool) -> impl Strategy<Value = Vec<Subscriber>> {
    let one = (
        prop::collection::btree_set(0_u8..6, 0..5),
        prop::collection::vec((0_u8..6, 0..12_i32), 0..12),
    );
    prop::collection::vec(one, 1..8).prop_map(move |all| {
        let topics = all[0].0.clone();
        let mut taken = BTreeSet::new();
        let members = all.into_iter().enumerate();
        members
            .map(|(index, (own, had))| {
                let mut assigned = Partitions::new();
                for (number, partition) in had {
                    if taken.insert((number, partition)) {
                        assigned.entry(topic(number)).or_default().insert(partition);
                    }
                }
                let topics = if same { &topics } else { &own };
                Subscriber {
                    id: format!("member-{index}"),
                    instance_id: None,
                    topics: topics.iter().map(|number| topic(*number)).collect(),
                    assigned,
                }
            })
            .collect()
    })
}

/// Each partition that somebody subscribes to has one owner, who subscribes to it, and nothing else is given.
fn check_complete(
    members: &[Subscriber],
    topics: &BTreeMap<TopicId, i32>,
    assigned: &BTreeMap<String, Partitions>,
) {
    let mut given = BTreeSet::new();
    for member in members {
        for (topic, partitions) in &assigned[&member.id] {
            assert!(member.topics.contains(topic) && !partitions.is_empty());
            for partition in partitions {
                assert!((0..topics[topic]).contains(partition));
                assert!(given.insert((*topic, *partition)), "given twice");
            }
        }
    }
    let wanted = topics
        .iter()
        .filter(|(topic, _)| members.iter().any(|member| member.topics.contains(topic)));
    let wanted: i32 = wanted.map(|(_, partitions)| partitions).sum();
    assert_eq!(given.len(), wanted as usize);
}

fn load(partitions: &Partitions) -> usize {
    partitions.values().map(BTreeSet::len).sum()
}

fn kept(member: &Subscriber, now: &Partitions) -> usize {
    let had = member.assigned.iter();
    had.map(|(topic, had)| {
        now.get(topic)
            .map_or(0, |now| now.intersection(had).count())
    })
    .sum()
}

proptest! {
    #[test]
    fn range_is_complete(members in members(false), sizes_of in prop::collection::vec(0..12_i32, 6)) {
        let topics = sizes(&sizes_of);
        check_complete(&members, &topics, &Assignor::Range.assign(&members, &topics));
    }

    #[test]
    fn uniform_is_complete_and_even_and_does_not_move_twice(
        mut members in members(false),
        sizes_of in prop::collection::vec(0..12_i32, 6),
    ) {
        let topics = sizes(&sizes_of);
        let assigned = Assignor::Uniform.assign(&members, &topics);
        check_complete(&members, &topics, &assigned);
        for giver in &members {
            for taker in &members {
                let could = |topic: &&TopicId| taker.topics.contains(topic);
                if assigned[&giver.id].keys().any(|topic| could(&topic)) {
                    prop_assert!(load(&assigned[&giver.id]) < load(&assigned[&taker.id]) + 2);
                }
            }
        }
        for member in &mut members {
            member.assigned = assigned[&member.id].clone();
        }
        prop_assert_eq!(Assignor::Uniform.assign(&members, &topics), assigned);
    }

    #[test]
    fn uniform_moves_as_little_as_can_be_where_all_subscribe_to_the_same(
        members in members(true),
        sizes_of in prop::collection::vec(0..12_i32, 6),
    ) {
        let topics = sizes(&sizes_of);
        let assigned = Assignor::Uniform.assign(&members, &topics);
        let total: usize = assigned.values().map(load).sum();
        let (share, mut extra) = (total / members.len(), total % members.len());
        let mut can_stay = 0;
        for member in &members {
            let had = member.assigned.iter().filter(|(topic, _)| member.topics.contains(topic));
            let had = had.map(|(topic, had)| had.iter().filter(|one| **one < topics[topic]).count());
            let had: usize = had.sum();
            can_stay += had.min(share);
            if had > share && extra > 0 {
                can_stay += 1;
                extra -= 1;
            }
        }
        let stayed: usize = members.iter().map(|member| kept(member, &assigned[&member.id])).sum();
        prop_assert_eq!(stayed, can_stay);
    }
}
