//! One seed: brokers and clients, faults for so many steps, then peace; the invariants are asked all along.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_core::config::ConfigMap;
use taffrail_core::time::Instant;
use taffrail_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};

use crate::client::{self, Client, ClientEnv, Producing};
use crate::cluster::Cluster;
use crate::faults::{Faults, Profile};
use crate::history::History;
use crate::invariants::{self, Invariant};
use crate::network::Machine;
use crate::observation::Observation;
use crate::random::Random;

/// The topic that producers and consumers work on.
pub(crate) const TOPIC: &str = "orders";
const PARTITIONS: i32 = 2;
const BROKERS: u32 = 3;

/// How often the brokers are asked for their state.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a new cluster may take until all brokers are ready and the topic is there.
const SETUP_PATIENCE: Duration = Duration::from_secs(60);
/// How long a cluster may take to heal once nothing disturbs it any more: the longest wait of any part (a session, a
/// connection, a fetch, a rebalance) is below ten seconds, and they follow on each other.
const HEALING_PATIENCE: Duration = Duration::from_secs(90);

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// Faults and other events.
    pub steps: u32,
}

/// What happened in a simulation that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which faults there were.
    pub profile: Profile,
    /// Acknowledged batches.
    pub acknowledged: usize,
    /// Everything that clients learned.
    pub events: usize,
    /// Simulated time at the end.
    pub ended_at: Instant,
    /// Equal for equal runs: the metadata's hash at the end.
    pub metadata_hash: String,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was simulated.
    pub plan: Plan,
    /// In which step; none after the last.
    pub step: Option<u32>,
    /// Simulated time.
    pub at: Instant,
    /// One sentence.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self
            .step
            .map_or_else(|| "peace".to_owned(), |step| format!("step {step}"));
        write!(
            f,
            "seed {}, {step}, {:.3} s: {}\nreplay with: cargo run -p taffrail-sim -- --seed {} --steps {} --log debug",
            self.plan.seed,
            self.at.0 as f64 / 1e9,
            self.reason,
            self.plan.seed,
            self.plan.steps
        )
    }
}

/// Runs one seed.
pub fn run(plan: Plan) -> Result<Report, Box<Failure>> {
    let place = Arc::new(Mutex::new((None, Instant::ZERO)));
    let noted = Arc::clone(&place);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        Simulation::new(plan, noted).and_then(Simulation::run)
    }));
    let reason = match outcome {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(reason)) => reason,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            format!("panic: {}", text.unwrap_or_default())
        }
    };
    let (step, at) = *crate::executor::lock(&place);
    Err(Box::new(Failure {
        plan,
        step,
        at,
        reason,
    }))
}

struct Simulation {
    plan: Plan,
    random: Random,
    cluster: Cluster,
    faults: Faults,
    invariants: Vec<Box<dyn Invariant>>,
    history: History,
    clients: ClientEnv,
    stopping: Arc<AtomicBool>,
    /// Where the simulation is, for the report of a failure.
    place: Arc<Mutex<(Option<u32>, Instant)>>,
}

impl Simulation {
    fn new(plan: Plan, place: Arc<Mutex<(Option<u32>, Instant)>>) -> Result<Simulation, String> {
        let mut random = Random::new(plan.seed);
        let profile = Profile::of_seed(plan.seed);
        let mut settings = ConfigMap::new();
        if profile == Profile::FlushedPowerLoss {
            settings.insert("taffrail.flush".to_owned(), "ack".to_owned());
        }
        let cluster = Cluster::new(BROKERS, &settings, random.fork());
        let history = History::default();
        let stopping = Arc::new(AtomicBool::new(false));
        let clients = ClientEnv {
            executor: cluster.executor.clone(),
            network: cluster.network.clone(),
            machine: Machine(BROKERS),
            group: cluster.executor.group(),
            bootstrap: (0..cluster.size())
                .map(|broker| cluster.client_address(broker))
                .collect(),
            random: Arc::new(Mutex::new(random.fork())),
            history: history.clone(),
            stopping: Arc::clone(&stopping),
            topic: TOPIC,
            partitions: PARTITIONS,
        };
        let faults = Faults::new(profile, random.fork());
        Ok(Simulation {
            plan,
            random,
            cluster,
            faults,
            invariants: invariants::all(),
            history,
            clients,
            stopping,
            place,
        })
    }

