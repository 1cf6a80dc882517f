//! What brokers tell of a cluster that is not as it should be: clients who leads instead, a follower where its log parts, and
//! people who is out of sync and why nobody leads.

use std::time::Duration;

use taffrail_node::PartitionEntry;
use taffrail_protocol::messages::fetch_request::{
    FetchPartition, FetchRequest, FetchTopic, ReplicaState,
};
use taffrail_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use taffrail_protocol::records::RecordBatchBuilder;
use taffrail_protocol::{ErrorCode, Records, Uuid};

use crate::cluster::Ending;
use crate::failover::Scene;
use crate::handover::{TOPIC, client_of, create, start_producer};

/// For something to be noticed and decided.
const SOON: Duration = Duration::from_secs(5);

/// What a broker says of the only partition, and its topic's id.
fn partition(scene: &Scene, broker: usize) -> (PartitionEntry, Uuid) {
    let state = scene.cluster.state(broker).expect("it runs");
    let mut topics = state.topics.into_iter();
    let topic = topics.find(|topic| topic.name == TOPIC).expect("it exists");
    let id = topic.topic_id.parse().expect("an id");
    (topic.partitions[0].clone(), id)
}

/// What the leader says of a follower: its log end offset, and why it is not in sync.
fn follower(scene: &Scene, leader: usize, follower: usize) -> (i64, Option<String>) {
    let local = partition(scene, leader).0.local.expect("a replica");
    let mut followers = local.followers.into_iter();
    let found = followers.find(|entry| entry.broker == follower as i32);
    let found = found.expect("a follower");
    (found.log_end_offset, found.out_of_sync)
}

/// A fetch of the only partition, by a consumer.
fn fetch(topic_id: Uuid, position: FetchPartition) -> FetchRequest {
    FetchRequest {
        max_bytes: 1 << 20,
        topics: vec![FetchTopic {
            topic: TOPIC.to_owned(),
            topic_id,
            partitions: vec![position],
        }],
        ..FetchRequest::default()
    }
}

/// KIP-951: who comes to a follower need not ask for metadata.
#[test]
fn who_comes_to_a_follower_is_told_who_leads_and_where() {
    let mut scene = Scene::new(0, 3);
    create(&scene, &client_of(&scene, &[0]), &[0, 1, 2]);
    scene.pass(Duration::from_secs(1));
    let (led, topic_id) = partition(&scene, 1);
    assert_eq!(led.leader, Some(0));
    let (host, port) = scene.cluster.client_address(0);
    let place = (0, host, i32::from(port));
    // The answers to Produce and Fetch say it in types of their own.
    let check = |error_code: i16, leader: (i32, i32), told: Vec<(i32, String, i32)>| {
        assert_eq!(error_code, ErrorCode::NotLeaderOrFollower.code());
        assert_eq!(leader, (0, led.leader_epoch));
        assert_eq!(told, std::slice::from_ref(&place));
    };

    let mut batch = RecordBatchBuilder::new(0, 1_700_000_000_000);
    batch.push(None, Some(b"x"), &[]);
    let produced = scene.ask(
        1,
        ProduceRequest {
            acks: -1,
            timeout_ms: 1_000,
            topic_data: vec![TopicProduceData {
                name: TOPIC.to_owned(),
                topic_id,
                partition_data: vec![PartitionProduceData {
                    index: 0,
                    records: Records::Inline(batch.build()),
                }],
            }],
            ..ProduceRequest::default()
        },
    );
    let answer = &produced.responses[0].partition_responses[0];
    let hint = &answer.current_leader;
    let told = produced.node_endpoints.into_iter();
    check(
        answer.error_code,
        (hint.leader_id, hint.leader_epoch),
        told.map(|at| (at.node_id, at.host, at.port)).collect(),
    );

    let fetched = scene.ask(1, fetch(topic_id, FetchPartition::default()));
    let answer = &fetched.responses[0].partitions[0];
    let hint = &answer.current_leader;
    let told = fetched.node_endpoints.into_iter();
    check(
        answer.error_code,
        (hint.leader_id, hint.leader_epoch),
        told.map(|at| (at.node_id, at.host, at.port)).collect(),
    );
}

