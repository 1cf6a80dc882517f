//! IncrementalAlterConfigs: configs of topics and brokers are set, removed, appended to, subtracted from (KIP-339).

use std::collections::BTreeMap;
use std::sync::Arc;

use taffrail_core::config::{
    ConfigErrors, ConfigMap, Layers, ValueType, broker_definition, check_broker_dynamic,
    check_topic, describe_broker, describe_topic, topic_definition,
};
use taffrail_core::controller::{
    AlterConfigs, ConfigChange, ConfigOperation, ConfigRules, Controller, Decision,
};
use taffrail_core::error::{ApiError, ErrorKind};
use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::ConfigResource;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use taffrail_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use taffrail_protocol::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::describe_configs::{BROKER, TOPIC};
use super::topics;
use crate::access::{Access, Operation, Resource};
use crate::broker::Broker;
use crate::cluster::Undecided;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_and_message;

/// The request names no timeout; Kafka's clients give up after 30 seconds by themselves.
const TIMEOUT_MS: i32 = 30_000;

/// Has the active controller change what the client may change.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    mut request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let may_alter = |resource: &AlterConfigsResource| match resource.resource_type {
        TOPIC => topics::allows(
            &broker,
            &context.principal,
            Operation::AlterConfigs,
            &resource.resource_name,
        ),
        _ => {
            let access = Access {
                resource: Resource::Cluster,
                operation: Operation::AlterConfigs,
            };
            broker.authorizer.allows(&context.principal, access, "")
        }
    };
    let (allowed, refused): (Vec<_>, Vec<_>) = request.resources.into_iter().partition(may_alter);
    request.resources = allowed;
    let mut response = IncrementalAlterConfigsResponse::default();
    let deadline = topics::deadline(&broker, TIMEOUT_MS);
    if !request.resources.is_empty() {
        let (index, _) = broker.cluster.indexed_image();
        match broker
            .cluster
            .call_controller(&context, &request, deadline)
            .await
        {
            Ok(answer) => {
                if !request.validate_only {
                    topics::wait_for_news(&broker, index).await;
                }
                response = answer;
            }
            Err(error) => {
                let (code, message) = (error.code().code(), Some(error.to_string()));
                let failed = request
                    .resources
                    .into_iter()
                    .map(|resource| result(resource, code, message.clone()));
                response.responses.extend(failed);
            }
        }
    }
    response
        .responses
        .extend(refused.into_iter().map(|resource| {
            let of_topic = resource.resource_type == TOPIC;
            let code = if of_topic {
                ErrorCode::TopicAuthorizationFailed
            } else {
                ErrorCode::ClusterAuthorizationFailed
            };
            result(resource, code.code(), None)
        }));
    response
}

fn result(
    resource: AlterConfigsResource,
    error_code: i16,
    error_message: Option<String>,
) -> AlterConfigsResourceResponse {
    AlterConfigsResourceResponse {
        error_code,
        error_message,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
    }
}

/// What the active controller answers.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    request: IncrementalAlterConfigsRequest,
) -> Result<IncrementalAlterConfigsResponse, Undecided> {
    let translated: Vec<Result<AlterConfigs, ApiError>> =
        request.resources.iter().map(to_core).collect();
    let wanted: Vec<AlterConfigs> = translated.iter().flatten().cloned().collect();
    let validate_only = request.validate_only;
    let rules_of = Arc::clone(&broker);
    let decided = broker
        .cluster
        .decide_for_client(move |controller, _| {
            alter(&rules_of, controller, &wanted, validate_only)
        })
        .await?;
    let mut decided = decided.into_iter();
    let responses = request
        .resources
        .into_iter()
        .zip(translated)
        .map(|(resource, translated)| {
            let altered = translated.and_then(|_| {
                decided
                    .next()
                    .unwrap_or_else(|| Err(ErrorKind::UnknownServerError.into()))
            });
            let (code, message) =
                altered.map_or_else(code_and_message, |()| (ErrorCode::None.code(), None));
            result(resource, code, message)
        });
    Ok(IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..Default::default()
    })
}

fn alter<E: Env>(
    broker: &Broker<E>,
    controller: &Controller,
    wanted: &[AlterConfigs],
    validate_only: bool,
) -> Decision<Vec<Result<(), ApiError>>> {
    let layers = broker.cluster.layers(controller.image());
    let rules = ConfigRules {
        is_list: &is_list,
        default: &|resource, name| default(&layers, resource, name),
        check: &check,
    };
    controller.alter_configs(wanted, &rules, validate_only)
}

fn is_list(resource: &ConfigResource, name: &str) -> bool {
    let definition = match resource {
        ConfigResource::Topic(_) => topic_definition(name),
        ConfigResource::Broker(_) => broker_definition(name),
    };
    definition.is_some_and(|definition| definition.value_type == ValueType::List)
}