    fn run(mut self) -> Result<Report, String> {
        self.set_up()?;
        self.start_clients();
        for step in 0..self.plan.steps {
            crate::executor::lock(&self.place).0 = Some(step);
            let pause = Duration::from_millis(self.random.between(20, 1200));
            self.pass(pause)?;
            self.look(true)?;
            self.faults.disturb(&mut self.cluster);
        }
        crate::executor::lock(&self.place).0 = None;
        self.make_peace()?;
        self.look(true)?;
        Ok(Report {
            profile: self.faults.profile(),
            acknowledged: self.history.acknowledgements(),
            events: self.history.len(),
            ended_at: self.cluster.executor.now(),
            metadata_hash: self
                .cluster
                .state(0)
                .map_or_else(String::new, |state| state.metadata_hash),
        })
    }

    fn set_up(&mut self) -> Result<(), String> {
        for broker in 0..self.cluster.size() {
            self.cluster.start(broker);
        }
        self.wait_until("the cluster forms", SETUP_PATIENCE, |simulation| {
            (0..simulation.cluster.size()).find_map(|broker| {
                let missing = simulation.cluster.not_ready(broker)?;
                Some(format!("broker {broker} {missing}"))
            })
        })?;
        let mut client = Client::new(self.clients.clone());
        let created =
            self.cluster
                .executor
                .block_on(self.clients.group, SETUP_PATIENCE, async move {
                    let request = CreateTopicsRequest {
                        topics: vec![CreatableTopic {
                            name: TOPIC.to_owned(),
                            num_partitions: PARTITIONS,
                            replication_factor: 3,
                            ..CreatableTopic::default()
                        }],
                        timeout_ms: 10_000,
                        ..CreateTopicsRequest::default()
                    };
                    let called = client.call_any(&request, 5, Duration::from_secs(15)).await;
                    let (response, _) = called.map_err(|error| error.to_string())?;
                    match response.topics.first() {
                        Some(topic) if topic.error_code == 0 => Ok(()),
                        answer => Err(format!("{answer:?}")),
                    }
                });
        created
            .unwrap_or_else(|| Err("no answer".to_owned()))
            .map_err(|reason| format!("the topic was not created: {reason}"))
    }

    fn start_clients(&mut self) {
        let mut machine = BROKERS;
        let mut env = |random: &mut Random| {
            machine += 1;
            ClientEnv {
                machine: Machine(machine),
                random: Arc::new(Mutex::new(random.fork())),
                ..self.clients.clone()
            }
        };
        let executor = self.cluster.executor.clone();
        let group = self.clients.group;
        for number in 0..3 {
            let producing = Producing {
                number,
                idempotent: number != 2,
                pause_ms_max: self.random.between(40, 600),
            };
            executor.spawn(group, client::produce(env(&mut self.random), producing));
        }
        for _ in 0..2 {
            executor.spawn(group, client::consume(env(&mut self.random)));
        }
        executor.spawn(
            group,
            client::commit(env(&mut self.random), "committer".to_owned()),
        );
        for _ in 0..2 {
            executor.spawn(
                group,
                client::take_part(env(&mut self.random), "members".to_owned()),
            );
        }
    }

    /// Lets time pass, with a look at the brokers now and then.
    fn pass(&mut self, duration: Duration) -> Result<(), String> {
        let end = self.cluster.executor.now() + duration;
        while self.cluster.executor.now() < end {
            let until = (self.cluster.executor.now() + LOOK_EVERY).min(end);
            self.cluster.executor.run_until(until, || false);
            self.look(false)?;
        }
        Ok(())
    }

