//! From a frame to the handler of its API, and from the handler's answer to a frame.
//! Refuses what cannot be answered by closing the connection with a reason, as Kafka does.

use std::future::Future;
use std::sync::Arc;

use taffrail_protocol::api::ApiKey;
use taffrail_protocol::frame::encode_response;
use taffrail_protocol::header::RequestHeader;
use taffrail_protocol::{Message, Reader, Request};

use crate::access::Principal;
use crate::api;
use crate::broker::Broker;
use crate::cluster;
use crate::connection::{Connection, ListenerKind};
use crate::env::Env;
use crate::groups;
use crate::response::{Handled, Response};

/// What a handler may want to know about a request besides its body.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: Option<String>,
    pub(crate) listener: Arc<str>,
    pub(crate) kind: ListenerKind,
    pub(crate) host: Arc<str>,
    pub(crate) principal: Principal,
    pub(crate) peer: Option<taffrail_core::ids::BrokerId>,
    /// The process of that broker.
    pub(crate) peer_incarnation: Option<taffrail_core::ids::Incarnation>,
}

impl RequestContext {
    /// The context of what this broker asks for itself.
    pub(crate) fn of_broker(listener: &str) -> Self {
        Self {
            api: ApiKey::Forward,
            version: 0,
            correlation_id: 0,
            client_id: None,
            listener: Arc::from(listener),
            kind: ListenerKind::Internal,
            host: Arc::from("localhost"),
            principal: Principal::anonymous(),
            peer: None,
            peer_incarnation: None,
        }
    }
}

/// Handles one request frame (without length prefix).
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    connection: &mut Connection,
    frame: &mut [u8],
) -> Handled<E> {
    let (api, version, correlation_id, client_id, body) = match RequestHeader::parse(frame) {
        Ok((header, body)) => {
            let Ok(api) = ApiKey::try_from(header.api_key) else {
                return Handled::Close(format!("API key {} is not served", header.api_key));
            };
            (
                api,
                header.api_version,
                header.correlation_id,
                header.client_id.map(str::to_owned),
                body,
            )
        }
        Err(error) => return Handled::Close(format!("request header: {error}")),
    };
    if api.is_private() && connection.kind != ListenerKind::Internal {
        return Handled::Close(format!(
            "API {api:?} is private and was asked for on client listener {}",
            connection.listener
        ));
    }
    broker.metrics().request(api);
    let context = RequestContext {
        api,
        version,
        correlation_id,
        client_id,
        listener: Arc::clone(&connection.listener),
        kind: connection.kind,
        host: Arc::clone(&connection.host),
        principal: connection.principal.clone(),
        peer: connection.peer,
        peer_incarnation: connection.peer_incarnation,
    };
    if api == ApiKey::ApiVersions {
        return api::api_versions::handle(broker, &context, &frame[body..]);
    }
    if !api.is_served(version) {
        return Handled::Close(format!("API {api:?} version {version} is not served"));
    }
    let handled = match api {
        ApiKey::Produce => api::produce::handle(broker, &context, frame, body),
        ApiKey::Fetch => api::fetch::handle(broker, &context, &frame[body..]),
        ApiKey::PeerHello => cluster::handle_hello(broker, connection, &context, &frame[body..]),
        _ => route(broker, context, &frame[body..]),
    };
    if matches!(handled, Handled::Close(_)) {
        broker.metrics().request_error(api);
    }
    handled
}

