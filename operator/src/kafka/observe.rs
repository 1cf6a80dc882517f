//! Reads what the brokers know: brokers, topics, reassignments, and the configs of the topics that matter. A fixed
//! number of requests whatever the number of topics. The active controller is asked where there is one: what any other
//! broker says may be old, and is marked so.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::describe_cluster_request::DescribeClusterRequest;
use taffrail_protocol::messages::describe_configs_request::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use taffrail_protocol::messages::describe_quorum_request::{
    DescribeQuorumRequest, PartitionData, TopicData,
};
use taffrail_protocol::messages::describe_quorum_response::DescribeQuorumResponse;
use taffrail_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsRequest;
use taffrail_protocol::messages::metadata_request::MetadataRequest;

use super::admin::{Admin, AdminError, refused};
use crate::observed::{KafkaWorld, ObservedPartition, ObservedTopic, RegisteredBroker};

/// Kafka's number for topics among config resources.
pub(super) const TOPIC_RESOURCE: i8 = 2;

/// Kafka's number for "set on the topic itself" (`ConfigSource.TOPIC_CONFIG`).
const SET_ON_TOPIC: i8 = 1;

/// The name by which the metadata log is asked for (KIP-595).
pub(super) const METADATA_TOPIC: &str = "__cluster_metadata";

/// How long a broker may wait for its controller.
pub(super) const CONTROLLER_WAIT_MS: i32 = 8_000;

/// Observes the brokers, and the configs of the topics named in `configured`. `answering` is where those that answer are
/// asked: the active controller is asked itself, if it is one of them.
pub async fn observe(
    admin: &mut Admin,
    answering: &BTreeMap<i32, SocketAddr>,
    configured: &[String],
) -> Result<KafkaWorld, AdminError> {
    // Without a controller there is still something to show.
    let leads = leader(admin).await?;
    let controller = leads.and_then(|(controller, _)| answering.get(&controller));
    let from_controller = match controller {
        Some(&address) => admin.turn_to(address).await,
        None => false,
    };
    let mut world = brokers(admin).await?;
    world.controller = leads.map(|(controller, _)| controller);
    topics(admin, &mut world).await?;
    if leads.is_some() {
        reassignments(admin, &mut world).await?;
    }
    configs(admin, configured, &mut world).await?;
    // One that leads in the same term after all answers led when it gave them.
    world.authoritative = from_controller && leader(admin).await? == leads;
    Ok(world)
}

/// The active controller and its term, as it says itself; none if there is none that answers.
async fn leader(admin: &mut Admin) -> Result<Option<(i32, i32)>, AdminError> {
    let request = DescribeQuorumRequest {
        topics: vec![TopicData {
            topic_name: METADATA_TOPIC.to_owned(),
            partitions: vec![PartitionData::default()],
        }],
    };
    Ok(leader_in(&admin.call(&request).await?))
}

fn leader_in(response: &DescribeQuorumResponse) -> Option<(i32, i32)> {
    let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    let partition = partitions.next()?;
    let known = response.error_code == 0 && partition.error_code == 0 && partition.leader_id >= 0;
    known.then_some((partition.leader_id, partition.leader_epoch))
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
        // A broker that has just started may not know yet.
        cluster_id: Some(response.cluster_id).filter(|id| !id.is_empty()),
        brokers: brokers.collect(),
        ..KafkaWorld::default()
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
        // Left out, it would look as if it were gone; taken as it is, as if it had no partitions.
        let message = format!("topic {name} is not described");
        refused(topic.error_code, Some(&message))?;
        let partitions = topic.partitions.into_iter().map(|partition| {
            let observed = ObservedPartition {
                leader: (partition.leader_id >= 0).then_some(partition.leader_id),
                replicas: partition.replica_nodes,
                isr: partition.isr_nodes,
                moves_to: None,
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
                let mut target = partition.replicas;
                target.retain(|broker| !partition.removing_replicas.contains(broker));
                observed.moves_to = Some(target);
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

#[cfg(test)]
mod tests {
    use taffrail_protocol::messages::describe_quorum_response::{PartitionData, TopicData};

    use super::*;

    #[test]
    fn controller_is_whoever_answers_for_the_quorum() {
        for (error_code, partition_error, leader_id, expected) in [
            (0, 0, 2, Some((2, 7))),
            (0, 0, -1, None),
            (0, ErrorCode::UnknownTopicOrPartition.code(), 2, None),
            (ErrorCode::NotController.code(), 0, 2, None),
        ] {
            let partition = PartitionData {
                error_code: partition_error,
                leader_id,
                leader_epoch: 7,
                ..PartitionData::default()
            };
            let response = DescribeQuorumResponse {
                error_code,
                topics: vec![TopicData {
                    partitions: vec![partition],
                    ..TopicData::default()
                }],
                ..DescribeQuorumResponse::default()
            };
            assert_eq!(leader_in(&response), expected);
        }
        assert_eq!(leader_in(&DescribeQuorumResponse::default()), None);
    }
}
