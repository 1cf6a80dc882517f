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
