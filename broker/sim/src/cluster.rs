//! Brokers on machines, each of which can be killed, lose its power, be stopped in order, stand still, and be started
//! again on what its disk has kept. The first three vote on the metadata.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_core::config::{BrokerConfig, ConfigMap};
use taffrail_core::time::Instant;
use taffrail_node::{AdminState, ListenerKind, Node};

use crate::disk::SimDisk;
use crate::env::SimEnv;
use crate::executor::{Executor, Group, lock};
use crate::network::{Machine, Network};
use crate::random::Random;
use crate::serving;
use crate::simulation::MIN_INSYNC_REPLICAS;

/// Where the brokers' own traffic goes.
const INTERNAL_PORT: u16 = 9093;
/// Where clients go.
pub(crate) const CLIENT_PORT: u16 = 9092;
/// How long a broker may take to hand over and flush.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How many brokers vote.
const VOTERS: usize = 3;
/// The log directories of every broker.
pub(crate) const LOG_DIRECTORIES: [&str; 2] = ["/data/0", "/data/1"];

/// How a broker goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The process is killed; the page cache stays.
    Kill,
    /// The machine loses its power: what was not fsynced is lost in part, and nobody is told.
    PowerLoss,
    /// It hands over, flushes and leaves.
    Stop,
    /// As `Stop`, and then its machine loses its power.
    StopAndPowerLoss,
}

/// All brokers with what they run on.
pub(crate) struct Cluster {
    /// The thread that everything runs on.
    pub executor: Executor,
    /// The network between them and to the clients.
    pub network: Network,
    brokers: Vec<Broker>,
    settings: ConfigMap,
    /// How many brokers are configured as voters, at their next start.
    pub voters: usize,
    random: Random,
}

struct Broker {
    machine: Machine,
    disk: SimDisk,
    wall_offset_ms: Arc<AtomicI64>,
    /// Whether it is, or was, a part of the cluster.
    joined: bool,
    /// Whether it went for good.
    left: bool,
    life: Option<Life>,
}

/// One process.
struct Life {
    group: Group,
    node: Node<SimEnv>,
    start: Arc<Mutex<Start>>,
    /// Whether it stands still.
    paused: bool,
    stop: Option<Stop>,
}

/// A stop in order that is under way.
struct Stop {
    deadline: Instant,
    done: Arc<AtomicBool>,
    /// What comes at its end.
    ending: Ending,
}

#[derive(Debug, PartialEq, Eq)]
enum Start {
    Recovering,
    Running,
    Failed(String),
}

impl Cluster {
    /// So many brokers, none of them started and the last ones not a part of the cluster yet, whose configuration is the
    /// default of a test plus `settings`.
    pub(crate) fn new(
        brokers: u32,
        late: u32,
        settings: &ConfigMap,
        mut random: Random,
    ) -> Cluster {
        let executor = Executor::new(random.fork());
        let network = Network::new(executor.clone(), random.fork());
        let brokers = (0..brokers)
            .map(|id| Broker {
                machine: Machine(id),
                disk: SimDisk::new(random.next()),
                wall_offset_ms: Arc::new(AtomicI64::new(random.below(2000) as i64)),
                joined: id < brokers - late,
                left: false,
                life: None,
            })
            .collect();
        Cluster {
            executor,
            network,
            brokers,
            settings: settings.clone(),
            voters: VOTERS,
            random,
        }
    }

    /// How many brokers there are; their ids count from 0.
    pub(crate) fn size(&self) -> usize {
        self.brokers.len()
    }

    /// The address of a broker for clients.
    pub(crate) fn client_address(&self, broker: usize) -> (String, u16) {
        (host(broker), CLIENT_PORT)
    }

    /// Where other brokers reach a broker.
    #[cfg(test)]
    pub(crate) fn internal_address(&self, broker: usize) -> (String, u16) {
        (host(broker), INTERNAL_PORT)
    }

    /// The machine of a broker.
    pub(crate) fn machine(&self, broker: usize) -> Machine {
        self.brokers[broker].machine
    }

    /// The disk of a broker.
    pub(crate) fn disk(&self, broker: usize) -> &SimDisk {
        &self.brokers[broker].disk
    }

    /// The brokers that are a part of the cluster, up or down.
    pub(crate) fn joined(&self) -> Vec<usize> {
        (0..self.size())
            .filter(|broker| self.brokers[*broker].joined && !self.brokers[*broker].left)
            .collect()
    }

    /// One more broker joins, if there is one.
    pub(crate) fn join_next(&mut self) {
        let next = (self.brokers.iter()).position(|broker| !broker.joined);
        if let Some(broker) = next {
            self.brokers[broker].joined = true;
            self.start(broker);
        }
    }

