//! AlterPartitionReassignments: partitions move to other replicas, or a move is cancelled (KIP-455).

use std::sync::Arc;

use taffrail_core::controller::Reassignment;
use taffrail_core::error::{ApiError, ErrorKind};
use taffrail_core::ids::{BrokerId, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use taffrail_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};

use super::topics;
use crate::broker::Broker;
use crate::cluster::Undecided;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_and_message;

/// Has the active controller begin or cancel moves.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let count = request.topics.iter().map(|topic| topic.partitions.len());
    if let Err(error) = topics::check_count(count.sum()) {
        let (error_code, error_message) = code_and_message(error);
        return AlterPartitionReassignmentsResponse {
            error_code,
            error_message,
            ..AlterPartitionReassignmentsResponse::default()
        };
    }
    let deadline = topics::deadline(&broker, request.timeout_ms);
    let (index, _) = broker.cluster.indexed_image();
    match broker
        .cluster
        .call_controller(&context, &request, deadline)
        .await
    {
        Ok(answer) => {
            topics::wait_for_news(&broker, index).await;
            answer
        }
        Err(error) => AlterPartitionReassignmentsResponse {
            error_code: error.code().code(),
            error_message: Some(error.to_string()),
            ..AlterPartitionReassignmentsResponse::default()
        },
    }
}

/// What the active controller answers.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    request: AlterPartitionReassignmentsRequest,
) -> Result<AlterPartitionReassignmentsResponse, Undecided> {
    let asked = request.clone();
    let results = broker
        .cluster
        .decide_for_client(move |controller, _| {
            let translated = translate(controller.image(), &asked);
            let wanted: Vec<Reassignment> = translated.iter().flatten().cloned().collect();
            topics::map_reply(controller.reassign_partitions(&wanted), |reply| {
                let mut decided = reply.into_iter();
                let missing = || Err(ErrorKind::UnknownServerError.into());
                let result = |translated: Result<Reassignment, ApiError>| {
                    translated.and_then(|_| decided.next().unwrap_or_else(missing))
                };
                translated.into_iter().map(result).collect::<Vec<_>>()
            })
        })
        .await?;
    let mut results = results.into_iter();
    let mut next = |partition_index: i32| {
        let result = results
            .next()
            .unwrap_or_else(|| Err(ErrorKind::UnknownServerError.into()));
        let (error_code, error_message) =
            result.map_or_else(code_and_message, |()| (ErrorCode::None.code(), None));
        ReassignablePartitionResponse {
            partition_index,
            error_code,
            error_message,
        }
    };
    let responses = request
        .topics
        .into_iter()
        .map(|topic| ReassignableTopicResponse {
            name: topic.name,
            partitions: topic
                .partitions
                .into_iter()
                .map(|partition| next(partition.partition_index))
                .collect(),
        });
    Ok(AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        responses: responses.collect(),
        ..AlterPartitionReassignmentsResponse::default()
    })
}

/// One reassignment, or the reason why it cannot be one, for each partition in order.
fn translate(
    image: &Image,
    request: &AlterPartitionReassignmentsRequest,
) -> Vec<Result<Reassignment, ApiError>> {
    let mut translated = Vec::new();
    for topic in &request.topics {
        let known = image.topic_by_name(&topic.name);
        for partition in &topic.partitions {
            let replicas: Option<Vec<BrokerId>> = partition
                .replicas
                .as_ref()
                .map(|ids| ids.iter().copied().map(BrokerId).collect());
            translated.push(match known {
                None => Err(ErrorKind::UnknownTopicOrPartition.into()),
                Some(known) => {
                    let id = TopicPartition::new(known.id, partition.partition_index);
                    check_factor(
                        image,
                        id,
                        replicas.as_deref(),
                        request.allow_replication_factor_change,
                    )
                    .map(|()| Reassignment {
                        partition: id,
                        replicas,
                    })
                }
            });
        }
    }
    translated
}

/// A client may ask that a move leaves the replication factor as it is (KIP-860).
fn check_factor(
    image: &Image,
    partition: TopicPartition,
    replicas: Option<&[BrokerId]>,
    may_change: bool,
) -> Result<(), ApiError> {
    let factor = image
        .partition(partition)
        .map(|state| state.target_replicas().len());
    match (factor, replicas) {
        (Some(factor), Some(replicas)) if !may_change && replicas.len() != factor => {
            Err(ApiError::new(
                ErrorKind::InvalidReplicationFactor,
                format!(
                    "The partition has {factor} replicas and the request would give it {}.",
                    replicas.len()
                ),
            ))
        }
        _ => Ok(()),
    }
}
