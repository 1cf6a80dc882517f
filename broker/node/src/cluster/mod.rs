//! This broker as a member of its cluster: the quorum that keeps the metadata, the committed image, registration,
//! connections to other brokers, and the way to the active controller. It decides nothing: the cores do.

mod controller_channel;
mod doubts;
pub(crate) mod endpoints;
mod forward;
pub(crate) mod fuzzing;
mod history;
mod impaired;
mod metadata_log;
mod observer;
mod peer;
mod presence;
mod private;
mod producer_ids;
mod published;
mod quorum;
mod records;
mod registration;
mod search;
mod seat;
mod seating;
mod start;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use taffrail_core::config::{BrokerConfig, ConfigMap, Layers};
use taffrail_core::controller::{Controller, Decision};
use taffrail_core::error::ApiError;
use taffrail_core::ids::{BrokerEpoch, BrokerId};
use taffrail_core::metadata::{ConfigResource, Image};
use taffrail_core::time::Instant;
use taffrail_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use taffrail_protocol::messages::{
    AlterPartitionsRequest, AlterPartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
};
use taffrail_protocol::{ErrorCode, Request};
use tokio::sync::watch;

use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use controller_channel::ControllerChannel;
use history::History;
use presence::VoterProcesses;
use producer_ids::ProducerIds;
use published::Published;
use quorum::{Event, Quorum};
use registration::Registration;

pub(crate) use controller_channel::ClusterError;
pub(crate) use forward::handle_forward;
pub(crate) use metadata_log::{describe_metadata_file, metadata_file_index};
pub(crate) use observer::handle_fetch_metadata;
pub(crate) use peer::{PeerConnection, PeerError, handle_hello};
pub(crate) use presence::PeerPresence;
pub(crate) use private::{
    handle_allocate_producer_ids, handle_alter_partitions, handle_broker_heartbeat,
    handle_raft_messages, handle_register_broker, handle_set_broker_endpoints,
};
pub(crate) use quorum::{NotController, QuorumProgress, Undecided, VoterWish, Wish};
pub(crate) use search::handle_look_for_broker;
pub(crate) use seating::handle_voter_state;

/// How long the answer to a proposed ISR is waited for before the proposer is told that there is none.
const ALTER_PARTITIONS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a broker that wants to stop waits for a controller to appear. An election takes about a second.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);
/// How long a broker that wants to stop waits for another voter to take over the quorum's lead: a few round trips, or an
/// election if that fails.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(3);
/// How long an internal topic may take to be created; who needs it asks again.
const CREATE_INTERNAL_TOPIC_TIMEOUT: Duration = Duration::from_secs(5);

/// The folder of the metadata log in its log directory.
pub const METADATA_FOLDER: &str = metadata_log::FOLDER;

/// The cluster, as one broker is part of it.
pub(crate) struct Cluster<E: Env> {
    id: BrokerId,
    /// The brokers that should keep the metadata, sorted: they found the quorum, or join it.
    configured_voters: Vec<BrokerId>,
    configured_cluster_id: Option<String>,
    /// The broker's own configs as they were written, the lowest layer.
    file: ConfigMap,
    session_timeout: Duration,
    heartbeat_interval: Duration,
    published: Published,
    /// The active controller, as far as known.
    leader: watch::Sender<Option<BrokerId>>,
    quorum: Quorum,
    voter_processes: Arc<VoterProcesses>,
    waiting: seating::Waiting,
    doubts: Arc<doubts::Doubts>,
    history: History,
    registration: Registration,
    producer_ids: ProducerIds,
    heartbeat_channel: ControllerChannel<E>,
    alter_channel: ControllerChannel<E>,
    forward_channel: ControllerChannel<E>,
    broker: OnceLock<Weak<Broker<E>>>,
    /// Where this broker votes, and whether it does.
    seat: seat::Seat,
}

