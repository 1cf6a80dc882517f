//! Brokers come, are heard from, leave in order or go missing.
//!
//! | state | heartbeat, caught up | wants to be fenced | wants to shut down | session expires | found gone (`suspects`) | new process registers |
//! |---|---|---|---|---|---|---|
//! | fenced | active | stays | stays, told to go | stays | stays | fenced |
//! | active | stays | fenced | shutting down | fenced | fenced | fenced |
//! | shutting down | told to go and fenced once all others know | fenced | likewise | fenced | fenced | fenced |
//!
//! Whoever leaves `active` leaves every ISR and leads nothing, by records of the same decision.

use std::collections::BTreeSet;

use super::election::BrokerChanges;
use super::session::Report;
use super::{Controller, Decision};
use crate::error::{ApiError, ErrorKind};
use crate::ids::{BrokerEpoch, BrokerId, DirectoryId, Incarnation};
use crate::metadata::{Broker, Listener, Record};
use crate::time::Instant;

/// A broker process asks to be part of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The cluster it believes to be in.
    pub cluster_id: String,
    /// Its id.
    pub broker: BrokerId,
    /// Drawn when the process started; a repeated request is answered as the first.
    pub incarnation: Incarnation,
    /// The registration under which it last shut down cleanly, from its disk; `None` if it cannot tell.
    pub previous_epoch: Option<BrokerEpoch>,
    /// Its log directories.
    pub directories: Vec<DirectoryId>,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// Where it stands.
    pub rack: Option<String>,
}

/// A registered broker lets the controller hear from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Its id.
    pub broker: BrokerId,
    /// Its registration.
    pub epoch: BrokerEpoch,
    /// The last index of the metadata log that it has applied, -1 if none.
    pub metadata_index: i64,
    /// It is not ready to serve.
    pub want_fence: bool,
    /// It wants to leave in order.
    pub want_shutdown: bool,
    /// Its replicas that are not fit, gathered after `metadata_index` was read.
    pub report: Report,
}

/// What a broker learns from a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// It has applied its own registration, so that it knows what was asked of it before.
    pub caught_up: bool,
    /// It may not serve.
    pub fenced: bool,
    /// It leads nothing any more and all other brokers know: it may go.
    pub should_shutdown: bool,
}

/// What the operator knows of a broker from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerEndpoints {
    /// Which broker, registered or not yet.
    pub broker: BrokerId,
    /// Its rack; `None` leaves what the broker says.
    pub rack: Option<String>,
    /// Its addresses by listener name.
    pub listeners: Vec<Listener>,
}

impl Controller {
    /// Registers a broker process, fenced, and replies its broker epoch.
    ///
    /// A process that replaces one is taken out of every ISR, and out of every ELR unless it proves that the earlier one
    /// stopped cleanly. A second process of a broker that is still heard from is refused, unless it holds one of the earlier
    /// one's log directories: those are locked, so the earlier one must be gone.
    pub fn handle_registration(
        &mut self,
        now: Instant,
        registration: &Registration,
    ) -> Decision<Result<BrokerEpoch, ApiError>> {
        if let Err(refusal) = self.check_registration(now, registration) {
            return Decision::reply(Err(refusal));
        }
        let existing = self.image.broker(registration.broker);
        if let Some(existing) = existing
            && existing.incarnation == registration.incarnation
        {
            let epoch = existing.epoch;
            self.sessions.note_contact(registration.broker, now, -1);
            return Decision::reply(Ok(epoch));
        }
        // A broker that comes back without one of its directories lost what was there, however cleanly it stopped.
        let lost_directory = existing.is_some_and(|existing| {
            let kept = |id| registration.directories.contains(id);
            !existing.directories.iter().all(kept)
        });
        let clean = !lost_directory
            && existing.is_none_or(|existing| registration.previous_epoch == Some(existing.epoch));
        let epoch = BrokerEpoch(self.last_index + 1);
        let directories: BTreeSet<_> = registration.directories.iter().copied().collect();
        let mut records = vec![Record::RegisterBroker {
            broker: registration.broker,
            epoch,
            incarnation: registration.incarnation,
            directories: directories.into_iter().collect(),
            listeners: registration.listeners.clone(),
            rack: registration.rack.clone(),
            fenced: true,
        }];
        records.extend(self.change_all(&BrokerChanges {
            leaving: BTreeSet::from([registration.broker]),
            unclean: (!clean).then_some(registration.broker),
            lost_directory,
            joining: None,
        }));
        self.sessions.start(registration.broker, now);
        Decision {
            records,
            reply: Ok(epoch),
        }
    }

