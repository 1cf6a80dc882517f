//! DescribeConfigs: every config of a topic or of this broker, with the value that holds and where it comes from.

use std::collections::BTreeSet;
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

/// So many resources are described in one answer. A broker takes about 20 KB of it and a topic 10 KB, so that is 100 MB where
/// every config is asked for; tools that look at all topics ask for a few thousand at a time.
const RESOURCES_MAX: usize = 10_000;

type Refusal = (ErrorCode, String);

/// Answers from the committed image and this broker's configuration. A resource that is named more than once is described
/// once, where it is named first: its name is a few bytes, and what there is to say of it thousands.
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
    let mut described = BTreeSet::new();
    let results = request
        .resources
        .into_iter()
        .filter(|resource| described.insert((resource.resource_type, identity(resource))))
        .enumerate()
        .map(|(index, resource)| {
            let entries = if index < RESOURCES_MAX {
                entries(broker, context, &image, &resource)
            } else {
                Err(too_many())
            };
            result(resource, entries, shown)
        })
        .collect();
    DescribeConfigsResponse {
        results,
        ..DescribeConfigsResponse::default()
    }
}

/// What tells resources apart. A number says the same with zeros in front of it.
fn identity(resource: &DescribeConfigsResource) -> Identity {
    match resource.resource_name.parse() {
        Ok(number) if resource.resource_type == BROKER => Identity::Broker(number),
        Ok(_) | Err(_) => Identity::Named(resource.resource_name.clone()),
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    Broker(i32),
    Named(String),
}

fn too_many() -> Refusal {
    let message =
        format!("a request describes at most {RESOURCES_MAX} resources: ask again for this one");
    (ErrorCode::PolicyViolation, message)
}

fn result(
    resource: DescribeConfigsResource,
    entries: Result<Vec<ConfigEntry>, Refusal>,
    shown: Shown,
) -> DescribeConfigsResult {
    let (configs, error_code, error_message) = match entries {
        Ok(entries) => {
            let keys = resource.configuration_keys;
            let keys: Option<BTreeSet<String>> = keys.map(BTreeSet::from_iter);
            let wanted = |entry: &ConfigEntry| {
                let keys = keys.as_ref();
                keys.is_none_or(|keys| keys.contains(entry.name))
            };
            let wanted = entries.into_iter().filter(wanted);
            let configs = wanted.map(|entry| shown.result(entry)).collect();
            (configs, ErrorCode::None, None)
        }
        Err((code, message)) => (Vec::new(), code, Some(message)),
    };
    DescribeConfigsResult {
        error_code: error_code.code(),
        error_message,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
        configs,
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
