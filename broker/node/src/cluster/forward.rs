//! Requests of clients that only the active controller may answer. Whichever broker a client asks carries the request
//! there, and the answer back; the controller's own clients take the same way without a connection.

use std::sync::Arc;

use taffrail_core::time::Instant;
use taffrail_protocol::messages::{ForwardRequest, ForwardResponse};
use taffrail_protocol::{ApiKey, ErrorCode, Message, Reader, Request, Writer};

use super::controller_channel::{ClusterError, ControllerRequest};
use super::quorum::Undecided;
use crate::access::{Resource, access_of};
use crate::api;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;

/// API key and version stand in front of the body of a forwarded request.
const HEADER_SIZE: usize = 4;

/// Has the active controller answer `request`, in the version that `context` names, if whoever asks may. What concerns topics was
/// asked about each of them before.
pub(super) async fn call<E, R>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: &R,
    version: i16,
    deadline: Instant,
) -> Result<R::Response, ClusterError>
where
    E: Env,
    R: Request,
{
    let access = access_of(context.api);
    if access.resource == Resource::Cluster
        && !broker.authorizer.allows(&context.principal, access, "")
    {
        return Err(ClusterError::Refused(ErrorCode::ClusterAuthorizationFailed));
    }
    let malformed = |error: &dyn std::fmt::Display| ClusterError::Malformed(error.to_string());
    let mut body = Writer::new();
    body.i16(R::API_KEY);
    body.i16(version);
    request
        .encode(&mut body, version)
        .map_err(|error| malformed(&error))?;
    let forward = ForwardRequest {
        principal: context.principal.to_string(),
        client_id: context.client_id.clone(),
        listener: context.listener.to_string(),
        request: body.buf,
    };
    let response = broker
        .cluster
        .forward_channel
        .ask(broker, &forward, deadline)
        .await?;
    if response.error_code == Undecided::TooLarge.code().code() {
        return Err(ClusterError::Undecided(Undecided::TooLarge));
    }
    if response.error_code != ErrorCode::None.code() {
        let code =
            ErrorCode::try_from(response.error_code).unwrap_or(ErrorCode::UnknownServerError);
        return Err(ClusterError::Refused(code));
    }
    R::Response::decode(&mut Reader::new(&response.response), version)
        .map_err(|error| malformed(&error))
}

impl ControllerRequest for ForwardRequest {
    fn error_code(response: &ForwardResponse) -> i16 {
        response.error_code
    }

    fn leader_id(response: &ForwardResponse) -> i32 {
        response.leader_id
    }

    async fn decide<E: Env>(broker: &Arc<Broker<E>>, request: &Self) -> ForwardResponse {
        match execute(broker, &request.request).await {
            Ok(response) => ForwardResponse {
                response,
                ..ForwardResponse::default()
            },
            Err(code) => ForwardResponse {
                error_code: code.code(),
                leader_id: broker.cluster.controller_id().map_or(-1, |id| id.0),
                ..ForwardResponse::default()
            },
        }
    }
}

/// Answers a forwarded request of another broker.
pub(crate) async fn handle_forward<E: Env>(
    broker: Arc<Broker<E>>,
    _context: RequestContext,
    request: ForwardRequest,
) -> ForwardResponse {
    ForwardRequest::decide(&broker, &request).await
}

