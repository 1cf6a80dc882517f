//! Carries out the steps of a plan that concern topics, one request each.

use std::collections::BTreeMap;

use taffrail_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use taffrail_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use taffrail_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use taffrail_protocol::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use taffrail_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use taffrail_protocol::{ErrorCode, Uuid};

use super::admin::{Admin, AdminError, refused};
use super::observe::{CONTROLLER_WAIT_MS, TOPIC_RESOURCE};
use crate::plan::Step;

/// Operations of IncrementalAlterConfigs (`AlterConfigOp.OpType`).
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Carries out a topic step; gives the id of the topic that it made, if it made one. Steps that concern brokers, or only
/// the operator's memory, do nothing here.
pub async fn apply_step(admin: &mut Admin, step: &Step) -> Result<Option<String>, AdminError> {
    let done = match step {
        Step::CreateTopic {
            name,
            assignments,
            config,
            ..
        } => return create_topic(admin, name, assignments, config).await,
        Step::AddPartitions {
            name,
            existing,
            assignments,
            ..
        } => add_partitions(admin, name, *existing, assignments).await,
        Step::AlterTopicConfig { name, changes, .. } => alter_config(admin, name, changes).await,
        Step::Reassign { name, moves, .. } => reassign(admin, name, moves).await,
        Step::DeleteTopic { topic_id, .. } => delete_topic(admin, topic_id).await,
        Step::ReleaseTopic { .. }
        | Step::CreateBroker { .. }
        | Step::UpdateBroker { .. }
        | Step::RemoveBroker { .. } => Ok(()),
    };
    done.map(|()| None)
}

async fn create_topic(
    admin: &mut Admin,
    name: &str,
    assignments: &[Vec<i32>],
    config: &BTreeMap<String, String>,
) -> Result<Option<String>, AdminError> {
    let assignments =
        (0..)
            .zip(assignments)
            .map(|(partition_index, replicas)| CreatableReplicaAssignment {
                partition_index,
                broker_ids: replicas.clone(),
            });
    let configs = config.iter().map(|(name, value)| CreatableTopicConfig {
        name: name.clone(),
        value: Some(value.clone()),
    });
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.to_owned(),
            // With explicit assignments the protocol wants both numbers absent.
            num_partitions: -1,
            replication_factor: -1,
            assignments: assignments.collect(),
            configs: configs.collect(),
        }],
        timeout_ms: CONTROLLER_WAIT_MS,
        validate_only: false,
    };
    let response = admin.call(&request).await?;
    let mut made = None;
    for topic in response.topics {
        refused(topic.error_code, topic.error_message.as_deref())?;
        made = Some(topic.topic_id).filter(|id| *id != Uuid::ZERO);
    }
    Ok(made.map(|id| id.to_string()))
}

async fn add_partitions(
    admin: &mut Admin,
    name: &str,
    existing: usize,
    assignments: &[Vec<i32>],
) -> Result<(), AdminError> {
    let count = existing.saturating_add(assignments.len());
    let assignments = assignments
        .iter()
        .map(|replicas| CreatePartitionsAssignment {
            broker_ids: replicas.clone(),
        });
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: name.to_owned(),
            count: i32::try_from(count).unwrap_or(i32::MAX),
            assignments: Some(assignments.collect()),
        }],
        timeout_ms: CONTROLLER_WAIT_MS,
        validate_only: false,
    };
    let response = admin.call(&request).await?;
    for topic in response.results {
        refused(topic.error_code, topic.error_message.as_deref())?;
    }
    Ok(())
}

async fn alter_config(
    admin: &mut Admin,
    name: &str,
    changes: &BTreeMap<String, Option<String>>,
) -> Result<(), AdminError> {
    let configs = changes.iter().map(|(name, value)| AlterableConfig {
        name: name.clone(),
        config_operation: if value.is_some() { SET } else { DELETE },
        value: value.clone(),
    });
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: name.to_owned(),
            configs: configs.collect(),
        }],
        validate_only: false,
    };
    let response = admin.call(&request).await?;
    for resource in response.responses {
        refused(resource.error_code, resource.error_message.as_deref())?;
    }
    Ok(())
}

async fn reassign(
    admin: &mut Admin,
    name: &str,
    moves: &BTreeMap<i32, Vec<i32>>,
) -> Result<(), AdminError> {
    let partitions = moves
        .iter()
        .map(|(&partition_index, replicas)| ReassignablePartition {
            partition_index,
            replicas: Some(replicas.clone()),
        });
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: CONTROLLER_WAIT_MS,
        allow_replication_factor_change: true,
        topics: vec![ReassignableTopic {
            name: name.to_owned(),
            partitions: partitions.collect(),
        }],
    };
    let response = admin.call(&request).await?;
    refused(response.error_code, response.error_message.as_deref())?;
    for partition in response
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions)
    {
        refused(partition.error_code, partition.error_message.as_deref())?;
    }
    Ok(())
}

/// By id alone: should the name belong to another topic by now, that one stays.
async fn delete_topic(admin: &mut Admin, topic_id: &str) -> Result<(), AdminError> {
    let state = DeleteTopicState {
        name: None,
        topic_id: parsed(topic_id)?,
    };
    let request = DeleteTopicsRequest {
        topics: vec![state],
        topic_names: Vec::new(),
        timeout_ms: CONTROLLER_WAIT_MS,
    };
    let response = admin.call(&request).await?;
    for topic in response.responses {
        let gone = [
            ErrorCode::UnknownTopicId,
            ErrorCode::UnknownTopicOrPartition,
        ];
        if gone.iter().any(|code| code.code() == topic.error_code) {
            continue;
        }
        refused(topic.error_code, topic.error_message.as_deref())?;
    }
    Ok(())
}

fn parsed(topic_id: &str) -> Result<Uuid, AdminError> {
    let parsed = topic_id.parse::<Uuid>().ok();
    parsed
        .filter(|id| *id != Uuid::ZERO)
        .ok_or_else(|| AdminError::NoTopicId(topic_id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_deleted_by_id_alone() {
        for (topic_id, accepted) in [
            ("AAAAAAAAAAAAAAAAAAAAAQ", true),
            // Kafka's word for "no id": the request would go by name.
            ("AAAAAAAAAAAAAAAAAAAAAA", false),
            ("", false),
            ("orders", false),
        ] {
            assert_eq!(parsed(topic_id).is_ok(), accepted, "{topic_id:?}");
        }
    }
}
