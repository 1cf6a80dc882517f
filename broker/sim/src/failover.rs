//! How soon a cluster finds out who is gone, on the simulated network, and what it does not take for gone.

mod voters;

use std::path::{Path, PathBuf};
use std::time::Duration;

use taffrail_core::config::ConfigMap;
use taffrail_log::{Disk, DiskFile};
use taffrail_node::AdminState;

use crate::cluster::{Cluster, Ending, LOG_DIRECTORIES};
use crate::random::Random;

pub(crate) const SEEDS: u64 = 12;
pub(crate) const STEP: Duration = Duration::from_millis(10);
const FORMS_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Scene {
    pub(crate) seed: u64,
    pub(crate) cluster: Cluster,
}

impl Scene {
    /// A cluster all of whose brokers are active.
    pub(crate) fn new(seed: u64, brokers: u32) -> Scene {
        Scene::with_settings(seed, brokers, &ConfigMap::new())
    }

    fn with_settings(seed: u64, brokers: u32, settings: &ConfigMap) -> Scene {
        let cluster = Cluster::new(brokers, 0, settings, Random::new(seed));
        let mut scene = Scene { seed, cluster };
        for broker in 0..scene.cluster.size() {
            scene.cluster.start(broker);
        }
        scene.wait("the cluster forms", FORMS_WITHIN, |scene| {
            let mut brokers = 0..scene.cluster.size();
            brokers.all(|broker| scene.cluster.not_ready(broker).is_none())
        });
        // Heartbeats and the first ISR changes settle.
        scene.pass(Duration::from_secs(2));
        scene
    }

    /// One broker votes, and others follow it: as many as should vote later.
    fn with_a_lone_voter(seed: u64) -> Scene {
        let cluster = Cluster::new(3, 0, &ConfigMap::new(), Random::new(seed));
        let mut scene = Scene { seed, cluster };
        scene.cluster.voters = 1;
        for broker in 0..3 {
            scene.cluster.start(broker);
            scene.wait_ready(broker);
        }
        scene.cluster.voters = 3;
        scene
    }

    fn restart(&mut self, broker: usize) {
        self.cluster.end(broker, Ending::Kill);
        self.cluster.start(broker);
        self.wait_ready(broker);
    }

    /// The voters that each broker knows.
    fn voters(&self) -> Vec<Vec<i32>> {
        let states = (0..self.cluster.size()).filter_map(|id| self.cluster.state(id));
        let ids = |state: AdminState| state.voters.into_iter().map(|voter| voter.id).collect();
        states.map(ids).collect()
    }

    fn wait_for_three_voters(&mut self) {
        self.wait("three vote", FORMS_WITHIN, |scene| {
            let voters = scene.voters();
            voters.len() == 3 && voters.iter().all(|voters| voters == &[0, 1, 2])
        });
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let executor = &self.cluster.executor;
        executor.run_until(executor.now() + time, || false);
    }

    pub(crate) fn wait(
        &mut self,
        what: &str,
        limit: Duration,
        is_so: impl Fn(&Scene) -> bool,
    ) -> Duration {
        let start = self.cluster.executor.now();
        while !is_so(self) {
            let waited = self.cluster.executor.now() - start;
            assert!(
                waited < limit,
                "seed {}: {what} within {limit:?}",
                self.seed
            );
            self.pass(STEP);
        }
        self.cluster.executor.now() - start
    }

    pub(crate) fn controller(&self) -> usize {
        let mut states = (0..self.cluster.size()).filter_map(|id| self.cluster.state(id));
        let known = states.find_map(|state| state.controller_id);
        known.expect("a controller is known") as usize
    }

    pub(crate) fn other_than(&self, not: usize) -> usize {
        (0..self.cluster.size()).find(|id| *id != not).unwrap()
    }

