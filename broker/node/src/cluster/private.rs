//! What the active controller answers other brokers, and how Raft's messages come in. Each answer says who leads, as
//! far as this broker knows, so that whoever asked in vain need not search.

use std::sync::Arc;

use taffrail_core::controller::{
    AlterPartition, AlterPartitions, AlteredPartition, BrokerEndpoints, Decision, Heartbeat,
    Registration,
};
use taffrail_core::error::ApiError;
use taffrail_core::ids::{
    BrokerEpoch, BrokerId, DirectoryId, Incarnation, LeaderEpoch, PartitionEpoch, TopicId,
    TopicPartition,
};
use taffrail_core::metadata::{Image, Listener, Voter};
use taffrail_protocol::messages::alter_partitions_response::{
    AlterPartitionsPartitionResult, AlterPartitionsTopicResult,
};
use taffrail_protocol::messages::set_broker_endpoints_response::{
    RecordedEndpoints, RecordedListener, SetBrokerEndpointsResult,
};
use taffrail_protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, AlterPartitionsRequest,
    AlterPartitionsResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse, RaftMessagesRequest,
    RaftMessagesResponse, RegisterBrokerRequest, RegisterBrokerResponse, SetBrokerEndpointsRequest,
    SetBrokerEndpointsResponse,
};
use taffrail_protocol::{ErrorCode, Uuid};

use super::controller_channel::ControllerRequest;
use super::quorum::{Event, NotController, wire};
use super::{impaired, records, seat};
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::{code_and_message, code_of};

/// How long the operator may wait for endpoints to be recorded.
const SET_ENDPOINTS_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

fn leader_id<E: Env>(broker: &Broker<E>) -> i32 {
    broker.cluster.controller_id().map_or(-1, |id| id.0)
}

/// Queues the messages of another voter. What does not fit is lost; Raft sends again.
pub(crate) fn handle_raft_messages<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: RaftMessagesRequest,
) -> RaftMessagesResponse {
    let refused = |code: ErrorCode| RaftMessagesResponse {
        error_code: code.code(),
        ..Default::default()
    };
    if context.peer != Some(BrokerId(request.from)) || request.to != broker.id.0 {
        return refused(ErrorCode::ClusterAuthorizationFailed);
    }
    // What an earlier process acknowledged may have been lost with its disk; its later one has told.
    let processes = &broker.cluster.voter_processes;
    let is_current = |process| processes.is_newest(BrokerId(request.from), process);
    if !context.peer_incarnation.is_some_and(is_current) {
        return refused(ErrorCode::StaleBrokerEpoch);
    }
    let from = i64::from(request.from);
    if request.messages.iter().any(|message| message.from != from) {
        return refused(ErrorCode::InvalidRequest);
    }
    let directory = records::directory_from_wire(request.from_directory);
    let image = broker.cluster.image();
    let recorded = image.voter(BrokerId(request.from));
    if let Some(intent) = image.voter_intent(BrokerId(request.from))
        && intent.removed() > request.from_since
    {
        return RaftMessagesResponse {
            error_code: ErrorCode::InvalidVoterKey.code(),
            recorded_since: intent.removed(),
            removed: true,
            ..Default::default()
        };
    }
    if let Some(voter) = recorded
        && seat::speaks_against(recorded, directory, request.from_since)
    {
        return RaftMessagesResponse {
            error_code: ErrorCode::InvalidVoterKey.code(),
            recorded_directory: records::directory_to_wire(voter.directory),
            recorded_since: voter.since,
            ..Default::default()
        };
    }
    if let Some(had) = image.voter_log_end(BrokerId(request.from))
        && had > request.from_log_end
        && recorded.is_some_and(|voter| voter.directory == directory)
    {
        return RaftMessagesResponse {
            error_code: ErrorCode::InvalidVoterKey.code(),
            log_had: had,
            ..Default::default()
        };
    }
    let meant = Voter {
        directory: records::directory_from_wire(request.to_directory),
        since: request.to_since,
    };
    let own = broker.cluster.own_seat();
    if seat::speaks_against(Some(meant), own.directory, own.since) {
        broker.cluster.quorum.tell(Event::Replaced(meant));
        return refused(ErrorCode::InvalidVoterKey);
    }
    let log_end = broker.cluster.seat.log_end();
    if log_end >= 0 && request.to_log_had > log_end && meant.directory == own.directory {
        let had = request.to_log_had;
        broker.cluster.quorum.tell(Event::OldCopy { had });
        return refused(ErrorCode::InvalidVoterKey);
    }
    let messages: Result<Vec<_>, _> = request.messages.into_iter().map(wire::to_core).collect();
    match messages {
        Ok(messages) => {
            if !broker
                .cluster
                .quorum
                .tell(Event::Messages(messages, directory))
            {
                tracing::debug!(
                    from,
                    "dropped raft messages: the queue is full, or this broker does not vote yet"
                );
            }
            refused(ErrorCode::None)
        }
        Err(error) => {
            tracing::warn!(from, %error, "refused raft messages");
            refused(ErrorCode::InvalidRequest)
        }
    }
}