    /// A broker that is going down does not come back.
    pub(crate) fn leave(&mut self, broker: usize) {
        self.brokers[broker].left = true;
        tracing::info!(broker, "leaves for good");
    }

    /// Whether a broker went for good.
    pub(crate) fn has_left(&self, broker: usize) -> bool {
        self.brokers[broker].left
    }

    /// Whether a broker votes on the metadata.
    pub(crate) fn votes(&self, broker: usize) -> bool {
        broker < self.voters
    }

    /// A machine's wall clock jumps: from now on it is off by so much.
    pub(crate) fn set_wall_offset(&self, broker: usize, offset_ms: i64) {
        let offset = &self.brokers[broker].wall_offset_ms;
        offset.store(offset_ms, Ordering::Relaxed);
        tracing::info!(broker, offset_ms, "the wall clock jumped");
    }

    /// A broker's process stands still.
    pub(crate) fn pause(&mut self, broker: usize) {
        if let Some(life) = &mut self.brokers[broker].life {
            life.paused = true;
            self.executor.pause(life.group);
            tracing::info!(broker, "stands still");
        }
    }

    /// A broker's process goes on.
    pub(crate) fn resume(&mut self, broker: usize) {
        if let Some(life) = &mut self.brokers[broker].life
            && std::mem::take(&mut life.paused)
        {
            self.executor.resume(life.group);
            tracing::info!(broker, "goes on");
        }
    }

    /// Whether a broker's process stands still.
    pub(crate) fn is_paused(&self, broker: usize) -> bool {
        let life = self.brokers[broker].life.as_ref();
        life.is_some_and(|life| life.paused)
    }

    /// Whether a broker's process exists.
    pub(crate) fn is_up(&self, broker: usize) -> bool {
        self.brokers[broker].life.is_some()
    }

    fn running(&self, broker: usize) -> Option<&Life> {
        let life = self.brokers[broker].life.as_ref()?;
        let running = *lock(&life.start) == Start::Running;
        running.then_some(life)
    }

    /// A running broker.
    #[cfg(test)]
    pub(crate) fn node(&self, broker: usize) -> Option<Node<SimEnv>> {
        self.running(broker).map(|life| life.node.clone())
    }

    /// What a running broker tells about itself.
    pub(crate) fn state(&self, broker: usize) -> Option<AdminState> {
        self.running(broker).map(|life| life.node.state())
    }

    /// Why a broker is not ready, while it is up.
    pub(crate) fn not_ready(&self, broker: usize) -> Option<String> {
        let Some(life) = self.running(broker) else {
            return Some("is not running".to_owned());
        };
        life.node.health().not_ready
    }

    /// Why a broker gave up: it could not start, or lost an invariant.
    pub(crate) fn failure(&self, broker: usize) -> Option<String> {
        let life = self.brokers[broker].life.as_ref()?;
        if let Start::Failed(reason) = &*lock(&life.start) {
            return Some(format!("could not start: {reason}"));
        }
        life.node.health().fatal
    }

    /// Starts a broker on what its disk has.
    pub(crate) fn start(&mut self, broker: usize) {
        if self.is_up(broker) {
            return;
        }
        let written = self.config(broker);
        let config =
            BrokerConfig::from_file(&written).expect("the test's configuration is correct");
        let group = self.executor.group();
        let state = &mut self.brokers[broker];
        let env = SimEnv {
            executor: self.executor.clone(),
            network: self.network.clone(),
            machine: state.machine,
            group,
            disk: state.disk.clone(),
            random: Arc::new(Mutex::new(self.random.fork())),
            wall_offset_ms: Arc::clone(&state.wall_offset_ms),
        };
        let node = Node::new(env.clone(), config, written);
        let start = Arc::new(Mutex::new(Start::Recovering));
        state.life = Some(Life {
            group,
            node: node.clone(),
            start: Arc::clone(&start),
            paused: false,
            stop: None,
        });
        self.network.power_on(env.machine);
        self.executor
            .spawn(group, live(env, node, host(broker), start));
        tracing::info!(broker, "started");
    }

    /// Takes a broker down and gives how it ended. A stop in order takes its time: see [`Self::stopping`].
    pub(crate) fn end(&mut self, broker: usize, ending: Ending) -> Option<Ending> {
        let life = self.brokers[broker].life.as_ref()?;
        let runs = *lock(&life.start) == Start::Running && !life.paused;
        let ending = match ending {
            Ending::Stop | Ending::StopAndPowerLoss if runs => {
                self.begin_stop(broker, ending);
                return None;
            }
            // It is in no state to stop in order.
            Ending::Stop | Ending::StopAndPowerLoss => Ending::Kill,
            Ending::Kill | Ending::PowerLoss => ending,
        };
        self.finish(broker, ending);
        Some(ending)
    }

