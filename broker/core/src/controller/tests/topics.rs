//! Topics are created, grown and deleted.

use super::cluster::{Cluster, ids, kind, listener, show};
use crate::controller::{
    BrokerEndpoints, ControllerConfig, CreatePartitions, CreateTopic, CreatedTopic, TopicSelector,
};
use crate::error::ErrorKind;
use crate::ids::{BrokerId, TopicId};
use crate::metadata::ConfigResource;

fn topic(name: &str, number: u8) -> CreateTopic {
    CreateTopic {
        name: name.to_owned(),
        topic_id: TopicId([number; 16]),
        partitions: 1,
        replication_factor: 1,
        ..CreateTopic::default()
    }
}

fn placement(cluster: &Cluster, name: &str) -> String {
    let partitions = &cluster.image().topic_by_name(name).unwrap().partitions;
    let replicas = partitions
        .iter()
        .map(|state| show(&state.replicas).replace(',', ""));
    replicas.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_worked_example_of_placement() {
    let mut cluster = Cluster::new(5);
    let request = CreateTopic {
        partitions: 5,
        replication_factor: 3,
        start: 3,
        ..topic("a", 1)
    };
    let decision = cluster.controller.create_topics(&[request], false);
    let created = cluster.commit(decision);
    let expected = CreatedTopic {
        topic_id: TopicId([1; 16]),
        partitions: 5,
        replication_factor: 3,
    };
    assert_eq!(created, [Ok(expected)]);
    assert_eq!(placement(&cluster, "a"), "340 401 012 123 234");
    // More partitions go on with the rotation.
    let more = CreatePartitions {
        topic: "a".to_owned(),
        count: 7,
        assignments: None,
    };
    let decision = cluster.controller.create_partitions(&[more], false);
    assert_eq!(cluster.commit(decision), [Ok(())]);
    assert_eq!(placement(&cluster, "a"), "340 401 012 123 234 301 412");
}

#[test]
fn names() {
    let cluster = {
        let mut cluster = Cluster::new(1);
        cluster.topic("taken.name", &[0]);
        cluster
    };
    let check = |name: &str, expected| {
        let mut decision = cluster.controller.create_topics(&[topic(name, 9)], false);
        assert_eq!(kind(decision.reply.pop().unwrap()), expected, "{name}");
    };
    check("orders", None);
    check("A-z_0.9", None);
    check(&"a".repeat(249), None);
    let invalid = Some(ErrorKind::InvalidTopicException);
    check(&"a".repeat(250), invalid);
    check("", invalid);
    check(".", invalid);
    check("..", invalid);
    check("...", None);
    check("a b", invalid);
    check("a/b", invalid);
    check("ä", invalid);
    check("taken.name", Some(ErrorKind::TopicAlreadyExists));
    check("taken_name", invalid);
    check("taken-name", None);
}

#[test]
fn what_is_refused() {
    let mut cluster = Cluster::new(3);
    cluster.fence(2);
    let check = |change: &dyn Fn(&mut CreateTopic), expected| {
        let mut request = topic("a", 1);
        change(&mut request);
        let mut decision = cluster.controller.create_topics(&[request], false);
        assert_eq!(kind(decision.reply.pop().unwrap()), expected);
        assert_eq!(decision.records.is_empty(), expected.is_some());
    };
    let assign = |assignments: &'static [(i32, &'static [i32])]| {
        move |topic: &mut CreateTopic| {
            topic.partitions = -1;
            topic.replication_factor = -1;
            topic.assignments = assignments
                .iter()
                .map(|(index, replicas)| (*index, ids(replicas)))
                .collect();
        }
    };
    check(&|_| {}, None);
    check(&|t| t.partitions = 0, Some(ErrorKind::InvalidPartitions));
    check(&|t| t.partitions = -2, Some(ErrorKind::InvalidPartitions));
    check(&|t| t.partitions = -1, None);
    check(&|t| t.partitions = 10_001, Some(ErrorKind::PolicyViolation));
    check(
        &|t| t.replication_factor = 0,
        Some(ErrorKind::InvalidReplicationFactor),
    );
    check(
        &|t| t.replication_factor = 4,
        Some(ErrorKind::InvalidReplicationFactor),
    );
    check(&|t| t.replication_factor = 3, None);
    check(
        &|t| t.topic_id = TopicId::ZERO,
        Some(ErrorKind::InvalidRequest),
    );
    let refused = Some(ErrorKind::InvalidReplicaAssignment);
    check(&assign(&[(1, &[1, 2]), (0, &[0, 1])]), None);
    check(&assign(&[(0, &[0]), (2, &[1])]), refused);
    check(&assign(&[(0, &[0]), (0, &[1])]), refused);
    check(&assign(&[(0, &[0, 0])]), refused);
    check(&assign(&[(0, &[0, 7])]), refused);
    check(&assign(&[(0, &[])]), refused);
    check(&assign(&[(0, &[0]), (1, &[0, 1])]), refused);
    check(&assign(&[(0, &[2])]), refused);
    check(
        &|t| t.assignments = vec![(0, ids(&[0]))],
        Some(ErrorKind::InvalidRequest),
    );
}