/// KAFKA-13141: what a follower has beyond where its log parts from the leader's is not the leader's.
#[test]
fn a_fetch_of_a_log_that_parts_from_the_leaders_is_no_progress() {
    let mut scene = Scene::new(0, 3);
    let env = client_of(&scene, &[0, 1]);
    create(&scene, &env, &[0, 1, 2]);
    start_producer(&scene, &env);
    scene.pass(Duration::from_secs(1));
    // The second epoch begins where the first one ends.
    scene.cluster.end(0, Ending::Kill);
    scene.wait("the next leader", SOON, |scene| {
        partition(scene, 1).0.leader == Some(1)
    });
    scene.pass(Duration::from_millis(500));
    scene.cluster.pause(2);
    scene.pass(Duration::from_millis(100));
    let (led, topic_id) = partition(&scene, 1);
    let (before, _) = follower(&scene, 1, 2);
    assert!(before > 0, "it follows");
    let state = scene.cluster.state(1).expect("it runs");
    let mut brokers = state.brokers.into_iter();
    let registered = brokers.find(|broker| broker.id == 2).expect("registered");

    let beyond = before + 1_000;
    let position = FetchPartition {
        current_leader_epoch: led.leader_epoch,
        fetch_offset: beyond,
        last_fetched_epoch: led.leader_epoch - 1,
        log_start_offset: 0,
        ..FetchPartition::default()
    };
    let request = FetchRequest {
        replica_state: ReplicaState {
            replica_id: 2,
            replica_epoch: registered.epoch,
        },
        ..fetch(topic_id, position)
    };
    let mut answer = scene.ask_at(scene.cluster.internal_address(1), request);
    let parts = answer.responses.remove(0).partitions.remove(0);
    assert_eq!(parts.error_code, 0);
    assert_eq!(parts.diverging_epoch.epoch, led.leader_epoch - 1);
    assert!((1..beyond).contains(&parts.diverging_epoch.end_offset));
    assert_eq!(follower(&scene, 1, 2).0, before);
}

#[test]
fn people_are_told_who_is_out_of_sync_and_why_nobody_leads() {
    let mut scene = Scene::new(0, 5);
    // Neither of the two votes.
    create(&scene, &client_of(&scene, &[0]), &[3, 4]);
    scene.pass(Duration::from_secs(1));
    assert_eq!(follower(&scene, 3, 4).1, None);
    assert_eq!(partition(&scene, 0).0.leaderless, None);

    scene.cluster.end(4, Ending::Kill);
    scene.wait("the follower to be missed", SOON, |scene| {
        let (_, told) = follower(scene, 3, 4);
        told.is_some_and(|why| why == "its broker is fenced")
    });
    assert_eq!(partition(&scene, 0).0.osr, [4]);
    let metrics = scene.cluster.node(3).expect("it runs");
    let families = metrics.metrics().registry.gather();
    let family = families
        .iter()
        .find(|family| family.name() == "taffrail_follower_out_of_sync");
    let gauges = family.expect("the metric").get_metric();
    let of_four = gauges
        .iter()
        .find(|gauge| gauge.get_label()[0].value() == "4");
    assert_eq!(of_four.expect("its broker").get_gauge().get_value(), 1.0);

    scene.cluster.end(3, Ending::Kill);
    scene.wait("nobody to lead", SOON, |scene| {
        partition(scene, 0).0.leader.is_none()
    });
    let told = partition(&scene, 0).0.leaderless.expect("a sentence");
    assert!(
        told.contains("3 (fenced)") && told.contains("4 (fenced)"),
        "{told}"
    );
}
