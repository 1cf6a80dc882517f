//! Clients that speak the protocol over connections to client listeners, as Kafka's do: they ask for metadata, go to the
//! leader, and ask again after an error. What they learn goes to the history.

mod admin;
mod committer;
mod consumer;
mod member;
mod producer;
mod read_back;
mod retirer;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_protocol::frame::{decode_response, encode_request};
use taffrail_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use taffrail_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use taffrail_protocol::{ErrorCode, Request, Uuid};

pub(crate) use admin::{Administration, PASSING_PARTITIONS_MAX, administrate};
pub(crate) use committer::commit;
pub(crate) use consumer::consume;
pub(crate) use member::take_part;
pub(crate) use producer::{Producing, produce};
pub(crate) use read_back::{ReadBack, read_back};
pub(crate) use retirer::retire;

use crate::executor::{Executor, Group, lock};
use crate::history::{Event, History, PartitionName};
use crate::network::{Machine, Network, Socket};
use crate::random::Random;

/// Bytes of the length in front of a frame.
const PREFIX: usize = 4;
/// How long a client waits for an answer that needs no wait.
const PATIENCE: Duration = Duration::from_secs(3);
/// How late a repeated request is at most.
const REPEAT_MS_MAX: u64 = 2_000;
/// FindCoordinator's key type of groups.
const GROUP_KEY: i8 = 0;

/// What a client is given.
#[derive(Clone)]
pub(crate) struct ClientEnv {
    /// The thread it runs on.
    pub executor: Executor,
    /// The network.
    pub network: Network,
    /// The machine that it is on.
    pub machine: Machine,
    /// Where it belongs.
    pub group: Group,
    /// Where it may ask for metadata.
    pub bootstrap: Vec<(String, u16)>,
    /// Its randomness.
    pub random: Arc<Mutex<Random>>,
    /// Where it notes what it learns.
    pub history: History,
    /// Whether it should come to an end.
    pub stopping: Arc<AtomicBool>,
    /// The topic that it works on.
    pub topic: &'static str,
    /// The topic's partitions.
    pub partitions: i32,
    /// Whether the topic comes and goes. Then it is only asked for by id.
    pub passing: bool,
    /// Whether bytes may change on disks: what a consumer cannot read it asks for again.
    pub rot: bool,
    /// Whether a batch now and then arrives once more, on another connection.
    pub repeats: bool,
}

impl ClientEnv {
    pub(crate) fn below(&self, limit: u64) -> u64 {
        lock(&self.random).below(limit)
    }

    pub(crate) fn chance(&self, percent: u64) -> bool {
        lock(&self.random).chance(percent)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) async fn pause(&self, ms_max: u64) {
        let pause = Duration::from_millis(self.below(ms_max));
        self.executor.sleep(pause).await;
    }

    pub(crate) fn refused(&self, what: String, code: i16) {
        let error = error_name(code);
        self.history.push(Event::Refused { what, error });
    }
}

pub(crate) fn error_name(code: i16) -> String {
    match ErrorCode::try_from(code) {
        Ok(error) => error.name().to_owned(),
        Err(_) => code.to_string(),
    }
}

/// One connection to one broker.
struct Wire {
    executor: Executor,
    socket: Socket,
    correlation_id: i32,
}

impl Wire {
    async fn call<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        patience: Duration,
    ) -> io::Result<(R::Response, Vec<u8>)> {
        self.correlation_id += 1;
        let frame = encode_request(self.correlation_id, Some("sim"), request, version)
            .map_err(io::Error::other)?;
        self.socket.send(frame)?;
        let mut answer = tokio::select! {
            biased;
            answer = self.socket.receive() => answer?,
            () = self.executor.sleep(patience) => return Err(io::ErrorKind::TimedOut.into()),
        };
        answer.drain(..PREFIX.min(answer.len()));
        let (correlation_id, response) =
            decode_response::<R>(&answer, version).map_err(io::Error::other)?;
        if correlation_id != self.correlation_id {
            return Err(io::Error::other("the answer belongs to another request"));
        }
        Ok((response, answer))
    }
}

/// Who leads a partition, as far as the client knows.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    address: (String, u16),
    epoch: i32,
}

/// A client's connections and what it knows of the cluster.
pub(crate) struct Client {
    env: ClientEnv,
    wires: BTreeMap<(String, u16), Wire>,
    topic_id: Uuid,
    leaders: BTreeMap<i32, Leader>,
    /// The newest leader epochs that it was told of. A broker that was away may tell of older ones.
    epochs: BTreeMap<i32, i32>,
}

