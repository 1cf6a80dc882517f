//! A broker's unfit replicas, as heartbeats carry them.

use taffrail_core::controller::{Impaired, Impairment, Report};
use taffrail_core::ids::{TopicId, TopicPartition};
use taffrail_protocol::Uuid;
use taffrail_protocol::messages::BrokerHeartbeatRequest;
use taffrail_protocol::messages::broker_heartbeat_request::{ImpairedPartition, ImpairedTopic};

const OFFLINE: i8 = 1;
const DAMAGED: i8 = 2;
const FULL: i8 = 3;

/// Partitions of one topic go together: the map is in their order.
pub(super) fn to_request(impaired: &Impaired) -> Vec<ImpairedTopic> {
    let mut topics: Vec<ImpairedTopic> = Vec::new();
    for (id, impairment) in impaired {
        let topic_id = Uuid(id.topic_id.0);
        let partition = ImpairedPartition {
            partition: id.partition,
            impairment: match impairment {
                Impairment::Offline => OFFLINE,
                Impairment::Damaged => DAMAGED,
                Impairment::Full => FULL,
            },
        };
        match topics.last_mut() {
            Some(last) if last.topic_id == topic_id => last.partitions.push(partition),
            Some(_) | None => topics.push(ImpairedTopic {
                topic_id,
                partitions: vec![partition],
            }),
        }
    }
    topics
}

/// What this version does not know of counts as the worst that it knows.
pub(super) fn from_request(request: &BrokerHeartbeatRequest) -> Report {
    let entries = request.impaired_replicas.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| {
            let id = TopicPartition::new(TopicId(topic.topic_id.0), partition.partition);
            let impairment = match partition.impairment {
                DAMAGED => Impairment::Damaged,
                FULL => Impairment::Full,
                _ => Impairment::Offline,
            };
            (id, impairment)
        })
    });
    Report {
        version: request.impaired_version,
        impaired: entries.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_heartbeat_carries_arrives() {
        let id = |topic, partition| TopicPartition::new(TopicId([topic; 16]), partition);
        let impaired = Impaired::from([
            (id(1, 0), Impairment::Offline),
            (id(1, 7), Impairment::Damaged),
            (id(2, 0), Impairment::Full),
        ]);
        let request = BrokerHeartbeatRequest {
            impaired_version: 3,
            impaired_replicas: to_request(&impaired),
            ..BrokerHeartbeatRequest::default()
        };
        assert_eq!(request.impaired_replicas.len(), 2);
        let version = 3;
        assert_eq!(from_request(&request), Report { version, impaired });
    }
}