    /// Whether the metadata of every other broker that runs has `broker` fenced.
    fn is_fenced(&self, broker: usize) -> bool {
        let others = (0..self.cluster.size()).filter(|id| *id != broker);
        let mut states = others.filter_map(|id| self.cluster.state(id));
        states.all(|state| {
            let entry = state.brokers.iter().find(|entry| entry.id == broker as i32);
            entry.is_some_and(|entry| entry.fenced)
        })
    }

    /// What an election of any kind would change.
    fn standing(&self) -> Vec<(Option<i32>, i64, Vec<bool>)> {
        let states = (0..self.cluster.size()).filter_map(|id| self.cluster.state(id));
        let standing = states.map(|state| {
            let fenced = state.brokers.iter().map(|broker| broker.fenced).collect();
            (state.controller_id, state.metadata_index, fenced)
        });
        standing.collect()
    }

    fn reset_all(&self) {
        for one in 0..self.cluster.size() {
            for other in 0..one {
                let (one, other) = (self.cluster.machine(one), self.cluster.machine(other));
                self.cluster.network.reset(one, other);
            }
        }
    }

    /// The disk of a broker that is down forgets the metadata log.
    fn wipe_metadata_log(&self, broker: usize) {
        let disk = self.cluster.disk(broker);
        for directory in LOG_DIRECTORIES {
            let folder = Path::new(directory).join("__cluster_metadata");
            for file in disk.list(&folder).unwrap_or_default() {
                disk.remove_file(&folder.join(&file.name)).unwrap();
            }
        }
    }

    /// The files that say who a broker's disk is, and what it knows of the metadata.
    fn identity_files(&self, broker: usize) -> Vec<(PathBuf, Vec<u8>)> {
        let disk = self.cluster.disk(broker);
        let mut files = Vec::new();
        for directory in LOG_DIRECTORIES {
            let folder = Path::new(directory).join("__cluster_metadata");
            let log = disk.list(&folder).unwrap_or_default().into_iter();
            let log = log.map(|file| folder.join(file.name));
            for path in log.chain([Path::new(directory).join("meta.properties")]) {
                let content = disk.read(&path).unwrap();
                files.push((path, content));
            }
        }
        files
    }

    fn remove_identity(&self, broker: usize) {
        for (path, _) in self.identity_files(broker) {
            self.cluster.disk(broker).remove_file(&path).unwrap();
        }
    }

    fn recorded_directory(&self, voter: usize) -> Vec<Option<String>> {
        let states = (0..self.cluster.size()).filter_map(|id| self.cluster.state(id));
        let of_voter = |state: AdminState| {
            let mut voters = state.voters.into_iter();
            voters.find(|entry| entry.id == voter as i32)?.directory_id
        };
        states.map(of_voter).collect()
    }

    fn wait_ready(&mut self, broker: usize) {
        self.wait("the broker is ready", FORMS_WITHIN, |scene| {
            scene.cluster.not_ready(broker).is_none()
        });
    }

    fn cut_off(&self, broker: usize, from: usize) {
        let (one, other) = (self.cluster.machine(broker), self.cluster.machine(from));
        self.cluster.network.cut(one, other);
        self.cluster.network.cut(other, one);
    }
}

#[test]
fn ten_resets_a_second_of_healthy_connections_cause_no_election() {
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed, 3);
        let before = scene.standing();
        for _ in 0..100 {
            scene.reset_all();
            scene.pass(Duration::from_millis(100));
        }
        scene.pass(Duration::from_secs(4));
        assert_eq!(scene.standing(), before, "seed {seed}");
    }
}

#[test]
fn a_killed_broker_is_fenced_at_once() {
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed, 3);
        let victim = scene.other_than(scene.controller());
        scene.cluster.end(victim, Ending::Kill);
        scene.wait("the fence", Duration::from_millis(500), |scene| {
            scene.is_fenced(victim)
        });
    }
}

#[test]
fn a_killed_controller_is_fenced_by_the_next_one_within_an_election() {
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed, 3);
        let victim = scene.controller();
        scene.cluster.end(victim, Ending::Kill);
        scene.wait("the fence", Duration::from_millis(1500), |scene| {
            scene.is_fenced(victim)
        });
    }
}