/// The value that a resource has without setting any.
fn default(layers: &Layers<'_>, resource: &ConfigResource, name: &str) -> Option<String> {
    let entries = match resource {
        ConfigResource::Topic(_) => describe_topic(layers, &ConfigMap::new()),
        ConfigResource::Broker(_) => describe_broker(&Layers::of_file(layers.file)),
    };
    entries.into_iter().find(|entry| entry.name == name)?.value
}

fn check(resource: &ConfigResource, configs: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let errors = match resource {
        ConfigResource::Topic(_) => check_topic(configs).err(),
        ConfigResource::Broker(broker) => {
            let check = |(name, value): (&String, &String)| {
                check_broker_dynamic(name, value, broker.is_some()).err()
            };
            let errors: Vec<_> = configs.iter().filter_map(check).collect();
            (!errors.is_empty()).then_some(ConfigErrors(errors))
        }
    };
    errors.map_or(Ok(()), |errors| {
        Err(ApiError::new(ErrorKind::InvalidConfig, errors.to_string()))
    })
}

fn to_core(resource: &AlterConfigsResource) -> Result<AlterConfigs, ApiError> {
    let name = &resource.resource_name;
    let refuse = |message: String| ApiError::new(ErrorKind::InvalidRequest, message);
    let to = match resource.resource_type {
        TOPIC => ConfigResource::Topic(name.clone()),
        BROKER if name.is_empty() => ConfigResource::Broker(None),
        BROKER => {
            let id = name
                .parse()
                .map_err(|_| refuse(format!("\"{name}\" is no broker id.")))?;
            ConfigResource::Broker(Some(BrokerId(id)))
        }
        other => {
            let message =
                format!("Resource type {other} has no configs here: 2 is a topic, 4 is a broker.");
            return Err(refuse(message));
        }
    };
    let changes = resource
        .configs
        .iter()
        .map(change)
        .collect::<Result<_, _>>()?;
    Ok(AlterConfigs {
        resource: to,
        changes,
    })
}

/// A change, by the numbers of Kafka's `AlterConfigOp.OpType`.
fn change(config: &AlterableConfig) -> Result<ConfigChange, ApiError> {
    let name = config.name.clone();
    let operation = match (config.config_operation, config.value.clone()) {
        (1, _) => ConfigOperation::Delete,
        (0, Some(value)) => ConfigOperation::Set(value),
        (2, Some(value)) => ConfigOperation::Append(value),
        (3, Some(value)) => ConfigOperation::Subtract(value),
        (0 | 2 | 3, None) => {
            return Err(ApiError::new(
                ErrorKind::InvalidRequest,
                format!("Config {name} has no value."),
            ));
        }
        (other, _) => {
            let message = format!("Config {name} has the unknown operation {other}.");
            return Err(ApiError::new(ErrorKind::InvalidRequest, message));
        }
    };
    Ok(ConfigChange { name, operation })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_change(operation: i8, value: Option<&str>, expected: Option<ConfigOperation>) {
        let config = AlterableConfig {
            name: "x".into(),
            config_operation: operation,
            value: value.map(str::to_owned),
        };
        assert_eq!(
            change(&config).ok().map(|change| change.operation),
            expected
        );
    }

    #[test]
    fn operations_are_kafkas_numbers() {
        check_change(0, Some("1"), Some(ConfigOperation::Set("1".into())));
        check_change(1, None, Some(ConfigOperation::Delete));
        check_change(2, Some("1"), Some(ConfigOperation::Append("1".into())));
        check_change(3, Some("1"), Some(ConfigOperation::Subtract("1".into())));
        check_change(0, None, None);
        check_change(4, Some("1"), None);
    }

    #[test]
    fn values_are_checked_by_their_definitions() {
        let case = |resource: ConfigResource, name: &str, value: &str, ok: bool| {
            let configs = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            assert_eq!(
                super::check(&resource, &configs).is_ok(),
                ok,
                "{name}={value}"
            );
        };
        let topic = || ConfigResource::Topic("orders".into());
        case(topic(), "retention.ms", "1000", true);
        case(topic(), "retention.ms", "soon", false);
        case(topic(), "log.retention.ms", "1000", false);
        case(
            ConfigResource::Broker(None),
            "log.retention.ms",
            "1000",
            true,
        );
        case(ConfigResource::Broker(None), "node.id", "1", false);
    }

    #[test]
    fn appending_starts_from_the_default() {
        let topic = ConfigResource::Topic("orders".into());
        assert_eq!(
            default(&Layers::none(), &topic, "cleanup.policy").as_deref(),
            Some("delete")
        );
        assert!(is_list(&topic, "cleanup.policy") && !is_list(&topic, "retention.ms"));
    }
}
