//! What the controller hears from brokers and does not replicate: when, and how far they have applied the metadata.

use std::collections::BTreeMap;

use super::impaired::{Impaired, Impairment};
use crate::ids::{BrokerId, TopicPartition};
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_broker: BTreeMap<BrokerId, Session>,
}

#[derive(Clone, Debug)]
struct Session {
    last_contact: Instant,
    /// The last index of the metadata log that the broker has applied.
    metadata_index: i64,
    /// The index of the entry that began its controlled shutdown.
    shutdown_index: Option<i64>,
    /// Its replicas that it reports as unfit, once it has reported.
    impaired: Option<Impaired>,
}

impl Sessions {
    /// A new process of the broker, or a new controller: nothing is known but that it is there.
    pub(super) fn start(&mut self, broker: BrokerId, now: Instant) {
        let session = Session {
            last_contact: now,
            metadata_index: -1,
            shutdown_index: None,
            impaired: None,
        };
        self.by_broker.insert(broker, session);
    }

    pub(super) fn note_contact(&mut self, broker: BrokerId, now: Instant, metadata_index: i64) {
        if let Some(session) = self.by_broker.get_mut(&broker) {
            session.last_contact = session.last_contact.max(now);
            session.metadata_index = session.metadata_index.max(metadata_index);
        }
    }

    pub(super) fn note_shutdown(&mut self, broker: BrokerId, index: i64) {
        if let Some(session) = self.by_broker.get_mut(&broker) {
            session.shutdown_index.get_or_insert(index);
        }
    }

    /// Notes which of a broker's replicas are unfit, and gives what it reported before; `None` if this is its first report.
    pub(super) fn replace_impaired(
        &mut self,
        broker: BrokerId,
        impaired: Impaired,
    ) -> Option<Impaired> {
        let session = self.by_broker.get_mut(&broker)?;
        session.impaired.replace(impaired)
    }

    /// What is wrong with a broker's replica, if anything.
    pub(super) fn impairment(
        &self,
        broker: BrokerId,
        partition: TopicPartition,
    ) -> Option<Impairment> {
        let impaired = self.by_broker.get(&broker)?.impaired.as_ref()?;
        impaired.get(&partition).copied()
    }

    pub(super) fn remove(&mut self, broker: BrokerId) {
        self.by_broker.remove(&broker);
    }

    pub(super) fn last_contact(&self, broker: BrokerId) -> Option<Instant> {
        self.by_broker
            .get(&broker)
            .map(|session| session.last_contact)
    }

    pub(super) fn shutdown_index(&self, broker: BrokerId) -> Option<i64> {
        self.by_broker.get(&broker)?.shutdown_index
    }

    pub(super) fn has_applied(&self, broker: BrokerId, index: i64) -> bool {
        let session = self.by_broker.get(&broker);
        session.is_some_and(|session| session.metadata_index >= index)
    }
}
