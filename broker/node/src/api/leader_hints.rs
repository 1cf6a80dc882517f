//! Leader hints (KIP-951): a client that came to the wrong broker is told who leads, and where that broker is.

use std::collections::BTreeSet;

use taffrail_core::ids::{BrokerId, LeaderEpoch, TopicPartition};
use taffrail_core::metadata::Image;

/// The leaders that an answer names, collected while it is put together.
#[derive(Debug, Default)]
pub(crate) struct LeaderHints {
    leaders: BTreeSet<BrokerId>,
}

/// Where a leader is, by the listener that the client came in by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaderEndpoint {
    pub(crate) node_id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<String>,
}

impl LeaderHints {
    /// Who leads a partition, if anybody does.
    pub(crate) fn leader_of(
        &mut self,
        image: &Image,
        id: TopicPartition,
    ) -> Option<(BrokerId, LeaderEpoch)> {
        let state = image.partition(id)?;
        let leader = state.leader?;
        self.leaders.insert(leader);
        Some((leader, state.leader_epoch))
    }

    /// Who leads a partition that `me` does not lead. A broker that has resigned knows of no better one until the metadata
    /// does, and would send clients around in a circle.
    pub(crate) fn other_leader_of(
        &mut self,
        image: &Image,
        id: TopicPartition,
        me: BrokerId,
    ) -> Option<(BrokerId, LeaderEpoch)> {
        let leader = image.partition(id)?.leader?;
        if leader == me {
            return None;
        }
        self.leader_of(image, id)
    }

    /// Where the named leaders are.
    pub(crate) fn endpoints(&self, image: &Image, listener: &str) -> Vec<LeaderEndpoint> {
        let located = self.leaders.iter().filter_map(|leader| {
            let address = image.listener(*leader, listener)?;
            Some(LeaderEndpoint {
                node_id: leader.0,
                host: address.host.clone(),
                port: i32::from(address.port),
                rack: image.rack(*leader).map(str::to_owned),
            })
        });
        located.collect()
    }
}

#[cfg(test)]
mod tests {
    use taffrail_core::ids::TopicId;
    use taffrail_core::metadata::{Partition, Record};

    use super::*;

    #[test]
    fn nobody_is_sent_to_the_broker_that_leads_no_more() {
        let topic_id = TopicId([1; 16]);
        let led_by = |leader: Option<BrokerId>| {
            let state = Partition {
                replicas: vec![BrokerId(1), BrokerId(2)],
                isr: leader.into_iter().collect(),
                leader,
                leader_epoch: LeaderEpoch(5),
                ..Partition::default()
            };
            Image::replay(&[
                Record::Topic {
                    topic_id,
                    name: "orders".into(),
                },
                Record::Partition {
                    topic_id,
                    partition: 0,
                    state,
                },
            ])
            .unwrap()
        };
        let check = |leader: Option<i32>, expected: Option<i32>| {
            let (image, mut hints) = (led_by(leader.map(BrokerId)), LeaderHints::default());
            let id = TopicPartition::new(topic_id, 0);
            let found = hints.other_leader_of(&image, id, BrokerId(1));
            let expected = expected.map(|leader| (BrokerId(leader), LeaderEpoch(5)));
            assert_eq!(found, expected, "{leader:?}");
            let named: Vec<BrokerId> = expected.iter().map(|(leader, _)| *leader).collect();
            assert!(hints.leaders.iter().eq(&named), "{leader:?}");
        };
        check(Some(2), Some(2));
        check(Some(1), None);
        check(None, None);
    }
}
