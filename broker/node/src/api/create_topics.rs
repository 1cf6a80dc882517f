//! CreateTopics: checked here and decided by the active controller; answered once committed and visible to this broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::config::{ConfigMap, check_topic, describe_topic};
use taffrail_core::controller::{CreateTopic, CreatedTopic};
use taffrail_core::error::{ApiError, ErrorKind};
use taffrail_core::ids::{BrokerId, TopicId};
use taffrail_core::metadata::Image;
use taffrail_protocol::messages::create_topics_request::CreatableTopic;
use taffrail_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use taffrail_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use taffrail_protocol::{ErrorCode, Uuid};

use super::topics;
use crate::access::Operation;
use crate::broker::Broker;
use crate::cluster::Undecided;
use crate::dispatch::RequestContext;
use crate::env::{Env, random_id};
use crate::errors::code_and_message;

/// Has the active controller create what the client may create.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    mut request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let may_create =
        |topic: &CreatableTopic| topics::may_create(&broker, &context.principal, &topic.name);
    let (allowed, refused): (Vec<_>, Vec<_>) = request.topics.into_iter().partition(may_create);
    request.topics = allowed;
    let mut response = CreateTopicsResponse::default();
    let deadline = topics::deadline(&broker, request.timeout_ms);
    if !request.topics.is_empty() {
        match broker
            .cluster
            .call_controller(&context, &request, deadline)
            .await
        {
            Ok(answer) => {
                if !request.validate_only {
                    topics::wait_until_visible(&broker, &answer, deadline).await;
                }
                response = answer;
            }
            Err(error) => {
                let code = error.code();
                let message = Some(error.to_string());
                let names = request.topics.into_iter().map(|topic| topic.name);
                response
                    .topics
                    .extend(names.map(|name| failed(name, code.code(), message.clone())));
            }
        }
    }
    let unauthorized = ErrorCode::TopicAuthorizationFailed.code();
    response.topics.extend(
        refused
            .into_iter()
            .map(|topic| failed(topic.name, unauthorized, None)),
    );
    let may_see = |name: &str| {
        topics::allows(
            &broker,
            &context.principal,
            Operation::DescribeConfigs,
            name,
        )
    };
    for topic in response
        .topics
        .iter_mut()
        .filter(|topic| !may_see(&topic.name))
    {
        topic.topic_config_error_code = unauthorized;
        topic.configs = Some(Vec::new());
        (topic.num_partitions, topic.replication_factor) = (-1, -1);
    }
    response
}

fn failed(name: String, error_code: i16, error_message: Option<String>) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code,
        error_message,
        ..CreatableTopicResult::default()
    }
}

/// What the active controller answers.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    request: CreateTopicsRequest,
) -> Result<CreateTopicsResponse, Undecided> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.clone()).or_default() += 1;
    }
    let mut results: Vec<(String, ApiError)> = Vec::new();
    let mut wanted = Vec::new();
    for topic in request.topics {
        match times.get(&topic.name) {
            Some(1) => match to_core(&broker, &topic) {
                Ok(topic) => wanted.push(topic),
                Err(error) => results.push((topic.name, error)),
            },
            // Told once for all of them.
            Some(_) => {
                let message = "The topic is named more than once in the request.";
                let name = topic.name;
                times.remove(&name);
                results.push((name, ApiError::new(ErrorKind::InvalidRequest, message)));
            }
            None => {}
        }
    }
    let topics: Vec<(String, ConfigMap)> = wanted
        .iter()
        .map(|topic| (topic.name.clone(), topic.configs.iter().cloned().collect()))
        .collect();
    let validate_only = request.validate_only;
    let (created, image) = broker
        .cluster
        .decide_for_client(move |controller, _| {
            let image = controller.image().clone();
            topics::map_reply(controller.create_topics(&wanted, validate_only), |reply| {
                (reply, image)
            })
        })
        .await?;
    let mut response = CreateTopicsResponse::default();
    for ((name, configs), result) in topics.into_iter().zip(created) {
        response.topics.push(match result {
            Ok(topic) => succeeded(&broker, &image, name, &configs, &topic, validate_only),
            Err(error) => refused(name, error),
        });
    }
    response.topics.extend(
        results
            .into_iter()
            .map(|(name, error)| refused(name, error)),
    );
    Ok(response)
}

type Checked = Result<CreateTopic, ApiError>;

fn refused(name: String, error: ApiError) -> CreatableTopicResult {
    let (code, message) = code_and_message(error);
    failed(name, code, message)
}

/// What was created, with every config that holds for it.
fn succeeded<E: Env>(
    broker: &Broker<E>,
    image: &Image,
    name: String,
    configs: &ConfigMap,
    topic: &CreatedTopic,
    validate_only: bool,
) -> CreatableTopicResult {
    let entries = describe_topic(&broker.cluster.layers(image), configs);
    let config = |entry: taffrail_core::config::ConfigEntry| CreatableTopicConfigs {
        name: entry.name.to_string(),
        value: entry.value,
        read_only: entry.read_only,
        config_source: entry.source as i8,
        is_sensitive: false,
    };
    CreatableTopicResult {
        name,
        topic_id: if validate_only {
            Uuid::default()
        } else {
            Uuid(topic.topic_id.0)
        },
        num_partitions: topic.partitions,
        replication_factor: topic.replication_factor,
        configs: Some(entries.into_iter().map(config).collect()),
        ..CreatableTopicResult::default()
    }
}

fn to_core<E: Env>(broker: &Broker<E>, topic: &CreatableTopic) -> Checked {
    let mut configs = ConfigMap::new();
    for config in &topic.configs {
        let Some(value) = &config.value else {
            let message = format!("Config {} has no value.", config.name);
            return Err(ApiError::new(ErrorKind::InvalidConfig, message));
        };
        configs.insert(config.name.clone(), value.clone());
    }
    check_topic(&configs)
        .map_err(|errors| ApiError::new(ErrorKind::InvalidConfig, errors.to_string()))?;
    let assignments = topic.assignments.iter();
    let assignments = assignments.map(|assigned| {
        (
            assigned.partition_index,
            assigned.broker_ids.iter().copied().map(BrokerId).collect(),
        )
    });
    // Placement takes them modulo the number of brokers.
    let drawn = || usize::try_from(broker.env.random() >> 32).unwrap_or(0);
    Ok(CreateTopic {
        name: topic.name.clone(),
        topic_id: TopicId(random_id(&broker.env)),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        configs: configs.into_iter().collect(),
        start: drawn(),
        shift: drawn(),
    })
}