impl<E: Env> Cluster<E> {
    /// A cluster that has not been started. `file` has the broker's configs as they were written.
    pub(crate) fn new(config: &BrokerConfig, file: ConfigMap) -> Self {
        let mut voters: Vec<BrokerId> = config
            .controller_quorum_voters
            .iter()
            .map(|voter| BrokerId(voter.id))
            .collect();
        voters.sort_unstable();
        if voters.is_empty() {
            voters.push(BrokerId(config.node_id));
        }
        Self {
            id: BrokerId(config.node_id),
            configured_voters: voters,
            configured_cluster_id: config.cluster_id.clone(),
            file,
            session_timeout: millis(config.broker_session_timeout_ms),
            heartbeat_interval: millis(config.broker_heartbeat_interval_ms),
            published: Published::default(),
            leader: watch::Sender::new(None),
            quorum: Quorum::default(),
            voter_processes: Arc::default(),
            waiting: seating::Waiting::default(),
            doubts: Arc::default(),
            history: History::default(),
            registration: Registration::default(),
            producer_ids: ProducerIds::default(),
            heartbeat_channel: ControllerChannel::default(),
            alter_channel: ControllerChannel::default(),
            forward_channel: ControllerChannel::default(),
            broker: OnceLock::new(),
            seat: seat::Seat::default(),
        }
    }

    /// The committed metadata, the newest that this broker knows.
    pub(crate) fn image(&self) -> Arc<Image> {
        self.published.image()
    }

    /// The committed metadata and the last index that it contains.
    pub(crate) fn indexed_image(&self) -> (u64, Arc<Image>) {
        self.published.indexed_image()
    }

    /// The last index of the metadata that this broker has drawn the consequences of; 0 before the first.
    pub(crate) fn applied_index(&self) -> u64 {
        self.published.applied_index()
    }

    /// Does something by the image that this broker follows, while it follows no other.
    pub(crate) fn with_followed<R>(&self, work: impl FnOnce(&Arc<Image>) -> R) -> R {
        self.published.with_followed(work)
    }

    /// The brokers that were fenced a moment ago, of which clients are still told.
    pub(crate) fn departed(&self, now: Instant) -> BTreeSet<BrokerId> {
        self.published.departed(now)
    }

    /// Waits until the image contains more than `index`, and gives the last index that it contains.
    pub(crate) async fn image_changed(&self, index: u64) -> u64 {
        self.published.changed(index).await
    }

    /// Waits until the image is as `predicate` wants it or `deadline` has passed; tells which.
    pub(crate) async fn wait_for_image(
        &self,
        deadline: Instant,
        predicate: impl Fn(&Image) -> bool,
    ) -> bool {
        let Some(broker) = self.broker() else {
            return predicate(&self.image());
        };
        loop {
            let (index, image) = self.published.indexed_image();
            if predicate(&image) {
                return true;
            }
            tokio::select! {
                biased;
                _ = self.published.changed(index) => {}
                () = broker.env.sleep_until(deadline) => return false,
            }
        }
    }

    /// The configs of this broker by origin, below those of a topic.
    pub(crate) fn layers<'a>(&'a self, image: &'a Image) -> Layers<'a> {
        Layers {
            file: &self.file,
            cluster: image.configs(&ConfigResource::Broker(None)),
            broker: image.configs(&ConfigResource::Broker(Some(self.id))),
        }
    }

    /// The cluster's id: the committed one, before that the configured one.
    pub(crate) fn cluster_id(&self) -> Option<String> {
        self.image()
            .cluster_id()
            .map(str::to_owned)
            .or_else(|| self.configured_cluster_id.clone())
    }

    /// The brokers that keep the metadata, by id: the recorded ones, before that the configured.
    pub(crate) fn voters(&self) -> Vec<BrokerId> {
        let recorded: Vec<BrokerId> = self.image().voters().map(|(id, _)| id).collect();
        if recorded.is_empty() {
            self.configured_voters.clone()
        } else {
            recorded
        }
    }

    /// The brokers that should keep the metadata.
    pub(super) fn configured_voters(&self) -> &[BrokerId] {
        &self.configured_voters
    }

    /// The log directory that holds the metadata log, if this broker votes.
    pub(crate) fn metadata_directory(&self) -> Option<&Path> {
        self.seat.path()
    }

