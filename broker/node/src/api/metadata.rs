//! Metadata: brokers, topics, leaders. With auto.create.topics.enable, asking for a topic creates it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::ids::TopicId;
use taffrail_core::metadata::{Image, Partition, Topic};
use taffrail_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use taffrail_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use taffrail_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use taffrail_protocol::{ErrorCode, Uuid};

use super::topics::{self, CLUSTER_OPERATIONS, TOPIC_OPERATIONS};
use crate::broker::Broker;
use crate::cluster::endpoints::{
    ClientBroker, Fenced, client_brokers, client_controller, ids, offline_replicas,
};
use crate::dispatch::RequestContext;
use crate::env::Env;

/// How long an answer waits for topics that it creates. Clients ask again.
const CREATE_TIMEOUT: Duration = Duration::from_secs(2);

/// So many topics are created for one answer, at about 1 KB of memory each while that lasts. Of those that are left the client
/// hears that they do not exist, and asks again.
const CREATE_MAX: usize = 1_000;

/// The topics that could not be created, and why.
type Refused = BTreeMap<String, ErrorCode>;

/// Answers from the committed image. A topic that is named more than once is told once, where it is named first.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: MetadataRequest,
) -> MetadataResponse {
    broker.cluster.doubts_settled(&broker.env).await;
    let mut image = broker.cluster.image();
    let refused = if request.allow_auto_topic_creation && broker.config.auto_create_topics_enable {
        let mut missing = missing_topics(&broker, &context, &image, &request);
        missing.truncate(CREATE_MAX);
        let refused = if missing.is_empty() {
            Refused::new()
        } else {
            create(&broker, &context, missing).await
        };
        image = broker.cluster.image();
        refused
    } else {
        Refused::new()
    };
    let departed = Fenced::These(broker.cluster.departed(broker.env.now()));
    let view = View {
        broker: &broker,
        context: &context,
        image: &image,
        brokers: client_brokers(&broker, &image, &context.listener, &departed),
        with_operations: request.include_topic_authorized_operations,
    };
    let topics = view.topics(&request, &refused);
    MetadataResponse {
        controller_id: client_controller(&broker, &view.brokers),
        brokers: view.brokers.into_iter().map(broker_entry).collect(),
        cluster_id: broker.cluster.cluster_id(),
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..MetadataResponse::default()
    }
}

fn broker_entry(broker: ClientBroker) -> MetadataResponseBroker {
    MetadataResponseBroker {
        node_id: broker.id.0,
        host: broker.host,
        port: broker.port,
        rack: broker.rack,
    }
}

/// The topics that are asked for by a legal name and do not exist.
fn missing_topics<E: Env>(
    broker: &Broker<E>,
    context: &RequestContext,
    image: &Image,
    request: &MetadataRequest,
) -> Vec<String> {
    let asked = request
        .topics
        .iter()
        .flatten()
        .filter_map(|topic| topic.name.as_deref());
    let mut missing: Vec<String> = asked
        .filter(|name| !name.is_empty() && image.topic_by_name(name).is_none())
        .filter(|name| topics::is_legal(name) && !topics::is_internal(name))
        .filter(|name| topics::may_create(broker, &context.principal, name))
        .map(str::to_owned)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Creates topics with the defaults, and waits until this broker sees them. Gives what was refused, and why.
async fn create<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    names: Vec<String>,
) -> Refused {
    let topic = |name: &String| CreatableTopic {
        name: name.clone(),
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: names.iter().map(topic).collect(),
        timeout_ms: i32::try_from(CREATE_TIMEOUT.as_millis()).unwrap_or(i32::MAX),
        validate_only: false,
    };
    let deadline = broker.env.now() + CREATE_TIMEOUT;
    match broker
        .cluster
        .call_controller(context, &request, deadline)
        .await
    {
        Ok(response) => {
            topics::wait_until_visible(broker, &response, deadline).await;
            let refused =
                |code: &ErrorCode| !matches!(code, ErrorCode::None | ErrorCode::TopicAlreadyExists);
            let code = |code| ErrorCode::try_from(code).unwrap_or(ErrorCode::UnknownServerError);
            let results = response
                .topics
                .into_iter()
                .map(|topic| (topic.name, code(topic.error_code)));
            results.filter(|(_, code)| refused(code)).collect()
        }
        Err(error) => {
            tracing::debug!(%error, "topics were not created for a Metadata request");
            Refused::new()
        }
    }
}