impl Client {
    pub(crate) fn new(env: ClientEnv) -> Client {
        Client {
            env,
            wires: BTreeMap::new(),
            topic_id: Uuid::ZERO,
            leaders: BTreeMap::new(),
            epochs: BTreeMap::new(),
        }
    }

    /// Asks one broker; after an error its connection is closed.
    pub(crate) async fn call<R: Request>(
        &mut self,
        address: &(String, u16),
        request: &R,
        version: i16,
        patience: Duration,
    ) -> io::Result<(R::Response, Vec<u8>)> {
        let mut wire = match self.wires.remove(address) {
            Some(wire) => wire,
            None => {
                let connecting = self
                    .env
                    .network
                    .connect(self.env.machine, &address.0, address.1);
                Wire {
                    executor: self.env.executor.clone(),
                    socket: connecting.await?,
                    correlation_id: 0,
                }
            }
        };
        let answer = wire.call(request, version, patience).await?;
        self.wires.insert(address.clone(), wire);
        Ok(answer)
    }

    /// The same request comes to a broker once more on a connection of its own, some time later or earlier; nobody waits
    /// for the answer.
    pub(crate) fn repeat<R: Request>(&self, address: &(String, u16), request: &R, version: i16) {
        let Ok(frame) = encode_request(1, Some("sim"), request, version) else {
            return;
        };
        let (env, (host, port)) = (self.env.clone(), address.clone());
        let delay = Duration::from_millis(env.below(REPEAT_MS_MAX));
        self.env.executor.spawn(env.group, async move {
            env.executor.sleep(delay).await;
            let connected = env.network.connect(env.machine, &host, port).await;
            if let Ok(socket) = connected
                && socket.send(frame).is_ok()
            {
                tokio::select! {
                    biased;
                    _ = socket.receive() => {}
                    () = env.executor.sleep(PATIENCE) => {}
                }
            }
        });
    }

    /// Asks any broker.
    pub(crate) async fn call_any<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        patience: Duration,
    ) -> io::Result<(R::Response, Vec<u8>)> {
        let index = self.env.below(self.env.bootstrap.len() as u64) as usize;
        let address = self.env.bootstrap[index].clone();
        self.call(&address, request, version, patience).await
    }

    /// The leader of a partition: the known one, or the one that any broker tells of.
    pub(crate) async fn leader(&mut self, partition: i32) -> Option<Leader> {
        if !self.leaders.contains_key(&partition) {
            self.refresh().await;
        }
        self.leaders.get(&partition).cloned()
    }

    /// A partition of the topic that the client knows under this name.
    pub(crate) fn name(&self, partition: i32) -> PartitionName {
        PartitionName {
            topic: self.env.topic.to_owned(),
            topic_id: self.topic_id.to_string(),
            partition,
        }
    }

    /// What is known of a partition's leader is not true any more.
    pub(crate) fn forget(&mut self, partition: i32) {
        self.leaders.remove(&partition);
    }

    async fn refresh(&mut self) {
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(self.env.topic.to_owned()),
                ..MetadataRequestTopic::default()
            }]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let Ok((response, _)) = self.call_any(&request, 12, PATIENCE).await else {
            return;
        };
        for topic in response.topics.iter().filter(|topic| topic.error_code == 0) {
            if self.topic_id != topic.topic_id {
                self.topic_id = topic.topic_id;
                self.leaders.clear();
                self.epochs.clear();
            }
            for partition in &topic.partitions {
                let broker = (response.brokers.iter())
                    .find(|broker| broker.node_id == partition.leader_id)
                    .filter(|_| partition.error_code == 0);
                let Some(broker) = broker else { continue };
                let leader = Leader {
                    address: (broker.host.clone(), broker.port as u16),
                    epoch: partition.leader_epoch,
                };
                let index = partition.partition_index;
                let newest = self.epochs.entry(index).or_insert(leader.epoch);
                if leader.epoch >= *newest {
                    *newest = leader.epoch;
                    self.leaders.insert(index, leader);
                }
            }
        }
    }

    /// The coordinator of a group, as any broker tells.
    pub(crate) async fn coordinator(&mut self, group: &str) -> Option<(String, u16)> {
        let request = FindCoordinatorRequest {
            key_type: GROUP_KEY,
            coordinator_keys: vec![group.to_owned()],
            ..FindCoordinatorRequest::default()
        };
        let (response, _) = self.call_any(&request, 4, PATIENCE).await.ok()?;
        let found = response.coordinators.first()?;
        (found.error_code == 0).then(|| (found.host.clone(), found.port as u16))
    }
}

/// Whether a client may simply try again after this error.
pub(crate) fn is_transient(code: i16) -> bool {
    ErrorCode::try_from(code).is_ok_and(ErrorCode::retriable)
}
