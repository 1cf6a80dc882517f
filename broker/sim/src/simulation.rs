//! One seed: brokers and clients, faults for so many steps, then peace; the invariants are asked all along.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_core::config::ConfigMap;
use taffrail_core::time::Instant;
use taffrail_protocol::messages::create_topics_request::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};

use crate::client::{self, Administration, Client, ClientEnv, Producing};
use crate::cluster::Cluster;
use crate::convergence;
use crate::executor::text_of;
use crate::faults::{Faults, Kind, Kinds, Profile, RESERVE_BYTES, Troubles};
use crate::history::History;
use crate::invariants::{self, Invariant};
use crate::network::Machine;
use crate::observation::Observation;
use crate::random::Random;
use crate::shape::Shape;
use crate::trace;

/// The topic that producers and consumers work on.
const TOPIC: &str = "orders";
/// The topic that comes and goes.
const PASSING_TOPIC: &str = "passing";
/// What all topics have.
pub(crate) const MIN_INSYNC_REPLICAS: usize = 2;

/// How often the brokers are asked for their state.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a new cluster may take until all brokers are ready and the topic is there.
const SETUP_PATIENCE: Duration = Duration::from_secs(60);
/// How long a cluster may take to heal once nothing disturbs it any more: the longest wait of any part (a session, a
/// connection, a fetch, a rebalance) is below ten seconds, and they follow on each other.
const HEALING_PATIENCE: Duration = Duration::from_secs(90);

/// How many steps a seed has unless it is said: enough that several faults meet.
pub const STEPS: u32 = 20;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// Faults and other events.
    pub steps: u32,
    /// Kinds of fault that are left out.
    pub without: Kinds,
    /// A fault that is planted in the product.
    #[cfg(feature = "mutants")]
    pub mutant: Option<taffrail_mutants::Mutant>,
}

impl Plan {
    /// Everything that a seed brings, for so many steps.
    pub fn new(seed: u64, steps: u32) -> Plan {
        Plan {
            seed,
            steps,
            without: Kinds::default(),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

impl fmt::Display for Plan {
    /// As arguments of the command.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {} --steps {}", self.seed, self.steps)?;
        if self.without != Kinds::default() {
            let names: Vec<&str> = self.without.iter().map(|kind| kind.name()).collect();
            write!(f, " --without {}", names.join(","))?;
        }
        #[cfg(feature = "mutants")]
        if let Some(mutant) = self.mutant {
            write!(f, " --mutant {}", mutant.name())?;
        }
        Ok(())
    }
}

/// What happened in a simulation that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was simulated.
    pub plan: Plan,
    /// Which faults there were.
    pub profile: Profile,
    /// What became of its disks and who left.
    pub troubles: Troubles,
    /// How many brokers there were.
    pub brokers: u32,
    /// Acknowledged batches.
    pub acknowledged: usize,
    /// Everything that clients learned.
    pub events: usize,
    /// Simulated time at the end.
    pub ended_at: Instant,
    /// Equal for equal runs: a hash of all that went over the network, to disks and to clients.
    pub trace: u64,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was simulated.
    pub plan: Plan,
    /// In which step; none after the last.
    pub step: Option<u32>,
    /// Simulated time.
    pub at: Instant,
    /// Which invariant does not hold, or what was waited for.
    pub subject: String,
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
            "seed {}, {step}, {:.3} s: {}: {}\nreplay with: cargo run --release -p taffrail-sim -- {} --log debug",
            self.plan.seed,
            self.at.0 as f64 / 1e9,
            self.subject,
            self.reason,
            self.plan
        )
    }
}

/// What is wrong, before it is known where.
pub(crate) struct Wrong {
    /// As in [`Failure`].
    pub subject: String,
    /// As in [`Failure`].
    pub reason: String,
}

impl Wrong {
    pub(crate) fn new(subject: impl Into<String>, reason: impl Into<String>) -> Wrong {
        Wrong {
            subject: subject.into(),
            reason: reason.into(),
        }
    }
}

/// Runs one seed.
pub fn run(plan: Plan) -> Result<Report, Box<Failure>> {
    trace::begin(plan.seed);
    #[cfg(feature = "mutants")]
    taffrail_mutants::plant(plan.mutant);
    let mut simulation = Simulation::new(plan);
    let outcome = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let (step, at) = (simulation.step, simulation.cluster.executor.now());
    let wrong = match outcome {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(wrong)) => wrong,
        Err(panic) => Wrong::new("panic", text_of(&*panic)),
    };
    if wrong.subject == "panic" {
        // What has panicked is in no state to be taken apart.
        std::mem::forget(simulation);
    }
    Err(Box::new(Failure {
        plan,
        step,
        at,
        subject: wrong.subject,
        reason: wrong.reason,
    }))
}

struct Simulation {
    plan: Plan,
    random: Random,
    shape: Shape,
    profile: Profile,
    cluster: Cluster,
    faults: Faults,
    invariants: Vec<Box<dyn Invariant>>,
    history: History,
    clients: ClientEnv,
    /// Tells who administrates, and then all other clients, to come to an end.
    peace: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    /// Which step it is in.
    step: Option<u32>,
}