/// Decodes a request, has the controller decide it, encodes the response.
async fn execute<E: Env>(broker: &Arc<Broker<E>>, request: &[u8]) -> Result<Vec<u8>, ErrorCode> {
    let mut header = Reader::new(request);
    let (Ok(api_key), Ok(version)) = (header.i16(), header.i16()) else {
        return Err(ErrorCode::InvalidRequest);
    };
    let api = ApiKey::try_from(api_key).map_err(|_| ErrorCode::UnsupportedVersion)?;
    if !api.is_served(version) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let body = &request[HEADER_SIZE..];
    let broker = Arc::clone(broker);
    match api {
        ApiKey::CreateTopics => run(broker, version, body, api::create_topics::decide).await,
        ApiKey::DeleteTopics => run(broker, version, body, api::delete_topics::decide).await,
        ApiKey::CreatePartitions => {
            run(broker, version, body, api::create_partitions::decide).await
        }
        ApiKey::IncrementalAlterConfigs => {
            run(
                broker,
                version,
                body,
                api::incremental_alter_configs::decide,
            )
            .await
        }
        ApiKey::ElectLeaders => run(broker, version, body, api::elect_leaders::decide).await,
        ApiKey::AlterPartitionReassignments => {
            run(
                broker,
                version,
                body,
                api::alter_partition_reassignments::decide,
            )
            .await
        }
        ApiKey::ListPartitionReassignments => {
            run(
                broker,
                version,
                body,
                api::list_partition_reassignments::decide,
            )
            .await
        }
        ApiKey::DescribeQuorum => {
            run(broker, version, body, |broker, request| {
                api::describe_quorum::decide(broker, version, request)
            })
            .await
        }
        ApiKey::AddRaftVoter => run(broker, version, body, api::raft_voters::decide_add).await,
        ApiKey::RemoveRaftVoter => {
            run(broker, version, body, api::raft_voters::decide_remove).await
        }
        // Any broker answers these, or only brokers ask them.
        ApiKey::Produce
        | ApiKey::Fetch
        | ApiKey::ListOffsets
        | ApiKey::Metadata
        | ApiKey::OffsetCommit
        | ApiKey::OffsetFetch
        | ApiKey::FindCoordinator
        | ApiKey::JoinGroup
        | ApiKey::Heartbeat
        | ApiKey::LeaveGroup
        | ApiKey::SyncGroup
        | ApiKey::DescribeGroups
        | ApiKey::ListGroups
        | ApiKey::ApiVersions
        | ApiKey::DeleteRecords
        | ApiKey::InitProducerId
        | ApiKey::OffsetForLeaderEpoch
        | ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::EndTxn
        | ApiKey::WriteTxnMarkers
        | ApiKey::TxnOffsetCommit
        | ApiKey::DescribeConfigs
        | ApiKey::AlterReplicaLogDirs
        | ApiKey::DescribeLogDirs
        | ApiKey::DeleteGroups
        | ApiKey::OffsetDelete
        | ApiKey::DescribeCluster
        | ApiKey::DescribeProducers
        | ApiKey::DescribeTransactions
        | ApiKey::ListTransactions
        | ApiKey::ConsumerGroupHeartbeat
        | ApiKey::ConsumerGroupDescribe
        | ApiKey::DescribeTopicPartitions
        | ApiKey::PeerHello
        | ApiKey::RaftMessages
        | ApiKey::RegisterBroker
        | ApiKey::BrokerHeartbeat
        | ApiKey::AlterPartitions
        | ApiKey::FetchMetadata
        | ApiKey::AllocateProducerIds
        | ApiKey::SetBrokerEndpoints
        | ApiKey::Forward
        | ApiKey::LookForBroker
        | ApiKey::VoterState => Err(ErrorCode::InvalidRequest),
    }
}

async fn run<E, R, F, Fut>(
    broker: Arc<Broker<E>>,
    version: i16,
    body: &[u8],
    decide: F,
) -> Result<Vec<u8>, ErrorCode>
where
    E: Env,
    R: Request,
    F: FnOnce(Arc<Broker<E>>, R) -> Fut,
    Fut: Future<Output = Result<R::Response, Undecided>>,
{
    let request =
        R::decode(&mut Reader::new(body), version).map_err(|_| ErrorCode::InvalidRequest)?;
    let response = decide(broker, request).await.map_err(Undecided::code)?;
    let mut out = Writer::new();
    response.encode(&mut out, version).map_err(|error| {
        tracing::error!(%error, "the answer to a forwarded request cannot be written");
        ErrorCode::UnknownServerError
    })?;
    Ok(out.buf)
}
