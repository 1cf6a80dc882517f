//! Voters that go and come on request: one whose disk is lost, the leader of the quorum itself, and what is refused.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_core::config::ConfigMap;
use taffrail_log::{Disk, DiskFile};
use taffrail_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use taffrail_protocol::messages::{AddRaftVoterRequest, RemoveRaftVoterRequest};
use taffrail_protocol::{ErrorCode, Request, Uuid};

use super::{FORMS_WITHIN, SEEDS, Scene};
use crate::client::{Client, ClientEnv};
use crate::cluster::Ending;
use crate::history::History;
use crate::network::Machine;
use crate::random::Random;

/// How long a broker may take over a request about voters, and how long whoever asks waits.
const TIMEOUT_MS: i32 = 10_000;
const PATIENCE: Duration = Duration::from_secs(30);
/// Beside the log directories.
const METADATA_DIRECTORY: &str = "/metadata";

impl Scene {
    /// What a broker answers a client of its own.
    pub(crate) fn ask<R>(&self, broker: usize, request: R) -> R::Response
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        self.ask_at(self.cluster.client_address(broker), request)
    }

    /// What is answered at an address, be it where brokers ask each other.
    pub(crate) fn ask_at<R>(&self, address: (String, u16), request: R) -> R::Response
    where
        R: Request + Send + Sync + 'static,
        R::Response: Send + 'static,
    {
        let cluster = &self.cluster;
        let group = cluster.executor.group();
        let mut client = Client::new(ClientEnv {
            executor: cluster.executor.clone(),
            network: cluster.network.clone(),
            machine: Machine(1000),
            group,
            bootstrap: vec![address.clone()],
            random: Arc::new(Mutex::new(Random::new(self.seed))),
            history: History::default(),
            stopping: Arc::new(AtomicBool::new(false)),
            topic: "none",
            partitions: 0,
            passing: false,
            rot: false,
            repeats: false,
        });
        let called = cluster.executor.block_on(group, PATIENCE * 2, async move {
            let called = client.call(&address, &request, R::MAX_VERSION, PATIENCE);
            called.await.map(|(response, _)| response)
        });
        called.expect("in time").expect("an answer")
    }

    /// The error of a removal, and what is said with it.
    fn remove(&self, asked: usize, voter: usize, directory: Uuid) -> (ErrorCode, String) {
        let response = self.ask(
            asked,
            RemoveRaftVoterRequest {
                cluster_id: None,
                voter_id: voter as i32,
                voter_directory_id: directory,
            },
        );
        let code = ErrorCode::try_from(response.error_code).unwrap();
        (code, response.error_message.unwrap_or_default())
    }

    fn add(&self, asked: usize, voter: usize, directory: Uuid) -> (ErrorCode, String) {
        let response = self.ask(
            asked,
            AddRaftVoterRequest {
                timeout_ms: TIMEOUT_MS,
                voter_id: voter as i32,
                voter_directory_id: directory,
                ..AddRaftVoterRequest::default()
            },
        );
        let code = ErrorCode::try_from(response.error_code).unwrap();
        (code, response.error_message.unwrap_or_default())
    }

    /// The directory that the first broker knows for a voter.
    fn directory(&self, voter: usize) -> Uuid {
        let known = self.recorded_directory(voter).into_iter().flatten().next();
        known.expect("it is recorded").parse().expect("an id")
    }

    /// The directory id of a broker's first log directory.
    fn own_directory(&self, broker: usize) -> Uuid {
        let state = self.cluster.state(broker).expect("it runs");
        let first = state.log_directories.first().expect("a directory");
        first.directory_id.parse().expect("an id")
    }
}

impl Scene {
    /// So many entries of the metadata log.
    fn create_topics(&self, asked: usize, count: usize) {
        for number in 0..count {
            let topic = CreatableTopic {
                name: format!("topic-{number}"),
                num_partitions: 1,
                replication_factor: 1,
                ..CreatableTopic::default()
            };
            let request = CreateTopicsRequest {
                topics: vec![topic],
                timeout_ms: TIMEOUT_MS,
                validate_only: false,
            };
            let response = self.ask(asked, request);
            assert_eq!(response.topics[0].error_code, 0);
        }
    }
}

fn fine() -> (ErrorCode, String) {
    (ErrorCode::None, String::new())
}

