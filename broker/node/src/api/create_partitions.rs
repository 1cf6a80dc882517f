//! CreatePartitions: more partitions for a topic, placed on from its first; decided by the active controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::controller::CreatePartitions;
use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::Image;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use taffrail_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use taffrail_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::topics;
use crate::access::Operation;
use crate::broker::Broker;
use crate::cluster::Undecided;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_and_message;

/// Has the active controller add what the client may add. There is one result for each topic of the request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    mut request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let may_alter = |topic: &CreatePartitionsTopic| {
        topics::allows(&broker, &context.principal, Operation::Alter, &topic.name)
    };
    let (allowed, refused): (Vec<_>, Vec<_>) = request.topics.into_iter().partition(may_alter);
    request.topics = allowed;
    let mut response = CreatePartitionsResponse::default();
    let deadline = topics::deadline(&broker, request.timeout_ms);
    if !request.topics.is_empty() {
        match broker
            .cluster
            .call_controller(&context, &request, deadline)
            .await
        {
            Ok(answer) => {
                if !request.validate_only {
                    let asked: BTreeMap<&str, i32> = request
                        .topics
                        .iter()
                        .map(|topic| (topic.name.as_str(), topic.count))
                        .collect();
                    let grown = |image: &Image| {
                        let mut results = answer.results.iter();
                        results.all(|result| is_grown(image, &asked, result))
                    };
                    broker.cluster.wait_for_image(deadline, grown).await;
                }
                response = answer;
            }
            Err(error) => {
                let (code, message) = (error.code().code(), Some(error.to_string()));
                let names = request.topics.into_iter().map(|topic| topic.name);
                response
                    .results
                    .extend(names.map(|name| failed(name, code, message.clone())));
            }
        }
    }
    let unauthorized = ErrorCode::TopicAuthorizationFailed.code();
    response.results.extend(
        refused
            .into_iter()
            .map(|topic| failed(topic.name, unauthorized, None)),
    );
    response
}

/// Whether an image shows what a result says. A topic that is gone meanwhile is not waited for.
fn is_grown(
    image: &Image,
    asked: &BTreeMap<&str, i32>,
    result: &CreatePartitionsTopicResult,
) -> bool {
    let count = asked.get(result.name.as_str()).copied().unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(0);
    let there = image
        .topic_by_name(&result.name)
        .map(|topic| topic.partitions.len());
    result.error_code != ErrorCode::None.code() || there.is_none_or(|there| there >= count)
}

fn failed(
    name: String,
    error_code: i16,
    error_message: Option<String>,
) -> CreatePartitionsTopicResult {
    CreatePartitionsTopicResult {
        name,
        error_code,
        error_message,
    }
}

/// What the active controller answers.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    request: CreatePartitionsRequest,
) -> Result<CreatePartitionsResponse, Undecided> {
    let names: Vec<String> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let wanted: Vec<CreatePartitions> = request.topics.into_iter().map(to_core).collect();
    let validate_only = request.validate_only;
    let results = broker
        .cluster
        .decide_for_client(move |controller, _| {
            controller.create_partitions(&wanted, validate_only)
        })
        .await?;
    let results = names.into_iter().zip(results).map(|(name, result)| {
        let (code, message) =
            result.map_or_else(code_and_message, |()| (ErrorCode::None.code(), None));
        failed(name, code, message)
    });
    Ok(CreatePartitionsResponse {
        results: results.collect(),
        ..CreatePartitionsResponse::default()
    })
}

fn to_core(topic: CreatePartitionsTopic) -> CreatePartitions {
    let replicas = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
    CreatePartitions {
        topic: topic.name,
        count: topic.count,
        assignments: topic.assignments.map(|assignments| {
            assignments
                .into_iter()
                .map(|assigned| replicas(assigned.broker_ids))
                .collect()
        }),
    }
}
