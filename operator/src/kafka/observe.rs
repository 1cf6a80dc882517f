//! Reads what the brokers know: brokers, topics, reassignments, and the configs of the topics that matter. A fixed
//! number of requests whatever the number of topics.

use std::collections::BTreeMap;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::describe_cluster_request::DescribeClusterRequest;
use taffrail_protocol::messages::describe_configs_request::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use taffrail_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsRequest;
use taffrail_protocol::messages::metadata_request::MetadataRequest;

use super::admin::{Admin, AdminError, refused};
use crate::observed::{KafkaWorld, ObservedPartition, ObservedTopic, RegisteredBroker};

/// Kafka's number for topics among config resources.
pub(super) const TOPIC_RESOURCE: i8 = 2;

/// Kafka's number for "set on the topic itself" (`ConfigSource.TOPIC_CONFIG`).
const SET_ON_TOPIC: i8 = 1;

/// How long a broker may wait for its controller.
pub(super) const CONTROLLER_WAIT_MS: i32 = 8_000;

/// Observes the brokers, and the configs of the topics named in `configured`.
pub async fn observe(admin: &mut Admin, configured: &[String]) -> Result<KafkaWorld, AdminError> {
    let mut world = brokers(admin).await?;
    topics(admin, &mut world).await?;
    reassignments(admin, &mut world).await?;
    configs(admin, configured, &mut world).await?;
    Ok(world)
}

async fn brokers(admin: &mut Admin) -> Result<KafkaWorld, AdminError> {
    let request = DescribeClusterRequest {
        include_fenced_brokers: true,
        ..DescribeClusterRequest::default()
    };
    let response = admin.call(&request).await?;
    refused(response.error_code, response.error_message.as_deref())?;
    let brokers = response.brokers.into_iter().map(|broker| {
        let registered = RegisteredBroker {
            host: broker.host,
            port: broker.port,
            rack: broker.rack,
            fenced: broker.is_fenced,
        };
        (broker.broker_id, registered)
    });
    Ok(KafkaWorld {
        cluster_id: Some(response.cluster_id),
        controller: (response.controller_id >= 0).then_some(response.controller_id),
        brokers: brokers.collect(),
        topics: BTreeMap::new(),
    })
}

async fn topics(admin: &mut Admin, world: &mut KafkaWorld) -> Result<(), AdminError> {
    let request = MetadataRequest {
        topics: None,
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let response = admin.call(&request).await?;
    for topic in response.topics {
        let Some(name) = topic.name else {
            continue;
        };
        if topic.error_code == ErrorCode::UnknownTopicOrPartition.code() {
            continue;
        }
        let partitions = topic.partitions.into_iter().map(|partition| {
            let observed = ObservedPartition {
                leader: (partition.leader_id >= 0).then_some(partition.leader_id),
                replicas: partition.replica_nodes,
                isr: partition.isr_nodes,
                reassigning: false,
            };
            (partition.partition_index, observed)
        });
        let observed = ObservedTopic {
            topic_id: topic.topic_id.to_string(),
            internal: topic.is_internal,
            partitions: partitions.collect(),
            config: None,
        };
        world.topics.insert(name, observed);
    }
    Ok(())
}

async fn reassignments(admin: &mut Admin, world: &mut KafkaWorld) -> Result<(), AdminError> {
    let request = ListPartitionReassignmentsRequest {
        timeout_ms: CONTROLLER_WAIT_MS,
        topics: None,
    };
    let response = admin.call(&request).await?;
    refused(response.error_code, response.error_message.as_deref())?;
    for topic in response.topics {
        let Some(observed) = world.topics.get_mut(&topic.name) else {
            continue;
        };
        for partition in topic.partitions {
            if let Some(observed) = observed.partitions.get_mut(&partition.partition_index) {
                observed.reassigning = true;
            }
        }
    }
    Ok(())
}

async fn configs(
    admin: &mut Admin,
    configured: &[String],
    world: &mut KafkaWorld,
) -> Result<(), AdminError> {
    let resources: Vec<DescribeConfigsResource> = configured
        .iter()
        .filter(|name| world.topics.contains_key(*name))
        .map(|name| DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: name.clone(),
            configuration_keys: None,
        })
        .collect();
    if resources.is_empty() {
        return Ok(());
    }
    let request = DescribeConfigsRequest {
        resources,
        ..DescribeConfigsRequest::default()
    };
    let response = admin.call(&request).await?;
    for result in response.results {
        // A topic that went away in between, or that cannot be described, keeps its config unknown: no plan is made
        // from what was not seen.
        if result.error_code != 0 {
            continue;
        }
        let set = result
            .configs
            .into_iter()
            .filter(|config| config.config_source == SET_ON_TOPIC)
            .map(|config| (config.name, config.value.unwrap_or_default()));
        if let Some(topic) = world.topics.get_mut(&result.resource_name) {
            topic.config = Some(set.collect());
        }
    }
    Ok(())
}