    /// Notes that a broker lives, and moves it between the states of the table above.
    pub fn handle_heartbeat(
        &mut self,
        now: Instant,
        heartbeat: &Heartbeat,
    ) -> Decision<Result<HeartbeatReply, ApiError>> {
        let broker = match self.check_epoch(heartbeat.broker, heartbeat.epoch) {
            Ok(broker) => broker.clone(),
            Err(kind) => return Decision::reply(Err(kind.into())),
        };
        self.sessions
            .note_contact(broker.id, now, heartbeat.metadata_index);
        // The epoch is the index of the registration: "caught up" asks for that, not for the moving end (KAFKA-13959).
        let caught_up = self.sessions.has_applied(broker.id, broker.epoch.0);
        let mut reply = HeartbeatReply {
            caught_up,
            fenced: broker.fenced,
            should_shutdown: false,
        };
        // Before anything that may make it a leader.
        let mut records = self.take_report(&broker, heartbeat);
        if !records.is_empty() {
            // What else it wishes waits for its next heartbeat, which then finds these applied.
            return Decision {
                records,
                reply: Ok(reply),
            };
        }
        if broker.fenced {
            if heartbeat.want_shutdown {
                reply.should_shutdown = true;
            } else if !heartbeat.want_fence && caught_up {
                records = self.unfence(&broker);
                reply.fenced = false;
            }
        } else if heartbeat.want_shutdown {
            if !broker.in_controlled_shutdown {
                records = self.begin_shutdown(&broker);
            } else if self.all_others_know_of_shutdown(broker.id) {
                records = self.fence(&BTreeSet::from([broker.id]));
                reply.should_shutdown = true;
                reply.fenced = true;
            }
        } else if heartbeat.want_fence {
            records = self.fence(&BTreeSet::from([broker.id]));
            reply.fenced = true;
        }
        Decision {
            records,
            reply: Ok(reply),
        }
    }

    /// Records what the operator knows of brokers; replies one result for each, in order.
    pub fn set_broker_endpoints(
        &self,
        endpoints: &[BrokerEndpoints],
    ) -> Decision<Vec<Result<(), ApiError>>> {
        let mut records = Vec::new();
        let mut reply = Vec::new();
        for set in endpoints {
            reply.push(check_endpoints(set));
            let known = self.image.endpoints(set.broker);
            let same = known
                .is_some_and(|known| known.rack == set.rack && known.listeners == set.listeners);
            if reply.last().is_some_and(Result::is_ok) && !same {
                records.push(Record::BrokerEndpoints {
                    broker: set.broker,
                    rack: set.rack.clone(),
                    listeners: set.listeners.clone(),
                });
            }
        }
        Decision { records, reply }
    }

    /// Removes a broker that will not come back: fenced, and without replicas.
    pub fn unregister_broker(&self, broker: BrokerId) -> Decision<Result<(), ApiError>> {
        let refusal = match self.image.broker(broker) {
            None => Some(ErrorKind::BrokerIdNotRegistered.into()),
            Some(registered) if !registered.fenced => {
                let message = format!("Broker {broker} is still alive.");
                Some(ApiError::new(ErrorKind::InvalidRequest, message))
            }
            Some(_) => {
                let mut partitions = self.image.partitions();
                let held = partitions.find(|(_, state)| state.replicas.contains(&broker));
                held.map(|(partition, _)| {
                    let message = format!(
                        "Broker {broker} still has a replica of {partition}; reassign it first."
                    );
                    ApiError::new(ErrorKind::InvalidRequest, message)
                })
            }
        };
        match refusal {
            Some(refusal) => Decision::reply(Err(refusal)),
            None => Decision {
                records: vec![Record::UnregisterBroker { broker }],
                reply: Ok(()),
            },
        }
    }

    pub(super) fn fence_missing(&self, now: Instant) -> Decision<()> {
        let unfenced = self.image.brokers().filter(|broker| !broker.fenced);
        let is_missing = |id| !self.has_session(id, now) || self.suspects.is_gone(id);
        let missing = unfenced
            .map(|broker| broker.id)
            .filter(|id| is_missing(*id));
        Decision {
            records: self.fence(&missing.collect()),
            reply: (),
        }
    }