#[test]
fn a_lost_voter_is_taken_out_and_comes_in_again_with_another_disk_only_when_asked() {
    for seed in 0..SEEDS / 2 {
        let mut scene = Scene::new(seed, 3);
        let controller = scene.controller();
        let victim = match seed % 2 {
            0 => controller,
            _ => scene.other_than(controller),
        };
        let (lost, asked) = (scene.directory(victim), scene.other_than(victim));
        scene.cluster.end(victim, Ending::Kill);
        scene.remove_identity(victim);
        assert_eq!(scene.remove(asked, victim, lost), fine(), "seed {seed}");
        let staying: Vec<i32> = (0..3).filter(|id| *id != victim as i32).collect();
        scene.wait("two vote", FORMS_WITHIN, |scene| {
            scene.voters().iter().all(|voters| *voters == staying)
        });

        scene.cluster.start(victim);
        scene.wait_ready(victim);
        scene.pass(Duration::from_secs(5));
        assert!(scene.voters().iter().all(|voters| *voters == staying));
        let told = scene.cluster.state(victim).unwrap().vacant_seat;
        assert!(
            told.is_some_and(|told| told.contains("was taken out")),
            "seed {seed}"
        );

        let wrong = scene.add(victim, victim, lost);
        assert_eq!(
            wrong.0,
            ErrorCode::InvalidVoterKey,
            "seed {seed}: {}",
            wrong.1
        );
        let new = scene.own_directory(victim);
        assert_eq!(scene.add(asked, victim, new), fine(), "seed {seed}");
        scene.wait_for_three_voters();
        assert_eq!(scene.directory(victim), new);
        assert_eq!(scene.cluster.state(victim).unwrap().vacant_seat, None);
        // Its vote counts: without it the other two could not lose one more.
        scene.cluster.end(asked, Ending::Kill);
        scene.wait("the fence", FORMS_WITHIN, |scene| scene.is_fenced(asked));
    }
}

#[test]
fn an_old_copy_of_a_voters_disk_does_not_vote_and_tells_what_to_do() {
    for seed in 0..SEEDS / 4 {
        let mut scene = Scene::new(seed, 3);
        let controller = scene.controller();
        let victim = scene.other_than(controller);
        let third = 3 - victim - controller;
        scene.cluster.end(victim, Ending::Kill);
        let copy = scene.identity_files(victim);
        scene.cluster.start(victim);
        scene.wait_ready(victim);
        scene.create_topics(third, 80);
        scene.pass(Duration::from_secs(1));

        scene.cluster.end(victim, Ending::Kill);
        scene.remove_identity(victim);
        for (path, content) in copy {
            let file = scene.cluster.disk(victim).create(&path).unwrap();
            file.write_all_at(&content, 0).unwrap();
        }
        scene.cluster.start(victim);
        scene.wait("the old copy is told", FORMS_WITHIN, |scene| {
            let state = scene.cluster.state(victim);
            let told = state.and_then(|state| state.vacant_seat);
            told.is_some_and(|told| told.contains("old copy"))
        });
        assert!(scene.cluster.not_ready(victim).is_some());
        scene.cluster.end(controller, Ending::Kill);
        scene.pass(Duration::from_secs(10));
        let known = scene.cluster.state(third).unwrap().controller_id;
        assert_eq!(known, None, "seed {seed}: nobody leads with that vote");

        scene.cluster.start(controller);
        scene.wait_ready(controller);
        scene.cluster.end(victim, Ending::Kill);
        scene.wipe_metadata_log(victim);
        scene.cluster.start(victim);
        scene.wait_ready(victim);
        assert_eq!(scene.cluster.state(victim).unwrap().vacant_seat, None);
    }
}