impl Simulation {
    fn new(plan: Plan) -> Simulation {
        let mut random = Random::new(plan.seed);
        let profile = Profile::of_seed(plan.seed);
        let mut shape = Shape::draw(&mut random);
        let mut settings = ConfigMap::new();
        if profile == Profile::FlushedPowerLoss {
            settings.insert("taffrail.flush".to_owned(), "ack".to_owned());
        }
        if profile == Profile::Disks {
            // Old bytes are in closed segments, and are looked through as soon as they can be.
            let small = shape.configs.entry("internal.segment.bytes".to_owned());
            small.or_insert_with(|| "8192".to_owned());
            for (name, value) in [
                ("taffrail.scrub.interval.ms", 3_000),
                ("taffrail.disk.reserve.bytes", RESERVE_BYTES),
            ] {
                settings.insert(name.to_owned(), value.to_string());
            }
        }
        let cluster = Cluster::new(shape.brokers, shape.late, &settings, random.fork());
        let history = History::default();
        let stopping = Arc::new(AtomicBool::new(false));
        let clients = ClientEnv {
            executor: cluster.executor.clone(),
            network: cluster.network.clone(),
            machine: Machine(shape.brokers),
            group: cluster.executor.group(),
            bootstrap: (cluster.joined().into_iter())
                .map(|broker| cluster.client_address(broker))
                .collect(),
            random: Arc::new(Mutex::new(random.fork())),
            history: history.clone(),
            stopping: Arc::clone(&stopping),
            topic: TOPIC,
            partitions: shape.partitions,
            passing: false,
            rot: profile == Profile::Disks,
            repeats: profile == Profile::Disks && !plan.without.contains(Kind::Repeat),
        };
        let faults = Faults::new(profile, plan.without, random.fork());
        Simulation {
            plan,
            random,
            shape,
            profile,
            cluster,
            faults,
            invariants: invariants::all(),
            history,
            clients,
            peace: Arc::new(AtomicBool::new(false)),
            stopping,
            step: None,
        }
    }

    fn run(&mut self) -> Result<Report, Wrong> {
        self.set_up()?;
        self.start_clients();
        for step in 0..self.plan.steps {
            self.step = Some(step);
            let pause = Duration::from_millis(self.random.between(20, 1200));
            self.pass(pause)?;
            self.look(true)?;
            self.faults.disturb(&mut self.cluster);
            self.faults.let_go(&mut self.cluster);
            self.wait_for_stop()?;
        }
        self.step = None;
        self.make_peace()?;
        self.look(true)?;
        self.read_back()?;
        Ok(Report {
            plan: self.plan,
            profile: self.profile,
            troubles: self.faults.disks.seen,
            brokers: self.shape.brokers,
            acknowledged: self.history.acknowledgements(),
            events: self.history.len(),
            ended_at: self.cluster.executor.now(),
            trace: trace::hash(),
        })
    }

