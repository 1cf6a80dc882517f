//! OffsetForLeaderEpoch: where a leader epoch ends in the leader's log, for those who check theirs (KIP-320).

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::{LeaderEpoch, TopicPartition};
use taffrail_core::metadata::Image;
use taffrail_core::replica::EpochEnd;
use taffrail_protocol::ErrorCode;
use taffrail_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition,
};
use taffrail_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};

use crate::access::access_of;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;
use crate::errors::code_of;

/// Handles an OffsetForLeaderEpoch request.
pub(crate) fn handle<E: Env>(
    broker: &Arc<Broker<E>>,
    context: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let image = broker.cluster.image();
    let topics = request
        .topics
        .into_iter()
        .map(|topic| OffsetForLeaderTopicResult {
            partitions: topic
                .partitions
                .iter()
                .map(|asked| {
                    answer(
                        asked.partition,
                        find(broker, context, &image, &topic.topic, asked),
                    )
                })
                .collect(),
            topic: topic.topic,
        })
        .collect();
    OffsetForLeaderEpochResponse {
        topics,
        ..OffsetForLeaderEpochResponse::default()
    }
}

fn find<E: Env>(
    broker: &Broker<E>,
    context: &RequestContext,
    image: &Image,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<EpochEnd>, ErrorKind> {
    let topic_id = image
        .topic_by_name(topic)
        .ok_or(ErrorKind::UnknownTopicOrPartition)?
        .id;
    if !broker
        .authorizer
        .allows(&context.principal, access_of(context.api), topic)
    {
        return Err(ErrorKind::TopicAuthorizationFailed);
    }
    let id = TopicPartition::new(topic_id, asked.partition);
    image
        .partition(id)
        .ok_or(ErrorKind::UnknownTopicOrPartition)?;
    let partition = broker.partition(id).ok_or(ErrorKind::NotLeaderOrFollower)?;
    let expected =
        (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    partition.end_of_epoch(LeaderEpoch(asked.leader_epoch), expected)
}

fn answer(partition: i32, found: Result<Option<EpochEnd>, ErrorKind>) -> EpochEndOffset {
    let (error, end) = match found {
        Ok(end) => (ErrorCode::None, end),
        Err(error) => (code_of(error), None),
    };
    EpochEndOffset {
        error_code: error.code(),
        partition,
        // An epoch that the leader does not know yet has no end (-1), as Kafka answers.
        leader_epoch: end.map_or(-1, |end| end.epoch.0),
        end_offset: end.map_or(-1, |end| end.end_offset),
    }
}
