//! DeleteRecords: moves the log start of partitions up and waits until every live replica has followed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::TopicPartition;
use taffrail_log::Retired;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::delete_records_request::{
    DeleteRecordsRequest, DeleteRecordsTopic,
};
use taffrail_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_of;
use crate::groups::is_internal_topic;
use crate::partition::Partition;
use crate::replication::Waiter;

/// One partition on its way.
enum Deletion<E: Env> {
    Refused(ErrorKind),
    /// The leader's log starts at `offset`; the other replicas may lag behind it.
    Begun {
        partition: Arc<Partition<E>>,
        offset: i64,
        waiter: Arc<Waiter>,
    },
}

/// Handles a DeleteRecords request.
pub(crate) async fn handle<E: Env>(
    broker: Arc<Broker<E>>,
    context: RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let deadline =
        broker.env.now() + Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let mut begun = Vec::new();
    for (topic, asked) in by_topic(request.topics) {
        let mut partitions = Vec::with_capacity(asked.len());
        for (partition, offset) in asked {
            let deletion = begin(&broker, &context, &topic, partition, offset).await;
            partitions.push((partition, deletion));
        }
        begun.push((topic, partitions));
    }
    let mut topics = Vec::new();
    for (name, deletions) in begun {
        let mut partitions = Vec::new();
        for (partition_index, deletion) in deletions {
            let result = match deletion {
                Deletion::Refused(error) => Err(error),
                Deletion::Begun {
                    partition,
                    offset,
                    waiter,
                } => finish(&broker, &partition, offset, waiter, deadline).await,
            };
            partitions.push(DeleteRecordsPartitionResult {
                partition_index,
                low_watermark: result.unwrap_or(-1),
                error_code: result.err().map_or(ErrorCode::None, code_of).code(),
            });
        }
        topics.push(DeleteRecordsTopicResult { name, partitions });
    }
    DeleteRecordsResponse {
        topics,
        ..DeleteRecordsResponse::default()
    }
}

/// The offset for each partition. Of one that is named more than once the last counts, as in Kafka, and it is answered once.
fn by_topic(topics: Vec<DeleteRecordsTopic>) -> BTreeMap<String, BTreeMap<i32, i64>> {
    let mut asked: BTreeMap<String, BTreeMap<i32, i64>> = BTreeMap::new();
    for topic in topics {
        let partitions = topic.partitions.iter();
        asked
            .entry(topic.name)
            .or_default()
            .extend(partitions.map(|of| (of.partition_index, of.offset)));
    }
    asked
}

async fn begin<E: Env>(
    broker: &Broker<E>,
    context: &RequestContext,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Deletion<E> {
    let waiter = Waiter::new(1);
    match try_begin(broker, context, topic, partition, offset, &waiter) {
        Ok((partition, offset, retired)) => {
            if let Some(retired) = retired {
                remove(broker, &partition, retired).await;
            }
            Deletion::Begun {
                partition,
                offset,
                waiter,
            }
        }
        Err(error) => Deletion::Refused(error),
    }
}

type Begun<E> = (Arc<Partition<E>>, i64, Option<Retired<<E as Env>::Disk>>);

fn try_begin<E: Env>(
    broker: &Broker<E>,
    context: &RequestContext,
    topic: &str,
    partition: i32,
    offset: i64,
    waiter: &Arc<Waiter>,
) -> Result<Begun<E>, ErrorKind> {
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), topic)
    {
        return Err(ErrorKind::TopicAuthorizationFailed);
    }
    if is_internal_topic(topic) {
        return Err(ErrorKind::InvalidTopicException);
    }
    let image = broker.cluster.image();
    let topic_id = image
        .topic_by_name(topic)
        .ok_or(ErrorKind::UnknownTopicOrPartition)?
        .id;
    let id = TopicPartition::new(topic_id, partition);
    image
        .partition(id)
        .ok_or(ErrorKind::UnknownTopicOrPartition)?;
    let partition = broker.partition(id).ok_or(ErrorKind::NotLeaderOrFollower)?;
    let deletion = partition.delete_records(offset, broker.env.wall_ms(), waiter)?;
    if deletion.reached {
        waiter.wake();
    }
    Ok((partition, deletion.offset, deletion.retired))
}

async fn remove<E: Env>(broker: &Broker<E>, partition: &Partition<E>, retired: Retired<E::Disk>) {
    if let Err(error) = broker.env.run_blocking(move || retired.remove()).await {
        tracing::warn!(partition = %partition.name(), %error, "files of deleted segments are still there");
    }
}

async fn finish<E: Env>(
    broker: &Broker<E>,
    partition: &Partition<E>,
    offset: i64,
    mut waiter: Arc<Waiter>,
    deadline: taffrail_core::time::Instant,
) -> Result<i64, ErrorKind> {
    loop {
        waiter.wait(&broker.env, deadline).await;
        if let Some(low_watermark) = partition.low_watermark()?
            && low_watermark >= offset
        {
            return Ok(low_watermark);
        }
        if broker.env.now() >= deadline {
            return Err(ErrorKind::RequestTimedOut);
        }
        waiter = Waiter::new(1);
        if partition
            .delete_records(offset, broker.env.wall_ms(), &waiter)?
            .reached
        {
            waiter.wake();
        }
    }
}