    /// The active controller, as far as this broker knows.
    pub(crate) fn controller_id(&self) -> Option<BrokerId> {
        *self.leader.borrow()
    }

    fn set_leader(&self, leader: Option<BrokerId>) {
        self.leader
            .send_if_modified(|known| std::mem::replace(known, leader) != leader);
    }

    /// This broker's epoch, once it is registered.
    pub(crate) fn broker_epoch(&self) -> Option<BrokerEpoch> {
        self.registration.standing().epoch
    }

    /// Whether this broker is registered, as far as it knows.
    pub(crate) fn is_registered(&self) -> bool {
        self.broker_epoch().is_some()
    }

    /// Whether the controller lets this broker lead and be in ISRs.
    pub(crate) fn is_unfenced(&self) -> bool {
        self.registration.standing().unfenced
    }

    /// Whether this broker has once caught up with the metadata.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.registration.standing().caught_up
    }

    /// `broker.session.timeout.ms`.
    pub(crate) fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_interval
    }

    /// Proposes new ISRs to the active controller.
    pub(crate) async fn alter_partitions(
        &self,
        request: AlterPartitionsRequest,
    ) -> Result<AlterPartitionsResponse, ClusterError> {
        let broker = self.running()?;
        let deadline = broker.env.now() + ALTER_PARTITIONS_TIMEOUT;
        self.alter_channel.ask(&broker, &request, deadline).await
    }

    /// A producer id that nobody had before.
    pub(crate) async fn next_producer_id(&self) -> Result<i64, ClusterError> {
        let broker = self.running()?;
        self.producer_ids.next(&broker).await
    }

    /// Has the active controller answer a client's request, here or wherever it is. Asks again after a change of
    /// controller or a lost connection, until `deadline`.
    pub(crate) async fn call_controller<R: Request>(
        &self,
        context: &RequestContext,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, ClusterError> {
        let broker = self.running()?;
        // A request that is made for a client of another API goes in our own newest version.
        let version = if context.api.code() == R::API_KEY {
            context.version
        } else {
            R::MAX_VERSION
        };
        forward::call(&broker, context, request, version, deadline).await
    }

    /// Creates a topic of the brokers' own, unless it exists, and waits until this broker sees it. With fewer brokers
    /// than `replication_factor` it has as many replicas as there are brokers; voters that have not registered yet
    /// count, so that the first broker of three to start does not end up with the only replica.
    pub(crate) async fn create_internal_topic(
        &self,
        name: &str,
        partitions: i32,
        replication_factor: i16,
        configs: &[(&str, String)],
    ) -> Result<(), ClusterError> {
        let broker = self.running()?;
        let brokers = self
            .image()
            .brokers()
            .count()
            .max(self.configured_voters.len());
        let replication_factor = replication_factor.min(i16::try_from(brokers).unwrap_or(i16::MAX));
        let config = |(name, value): &(&str, String)| CreatableTopicConfig {
            name: (*name).into(),
            value: Some(value.clone()),
        };
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor,
            configs: configs.iter().map(config).collect(),
            ..CreatableTopic::default()
        };
        let timeout_ms =
            i32::try_from(CREATE_INTERNAL_TOPIC_TIMEOUT.as_millis()).unwrap_or(i32::MAX);
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms,
            validate_only: false,
        };
        let deadline = broker.env.now() + CREATE_INTERNAL_TOPIC_TIMEOUT;
        let context = RequestContext::of_broker(&broker.config.inter_broker_listener_name);
        let response: CreateTopicsResponse = forward::call(
            &broker,
            &context,
            &request,
            CreateTopicsRequest::MAX_VERSION,
            deadline,
        )
        .await?;
        let code = response
            .topics
            .first()
            .map_or(ErrorCode::UnknownServerError.code(), |topic| {
                topic.error_code
            });
        match ErrorCode::try_from(code).unwrap_or(ErrorCode::UnknownServerError) {
            ErrorCode::None | ErrorCode::TopicAlreadyExists => {
                self.wait_for_image(deadline, |image| image.topic_by_name(name).is_some())
                    .await;
                Ok(())
            }
            code => {
                let reason = response
                    .topics
                    .first()
                    .and_then(|topic| topic.error_message.clone());
                tracing::info!(topic = name, error = ?code, reason, "an internal topic was not created");
                Err(ClusterError::Refused(code))
            }
        }
    }

    /// Opens a connection of its own to another broker's internal listener.
    pub(crate) async fn open_peer(&self, id: BrokerId) -> Result<PeerConnection<E>, PeerError> {
        match self.broker() {
            Some(broker) => peer::open(&broker, id).await,
            None => Err(PeerError::NoAddress(id)),
        }
    }

    /// Asks the controller to take leadership from this broker and to let it go, and hands over the lead of the quorum
    /// if this broker has it. Tells whether nobody depends on this broker any more; false once `deadline` has passed.
    pub(crate) async fn begin_controlled_shutdown(&self, deadline: Instant) -> bool {
        let Some(broker) = self.broker() else {
            return true;
        };
        let let_go = tokio::select! {
            biased;
            let_go = self.registration.shut_down(&broker.env, deadline) => let_go,
            () = self.leaderless(&broker.env) => {
                tracing::warn!(
                    broker = %self.id,
                    "stops without handing over: the metadata quorum has no leader to ask"
                );
                false
            }
        };
        if self.controller_id() == Some(self.id) && self.voters().len() > 1 {
            self.hand_over_quorum(&broker.env, deadline).await;
        }
        let_go
    }

    /// Has another voter lead the quorum. With the others gone there is nobody to take over: that shows when the lead is
    /// lost, or in that nothing happens.
    async fn hand_over_quorum(&self, env: &E, deadline: Instant) {
        self.quorum.tell(Event::HandOver);
        let deadline = deadline.min(env.now() + HAND_OVER_PATIENCE);
        let mut leader = self.leader.subscribe();
        tokio::select! {
            biased;
            _ = leader.wait_for(|leader| leader.is_some_and(|leader| leader != self.id)) => {}
            () = self.leaderless(env) => {
                tracing::warn!(broker = %self.id, "no other voter took over the lead of the metadata quorum");
            }
            () = env.sleep_until(deadline) => {
                tracing::warn!(broker = %self.id, "no other voter took over the lead of the metadata quorum in time");
            }
        }
    }

    /// Waits until no controller has been known for a while: the last brokers of a cluster that stops as a whole have
    /// nobody left to ask.
    async fn leaderless(&self, env: &E) {
        let mut leader = self.leader.subscribe();
        loop {
            // The sender lives in self.
            let _ = leader.wait_for(Option::is_none).await;
            let patience = env.now() + SHUTDOWN_PATIENCE;
            tokio::select! {
                biased;
                _ = leader.wait_for(Option::is_some) => {}
                () = env.sleep_until(patience) => return,
            }
        }
    }

    /// Has the controller decide, if this broker is it, and waits for the commit.
    pub(crate) async fn decide<R: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut Controller, Instant) -> Decision<R> + Send + 'static,
    ) -> Result<R, NotController> {
        self.quorum.decide(decide).await
    }

    /// The same for a client: what would be too large for one entry of the metadata log is refused.
    pub(crate) async fn decide_for_client<R: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut Controller, Instant) -> Decision<R> + Send + 'static,
    ) -> Result<R, Undecided> {
        self.quorum.decide_for_client(decide).await
    }

    /// How far the voters of the quorum are, if this broker leads it.
    pub(crate) async fn quorum_progress(&self) -> Result<QuorumProgress, NotController> {
        self.quorum.describe().await
    }

    /// Does the next step towards another voter, or one less, if this broker leads the quorum.
    pub(crate) async fn change_voters(
        &self,
        wish: VoterWish,
    ) -> Result<Result<(), ApiError>, NotController> {
        self.quorum.change_voters(wish).await
    }

    fn broker(&self) -> Option<Arc<Broker<E>>> {
        self.broker.get().and_then(Weak::upgrade)
    }

    fn running(&self) -> Result<Arc<Broker<E>>, ClusterError> {
        self.broker().ok_or(ClusterError::NotRunning)
    }
}

fn millis(value: i32) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
