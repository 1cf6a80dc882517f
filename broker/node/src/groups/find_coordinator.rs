//! FindCoordinator: which broker coordinates a group. The first one that is looked for creates the offsets topic.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::group::partition_for;
use taffrail_core::ids::TopicPartition;
use taffrail_core::metadata::Listener;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::FindCoordinatorRequest;
use taffrail_protocol::messages::find_coordinator_response::{
    Coordinator, FindCoordinatorResponse,
};

use super::OFFSETS_TOPIC;
use super::named::each_once;
use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_of;

/// First version with several keys.
const BATCH_VERSION: i16 = 4;
/// The key types of Kafka's `CoordinatorType`.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// Handles a FindCoordinator request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let keys = if context.version >= BATCH_VERSION {
        each_once(request.coordinator_keys)
    } else {
        vec![request.key]
    };
    let known = check_key_type(request.key_type);
    let check_access = |key: &str| check_access(&broker, &context, key);
    // Once, whatever the number of keys.
    let made = if known.is_ok() && keys.iter().any(|key| check_access(key).is_ok()) {
        make_offsets_topic(&broker).await
    } else {
        Ok(())
    };
    let found = |key: String| {
        let found = known
            .clone()
            .and_then(|()| check_access(&key))
            .and_then(|()| made.clone())
            .and_then(|()| find(&broker, &context, &key));
        coordinator(key, found)
    };
    let mut coordinators: Vec<Coordinator> = keys.into_iter().map(found).collect();
    if context.version >= BATCH_VERSION {
        return FindCoordinatorResponse {
            coordinators,
            ..FindCoordinatorResponse::default()
        };
    }
    let only = coordinators.pop().unwrap_or_default();
    FindCoordinatorResponse {
        error_code: only.error_code,
        error_message: only.error_message,
        node_id: only.node_id,
        host: only.host,
        port: only.port,
        ..FindCoordinatorResponse::default()
    }
}

type Refusal = (ErrorKind, Option<String>);
type Found = Result<(i32, Listener), Refusal>;

fn check_key_type(key_type: i8) -> Result<(), Refusal> {
    let text = match key_type {
        GROUP => return Ok(()),
        TRANSACTION => {
            "this version has no transactions: use a producer without transactional.id".to_owned()
        }
        other => format!("key type {other} is not known"),
    };
    Err((ErrorKind::InvalidRequest, Some(text)))
}

fn check_access<E: Env>(
    broker: &Broker<E>,
    context: &RequestContext,
    key: &str,
) -> Result<(), Refusal> {
    let access = access_of(context.api);
    if broker.authorizer.allows(&context.principal, access, key) {
        Ok(())
    } else {
        Err((ErrorKind::GroupAuthorizationFailed, None))
    }
}

fn find<E: Env>(broker: &Broker<E>, context: &RequestContext, key: &str) -> Found {
    let unavailable = (ErrorKind::CoordinatorNotAvailable, None);
    let image = broker.cluster.image();
    let topic = image
        .topic_by_name(OFFSETS_TOPIC)
        .ok_or_else(|| unavailable.clone())?;
    let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let state = image
        .partition(TopicPartition::new(topic.id, partition_for(key, count)))
        .ok_or_else(|| unavailable.clone())?;
    let leader = state
        .leader
        .filter(|leader| image.is_active(*leader))
        .ok_or_else(|| unavailable.clone())?;
    let listener = image
        .listener(leader, &context.listener)
        .ok_or(unavailable)?;
    Ok((leader.0, listener.clone()))
}

/// Makes the offsets topic, unless it is there.
async fn make_offsets_topic<E: Env>(broker: &Broker<E>) -> Result<(), Refusal> {
    if broker
        .cluster
        .image()
        .topic_by_name(OFFSETS_TOPIC)
        .is_some()
    {
        return Ok(());
    }
    let config = &broker.config;
    let configs = [
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "producer".to_owned()),
        (
            "segment.bytes",
            config.offsets_topic_segment_bytes.to_string(),
        ),
    ];
    let created = broker
        .cluster
        .create_internal_topic(
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            &configs,
        )
        .await;
    created.map_err(|error| {
        tracing::debug!(%error, "the offsets topic is not there yet");
        (ErrorKind::CoordinatorNotAvailable, None)
    })
}

fn coordinator(key: String, found: Found) -> Coordinator {
    match found {
        Ok((node_id, listener)) => Coordinator {
            key,
            node_id,
            host: listener.host,
            port: i32::from(listener.port),
            error_code: ErrorCode::None.code(),
            error_message: None,
        },
        Err((error, error_message)) => Coordinator {
            key,
            node_id: -1,
            host: String::new(),
            port: -1,
            error_code: code_of(error).code(),
            error_message,
        },
    }
}