#[test]
fn a_metadata_log_outside_of_the_log_directories_has_a_directory_id_of_its_own() {
    let mut settings = ConfigMap::new();
    settings.insert("metadata.log.dir".to_owned(), METADATA_DIRECTORY.to_owned());
    let mut scene = Scene::with_settings(3, 3, &settings);
    let victim = scene.other_than(scene.controller());
    let before = scene.directory(victim);
    let state = scene.cluster.state(victim).unwrap();
    let of_logs: Vec<String> = state
        .log_directories
        .into_iter()
        .map(|directory| directory.directory_id)
        .collect();
    assert!(
        !of_logs.contains(&before.to_string()),
        "{before} {of_logs:?}"
    );
    scene.restart(victim);
    scene.pass(Duration::from_secs(2));
    assert_eq!(scene.directory(victim), before, "it stays");

    scene.cluster.end(victim, Ending::Kill);
    let disk = scene.cluster.disk(victim);
    let folder = Path::new(METADATA_DIRECTORY).join("__cluster_metadata");
    for file in disk.list(&folder).unwrap() {
        disk.remove_file(&folder.join(&file.name)).unwrap();
    }
    let identity = Path::new(METADATA_DIRECTORY).join("meta.properties");
    disk.remove_file(&identity).unwrap();
    scene.cluster.start(victim);
    scene.wait_ready(victim);
    assert_ne!(
        scene.directory(victim),
        before,
        "another disk is another voter"
    );
}

#[test]
fn the_leader_of_the_quorum_goes_when_asked_and_then_follows() {
    for seed in 0..SEEDS / 2 {
        let mut scene = Scene::new(seed, 3);
        let old = scene.controller();
        let (directory, asked) = (scene.directory(old), seed as usize % 3);
        assert_eq!(scene.remove(asked, old, directory), fine(), "seed {seed}");
        scene.wait("it is told", FORMS_WITHIN, |scene| {
            let state = scene.cluster.state(old);
            let told = state.and_then(|state| state.vacant_seat);
            told.is_some_and(|told| told.contains("was taken out"))
        });
        assert_eq!(scene.cluster.not_ready(old), None, "seed {seed}: it serves");
        let follows = |scene: &Scene| {
            let states = (0..3).filter_map(|id| scene.cluster.state(id));
            let known: Vec<(Option<i32>, String)> = states
                .map(|state| (state.controller_id, state.metadata_hash))
                .collect();
            known.iter().all(|one| *one == known[0])
                && known[0].0.is_some_and(|id| id != old as i32)
        };
        scene.wait("it follows", FORMS_WITHIN, follows);
        // Its old log counts for nothing, also after a restart.
        scene.restart(old);
        scene.wait("it follows again", FORMS_WITHIN, follows);
        assert_eq!(
            scene.voters().iter().map(Vec::len).max(),
            Some(2),
            "seed {seed}"
        );
    }
}

#[test]
fn changes_of_the_voters_that_make_no_sense_are_refused_and_say_why() {
    let mut scene = Scene::new(1, 4);
    let controller = scene.controller();
    let voters: Vec<usize> = (0..3).filter(|id| *id != controller).collect();
    let (one, other) = (voters[0], voters[1]);
    let (of_one, of_other) = (scene.directory(one), scene.directory(other));
    let check = |outcome: (ErrorCode, String), expected: ErrorCode| {
        assert_eq!(outcome.0, expected, "{}", outcome.1);
        assert!(!outcome.1.is_empty());
    };
    check(scene.remove(3, one, of_other), ErrorCode::VoterNotFound);
    check(scene.remove(3, 3, Uuid::ZERO), ErrorCode::VoterNotFound);
    check(scene.remove(3, 77, of_one), ErrorCode::VoterNotFound);
    check(scene.add(3, one, of_one), ErrorCode::DuplicateVoter);
    check(scene.add(3, 3, Uuid::ZERO), ErrorCode::InvalidRequest);
    let elsewhere = RemoveRaftVoterRequest {
        cluster_id: Some("other".to_owned()),
        voter_id: one as i32,
        voter_directory_id: of_one,
    };
    let refused = scene.ask(3, elsewhere);
    assert_eq!(
        refused.error_code,
        ErrorCode::InconsistentClusterId.code(),
        "{:?}",
        refused.error_message
    );
    scene.cluster.end(other, Ending::Kill);
    scene.pass(Duration::from_secs(3));
    check(scene.remove(3, one, of_one), ErrorCode::InvalidRequest);
    assert_eq!(scene.remove(3, other, of_other), fine());
    // It is taken out, but does not run.
    check(scene.add(3, other, of_other), ErrorCode::RequestTimedOut);
    assert_eq!(scene.remove(3, one, of_one), fine());
    let last = scene.directory(controller);
    check(scene.remove(3, controller, last), ErrorCode::InvalidRequest);
}
