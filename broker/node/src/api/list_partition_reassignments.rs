//! ListPartitionReassignments: which partitions are being moved (KIP-455). Only the active controller knows for sure: the
//! image of any other broker may be behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use taffrail_core::controller::Decision;
use taffrail_core::metadata::{Image, Partition, Topic};
use taffrail_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use taffrail_protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use taffrail_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::topics;
use crate::broker::Broker;
use crate::cluster::Undecided;
use crate::cluster::endpoints::ids;
use crate::dispatch::RequestContext;
use crate::env::Env;

/// Asks the active controller.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let deadline = topics::deadline(&broker, request.timeout_ms);
    match broker
        .cluster
        .call_controller(&context, &request, deadline)
        .await
    {
        Ok(answer) => answer,
        Err(error) => ListPartitionReassignmentsResponse {
            error_code: error.code().code(),
            error_message: Some(error.to_string()),
            ..ListPartitionReassignmentsResponse::default()
        },
    }
}

/// What the active controller answers: the moves of the partitions asked for, of all if none are named, once all that
/// it has decided before is committed.
pub(crate) async fn decide<E: Env>(
    broker: Arc<Broker<E>>,
    request: ListPartitionReassignmentsRequest,
) -> Result<ListPartitionReassignmentsResponse, Undecided> {
    let topics = broker
        .cluster
        .decide_for_client(move |controller, _| Decision {
            records: Vec::new(),
            reply: ongoing(controller.image(), request.topics.as_deref()),
        })
        .await?;
    Ok(ListPartitionReassignmentsResponse {
        topics,
        ..ListPartitionReassignmentsResponse::default()
    })
}

fn ongoing(
    image: &Image,
    asked: Option<&[ListPartitionReassignmentsTopics]>,
) -> Vec<OngoingTopicReassignment> {
    let of_topic = |topic: &Topic, wanted: &dyn Fn(i32) -> bool| {
        let partitions: Vec<OngoingPartitionReassignment> = (0..)
            .zip(&topic.partitions)
            .filter(|(index, state)| state.is_reassigning() && wanted(*index))
            .map(|(index, state)| entry(index, state))
            .collect();
        (!partitions.is_empty()).then(|| OngoingTopicReassignment {
            name: topic.name.clone(),
            partitions,
        })
    };
    match asked {
        None => image
            .topics_by_name()
            .filter_map(|topic| of_topic(topic, &|_| true))
            .collect(),
        Some(asked) => {
            let mut wanted: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
            for asked in asked {
                let indexes = wanted.entry(&asked.name).or_default();
                indexes.extend(&asked.partition_indexes);
            }
            let wanted = wanted.into_iter().filter_map(|(name, indexes)| {
                let topic = image.topic_by_name(name)?;
                of_topic(topic, &|index| indexes.contains(&index))
            });
            wanted.collect()
        }
    }
}

fn entry(partition_index: i32, state: &Partition) -> OngoingPartitionReassignment {
    OngoingPartitionReassignment {
        partition_index,
        replicas: ids(&state.replicas),
        adding_replicas: ids(&state.adding),
        removing_replicas: ids(&state.removing),
    }
}