/// Every API whose handler is a plain function from request to response.
fn route<E: Env>(broker: &Arc<Broker<E>>, context: RequestContext, body: &[u8]) -> Handled<E> {
    match context.api {
        ApiKey::Produce | ApiKey::Fetch | ApiKey::ApiVersions | ApiKey::PeerHello => {
            Handled::Close(format!("API {:?} was routed wrongly", context.api))
        }
        ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::EndTxn
        | ApiKey::WriteTxnMarkers
        | ApiKey::TxnOffsetCommit
        | ApiKey::DescribeProducers
        | ApiKey::DescribeTransactions
        | ApiKey::ListTransactions
        | ApiKey::ConsumerGroupHeartbeat
        | ApiKey::ConsumerGroupDescribe => {
            // Withheld: `is_served` has refused it already.
            Handled::Close(format!("API {:?} is not served", context.api))
        }
        ApiKey::Metadata => answer_later(broker, context, body, api::metadata::handle),
        ApiKey::ListOffsets => answer_later(broker, context, body, api::list_offsets::handle),
        ApiKey::OffsetForLeaderEpoch => {
            answer(broker, context, body, api::offset_for_leader_epoch::handle)
        }
        ApiKey::AlterReplicaLogDirs => {
            answer_later(broker, context, body, api::alter_replica_log_dirs::handle)
        }
        ApiKey::DescribeLogDirs => answer(broker, context, body, api::describe_log_dirs::handle),
        ApiKey::DeleteRecords => answer_later(broker, context, body, api::delete_records::handle),
        ApiKey::DescribeCluster => answer(broker, context, body, api::describe_cluster::handle),
        ApiKey::DescribeTopicPartitions => answer(
            broker,
            context,
            body,
            api::describe_topic_partitions::handle,
        ),
        ApiKey::DescribeConfigs => answer(broker, context, body, api::describe_configs::handle),
        ApiKey::DescribeQuorum => answer_later(broker, context, body, api::describe_quorum::handle),
        ApiKey::InitProducerId => {
            answer_later(broker, context, body, api::init_producer_id::handle)
        }
        ApiKey::CreateTopics => answer_later(broker, context, body, api::create_topics::handle),
        ApiKey::DeleteTopics => answer_later(broker, context, body, api::delete_topics::handle),
        ApiKey::CreatePartitions => {
            answer_later(broker, context, body, api::create_partitions::handle)
        }
        ApiKey::IncrementalAlterConfigs => answer_later(
            broker,
            context,
            body,
            api::incremental_alter_configs::handle,
        ),
        ApiKey::ElectLeaders => answer_later(broker, context, body, api::elect_leaders::handle),
        ApiKey::AlterPartitionReassignments => answer_later(
            broker,
            context,
            body,
            api::alter_partition_reassignments::handle,
        ),
        ApiKey::ListPartitionReassignments => answer_later(
            broker,
            context,
            body,
            api::list_partition_reassignments::handle,
        ),
        ApiKey::AddRaftVoter => answer_later(broker, context, body, api::raft_voters::handle_add),
        ApiKey::RemoveRaftVoter => {
            answer_later(broker, context, body, api::raft_voters::handle_remove)
        }
        ApiKey::FindCoordinator => {
            answer_later(broker, context, body, groups::find_coordinator::handle)
        }
        ApiKey::JoinGroup => answer_later(broker, context, body, groups::join_group::handle),
        ApiKey::SyncGroup => answer_later(broker, context, body, groups::sync_group::handle),
        ApiKey::Heartbeat => answer_later(broker, context, body, groups::heartbeat::handle),
        ApiKey::LeaveGroup => answer_later(broker, context, body, groups::leave_group::handle),
        ApiKey::OffsetCommit => answer_later(broker, context, body, groups::offset_commit::handle),
        ApiKey::OffsetFetch => answer_later(broker, context, body, groups::offset_fetch::handle),
        ApiKey::OffsetDelete => answer_later(broker, context, body, groups::offset_delete::handle),
        ApiKey::ListGroups => answer(broker, context, body, groups::list_groups::handle),
        ApiKey::DescribeGroups => answer(broker, context, body, groups::describe_groups::handle),
        ApiKey::DeleteGroups => answer_later(broker, context, body, groups::delete_groups::handle),
        ApiKey::RaftMessages => answer(broker, context, body, cluster::handle_raft_messages),
        ApiKey::RegisterBroker => {
            answer_later(broker, context, body, cluster::handle_register_broker)
        }
        ApiKey::BrokerHeartbeat => {
            answer_later(broker, context, body, cluster::handle_broker_heartbeat)
        }
        ApiKey::AlterPartitions => {
            answer_later(broker, context, body, cluster::handle_alter_partitions)
        }
        ApiKey::FetchMetadata => {
            answer_later(broker, context, body, cluster::handle_fetch_metadata)
        }
        ApiKey::AllocateProducerIds => {
            answer_later(broker, context, body, cluster::handle_allocate_producer_ids)
        }
        ApiKey::SetBrokerEndpoints => {
            answer_later(broker, context, body, cluster::handle_set_broker_endpoints)
        }
        ApiKey::Forward => answer_later(broker, context, body, cluster::handle_forward),
        ApiKey::VoterState => answer_later(broker, context, body, cluster::handle_voter_state),
        ApiKey::LookForBroker => {
            answer_later(broker, context, body, cluster::handle_look_for_broker)
        }
    }
}

/// Decodes, handles at once, encodes.
fn answer<E, R, F>(
    broker: &Arc<Broker<E>>,
    context: RequestContext,
    body: &[u8],
    handler: F,
) -> Handled<E>
where
    E: Env,
    R: Request,
    F: FnOnce(&Arc<Broker<E>>, &RequestContext, R) -> R::Response,
{
    match decode::<R>(&context, body) {
        Ok(request) => {
            let response = handler(broker, &context, request);
            encode(&context, &response)
        }
        Err(reason) => Handled::Close(reason),
    }
}

/// Decodes now, handles as a future, encodes when it is done.
fn answer_later<E, R, F, Fut>(
    broker: &Arc<Broker<E>>,
    context: RequestContext,
    body: &[u8],
    handler: F,
) -> Handled<E>
where
    E: Env,
    R: Request + Send + 'static,
    R::Response: Send + 'static,
    F: FnOnce(Arc<Broker<E>>, RequestContext, R) -> Fut + Send + 'static,
    Fut: Future<Output = R::Response> + Send + 'static,
{
    match decode::<R>(&context, body) {
        Ok(request) => {
            let broker = Arc::clone(broker);
            let future = Box::pin(async move {
                let response = handler(broker, context.clone(), request).await;
                encode(&context, &response)
            });
            Handled::Pending {
                future,
                read_ahead: false,
            }
        }
        Err(reason) => Handled::Close(reason),
    }
}

/// Decodes a request body; the error closes the connection, as Kafka's InvalidRequestException does.
pub(crate) fn decode<R: Request>(context: &RequestContext, body: &[u8]) -> Result<R, String> {
    R::decode(&mut Reader::new(body), context.version).map_err(|error| {
        format!(
            "{:?} request version {}: {error}",
            context.api, context.version
        )
    })
}

/// Encodes a response that has no file ranges in it.
pub(crate) fn encode<E: Env, M: Message>(context: &RequestContext, response: &M) -> Handled<E> {
    match encode_response(
        context.correlation_id,
        context.api,
        context.version,
        response,
    ) {
        Ok(writer) => Handled::Ready(Response::from(writer.buf)),
        Err(error) => Handled::Close(format!(
            "{:?} response version {}: {error}",
            context.api, context.version
        )),
    }
}
