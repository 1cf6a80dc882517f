//! What clients see while a leader stops in order, or dies: how long a producer waits, and whom brokers name meanwhile.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest,
};
use taffrail_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};

use crate::client::{self, Client, ClientEnv, Producing};
use crate::cluster::Ending;
use crate::failover::{SEEDS, STEP, Scene};
use crate::history::History;
use crate::network::Machine;
use crate::random::Random;

pub(crate) const TOPIC: &str = "handed-over";
const PATIENCE: Duration = Duration::from_secs(10);

/// A client that asks these brokers, on a machine of its own.
pub(crate) fn client_of(scene: &Scene, asked: &[usize]) -> ClientEnv {
    let cluster = &scene.cluster;
    ClientEnv {
        executor: cluster.executor.clone(),
        network: cluster.network.clone(),
        machine: Machine(cluster.size() as u32),
        group: cluster.executor.group(),
        bootstrap: (asked.iter())
            .map(|broker| cluster.client_address(*broker))
            .collect(),
        random: Arc::new(Mutex::new(Random::new(!scene.seed))),
        history: History::default(),
        stopping: Arc::new(AtomicBool::new(false)),
        topic: TOPIC,
        partitions: 1,
        passing: false,
        rot: false,
        repeats: false,
    }
}

/// Makes a topic of one partition that the first of these brokers leads.
pub(crate) fn create(scene: &Scene, env: &ClientEnv, replicas: &[usize]) {
    let assignment = CreatableReplicaAssignment {
        partition_index: 0,
        broker_ids: replicas.iter().map(|id| *id as i32).collect(),
    };
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: TOPIC.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: vec![assignment],
            ..CreatableTopic::default()
        }],
        timeout_ms: 10_000,
        ..CreateTopicsRequest::default()
    };
    let mut client = Client::new(env.clone());
    let creating = async move { client.call_any(&request, 5, PATIENCE).await };
    let answer = scene
        .cluster
        .executor
        .block_on(env.group, PATIENCE, creating);
    let (response, _) = answer.expect("an answer in time").expect("an answer");
    assert_eq!(response.topics[0].error_code, 0, "{response:?}");
}

/// Whom the asked brokers name as the leader.
fn named_leader(scene: &Scene, env: &ClientEnv) -> i32 {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(TOPIC.to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    };
    let mut client = Client::new(env.clone());
    let asking = async move { client.call_any(&request, 12, PATIENCE).await };
    let answer = scene.cluster.executor.block_on(env.group, PATIENCE, asking);
    let (response, _) = answer.expect("an answer in time").expect("an answer");
    response.topics[0].partitions[0].leader_id
}

/// Starts an idempotent producer that hardly pauses.
pub(crate) fn start_producer(scene: &Scene, env: &ClientEnv) {
    let producing = Producing {
        number: 0,
        idempotent: true,
        uniform: true,
        pause_ms_max: 5,
    };
    let producer = client::produce(env.clone(), producing);
    scene.cluster.executor.spawn(env.group, producer);
}

/// The longest time without an acknowledgement, until `time` has passed.
fn longest_gap(scene: &mut Scene, history: &History, time: Duration) -> Duration {
    let end = scene.cluster.executor.now() + time;
    let (mut seen, mut since) = (history.acknowledgements(), scene.cluster.executor.now());
    let mut longest = Duration::ZERO;
    while scene.cluster.executor.now() < end {
        scene.pass(STEP);
        if let Some(broker) = scene.cluster.stopping() {
            scene.cluster.end_stopped(broker);
        }
        let now = scene.cluster.executor.now();
        longest = longest.max(now - since);
        if history.acknowledgements() > seen {
            (seen, since) = (history.acknowledgements(), now);
        }
    }
    longest
}

/// The producer of the simulation pauses up to 150 ms after a refusal, of which it meets one or two. A follower that asks
/// its new leader a moment too early once waited for a second.
#[test]
fn a_producer_goes_on_at_once_when_its_leader_stops() {
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed, 3);
        let controller = scene.controller();
        let leader = match seed % 3 {
            0 => scene.other_than(controller),
            _ => controller,
        };
        let others: Vec<usize> = (0..3).filter(|id| *id != leader).collect();
        let env = client_of(&scene, &others);
        create(&scene, &env, &[leader, others[0], others[1]]);
        start_producer(&scene, &env);
        scene.pass(Duration::from_millis(500));
        assert!(env.history.acknowledgements() > 10, "seed {seed}");
        scene.cluster.end(leader, Ending::Stop);
        let gap = longest_gap(&mut scene, &env.history, Duration::from_secs(2));
        let limit = Duration::from_millis(500);
        assert!(gap < limit, "seed {seed}: {gap:?} with broker {leader}");
    }
}

/// A client whose leader died asks at once, and if it is told the old one, asks again only after a pause of its own.
#[test]
fn a_follower_of_a_leader_that_died_waits_for_the_next_one_before_it_names_one() {
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed, 3);
        let controller = scene.controller();
        let leader = scene.other_than(controller);
        let third = 3 - controller - leader;
        let env = client_of(&scene, &[third]);
        create(&scene, &env, &[leader, controller, third]);
        scene.pass(Duration::from_secs(1));
        // It hears of the controller's decision only later than its client asks.
        let (from, to) = (
            scene.cluster.machine(controller),
            scene.cluster.machine(third),
        );
        let late = Duration::from_millis(100);
        scene.cluster.network.slow_down(from, to, late);
        scene.pass(Duration::from_millis(500));
        scene.cluster.end(leader, Ending::Kill);
        scene.pass(Duration::from_millis(20));
        let named = named_leader(&scene, &env);
        assert_ne!(named, leader as i32, "seed {seed}");
    }
}