#[test]
fn a_broker_that_dies_with_the_controller_is_found_by_the_next_one() {
    for seed in 0..SEEDS / 3 {
        let mut scene = Scene::new(seed, 5);
        let controller = scene.controller();
        // One that does not vote: of three voters two must stay.
        let victim = scene.cluster.size() - 1;
        scene.cluster.end(controller, Ending::Kill);
        scene.cluster.end(victim, Ending::Kill);
        scene.wait("both fences", Duration::from_millis(2500), |scene| {
            scene.is_fenced(victim) && scene.is_fenced(controller)
        });
    }
}

#[test]
fn a_broker_that_is_cut_off_is_fenced_when_its_session_expires() {
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed, 3);
        let victim = scene.other_than(scene.controller());
        for other in (0..3).filter(|id| *id != victim) {
            scene.cut_off(victim, other);
        }
        let limit = Duration::from_millis(3500);
        let took = scene.wait("the fence", limit, |scene| scene.is_fenced(victim));
        assert!(took > Duration::from_secs(2), "seed {seed}: {took:?}");
    }
}

#[test]
fn silence_behind_a_closed_connection_fences_only_where_another_voter_confirms_it() {
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed, 3);
        let victim = scene.other_than(scene.controller());
        scene.reset_all();
        scene.pass(Duration::ZERO);
        for other in (0..3).filter(|id| *id != victim) {
            scene.cut_off(victim, other);
        }
        scene.wait("the fence", Duration::from_millis(2000), |scene| {
            scene.is_fenced(victim)
        });

        let mut scene = Scene::new(seed, 3);
        let controller = scene.controller();
        let victim = scene.other_than(controller);
        scene.reset_all();
        scene.pass(Duration::ZERO);
        scene.cut_off(victim, controller);
        scene.pass(Duration::from_millis(2000));
        assert!(
            !scene.is_fenced(victim),
            "seed {seed}: the third one sees it"
        );
    }
}

#[test]
fn a_voter_whose_metadata_log_is_lost_is_restored_and_votes_again() {
    for seed in 0..SEEDS {
        let mut scene = Scene::new(seed, 3);
        let controller = scene.controller();
        let victim = match seed % 2 {
            0 => controller,
            _ => scene.other_than(controller),
        };
        scene.cluster.end(victim, Ending::Kill);
        scene.wipe_metadata_log(victim);
        scene.pass(Duration::from_secs(2));
        scene.cluster.start(victim);
        scene.wait_ready(victim);
        // Without its vote the other two could not lose one more.
        let controller = scene.controller();
        scene.cluster.end(controller, Ending::Kill);
        scene.wait("the fence", Duration::from_secs(3), |scene| {
            scene.is_fenced(controller)
        });
        let hashes: Vec<String> = (0..3)
            .filter_map(|id| scene.cluster.state(id))
            .map(|state| state.metadata_hash)
            .collect();
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
    }
}

#[test]
fn a_voter_whose_metadata_log_is_lost_does_not_vote_before_it_is_restored() {
    for seed in 0..SEEDS / 3 {
        let mut scene = Scene::new(seed, 3);
        let victim = scene.controller();
        let other = scene.other_than(victim);
        for broker in [victim, other] {
            scene.cluster.end(broker, Ending::Kill);
        }
        scene.wipe_metadata_log(victim);
        scene.pass(Duration::from_secs(2));
        scene.cluster.start(victim);
        scene.pass(Duration::from_secs(10));
        let states = (0..3).filter_map(|id| scene.cluster.state(id));
        let known: Vec<Option<i32>> = states.map(|state| state.controller_id).collect();
        assert_eq!(
            known,
            [None, None],
            "seed {seed}: nobody leads with that vote"
        );
        scene.cluster.start(other);
        scene.wait_ready(victim);
    }
}