    pub(super) fn check_epoch(
        &self,
        broker: BrokerId,
        epoch: BrokerEpoch,
    ) -> Result<&Broker, ErrorKind> {
        let registered = self
            .image
            .broker(broker)
            .ok_or(ErrorKind::BrokerIdNotRegistered)?;
        if registered.epoch == epoch {
            Ok(registered)
        } else {
            Err(ErrorKind::StaleBrokerEpoch)
        }
    }

    fn has_session(&self, broker: BrokerId, now: Instant) -> bool {
        let contact = self.sessions.last_contact(broker);
        contact.is_some_and(|contact| now < contact + self.config.session_timeout)
    }

    fn check_registration(
        &self,
        now: Instant,
        registration: &Registration,
    ) -> Result<(), ApiError> {
        let Registration { broker, .. } = *registration;
        if let Some(cluster_id) = self.image.cluster_id()
            && cluster_id != registration.cluster_id
        {
            let message = format!(
                "Broker {broker} belongs to cluster {}, this is cluster {cluster_id}.",
                registration.cluster_id
            );
            return Err(ApiError::new(ErrorKind::InconsistentClusterId, message));
        }
        if broker.0 < 0 {
            let message = format!("Broker id {broker} is negative.");
            return Err(ApiError::new(ErrorKind::InvalidRequest, message));
        }
        let Some(existing) = self.image.broker(broker) else {
            return Ok(());
        };
        let mut directories = registration.directories.iter();
        let replaces = existing.incarnation == registration.incarnation
            || directories.any(|directory| existing.directories.contains(directory));
        if !replaces && !existing.fenced && self.has_session(broker, now) {
            let message = format!("Another broker {broker} is alive, on other log directories.");
            return Err(ApiError::new(
                ErrorKind::DuplicateBrokerRegistration,
                message,
            ));
        }
        Ok(())
    }

    fn fence(&self, brokers: &BTreeSet<BrokerId>) -> Vec<Record> {
        if brokers.is_empty() {
            return Vec::new();
        }
        let registered = brokers.iter().filter_map(|id| self.image.broker(*id));
        let mut records: Vec<_> = registered
            .map(|broker| state_record(broker, true, false))
            .collect();
        records.extend(self.change_all(&BrokerChanges {
            leaving: brokers.clone(),
            ..BrokerChanges::default()
        }));
        records
    }

    fn unfence(&self, broker: &Broker) -> Vec<Record> {
        let mut records = vec![state_record(broker, false, false)];
        records.extend(self.change_all(&BrokerChanges {
            joining: Some(broker.id),
            ..BrokerChanges::default()
        }));
        records
    }

    fn begin_shutdown(&self, broker: &Broker) -> Vec<Record> {
        let mut records = vec![state_record(broker, false, true)];
        records.extend(self.change_all(&BrokerChanges {
            leaving: BTreeSet::from([broker.id]),
            ..BrokerChanges::default()
        }));
        records
    }

    /// Whether every other active broker has applied the entry that took leadership away, so that none sends anyone there.
    fn all_others_know_of_shutdown(&self, broker: BrokerId) -> bool {
        let Some(index) = self.sessions.shutdown_index(broker) else {
            return false;
        };
        let mut others = self
            .image
            .brokers()
            .filter(|other| other.id != broker && !other.fenced);
        others.all(|other| self.sessions.has_applied(other.id, index))
    }
}

fn state_record(broker: &Broker, fenced: bool, in_controlled_shutdown: bool) -> Record {
    Record::BrokerState {
        broker: broker.id,
        epoch: broker.epoch,
        fenced,
        in_controlled_shutdown,
    }
}

fn check_endpoints(set: &BrokerEndpoints) -> Result<(), ApiError> {
    let names: BTreeSet<_> = set
        .listeners
        .iter()
        .map(|listener| &listener.name)
        .collect();
    let refuse = |message: String| Err(ApiError::new(ErrorKind::InvalidRequest, message));
    if set.broker.0 < 0 {
        return refuse(format!("Broker id {} is negative.", set.broker));
    }
    if names.len() != set.listeners.len() {
        return refuse(format!(
            "Broker {} has two listeners of one name.",
            set.broker
        ));
    }
    match set
        .listeners
        .iter()
        .find(|listener| listener.host.is_empty() || listener.port == 0)
    {
        Some(listener) => refuse(format!(
            "Listener {} of broker {} has no address.",
            listener.name, set.broker
        )),
        None => Ok(()),
    }
}
