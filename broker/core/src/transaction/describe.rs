//! DescribeTransactions and ListTransactions: what a coordinator shows of itself.

use std::collections::BTreeSet;

use crate::ids::ProducerId;

use super::coordinator::Coordinator;
use super::record::{TransactionPartition, TransactionValue};
use super::state::State;

/// One transactional id as DescribeTransactions shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description<'a> {
    /// What the log says.
    pub value: &'a TransactionValue,
    /// The partitions that wait for their marker, or of a transaction that has not ended all.
    pub partitions: Vec<&'a TransactionPartition>,
}

/// Which transactional ids ListTransactions wants. What is not set lets all pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of these producers.
    pub producer_ids: Option<BTreeSet<ProducerId>>,
    /// In these states; an empty set, of names that nothing is ever in, lets none pass.
    pub states: Option<BTreeSet<State>>,
    /// That began longer ago than so many milliseconds. As in Kafka, those that never began pass.
    pub longer_than_ms: Option<i64>,
}

impl Coordinator {
    /// One transactional id; `None` if it is not known.
    pub fn describe(&self, transactional_id: &str) -> Option<Description<'_>> {
        let transaction = self.transactions.get(transactional_id)?;
        let value = &transaction.value;
        let partitions = value.partitions.iter();
        Some(Description {
            value,
            partitions: partitions
                .filter(|partition| !transaction.marked.contains(partition))
                .collect(),
        })
    }

    /// The transactional ids that pass a filter, in their order.
    pub fn list<'a>(
        &'a self,
        wall_ms: i64,
        filter: &'a Filter,
    ) -> impl Iterator<Item = (&'a str, &'a TransactionValue)> {
        self.transactions()
            .filter(move |(_, value)| filter.lets_pass(value, wall_ms))
    }
}

impl Filter {
    fn lets_pass(&self, value: &TransactionValue, wall_ms: i64) -> bool {
        let producer_ids = self.producer_ids.as_ref();
        let states = self.states.as_ref();
        producer_ids.is_none_or(|wanted| wanted.contains(&value.producer_id))
            && states.is_none_or(|wanted| wanted.contains(&value.state))
            && self
                .longer_than_ms
                .is_none_or(|least| wall_ms.saturating_sub(value.start_ms) > least)
    }
}