    fn set_up(&mut self) -> Result<(), Wrong> {
        for broker in self.cluster.joined() {
            self.cluster.start(broker);
        }
        self.wait_until("the cluster forms", SETUP_PATIENCE, |simulation| {
            convergence::not_ready(&simulation.cluster)
        })?;
        let mut client = Client::new(self.clients.clone());
        let configs = (self.shape.configs.iter())
            .map(|(name, value)| CreatableTopicConfig {
                name: name.clone(),
                value: Some(value.clone()),
            })
            .collect();
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: TOPIC.to_owned(),
                num_partitions: self.shape.partitions,
                replication_factor: 3,
                configs,
                ..CreatableTopic::default()
            }],
            timeout_ms: 10_000,
            ..CreateTopicsRequest::default()
        };
        let creating = async move {
            let called = client.call_any(&request, 5, Duration::from_secs(15)).await;
            let (response, _) = called.map_err(|error| error.to_string())?;
            match response.topics.first() {
                Some(topic) if topic.error_code == 0 => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        };
        let created = self
            .cluster
            .executor
            .block_on(self.clients.group, SETUP_PATIENCE, creating)
            .unwrap_or_else(|| Err("no answer".to_owned()));
        created.map_err(|reason| Wrong::new("the topic was not created", reason))
    }

    fn start_clients(&mut self) {
        let executor = self.cluster.executor.clone();
        let group = self.clients.group;
        for number in 0..3 {
            let producing = Producing {
                number,
                idempotent: number != 2,
                uniform: self.shape.uniform,
                pause_ms_max: self.random.between(40, 600),
            };
            let env = self.client_env();
            executor.spawn(group, client::produce(env, producing));
        }
        for _ in 0..2 {
            let env = self.client_env();
            executor.spawn(group, client::consume(env));
        }
        let env = self.client_env();
        executor.spawn(group, client::commit(env, "committer".to_owned()));
        for _ in 0..2 {
            let env = self.client_env();
            executor.spawn(group, client::take_part(env, "members".to_owned()));
        }
        if self.profile == Profile::Disks {
            let env = self.client_env();
            executor.spawn(group, client::retire(env, self.faults.leaving.clone()));
        }
        if self.shape.changes {
            self.start_changes();
        }
    }

    /// Who administrates, and who uses the topic that comes and goes.
    fn start_changes(&mut self) {
        let executor = self.cluster.executor.clone();
        let group = self.clients.group;
        let administration = Administration {
            passing: PASSING_TOPIC,
            // Of fewer replicas none may be left that had a record when the power failed.
            replication_min: if matches!(self.profile, Profile::PowerLoss | Profile::Disks) {
                3
            } else {
                1
            },
            brokers: self.shape.brokers,
            leaving: self.faults.leaving.clone(),
            stopping: Arc::clone(&self.peace),
        };
        let env = self.client_env();
        executor.spawn(group, client::administrate(env, administration));
        let producing = Producing {
            number: 3,
            idempotent: false,
            uniform: false,
            pause_ms_max: self.random.between(100, 600),
        };
        let env = self.passing_env();
        executor.spawn(group, client::produce(env, producing));
        let env = self.passing_env();
        executor.spawn(group, client::consume(env));
    }

    /// A machine of its own for one client.
    fn client_env(&mut self) -> ClientEnv {
        let machine = self.clients.machine;
        self.clients.machine = Machine(machine.0 + 1);
        ClientEnv {
            machine,
            random: Arc::new(Mutex::new(self.random.fork())),
            ..self.clients.clone()
        }
    }

    fn passing_env(&mut self) -> ClientEnv {
        ClientEnv {
            topic: PASSING_TOPIC,
            partitions: client::PASSING_PARTITIONS_MAX as i32,
            passing: true,
            ..self.client_env()
        }
    }

    /// Lets time pass, with a look at the brokers now and then.
    fn pass(&mut self, duration: Duration) -> Result<(), Wrong> {
        let end = self.cluster.executor.now() + duration;
        while self.cluster.executor.now() < end {
            let until = (self.cluster.executor.now() + LOOK_EVERY).min(end);
            self.cluster.executor.run_until(until, || false);
            self.look(false)?;
        }
        Ok(())
    }

    /// A broker that stops in order is given the time for it.
    fn wait_for_stop(&mut self) -> Result<(), Wrong> {
        while let Some(broker) = self.cluster.stopping() {
            self.pass(LOOK_EVERY)?;
            if let Some(ending) = self.cluster.end_stopped(broker) {
                self.faults.note_end(broker, ending);
            }
        }
        Ok(())
    }

    /// Asks the invariants.
    fn look(&mut self, at_logs: bool) -> Result<(), Wrong> {
        if let Some(panic) = self.cluster.executor.panic() {
            return Err(Wrong::new("panic", panic));
        }
        for broker in self.cluster.joined() {
            if let Some(reason) = self.cluster.failure(broker)
                && !self.faults.accept_end(&mut self.cluster, broker)
            {
                return Err(Wrong::new(
                    "a broker gave up",
                    format!("{broker}: {reason}"),
                ));
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
                .map_err(|wrong| Wrong::new(invariant.name(), wrong))?;
        }
        Ok(())
    }

    /// All faults end: replicas must converge, and what was possible before must be possible again.
    fn make_peace(&mut self) -> Result<(), Wrong> {
        self.peace.store(true, Ordering::Relaxed);
        self.faults.make_peace(&mut self.cluster);
        self.wait_until("the ISRs fill up", HEALING_PATIENCE, |simulation| {
            convergence::not_healed(&simulation.cluster, &simulation.history)
        })?;
        let before = self.history.acknowledgements();
        self.wait_until("produce works again", HEALING_PATIENCE, |simulation| {
            let more = simulation.history.acknowledgements() - before;
            (more < 10).then(|| format!("{more} batches were acknowledged"))
        })?;
        self.stopping.store(true, Ordering::Relaxed);
        self.pass(Duration::from_secs(2))?;
        self.wait_until("the replicas converge", HEALING_PATIENCE, |simulation| {
            let (cluster, history) = (&simulation.cluster, &simulation.history);
            convergence::not_healed(cluster, history)
                .or_else(|| convergence::not_equal(cluster, history))
        })
    }

    /// A new consumer finds everything that was acknowledged and is not deleted.
    fn read_back(&mut self) -> Result<(), Wrong> {
        let reading = client::read_back(self.client_env());
        let executor = self.cluster.executor.clone();
        let read = executor.block_on(self.clients.group, HEALING_PATIENCE, reading);
        let read = read.unwrap_or_else(|| Err("it did not come to an end".to_owned()));
        let read = read.map_err(|reason| Wrong::new("the topic cannot be read", reason))?;
        convergence::not_read(&read, &self.history)
            .map_or(Ok(()), |wrong| Err(Wrong::new("full read-back", wrong)))
    }

    /// Waits until nothing is missing any more.
    fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        missing: impl Fn(&Simulation) -> Option<String>,
    ) -> Result<(), Wrong> {
        let deadline = self.cluster.executor.now() + patience;
        while let Some(reason) = missing(self) {
            if self.cluster.executor.now() >= deadline {
                return Err(Wrong::new(
                    format!("waited {patience:?} until {what}"),
                    reason,
                ));
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