/// Registers a broker.
pub(crate) async fn handle_register_broker<E: Env>(
    broker: Arc<Broker<E>>,
    _context: RequestContext,
    request: RegisterBrokerRequest,
) -> RegisterBrokerResponse {
    RegisterBrokerRequest::decide(&broker, &request).await
}

impl ControllerRequest for RegisterBrokerRequest {
    fn error_code(response: &RegisterBrokerResponse) -> i16 {
        response.error_code
    }

    fn leader_id(response: &RegisterBrokerResponse) -> i32 {
        response.leader_id
    }

    async fn decide<E: Env>(broker: &Arc<Broker<E>>, request: &Self) -> RegisterBrokerResponse {
        let failed = |error: ApiError| {
            let (error_code, error_message) = code_and_message(error);
            RegisterBrokerResponse {
                error_code,
                error_message,
                leader_id: leader_id(broker),
                broker_epoch: -1,
            }
        };
        let registration = match registration(request) {
            Ok(registration) => registration,
            Err(error) => return failed(error),
        };
        let decided = broker
            .cluster
            .decide(move |controller, now| controller.handle_registration(now, &registration));
        match decided.await {
            Ok(Ok(epoch)) => RegisterBrokerResponse {
                leader_id: leader_id(broker),
                broker_epoch: epoch.0,
                ..Default::default()
            },
            Ok(Err(error)) => failed(error),
            Err(NotController) => RegisterBrokerResponse {
                error_code: ErrorCode::NotController.code(),
                leader_id: leader_id(broker),
                ..Default::default()
            },
        }
    }
}

fn registration(request: &RegisterBrokerRequest) -> Result<Registration, ApiError> {
    let listeners = request
        .listeners
        .iter()
        .map(|listener| to_listener(&listener.name, &listener.host, listener.port))
        .collect::<Result<_, _>>()?;
    Ok(Registration {
        cluster_id: request.cluster_id.clone(),
        broker: BrokerId(request.broker_id),
        incarnation: Incarnation(request.incarnation.0),
        previous_epoch: (request.previous_broker_epoch >= 0)
            .then_some(BrokerEpoch(request.previous_broker_epoch)),
        directories: request
            .log_directories
            .iter()
            .map(|id| DirectoryId(id.0))
            .collect(),
        listeners,
        rack: request.rack.clone(),
    })
}

fn to_listener(name: &str, host: &str, port: i32) -> Result<Listener, ApiError> {
    match u16::try_from(port) {
        Ok(port) => Ok(Listener {
            name: name.to_owned(),
            host: host.to_owned(),
            port,
        }),
        Err(_) => Err(ApiError::new(
            taffrail_core::error::ErrorKind::InvalidRequest,
            format!("Listener {name} has port {port}; a port is between 0 and 65535."),
        )),
    }
}

/// Hears from a broker.
pub(crate) async fn handle_broker_heartbeat<E: Env>(
    broker: Arc<Broker<E>>,
    _context: RequestContext,
    request: BrokerHeartbeatRequest,
) -> BrokerHeartbeatResponse {
    BrokerHeartbeatRequest::decide(&broker, &request).await
}

impl ControllerRequest for BrokerHeartbeatRequest {
    fn error_code(response: &BrokerHeartbeatResponse) -> i16 {
        response.error_code
    }

    fn leader_id(response: &BrokerHeartbeatResponse) -> i32 {
        response.leader_id
    }

    async fn decide<E: Env>(broker: &Arc<Broker<E>>, request: &Self) -> BrokerHeartbeatResponse {
        let heartbeat = Heartbeat {
            broker: BrokerId(request.broker_id),
            epoch: BrokerEpoch(request.broker_epoch),
            metadata_index: request.metadata_offset,
            want_fence: request.want_fence,
            want_shutdown: request.want_shutdown,
            report: impaired::from_request(request),
        };
        let decided = broker
            .cluster
            .decide(move |controller, now| controller.handle_heartbeat(now, &heartbeat))
            .await;
        let code = match (decided, index_of_report(broker, request).await) {
            (Ok(Ok(reply)), Ok(metadata_offset)) => {
                return BrokerHeartbeatResponse {
                    error_code: ErrorCode::None.code(),
                    leader_id: leader_id(broker),
                    caught_up: reply.caught_up,
                    fenced: reply.fenced,
                    should_shutdown: reply.should_shutdown,
                    metadata_offset,
                };
            }
            (Ok(Err(error)), _) => code_of(error.kind),
            (Err(NotController), _) | (_, Err(NotController)) => ErrorCode::NotController,
        };
        BrokerHeartbeatResponse {
            error_code: code.code(),
            leader_id: leader_id(broker),
            ..Default::default()
        }
    }
}