    /// Asks the invariants.
    fn look(&mut self, at_logs: bool) -> Result<(), String> {
        crate::executor::lock(&self.place).1 = self.cluster.executor.now();
        for broker in 0..self.cluster.size() {
            if let Some(reason) = self.cluster.failure(broker) {
                return Err(format!("broker {broker}: {reason}"));
            }
        }
        let seen = if at_logs {
            Observation::of_everything(&self.cluster, &self.history)
        } else {
            Observation::of_states(&self.cluster, &self.history)
        };
        self.faults.note(&seen);
        for invariant in &mut self.invariants {
            invariant
                .check(&seen)
                .map_err(|wrong| format!("{}: {wrong}", invariant.name()))?;
        }
        Ok(())
    }

    /// All faults end: replicas must converge, and what was possible before must be possible again.
    fn make_peace(&mut self) -> Result<(), String> {
        self.cluster.network.heal();
        self.cluster.network.set_delay(Duration::from_millis(1), 0);
        for broker in 0..self.cluster.size() {
            self.cluster.start(broker);
        }
        self.wait_until("the ISRs fill up", HEALING_PATIENCE, |simulation| {
            simulation.not_healed()
        })?;
        let before = self.history.acknowledgements();
        self.wait_until("produce works again", HEALING_PATIENCE, |simulation| {
            let more = simulation.history.acknowledgements() - before;
            (more < 10).then(|| format!("{more} batches were acknowledged"))
        })?;
        self.stopping.store(true, Ordering::Relaxed);
        self.pass(Duration::from_secs(2))?;
        self.wait_until("the replicas converge", HEALING_PATIENCE, |simulation| {
            simulation.not_healed().or_else(|| simulation.not_equal())
        })
    }

    fn not_healed(&self) -> Option<String> {
        for broker in 0..self.cluster.size() {
            if let Some(missing) = self.cluster.not_ready(broker) {
                return Some(format!("broker {broker} {missing}"));
            }
        }
        let seen = Observation::of_states(&self.cluster, &self.history);
        let index = seen.newest()?.metadata_index;
        for state in &seen.states {
            if state.metadata_index != index {
                return Some(format!(
                    "broker {} has the metadata up to {} of {index}",
                    state.broker_id, state.metadata_index
                ));
            }
            for ((topic, partition), entry) in Observation::partitions(state) {
                if entry.leader.is_none() || entry.isr.len() < entry.replicas.len() {
                    return Some(format!(
                        "{topic}-{partition}: leader {:?}, ISR {:?} of {:?}",
                        entry.leader, entry.isr, entry.replicas
                    ));
                }
            }
        }
        None
    }

    /// Which replica does not have the same as the first one.
    fn not_equal(&self) -> Option<String> {
        let seen = Observation::of_everything(&self.cluster, &self.history);
        for ((topic, partition), replicas) in &seen.replicas {
            let ends: Vec<(i64, i64)> = (replicas.values())
                .map(|log| (log.high_watermark, log.log_end_offset))
                .collect();
            let first = ends.first()?;
            let settled = first.0 == first.1 && ends.iter().all(|end| end == first);
            if !settled || replicas.len() != BROKERS as usize {
                return Some(format!(
                    "{topic}-{partition}: high watermarks and log ends are {ends:?}"
                ));
            }
        }
        None
    }

    /// Waits until nothing is missing any more.
    fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        missing: impl Fn(&Simulation) -> Option<String>,
    ) -> Result<(), String> {
        let deadline = self.cluster.executor.now() + patience;
        while let Some(reason) = missing(self) {
            if self.cluster.executor.now() >= deadline {
                return Err(format!("waited {patience:?} until {what}: {reason}"));
            }
            self.pass(Duration::from_millis(200))?;
        }
        Ok(())
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.cluster.executor.end(self.clients.group);
    }
}
