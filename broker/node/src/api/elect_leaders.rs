//! ElectLeaders: preferred replicas lead again, or any replica where nobody leads (KIP-460).

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::controller::{ElectionType, LeaderElections};
use taffrail_core::ids::{TopicId, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::elect_leaders_request::TopicPartitions;
use taffrail_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use taffrail_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};

use super::topics;
use crate::broker::Broker;
use crate::cluster::Undecided;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_and_message;

/// Has the active controller elect.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let named = request.topic_partitions.iter().flatten();
    let count = named.map(|topic| topic.partitions.len()).sum();
    let mut response = match topics::check_count(count) {
        Ok(()) => {
            let deadline = topics::deadline(&broker, request.timeout_ms);
            let answer = broker
                .cluster
                .call_controller(&context, &request, deadline)
                .await;
            answer.unwrap_or_else(|error| failed(request, error.code(), Some(&error.to_string())))
        }
        // The answer has no room for a reason but beside each of the partitions.
        Err(_) => failed(request, ErrorCode::InvalidRequest, None),
    };
    if context.version == 0 {
        response.error_code = ErrorCode::None.code();
    }
    response
}

/// One error for all: on top, which version 0 does not have, and on each partition named.
fn failed(
    request: ElectLeadersRequest,
    code: ErrorCode,
    message: Option<&str>,
) -> ElectLeadersResponse {
    let topics = request.topic_partitions.into_iter().flatten();
    ElectLeadersResponse {
        error_code: code.code(),
        replica_election_results: topics
            .map(|topic| refused(topic.topic, topic.partitions, code, message))
            .collect(),
        ..ElectLeadersResponse::default()
    }
}

fn refused(
    topic: String,
    partitions: Vec<i32>,
    code: ErrorCode,
    message: Option<&str>,
) -> ReplicaElectionResult {
    let result = |partition_id| PartitionResult {
        partition_id,
        error_code: code.code(),
        error_message: message.map(str::to_owned),
    };
    ReplicaElectionResult {
        topic,
        partition_result: partitions.into_iter().map(result).collect(),
    }
}

/// What the active controller answers.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    request: ElectLeadersRequest,
) -> Result<ElectLeadersResponse, Undecided> {
    let election = match request.election_type {
        0 => ElectionType::Preferred,
        1 => ElectionType::Unclean,
        other => {
            let message =
                format!("Election type {other} is unknown: 0 is preferred, 1 is unclean.");
            return Ok(failed(request, ErrorCode::InvalidRequest, Some(&message)));
        }
    };
    let replica_election_results = broker
        .cluster
        .decide_for_client(move |controller, _| {
            let image = controller.image();
            let (known, mut results) = match request.topic_partitions {
                Some(named) => {
                    let (known, unknown) = resolve(image, named);
                    (Some(known), unknown)
                }
                None => (None, Vec::new()),
            };
            let decision = controller.elect_leaders(election, known.as_deref());
            topics::map_reply(decision, |elections| {
                results.extend(by_topic(image, elections));
                results
            })
        })
        .await?;
    Ok(ElectLeadersResponse {
        replica_election_results,
        ..ElectLeadersResponse::default()
    })
}

/// The partitions of topics that exist, by id; and the results of those that do not.
fn resolve(
    image: &Image,
    named: Vec<TopicPartitions>,
) -> (Vec<TopicPartition>, Vec<ReplicaElectionResult>) {
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for TopicPartitions { topic, partitions } in named {
        match image.topic_by_name(&topic) {
            Some(topic) => {
                let ids = partitions.into_iter();
                known.extend(ids.map(|partition| TopicPartition::new(topic.id, partition)));
            }
            None => {
                let code = ErrorCode::UnknownTopicOrPartition;
                unknown.push(refused(topic, partitions, code, None));
            }
        }
    }
    (known, unknown)
}

fn by_topic(image: &Image, elections: LeaderElections) -> Vec<ReplicaElectionResult> {
    let mut topics: BTreeMap<TopicId, Vec<PartitionResult>> = BTreeMap::new();
    for (id, result) in elections {
        let (error_code, error_message) =
            result.map_or_else(code_and_message, |()| (ErrorCode::None.code(), None));
        topics
            .entry(id.topic_id)
            .or_default()
            .push(PartitionResult {
                partition_id: id.partition,
                error_code,
                error_message,
            });
    }
    let results = topics
        .into_iter()
        .map(|(id, partition_result)| ReplicaElectionResult {
            topic: topics::name_of(image, id),
            partition_result,
        });
    results.collect()
}