/// Up to where the controller had decided when it knew the reported replicas: asked for after the decision, so that this is
/// counted too. -1 if none are reported.
async fn index_of_report<E: Env>(
    broker: &Arc<Broker<E>>,
    request: &BrokerHeartbeatRequest,
) -> Result<i64, NotController> {
    if request.impaired_replicas.is_empty() {
        return Ok(-1);
    }
    let index = broker.cluster.decide(|controller, _| Decision {
        records: Vec::new(),
        reply: controller.last_index(),
    });
    index.await
}

/// Changes ISRs for the leader of their partitions.
pub(crate) async fn handle_alter_partitions<E: Env>(
    broker: Arc<Broker<E>>,
    _context: RequestContext,
    request: AlterPartitionsRequest,
) -> AlterPartitionsResponse {
    AlterPartitionsRequest::decide(&broker, &request).await
}

impl ControllerRequest for AlterPartitionsRequest {
    fn error_code(response: &AlterPartitionsResponse) -> i16 {
        response.error_code
    }

    fn leader_id(response: &AlterPartitionsResponse) -> i32 {
        response.leader_id
    }

    async fn decide<E: Env>(broker: &Arc<Broker<E>>, request: &Self) -> AlterPartitionsResponse {
        let proposal = alter_partitions(request);
        let decided = broker
            .cluster
            .decide(move |controller, _| controller.alter_partitions(&proposal))
            .await;
        let code = match decided {
            Ok(Ok(altered)) => {
                return AlterPartitionsResponse {
                    error_code: ErrorCode::None.code(),
                    leader_id: leader_id(broker),
                    topics: altered_topics(altered),
                };
            }
            Ok(Err(error)) => code_of(error.kind),
            Err(NotController) => ErrorCode::NotController,
        };
        AlterPartitionsResponse {
            error_code: code.code(),
            leader_id: leader_id(broker),
            ..Default::default()
        }
    }
}

fn alter_partitions(request: &AlterPartitionsRequest) -> AlterPartitions {
    let partitions = request.topics.iter().flat_map(|topic| {
        let topic_id = TopicId(topic.topic_id.0);
        topic
            .partitions
            .iter()
            .map(move |partition| AlterPartition {
                partition: TopicPartition::new(topic_id, partition.partition),
                leader_epoch: LeaderEpoch(partition.leader_epoch),
                partition_epoch: PartitionEpoch(partition.partition_epoch),
                new_isr: partition
                    .new_isr
                    .iter()
                    .map(|member| (BrokerId(member.broker_id), BrokerEpoch(member.broker_epoch)))
                    .collect(),
            })
    });
    AlterPartitions {
        broker: BrokerId(request.broker_id),
        broker_epoch: BrokerEpoch(request.broker_epoch),
        partitions: partitions.collect(),
    }
}

/// Results of consecutive partitions of one topic go together.
fn altered_topics(altered: Vec<AlteredPartition>) -> Vec<AlterPartitionsTopicResult> {
    let mut topics: Vec<AlterPartitionsTopicResult> = Vec::new();
    for AlteredPartition { partition, result } in altered {
        let topic_id = Uuid(partition.topic_id.0);
        let result = match result {
            Ok(state) => AlterPartitionsPartitionResult {
                partition: partition.partition,
                error_code: ErrorCode::None.code(),
                leader_id: state.leader.map_or(-1, |leader| leader.0),
                leader_epoch: state.leader_epoch.0,
                isr: state.isr.iter().map(|member| member.0).collect(),
                elr: state.elr.iter().map(|member| member.0).collect(),
                partition_epoch: state.partition_epoch.0,
            },
            Err(kind) => AlterPartitionsPartitionResult {
                partition: partition.partition,
                error_code: code_of(kind).code(),
                ..Default::default()
            },
        };
        match topics.last_mut() {
            Some(last) if last.topic_id == topic_id => last.partitions.push(result),
            Some(_) | None => topics.push(AlterPartitionsTopicResult {
                topic_id,
                partitions: vec![result],
            }),
        }
    }
    topics
}

/// Gives a broker a block of producer ids.
pub(crate) async fn handle_allocate_producer_ids<E: Env>(
    broker: Arc<Broker<E>>,
    _context: RequestContext,
    request: AllocateProducerIdsRequest,
) -> AllocateProducerIdsResponse {
    AllocateProducerIdsRequest::decide(&broker, &request).await
}