#[test]
fn one_refused_topic_does_not_keep_others_from_being_created() {
    let mut cluster = Cluster::new(1);
    let requests = [
        topic("a", 1),
        topic("b c", 2),
        topic("a", 3),
        topic("d.e", 4),
        topic("d_e", 5),
    ];
    let decision = cluster.controller.create_topics(&requests, false);
    let reply: Vec<_> = cluster.commit(decision).into_iter().map(kind).collect();
    let invalid = Some(ErrorKind::InvalidTopicException);
    assert_eq!(
        reply,
        [
            None,
            invalid,
            Some(ErrorKind::InvalidRequest),
            None,
            invalid
        ]
    );
    let names: Vec<_> = cluster
        .image()
        .topics_by_name()
        .map(|topic| topic.name.as_str())
        .collect();
    assert_eq!(names, ["a", "d.e"]);
}

#[test]
fn validate_only_records_nothing() {
    let cluster = Cluster::new(1);
    let decision = cluster.controller.create_topics(&[topic("a", 1)], true);
    assert!(decision.records.is_empty() && decision.reply[0].is_ok());
}

#[test]
fn a_fenced_broker_gets_replicas_only_if_it_must_and_is_not_in_sync() {
    let mut cluster = Cluster::new(3);
    cluster.fence(0);
    let two = CreateTopic {
        replication_factor: 2,
        ..topic("two", 1)
    };
    let three = CreateTopic {
        replication_factor: 3,
        ..topic("three", 2)
    };
    let decision = cluster.controller.create_topics(&[two, three], false);
    cluster.commit(decision);
    assert_eq!(placement(&cluster, "two"), "12");
    assert_eq!(placement(&cluster, "three"), "012");
    let state = &cluster.image().topic_by_name("three").unwrap().partitions[0];
    assert_eq!(
        (state.leader, show(&state.isr)),
        (Some(BrokerId(1)), "1,2".to_owned())
    );
}

#[test]
fn brokers_without_what_the_cluster_asks_for_stay_out_of_placement() {
    let mut cluster = Cluster::empty(ControllerConfig {
        placement_listeners: vec!["OUTSIDE".to_owned()],
        placement_needs_rack: true,
        ..ControllerConfig::default()
    });
    for id in 0..3 {
        cluster.start(id);
    }
    let set = |broker, rack: Option<&str>| BrokerEndpoints {
        broker: BrokerId(broker),
        rack: rack.map(str::to_owned),
        listeners: vec![listener("OUTSIDE", "example.org", 1)],
    };
    let decision = cluster
        .controller
        .set_broker_endpoints(&[set(0, None), set(2, Some("a"))]);
    cluster.commit(decision);
    let request = CreateTopic {
        partitions: 3,
        ..topic("a", 1)
    };
    let decision = cluster.controller.create_topics(&[request], false);
    cluster.commit(decision);
    assert_eq!(placement(&cluster, "a"), "2 2 2");
}

