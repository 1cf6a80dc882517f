//! ElectLeaders: preferred replicas lead again, or any replica where nobody leads (KIP-460).

use std::sync::Arc;

use taffrail_core::controller::ElectionType;
use taffrail_core::error::{ApiError, ErrorKind};
use taffrail_core::ids::TopicPartition;
use taffrail_core::metadata::Image;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use taffrail_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};

use super::topics;
use crate::broker::Broker;
use crate::cluster::NotController;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_and_message;

/// A partition as requests and responses name it.
type Named = (String, i32);

/// Has the active controller elect.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let deadline = topics::deadline(&broker, request.timeout_ms);
    match broker
        .cluster
        .call_controller(&context, &request, deadline)
        .await
    {
        Ok(answer) => answer,
        Err(error) => {
            let mut response = failed(&request, error.code(), &error.to_string());
            if context.version == 0 {
                response.error_code = ErrorCode::None.code();
            }
            response
        }
    }
}

/// One error for all: on top, which version 0 does not have, and on each partition named.
fn failed(request: &ElectLeadersRequest, code: ErrorCode, message: &str) -> ElectLeadersResponse {
    let named = named(request).unwrap_or_default();
    let result = |name: Named| (name, (code.code(), Some(message.to_owned())));
    ElectLeadersResponse {
        error_code: code.code(),
        replica_election_results: by_topic(named.into_iter().map(result)),
        ..ElectLeadersResponse::default()
    }
}

fn named(request: &ElectLeadersRequest) -> Option<Vec<Named>> {
    let topics = request.topic_partitions.as_ref()?;
    let partitions = topics.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|partition| (topic.topic.clone(), *partition))
    });
    Some(partitions.collect())
}

/// What the active controller answers.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    request: ElectLeadersRequest,
) -> Result<ElectLeadersResponse, NotController> {
    let election = match request.election_type {
        0 => ElectionType::Preferred,
        1 => ElectionType::Unclean,
        other => {
            let message =
                format!("Election type {other} is unknown: 0 is preferred, 1 is unclean.");
            return Ok(failed(&request, ErrorCode::InvalidRequest, &message));
        }
    };
    let named = named(&request);
    let (results, unknown) = broker
        .cluster
        .decide(move |controller, _| {
            let image = controller.image();
            let (known, unknown) = match &named {
                Some(named) => {
                    let (known, unknown) = resolve(image, named);
                    (Some(known), unknown)
                }
                None => (None, Vec::new()),
            };
            let name = |id: TopicPartition| (topics::name_of(image, id.topic_id), id.partition);
            let decision = controller.elect_leaders(election, known.as_deref());
            let names: Vec<Named> = decision.reply.iter().map(|(id, _)| name(*id)).collect();
            topics::map_reply(decision, |reply| {
                let results: Vec<(Named, Result<(), ApiError>)> = names
                    .into_iter()
                    .zip(reply.into_iter().map(|(_, result)| result))
                    .collect();
                (results, unknown)
            })
        })
        .await?;
    let absent = || ApiError::from(ErrorKind::UnknownTopicOrPartition);
    let unknown = unknown
        .into_iter()
        .map(|name| (name, code_and_message(absent())));
    let decided = results.into_iter().map(|(name, result)| {
        (
            name,
            result.map_or_else(code_and_message, |()| (ErrorCode::None.code(), None)),
        )
    });
    Ok(ElectLeadersResponse {
        replica_election_results: by_topic(decided.chain(unknown)),
        ..ElectLeadersResponse::default()
    })
}

/// The partitions of topics that exist, by id; and those of topics that do not.
fn resolve(image: &Image, named: &[Named]) -> (Vec<TopicPartition>, Vec<Named>) {
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for (name, partition) in named {
        match image.topic_by_name(name) {
            Some(topic) => known.push(TopicPartition::new(topic.id, *partition)),
            None => unknown.push((name.clone(), *partition)),
        }
    }
    (known, unknown)
}

fn by_topic(
    results: impl Iterator<Item = (Named, (i16, Option<String>))>,
) -> Vec<ReplicaElectionResult> {
    let mut topics: Vec<ReplicaElectionResult> = Vec::new();
    for ((topic, partition_id), (error_code, error_message)) in results {
        let result = PartitionResult {
            partition_id,
            error_code,
            error_message,
        };
        match topics.iter_mut().find(|known| known.topic == topic) {
            Some(known) => known.partition_result.push(result),
            None => topics.push(ReplicaElectionResult {
                topic,
                partition_result: vec![result],
            }),
        }
    }
    topics
}
