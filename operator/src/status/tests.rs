//! Conditions of a Cluster and its Topics in worlds that differ from what is wanted in one thing each.

use super::*;
use crate::plan::plan;
use crate::world::*;

/// Conditions of the Cluster and of Topic orders as `Type=Status/Reason`.
fn check(text: &str, world: &Observed, cluster: &str, topic: &str) {
    let valid = valid(text);
    let plan = plan(&valid, world);
    let show = |conditions: &[Condition]| {
        let words = conditions.iter().map(|condition| {
            format!(
                "{}={:?}/{}",
                condition.type_, condition.status, condition.reason
            )
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let failures = Failures::new();
    let status = cluster_status(
        &valid,
        world,
        &plan,
        &failures,
        Vec::new(),
        &ClusterStatus::default(),
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(show(&status.conditions), cluster);
    let status = topic_status(
        &valid.topics[0],
        world,
        &plan,
        &failures,
        &TopicStatus::default(),
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(show(&status.conditions), topic);
}

#[test]
fn lone_voter_of_several_brokers_is_told() {
    for (voters, brokers, told) in [
        (vec![0], 1, false),
        (vec![0], 2, true),
        (vec![0], 5, true),
        (vec![0, 1, 2], 5, false),
    ] {
        let world = Observed {
            voters,
            ..Observed::default()
        };
        assert_eq!(lone_voter(&world, brokers).is_some(), told);
    }
}

const CLUSTER_READY: &str = "BrokersReady=True/AllReady Configured=True/AsSpecified InSync=True/AllInSync \
                             Paused=False/NotPaused Ready=True/AsSpecified";
const TOPIC_READY: &str = "Placed=True/AsSpecified Configured=True/AsSpecified InSync=True/AllInSync Ready=True/AsSpecified";

#[test]
fn converged_world_is_ready() {
    check(&demo(), &world_of(&demo()), CLUSTER_READY, TOPIC_READY);
}

#[test]
fn nothing_is_known_at_the_start() {
    check(
        &demo(),
        &Observed::default(),
        "BrokersReady=False/Progressing Configured=True/AsSpecified InSync=Unknown/NotObserved Paused=False/NotPaused \
         Ready=False/Progressing",
        "Placed=False/Progressing Configured=Unknown/NotObserved InSync=Unknown/NotObserved \
         Ready=False/Progressing",
    );
}

#[test]
fn each_concern_fails_alone() {
    let mut world = world_of(&demo());
    let orders = kafka(&mut world).topics.get_mut("orders").expect("made");
    orders.partitions.get_mut(&1).expect("made").isr.pop();
    check(
        &demo(),
        &world,
        "BrokersReady=True/AllReady Configured=True/AsSpecified InSync=False/UnderReplicated \
         Paused=False/NotPaused Ready=False/UnderReplicated",
        "Placed=True/AsSpecified Configured=True/AsSpecified InSync=False/UnderReplicated \
         Ready=False/UnderReplicated",
    );
    let wrong = cluster(THREE) + &topic("orders", &ORDERS.replace("retention.ms", "retention"));
    check(
        &wrong,
        &world_of(&demo()),
        CLUSTER_READY,
        "Placed=True/AsSpecified Configured=False/InvalidConfig InSync=True/AllInSync Ready=False/InvalidConfig",
    );
    let fewer =
        cluster(THREE) + &topic("orders", &ORDERS.replace("partitions: 5", "partitions: 1"));
    check(
        &fewer,
        &world_of(&demo()),
        CLUSTER_READY,
        "Placed=False/FewerPartitions Configured=True/AsSpecified InSync=True/AllInSync \
         Ready=False/FewerPartitions",
    );
}

#[test]
fn what_cannot_be_seen_is_unknown_or_says_why() {
    let mut world = world_of(&demo());
    world.kafka = ObservedKafka::Unreachable {
        why: "no broker answers".to_owned(),
    };
    check(
        &demo(),
        &world,
        "BrokersReady=True/AllReady Configured=True/AsSpecified InSync=Unknown/NotObserved Paused=False/NotPaused \
         Ready=Unknown/NotObserved",
        "Placed=False/BrokersUnreachable Configured=Unknown/NotObserved InSync=Unknown/NotObserved \
         Ready=False/BrokersUnreachable",
    );
}

/// What was seen last stays while nobody can be asked, and the id also when the topic is not there.
#[test]
fn what_was_seen_stays_while_it_cannot_be_seen() {
    let valid = valid(&demo());
    let seen = world_of(&demo());
    let old = TopicStatus {
        topic_id: Some("id-of-orders".to_owned()),
        partitions: Some(5),
        replication_factor: Some(3),
        preferred_leaders: BTreeMap::from([("0".to_owned(), 5)]),
        ..TopicStatus::default()
    };
    let mut gone = seen.clone();
    kafka(&mut gone).topics.clear();
    let mut away = seen.clone();
    away.kafka = ObservedKafka::Unreachable { why: String::new() };
    let mut hearsay = seen.clone();
    let world = kafka(&mut hearsay);
    world.authoritative = false;
    world.topics.get_mut("orders").expect("made").topic_id = "of-another".to_owned();
    let text = demo().replace("partitions: 5", "deletionPolicy: Delete, partitions: 5");
    let deletes = crate::world::valid(&text);
    let mut replaced = seen.clone();
    replaced
        .recorded
        .insert(deletes.topics[0].key.clone(), "id-of-orders".to_owned());
    let orders = kafka(&mut replaced).topics.get_mut("orders");
    orders.expect("made").topic_id = "of-another".to_owned();
    for (valid, world, expected) in [
        (&valid, &seen, "id-of-orders"),
        (&valid, &gone, "id-of-orders"),
        (&valid, &away, "id-of-orders"),
        (&valid, &hearsay, "id-of-orders"),
        (&deletes, &replaced, "id-of-orders"),
        // With Retain it does not matter whose it was.
        (&valid, &replaced, "of-another"),
    ] {
        let plan = plan(valid, world);
        let topic = &valid.topics[0];
        let now = Timestamp::UNIX_EPOCH;
        let status = topic_status(topic, world, &plan, &Failures::new(), &old, now);
        assert_eq!(status.topic_id.as_deref(), Some(expected));
        assert_eq!(status.partitions, Some(5));
        let refusal = Refusal::new(Concern::Ready, Reason::ClusterNotFound, "");
        let refused = refused_status(&[refusal], None, &status, now);
        assert_eq!(refused.topic_id, status.topic_id);
    }
}

#[test]
fn configuration_that_cannot_be_read_is_unknown() {
    let mut world = world_of(&demo());
    let orders = kafka(&mut world).topics.get_mut("orders").expect("made");
    orders.config = None;
    check(
        &demo(),
        &world,
        CLUSTER_READY,
        "Placed=True/AsSpecified Configured=Unknown/NotObserved InSync=True/AllInSync Ready=Unknown/NotObserved",
    );
}

#[test]
fn only_the_wording_of_in_sync_waits() {
    let conditions = |in_sync: (&'static str, &str), ready: (&'static str, &str)| {
        let mut conditions = Vec::new();
        for (type_, (reason, message)) in [(IN_SYNC, in_sync), ("Ready", ready)] {
            Finding {
                type_,
                status: ConditionStatus::False,
                reason,
                message: message.to_owned(),
            }
            .set(&mut conditions, None, Timestamp::UNIX_EPOCH);
        }
        conditions
    };
    let old = conditions(("UnderReplicated", "a"), ("UnderReplicated", "a"));
    for (in_sync, ready, reworded, kept) in [
        (
            ("UnderReplicated", "a"),
            ("UnderReplicated", "a"),
            false,
            ["a", "a"],
        ),
        (
            ("UnderReplicated", "b"),
            ("UnderReplicated", "b"),
            true,
            ["a", "a"],
        ),
        (
            ("UnderReplicated", "b"),
            ("Progressing", "c"),
            true,
            ["a", "c"],
        ),
        (("NoLeader", "b"), ("NoLeader", "b"), false, ["b", "b"]),
    ] {
        let mut new = conditions(in_sync, ready);
        assert_eq!(is_reworded(&old, &new), reworded, "{in_sync:?}");
        keep_wording(&old, &mut new);
        let messages: Vec<&str> = new.iter().map(|new| new.message.as_str()).collect();
        assert_eq!(messages, kept, "{in_sync:?} {ready:?}");
    }
}

#[test]
fn observed_numbers_are_those_of_the_world() {
    let valid = valid(&demo());
    let mut world = world_of(&demo());
    let partitions = &mut kafka(&mut world)
        .topics
        .get_mut("orders")
        .expect("made")
        .partitions;
    partitions.remove(&4);
    let plan = plan(&valid, &world);
    let old = TopicStatus::default();
    let status = topic_status(
        &valid.topics[0],
        &world,
        &plan,
        &Failures::new(),
        &old,
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(
        (status.partitions, status.replication_factor),
        (Some(4), Some(3))
    );
    assert_eq!(status.topic_id.as_deref(), Some("id-of-orders"));
    let leaders: i32 = status.preferred_leaders.values().sum();
    assert_eq!(leaders, 4);
}
