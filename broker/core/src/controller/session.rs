//! What the controller hears from brokers and does not replicate: when, and how far they have applied the metadata.

use std::collections::BTreeMap;

use super::impaired::{Impaired, Impairment};
use crate::ids::{BrokerId, PartitionEpoch, TopicPartition};
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_broker: BTreeMap<BrokerId, Session>,
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReportTaken {
    /// The broker's first in this session.
    First,
    /// What the one before said.
    Next(Impaired),
    /// A newer one is known, or the broker has gone.
    TooLate,
}

#[derive(Clone, Debug)]
struct Session {
    last_contact: Instant,
    /// The last index of the metadata log that the broker has applied.
    metadata_index: i64,
    /// The index of the entry that began its controlled shutdown.
    shutdown_index: Option<i64>,
    /// Its newest report of unfit replicas, once it has reported.
    report: Option<Report>,
    /// Whether a report was made with all metadata applied that was there when this controller began.
    is_current: bool,
    /// The partitions of damaged replicas, and the epochs that the records had by which the reports were noted.
    marks: BTreeMap<TopicPartition, PartitionEpoch>,
}

/// A broker's unfit replicas, all of them each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Grows with every change, over the life of a process: a report that comes late is known by it.
    pub version: i64,
    /// What is wrong, by replica.
    pub impaired: Impaired,
}

impl Sessions {
    /// A new process of the broker, or a new controller: nothing is known but that it is there.
    pub(super) fn start(&mut self, broker: BrokerId, now: Instant) {
        let session = Session {
            last_contact: now,
            metadata_index: -1,
            shutdown_index: None,
            report: None,
            is_current: false,
            marks: BTreeMap::new(),
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

    /// Takes a broker's report over. `is_current` says that it was made with all metadata applied that was there when this
    /// controller began.
    pub(super) fn take_report(
        &mut self,
        broker: BrokerId,
        report: &Report,
        is_current: bool,
    ) -> ReportTaken {
        let Some(session) = self.by_broker.get_mut(&broker) else {
            return ReportTaken::TooLate;
        };
        let known = session.report.as_ref();
        if known.is_some_and(|known| known.version > report.version) {
            return ReportTaken::TooLate;
        }
        session.is_current |= is_current;
        let impaired = &report.impaired;
        let marks = &mut session.marks;
        marks.retain(|id, _| impaired.get(id) == Some(&Impairment::Damaged));
        match session.report.replace(report.clone()) {
            None => ReportTaken::First,
            Some(before) => ReportTaken::Next(before.impaired),
        }
    }

    /// What is wrong with a broker's replica, if anything.
    pub(super) fn impairment(
        &self,
        broker: BrokerId,
        partition: TopicPartition,
    ) -> Option<Impairment> {
        let report = self.by_broker.get(&broker)?.report.as_ref()?;
        report.impaired.get(&partition).copied()
    }

    /// Whether it is known since this controller began what is wrong with a broker's replicas.
    pub(super) fn has_current_report(&self, broker: BrokerId) -> bool {
        let session = self.by_broker.get(&broker);
        session.is_some_and(|session| session.is_current)
    }

    /// A record with this epoch says that the report of a damaged replica was taken in.
    pub(super) fn mark(
        &mut self,
        broker: BrokerId,
        partition: TopicPartition,
        epoch: PartitionEpoch,
    ) {
        if let Some(session) = self.by_broker.get_mut(&broker) {
            session.marks.insert(partition, epoch);
        }
    }

    /// The epoch of that record, if it was decided.
    pub(super) fn marked(
        &self,
        broker: BrokerId,
        partition: TopicPartition,
    ) -> Option<PartitionEpoch> {
        self.by_broker.get(&broker)?.marks.get(&partition).copied()
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
