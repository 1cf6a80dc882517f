//! A leader's answer to a follower's fetch, taken apart: what the cores decide about, and where the records lie.

use std::ops::Range;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::{BrokerId, LeaderEpoch, TopicId, TopicPartition};
use taffrail_core::replica::{EpochEnd, FetchedPartition};
use taffrail_protocol::frame::decode_response;
use taffrail_protocol::messages::fetch_request::FetchRequest;
use taffrail_protocol::messages::fetch_response::PartitionData;
use taffrail_protocol::{ErrorCode, Records, Request};

use crate::cluster::PeerError;
use crate::errors::kind_of;

/// A whole answer with the frame that the records lie in.
pub(super) struct Answered {
    /// The session to go on with; 0 = none.
    pub(super) session_id: i32,
    /// The whole answer is this error.
    pub(super) session_error: Option<ErrorKind>,
    pub(super) partitions: Vec<Fetched>,
    frame: Vec<u8>,
}

/// One partition of it.
pub(super) struct Fetched {
    pub(super) id: TopicPartition,
    pub(super) answer: FetchedPartition,
    records: Range<usize>,
}

impl Answered {
    /// The records of one of the partitions.
    pub(super) fn records(&self, fetched: &Fetched) -> &[u8] {
        self.frame.get(fetched.records.clone()).unwrap_or(&[])
    }
}

/// Takes an answer apart.
pub(super) fn decode(leader: BrokerId, frame: Vec<u8>) -> Result<Answered, PeerError> {
    let decoded = decode_response::<FetchRequest>(&frame, FetchRequest::MAX_VERSION);
    let (_, response) = decoded.map_err(|error| PeerError::Malformed {
        broker: leader,
        reason: error.to_string(),
    })?;
    let mut partitions = Vec::new();
    for topic in response.responses {
        for data in topic.partitions {
            let id = TopicPartition::new(TopicId(topic.topic_id.0), data.partition_index);
            partitions.push(fetched(id, data));
        }
    }
    Ok(Answered {
        session_id: response.session_id,
        session_error: error_of(response.error_code),
        partitions,
        frame,
    })
}

/// Whatever bytes a leader answers with: they are taken apart or refused; for the fuzz target.
pub fn try_fetch_answer(frame: &[u8]) {
    if let Ok(answered) = decode(BrokerId(0), frame.to_vec()) {
        for fetched in &answered.partitions {
            assert!(answered.records(fetched).len() <= frame.len());
        }
    }
}

fn fetched(id: TopicPartition, data: PartitionData) -> Fetched {
    let diverging = (data.diverging_epoch.end_offset >= 0).then_some(EpochEnd {
        epoch: LeaderEpoch(data.diverging_epoch.epoch),
        end_offset: data.diverging_epoch.end_offset,
    });
    let answer = FetchedPartition {
        error: error_of(data.error_code),
        high_watermark: data.high_watermark,
        log_start_offset: (data.log_start_offset >= 0).then_some(data.log_start_offset),
        diverging,
    };
    let records = match data.records {
        Records::Range(range) => range,
        Records::Null | Records::Inline(_) | Records::Hole(_) => 0..0,
    };
    Fetched {
        id,
        answer,
        records,
    }
}

fn error_of(code: i16) -> Option<ErrorKind> {
    match ErrorCode::try_from(code) {
        Ok(ErrorCode::None) => None,
        Ok(code) => Some(kind_of(code)),
        Err(_) => Some(ErrorKind::UnknownServerError),
    }
}