#[test]
fn partitions_grow_and_never_shrink() {
    let mut cluster = Cluster::new(3);
    cluster.topic("a", &[0, 1]);
    cluster.topic("__consumer_offsets", &[0]);
    let check = |topic: &str, count, assignments: Option<&[&[i32]]>, expected| {
        let request = CreatePartitions {
            topic: topic.to_owned(),
            count,
            assignments: assignments.map(|lists| lists.iter().map(|list| ids(list)).collect()),
        };
        let mut decision = cluster.controller.create_partitions(&[request], false);
        assert_eq!(
            kind(decision.reply.pop().unwrap()),
            expected,
            "{topic} {count} {assignments:?}"
        );
    };
    check("a", 2, None, None);
    check("a", 1, None, Some(ErrorKind::InvalidPartitions));
    check("a", 0, None, Some(ErrorKind::InvalidPartitions));
    check("a", -1, None, Some(ErrorKind::InvalidPartitions));
    check("a", 20_000, None, Some(ErrorKind::PolicyViolation));
    check("b", 2, None, Some(ErrorKind::UnknownTopicOrPartition));
    check(
        "__consumer_offsets",
        2,
        None,
        Some(ErrorKind::InvalidRequest),
    );
    check("a", 3, Some(&[&[1, 2], &[2, 0]]), None);
    let refused = Some(ErrorKind::InvalidReplicaAssignment);
    check("a", 3, Some(&[&[1, 2]]), refused);
    check("a", 2, Some(&[&[1]]), refused);
    check("a", 2, Some(&[&[1, 1]]), refused);
    check("a", 2, Some(&[&[1, 9]]), refused);
}

#[test]
fn topics_are_deleted_with_their_configs_by_name_or_id() {
    let mut cluster = Cluster::new(1);
    let with_config = CreateTopic {
        configs: vec![("retention.ms".to_owned(), "1".to_owned())],
        ..topic("a", 101)
    };
    let decision = cluster.controller.create_topics(&[with_config], false);
    cluster.commit(decision);
    let resource = ConfigResource::Topic("a".to_owned());
    assert_eq!(cluster.image().configs(&resource).len(), 1);
    let by_id = cluster.topic("b", &[0]).topic_id;
    cluster.topic("__consumer_offsets", &[0]);
    let selectors = [
        TopicSelector::Name("a".to_owned()),
        TopicSelector::Id(by_id),
        TopicSelector::Name("z".to_owned()),
        TopicSelector::Id(TopicId([99; 16])),
        TopicSelector::Name("__consumer_offsets".to_owned()),
    ];
    let decision = cluster.controller.delete_topics(&selectors);
    let reply: Vec<_> = cluster.commit(decision).into_iter().map(kind).collect();
    let expected = [
        None,
        None,
        Some(ErrorKind::UnknownTopicOrPartition),
        Some(ErrorKind::UnknownTopicId),
        Some(ErrorKind::InvalidRequest),
    ];
    assert_eq!(reply, expected);
    assert!(cluster.image().configs(&resource).is_empty());
    assert_eq!(cluster.image().topics().count(), 1);
}

#[test]
fn a_topic_that_is_named_more_than_once_is_not_deleted() {
    let mut cluster = Cluster::new(1);
    let ids = ["a", "b", "c", "d"].map(|name| cluster.topic(name, &[0]).topic_id);
    let named = |name: &str| TopicSelector::Name(name.to_owned());
    let selectors = [
        named("a"),
        TopicSelector::Id(ids[0]),
        named("b"),
        named("b"),
        TopicSelector::Id(ids[2]),
        named("d"),
        TopicSelector::Id(ids[2]),
        named("b"),
    ];
    let decision = cluster.controller.delete_topics(&selectors);
    let reply: Vec<_> = cluster.commit(decision).into_iter().map(kind).collect();
    let deleted = |index| (index != 5).then_some(ErrorKind::InvalidRequest);
    assert!(reply.into_iter().eq((0..selectors.len()).map(deleted)));
    let left = cluster.image().topics_by_name();
    assert!(left.map(|topic| topic.id).eq(ids[..3].iter().copied()));
}