struct View<'a, E: Env> {
    broker: &'a Broker<E>,
    context: &'a RequestContext,
    image: &'a Image,
    brokers: Vec<ClientBroker>,
    with_operations: bool,
}

impl<E: Env> View<'_, E> {
    fn topics(&self, request: &MetadataRequest, refused: &Refused) -> Vec<MetadataResponseTopic> {
        // Version 0 says "all" by an empty list, later ones by null (the meaning of empty changed).
        let asked = request
            .topics
            .as_deref()
            .filter(|topics| self.context.version > 0 || !topics.is_empty());
        match asked {
            None => {
                let visible = |topic: &&Topic| self.may_describe(&topic.name);
                self.image
                    .topics_by_name()
                    .filter(visible)
                    .map(|topic| self.topic(topic))
                    .collect()
            }
            Some(asked) => {
                let mut told = BTreeSet::new();
                asked
                    .iter()
                    .filter(|asked| told.insert((asked.name.as_deref(), asked.topic_id.0)))
                    .map(|asked| self.asked_topic(asked, refused))
                    .collect()
            }
        }
    }

    fn may_describe(&self, name: &str) -> bool {
        topics::may_describe(self.broker, &self.context.principal, name)
    }

    fn asked_topic(
        &self,
        asked: &MetadataRequestTopic,
        refused: &Refused,
    ) -> MetadataResponseTopic {
        let Some(name) = asked.name.as_deref() else {
            return match self.image.topic(TopicId(asked.topic_id.0)) {
                Some(topic) if self.may_describe(&topic.name) => self.topic(topic),
                Some(_) | None => MetadataResponseTopic {
                    error_code: ErrorCode::UnknownTopicId.code(),
                    name: if self.context.version >= 12 {
                        None
                    } else {
                        Some(String::new())
                    },
                    topic_id: asked.topic_id,
                    ..MetadataResponseTopic::default()
                },
            };
        };
        let failed = |code: ErrorCode| MetadataResponseTopic {
            error_code: code.code(),
            name: Some(name.to_owned()),
            is_internal: topics::is_internal(name),
            ..MetadataResponseTopic::default()
        };
        if !self.may_describe(name) {
            return failed(ErrorCode::TopicAuthorizationFailed);
        }
        match self.image.topic_by_name(name) {
            Some(topic) => self.topic(topic),
            None if !topics::is_legal(name) => failed(ErrorCode::InvalidTopicException),
            None => {
                let code = refused.get(name).copied();
                failed(code.unwrap_or(ErrorCode::UnknownTopicOrPartition))
            }
        }
    }

    fn topic(&self, topic: &Topic) -> MetadataResponseTopic {
        MetadataResponseTopic {
            error_code: ErrorCode::None.code(),
            name: Some(topic.name.clone()),
            topic_id: Uuid(topic.id.0),
            is_internal: topics::is_internal(&topic.name),
            partitions: (0..)
                .zip(&topic.partitions)
                .map(|(index, state)| self.partition(index, state))
                .collect(),
            topic_authorized_operations: if self.with_operations {
                TOPIC_OPERATIONS
            } else {
                i32::MIN
            },
        }
    }

    fn partition(&self, index: i32, state: &Partition) -> MetadataResponsePartition {
        let reachable = state
            .leader
            .filter(|leader| self.brokers.iter().any(|broker| broker.id == *leader));
        let error = match (state.leader, reachable) {
            (Some(_), Some(_)) => ErrorCode::None,
            // Its listener of this name has no address yet; versions before 6 do not know that error.
            (Some(_), None) if self.context.version >= 6 => ErrorCode::ListenerNotFound,
            (Some(_) | None, _) => ErrorCode::LeaderNotAvailable,
        };
        MetadataResponsePartition {
            error_code: error.code(),
            partition_index: index,
            leader_id: reachable.map_or(-1, |leader| leader.0),
            leader_epoch: state.leader_epoch.0,
            replica_nodes: ids(&state.replicas),
            isr_nodes: ids(&state.isr),
            offline_replicas: offline_replicas(self.image, state),
        }
    }
}