    fn begin_stop(&mut self, broker: usize, ending: Ending) {
        let deadline = self.executor.now() + STOP_PATIENCE;
        let Some(life) = &mut self.brokers[broker].life else {
            return;
        };
        let done = Arc::new(AtomicBool::new(false));
        life.stop = Some(Stop {
            deadline,
            done: Arc::clone(&done),
            ending,
        });
        let (executor, node) = (self.executor.clone(), life.node.clone());
        self.executor.spawn(life.group, async move {
            node.shutdown(deadline).await;
            done.store(executor.now() < deadline, Ordering::Relaxed);
        });
    }

    /// A broker that is stopping in order.
    pub(crate) fn stopping(&self) -> Option<usize> {
        let stops = |broker: &Broker| broker.life.as_ref().is_some_and(|life| life.stop.is_some());
        self.brokers.iter().position(stops)
    }

    /// Ends a broker that has come to the end of its work, or should have by now. Gives how it ended.
    pub(crate) fn end_stopped(&mut self, broker: usize) -> Option<Ending> {
        let stop = self.brokers[broker].life.as_ref()?.stop.as_ref()?;
        let done = stop.done.load(Ordering::Relaxed);
        if !done && self.executor.now() < stop.deadline {
            return None;
        }
        let ending = if done { stop.ending } else { Ending::Kill };
        self.finish(broker, ending);
        Some(ending)
    }

    fn finish(&mut self, broker: usize, ending: Ending) {
        let Some(life) = self.brokers[broker].life.take() else {
            return;
        };
        let (machine, disk) = (
            self.brokers[broker].machine,
            self.brokers[broker].disk.clone(),
        );
        tracing::info!(broker, ?ending, "ends");
        match ending {
            Ending::Kill | Ending::Stop => disk.kill(),
            Ending::PowerLoss | Ending::StopAndPowerLoss => {
                self.network.power_off(machine);
                disk.crash();
            }
        }
        self.network.stop_listening(machine);
        self.executor.end(life.group);
    }

    fn config(&self, broker: usize) -> ConfigMap {
        let host_of = host;
        let host = host_of(broker);
        let voters: Vec<String> = (0..self.voters)
            .map(|id| format!("{id}@{}:{INTERNAL_PORT}", host_of(id)))
            .collect();
        let mut config = ConfigMap::new();
        let mut set = |name: &str, value: String| config.insert(name.to_owned(), value);
        set("node.id", broker.to_string());
        set("cluster.id", "simulated".to_owned());
        set("log.dirs", LOG_DIRECTORIES.join(","));
        set(
            "listeners",
            format!("INTERNAL://{host}:{INTERNAL_PORT},PLAINTEXT://{host}:{CLIENT_PORT}"),
        );
        set("controller.quorum.voters", voters.join(","));
        set("min.insync.replicas", MIN_INSYNC_REPLICAS.to_string());
        for (name, value) in [
            ("default.replication.factor", "3"),
            ("offsets.topic.num.partitions", "2"),
            ("group.initial.rebalance.delay.ms", "0"),
            ("replica.lag.time.max.ms", "3000"),
            ("leader.imbalance.check.interval.seconds", "5"),
            ("log.flush.offset.checkpoint.interval.ms", "2000"),
            ("replica.high.watermark.checkpoint.interval.ms", "1000"),
            ("log.retention.check.interval.ms", "2000"),
        ] {
            set(name, value.to_owned());
        }
        config.extend(self.settings.clone());
        config
    }
}

impl Drop for Cluster {
    /// Tasks hold the thread that holds them; without this a simulation would never be freed.
    fn drop(&mut self) {
        for broker in 0..self.size() {
            self.finish(broker, Ending::Kill);
        }
    }
}

/// One process from its start on.
async fn live(env: SimEnv, node: Node<SimEnv>, host: String, start: Arc<Mutex<Start>>) {
    if let Err(error) = node.start().await {
        *lock(&start) = Start::Failed(error.to_string());
        return;
    }
    for (name, port, kind) in [
        ("INTERNAL", INTERNAL_PORT, ListenerKind::Internal),
        ("PLAINTEXT", CLIENT_PORT, ListenerKind::Client),
    ] {
        let incoming = env.network.listen(env.machine, &host, port);
        let accepting = serving::accept(env.clone(), node.clone(), name, kind, incoming);
        env.executor.spawn(env.group, accepting);
    }
    *lock(&start) = Start::Running;
}

fn host(broker: usize) -> String {
    format!("broker-{broker}")
}
