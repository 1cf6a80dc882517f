//! DescribeConfigs: every config of a topic or of this broker, with the value that holds and where it comes from.

use std::sync::Arc;

use taffrail_core::config::{
    ConfigEntry, ConfigSource, Layers, broker_definition, describe_broker, describe_topic,
};
use taffrail_core::metadata::{ConfigResource, Image};
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::describe_configs_request::DescribeConfigsResource;
use taffrail_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use taffrail_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::topics;
use crate::access::Operation;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;

/// Kafka's `ConfigResource.Type` of a topic.
pub(crate) const TOPIC: i8 = 2;
/// Kafka's `ConfigResource.Type` of a broker; an empty name is the default of all.
pub(crate) const BROKER: i8 = 4;

type Refusal = (ErrorCode, String);

/// Answers from the committed image and this broker's configuration.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let image = broker.cluster.image();
    let shown = Shown {
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
    };
    let results = request
        .resources
        .into_iter()
        .map(
            |resource| match entries(broker, context, &image, &resource) {
                Ok(entries) => {
                    let keys = resource.configuration_keys.as_deref();
                    let wanted = |entry: &ConfigEntry| {
                        keys.is_none_or(|keys| keys.iter().any(|key| key == entry.name))
                    };
                    DescribeConfigsResult {
                        resource_type: resource.resource_type,
                        resource_name: resource.resource_name,
                        configs: entries
                            .into_iter()
                            .filter(wanted)
                            .map(|entry| shown.result(entry))
                            .collect(),
                        ..DescribeConfigsResult::default()
                    }
                }
                Err((code, message)) => DescribeConfigsResult {
                    error_code: code.code(),
                    error_message: Some(message),
                    resource_type: resource.resource_type,
                    resource_name: resource.resource_name,
                    ..DescribeConfigsResult::default()
                },
            },
        )
        .collect();
    DescribeConfigsResponse {
        results,
        ..DescribeConfigsResponse::default()
    }
}

fn entries<E: Env>(
    broker: &Broker<E>,
    context: &RequestContext,
    image: &Image,
    resource: &DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, Refusal> {
    let layers = broker.cluster.layers(image);
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        TOPIC => {
            if !topics::allows(broker, &context.principal, Operation::DescribeConfigs, name) {
                return Err((
                    ErrorCode::TopicAuthorizationFailed,
                    format!("topic {name} may not be described"),
                ));
            }
            if !topics::is_legal(name) {
                return Err((
                    ErrorCode::InvalidTopicException,
                    format!("\"{name}\" is no topic name"),
                ));
            }
            if image.topic_by_name(name).is_none() {
                return Err((
                    ErrorCode::UnknownTopicOrPartition,
                    format!("topic {name} does not exist"),
                ));
            }
            Ok(describe_topic(
                &layers,
                image.configs(&ConfigResource::Topic(name.to_owned())),
            ))
        }
        BROKER if name.is_empty() => Ok(cluster_defaults(image)),
        BROKER if name.parse() == Ok(broker.id.0) => Ok(describe_broker(&layers)),
        BROKER => Err((
            ErrorCode::InvalidRequest,
            format!(
                "this is broker {}: ask broker {name} itself for its configs",
                broker.id
            ),
        )),
        other => Err((
            ErrorCode::InvalidRequest,
            format!("resource type {other} has no configs here: 2 is a topic, 4 is a broker"),
        )),
    }
}

/// What is committed for all brokers, and nothing else: it has no file and no defaults of its own.
fn cluster_defaults(image: &Image) -> Vec<ConfigEntry> {
    let set = image.configs(&ConfigResource::Broker(None));
    let layers = Layers {
        cluster: set,
        ..Layers::none()
    };
    let is_set = |entry: &ConfigEntry| {
        broker_definition(entry.name).is_some() && set.contains_key(entry.name)
    };
    describe_broker(&layers)
        .into_iter()
        .filter(is_set)
        .map(|entry| ConfigEntry {
            synonyms: entry
                .synonyms
                .into_iter()
                .filter(|synonym| synonym.source == ConfigSource::DynamicCluster)
                .collect(),
            ..entry
        })
        .collect()
}

/// What the request wants to see of each config.
#[derive(Clone, Copy)]
struct Shown {
    synonyms: bool,
    documentation: bool,
}

impl Shown {
    fn result(self, entry: ConfigEntry) -> DescribeConfigsResourceResult {
        let synonyms = entry.synonyms.into_iter().filter(|_| self.synonyms);
        DescribeConfigsResourceResult {
            name: entry.name.to_string(),
            value: entry.value,
            read_only: entry.read_only,
            config_source: entry.source as i8,
            is_sensitive: false,
            synonyms: synonyms
                .map(|synonym| DescribeConfigsSynonym {
                    name: synonym.name,
                    value: synonym.value,
                    source: synonym.source as i8,
                })
                .collect(),
            config_type: entry.value_type as i8,
            documentation: self.documentation.then(|| entry.doc.to_string()),
        }
    }
}
