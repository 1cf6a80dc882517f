//! OffsetFetch on its way back to the wire: found offsets, refusals and unknown topics.

use taffrail_core::error::ErrorKind;
use taffrail_core::group::{FetchedOffset, FetchedTopic, WantedOffsets};
use taffrail_core::metadata::Image;
use taffrail_protocol::Uuid;
use taffrail_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};

use crate::errors::code_of;

/// One group of an answer with several.
pub(super) fn answered(
    image: &Image,
    by_id: bool,
    group_id: String,
    unknown: Vec<(Uuid, Vec<i32>)>,
    found: Result<Vec<FetchedTopic>, ErrorKind>,
) -> OffsetFetchResponseGroup {
    match found {
        Ok(found) => {
            let mut topics = new_topics(found, image, by_id);
            topics.extend(
                unknown
                    .into_iter()
                    .map(|(topic_id, partitions)| unknown_topic(topic_id, partitions)),
            );
            OffsetFetchResponseGroup {
                group_id,
                topics,
                error_code: 0,
            }
        }
        Err(error) => OffsetFetchResponseGroup {
            group_id,
            topics: Vec::new(),
            error_code: code_of(error).code(),
        },
    }
}

/// The topics of an answer for one group.
pub(super) fn old_topics(topics: Vec<FetchedTopic>) -> Vec<OffsetFetchResponseTopic> {
    let partition = |offset: FetchedOffset| OffsetFetchResponsePartition {
        partition_index: offset.partition,
        committed_offset: offset.offset,
        committed_leader_epoch: offset.leader_epoch,
        metadata: Some(offset.metadata),
        error_code: 0,
    };
    topics
        .into_iter()
        .map(|found| OffsetFetchResponseTopic {
            name: found.topic,
            partitions: found.partitions.into_iter().map(partition).collect(),
        })
        .collect()
}

/// The topics of an answer that has no error of the whole.
pub(super) fn refused(
    wanted: Vec<WantedOffsets>,
    error: ErrorKind,
) -> Vec<OffsetFetchResponseTopic> {
    let error_code = code_of(error).code();
    let partition = |partition_index| OffsetFetchResponsePartition {
        partition_index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(String::new()),
        error_code,
    };
    wanted
        .into_iter()
        .map(|wanted| OffsetFetchResponseTopic {
            name: wanted.topic,
            partitions: wanted.partitions.into_iter().map(partition).collect(),
        })
        .collect()
}

fn new_topics(
    topics: Vec<FetchedTopic>,
    image: &Image,
    by_id: bool,
) -> Vec<OffsetFetchResponseTopics> {
    let partition = |offset: FetchedOffset| OffsetFetchResponsePartitions {
        partition_index: offset.partition,
        committed_offset: offset.offset,
        committed_leader_epoch: offset.leader_epoch,
        metadata: Some(offset.metadata),
        error_code: 0,
    };
    topics
        .into_iter()
        .filter_map(|found| {
            let topic = image.topic_by_name(&found.topic);
            // A topic that is gone has no id that could be told.
            if by_id && topic.is_none() {
                return None;
            }
            Some(OffsetFetchResponseTopics {
                topic_id: topic.map_or(Uuid::default(), |topic| Uuid(topic.id.0)),
                name: found.topic,
                partitions: found.partitions.into_iter().map(partition).collect(),
            })
        })
        .collect()
}

fn unknown_topic(topic_id: Uuid, partitions: Vec<i32>) -> OffsetFetchResponseTopics {
    let error_code = code_of(ErrorKind::UnknownTopicId).code();
    let partition = |partition_index| OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(String::new()),
        error_code,
    };
    OffsetFetchResponseTopics {
        topic_id,
        partitions: partitions.into_iter().map(partition).collect(),
        ..OffsetFetchResponseTopics::default()
    }
}