#[test]
fn an_old_disk_of_a_voter_does_not_vote_and_tells_what_to_do() {
    for seed in 0..SEEDS / 3 {
        let mut scene = Scene::new(seed, 3);
        let victim = scene.other_than(scene.controller());
        let before = scene.recorded_directory(victim);
        assert!(before[0].is_some() && before.iter().all(|known| *known == before[0]));
        scene.cluster.end(victim, Ending::Kill);
        let old_disk = scene.identity_files(victim);
        scene.remove_identity(victim);
        scene.cluster.start(victim);
        scene.wait_ready(victim);
        let after = scene.recorded_directory(victim);
        assert_ne!(after[0], before[0], "seed {seed}: the new disk is recorded");
        assert!(after.iter().all(|known| *known == after[0]), "seed {seed}");

        scene.cluster.end(victim, Ending::Kill);
        scene.remove_identity(victim);
        for (path, content) in old_disk {
            let file = scene.cluster.disk(victim).create(&path).unwrap();
            file.write_all_at(&content, 0).unwrap();
        }
        scene.cluster.start(victim);
        scene.wait("the old disk is told", FORMS_WITHIN, |scene| {
            let state = scene.cluster.state(victim);
            let told = state.and_then(|state| state.vacant_seat);
            told.is_some_and(|told| told.contains("Bring the recorded disk back"))
        });
        assert!(scene.cluster.not_ready(victim).is_some());
        let controller = scene.controller();
        scene.cluster.end(controller, Ending::Kill);
        scene.pass(Duration::from_secs(10));
        let third = 3 - victim - controller;
        let known = scene.cluster.state(third).unwrap().controller_id;
        assert_eq!(known, None, "seed {seed}: nobody leads with that vote");
        scene.cluster.start(controller);
        scene.wait("somebody leads", FORMS_WITHIN, |scene| {
            let state = scene.cluster.state(third);
            state.is_some_and(|state| state.controller_id.is_some())
        });
    }
}

#[test]
fn one_voter_grows_to_three_in_whatever_order_they_are_told_and_then_survives_its_loss() {
    let orders = [[0, 1, 2], [2, 1, 0], [1, 0, 2]];
    for seed in 0..SEEDS {
        let mut scene = Scene::with_a_lone_voter(seed);
        assert_eq!(scene.voters(), vec![vec![0]; 3], "seed {seed}");
        for broker in orders[seed as usize % orders.len()] {
            scene.restart(broker);
        }
        scene.wait_for_three_voters();
        scene.cluster.end(0, Ending::Kill);
        scene.wait("another leads", FORMS_WITHIN, |scene| {
            let states = (1..3).filter_map(|id| scene.cluster.state(id));
            let mut known = states.map(|state| state.controller_id);
            known.all(|id| id.is_some_and(|id| id > 0))
        });
        // With its metadata log lost it founds nothing: it is told that it votes in theirs.
        scene.wipe_metadata_log(0);
        scene.cluster.start(0);
        scene.wait_ready(0);
        scene.cluster.end(1, Ending::Kill);
        scene.wait("the fence", FORMS_WITHIN, |scene| scene.is_fenced(1));
    }
}

#[test]
fn brokers_that_are_to_vote_found_nothing_while_the_lone_voter_is_away_with_its_disk() {
    for seed in 0..SEEDS / 3 {
        let mut scene = Scene::with_a_lone_voter(seed);
        for broker in 0..3 {
            scene.cluster.end(broker, Ending::Kill);
        }
        for broker in 1..3 {
            scene.cluster.start(broker);
        }
        scene.pass(Duration::from_secs(10));
        let leaders = |scene: &Scene| {
            let states = (0..3).filter_map(|id| scene.cluster.state(id));
            let known: Vec<Option<i32>> = states.map(|state| state.controller_id).collect();
            known
        };
        assert_eq!(leaders(&scene), [None, None], "seed {seed}");
        scene.cluster.start(0);
        scene.wait_for_three_voters();
    }
}