impl ControllerRequest for AllocateProducerIdsRequest {
    fn error_code(response: &AllocateProducerIdsResponse) -> i16 {
        response.error_code
    }

    fn leader_id(response: &AllocateProducerIdsResponse) -> i32 {
        response.leader_id
    }

    async fn decide<E: Env>(
        broker: &Arc<Broker<E>>,
        request: &Self,
    ) -> AllocateProducerIdsResponse {
        let (id, epoch) = (
            BrokerId(request.broker_id),
            BrokerEpoch(request.broker_epoch),
        );
        let decided = broker
            .cluster
            .decide(move |controller, _| controller.allocate_producer_ids(id, epoch))
            .await;
        let code = match decided {
            Ok(Ok(block)) => {
                return AllocateProducerIdsResponse {
                    error_code: ErrorCode::None.code(),
                    leader_id: leader_id(broker),
                    first: block.first.0,
                    count: block.count,
                };
            }
            Ok(Err(error)) => code_of(error.kind),
            Err(NotController) => ErrorCode::NotController,
        };
        AllocateProducerIdsResponse {
            error_code: code.code(),
            leader_id: leader_id(broker),
            ..Default::default()
        }
    }
}

/// Records what the operator knows of brokers. The operator may ask any broker; brokers ask the controller themselves.
pub(crate) async fn handle_set_broker_endpoints<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: SetBrokerEndpointsRequest,
) -> SetBrokerEndpointsResponse {
    if context.peer.is_some() {
        return SetBrokerEndpointsRequest::decide(&broker, &request).await;
    }
    let deadline = broker.env.now() + SET_ENDPOINTS_TIMEOUT;
    match broker
        .cluster
        .forward_channel
        .ask(&broker, &request, deadline)
        .await
    {
        Ok(response) => response,
        Err(error) => SetBrokerEndpointsResponse {
            error_code: error.code().code(),
            leader_id: leader_id(&broker),
            ..Default::default()
        },
    }
}

impl ControllerRequest for SetBrokerEndpointsRequest {
    fn error_code(response: &SetBrokerEndpointsResponse) -> i16 {
        response.error_code
    }

    fn leader_id(response: &SetBrokerEndpointsResponse) -> i32 {
        response.leader_id
    }

    async fn decide<E: Env>(broker: &Arc<Broker<E>>, request: &Self) -> SetBrokerEndpointsResponse {
        let failed = |code: ErrorCode| SetBrokerEndpointsResponse {
            error_code: code.code(),
            leader_id: leader_id(broker),
            ..Default::default()
        };
        let endpoints: Result<Vec<BrokerEndpoints>, ApiError> = request
            .brokers
            .iter()
            .map(|set| {
                let listeners = set.listeners.iter();
                Ok(BrokerEndpoints {
                    broker: BrokerId(set.broker_id),
                    rack: set.rack.clone(),
                    listeners: listeners
                        .map(|listener| to_listener(&listener.name, &listener.host, listener.port))
                        .collect::<Result<_, _>>()?,
                })
            })
            .collect();
        let Ok(endpoints) = endpoints else {
            return failed(ErrorCode::InvalidRequest);
        };
        let decided = broker
            .cluster
            .decide(move |controller, _| {
                let recorded = recorded_endpoints(controller.image());
                let decision = controller.set_broker_endpoints(&endpoints);
                Decision {
                    records: decision.records,
                    reply: (recorded, decision.reply),
                }
            })
            .await;
        match decided {
            Ok((recorded, results)) => SetBrokerEndpointsResponse {
                error_code: ErrorCode::None.code(),
                leader_id: leader_id(broker),
                results: request
                    .brokers
                    .iter()
                    .zip(results)
                    .map(|(set, result)| endpoint_result(set.broker_id, result))
                    .collect(),
                recorded,
            },
            Err(NotController) => failed(ErrorCode::NotController),
        }
    }
}

fn endpoint_result(broker_id: i32, result: Result<(), ApiError>) -> SetBrokerEndpointsResult {
    let (error_code, error_message) =
        result.map_or_else(code_and_message, |()| (ErrorCode::None.code(), None));
    SetBrokerEndpointsResult {
        broker_id,
        error_code,
        error_message,
    }
}

fn recorded_endpoints(image: &Image) -> Vec<RecordedEndpoints> {
    let listener = |listener: &Listener| RecordedListener {
        name: listener.name.clone(),
        host: listener.host.clone(),
        port: listener.port.into(),
    };
    image
        .all_endpoints()
        .map(|(broker, endpoints)| RecordedEndpoints {
            broker_id: broker.0,
            rack: endpoints.rack.clone(),
            listeners: endpoints.listeners.iter().map(listener).collect(),
        })
        .collect()
}
