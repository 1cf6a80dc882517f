//! Connections of other brokers to this one, as far as their ends matter: the quorum's task is told of each, since a
//! process that dies closes its connections. That one closed proves nothing yet; see `search`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use taffrail_core::ids::{BrokerId, Incarnation};
use tokio::sync::mpsc;

use super::Cluster;
use super::doubts::Doubts;
use super::quorum::Event;
use crate::env::Env;

/// Held by a connection whose other end has said who it is. Dropping it tells that the connection has ended.
pub(crate) struct PeerPresence {
    peer: BrokerId,
    incarnation: Incarnation,
    /// None on a broker that does not vote.
    events: Option<mpsc::Sender<Event>>,
    doubts: Arc<Doubts>,
}

impl fmt::Debug for PeerPresence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerPresence({}, {})", self.peer, self.incarnation)
    }
}

impl Drop for PeerPresence {
    fn drop(&mut self) {
        self.doubts.raise(self.peer, self.incarnation);
        let Some(events) = &self.events else { return };
        // A queue that is full, or a task that has ended, leaves it to heartbeats and election timeouts.
        let _ = events.try_send(Event::ConnectionLost {
            peer: self.peer,
            incarnation: self.incarnation,
        });
    }
}

/// The newest process of each other broker that connected here: any of them may vote one day.
#[derive(Default)]
pub(super) struct VoterProcesses {
    newest: Mutex<BTreeMap<BrokerId, Incarnation>>,
}

impl VoterProcesses {
    fn note(&self, voter: BrokerId, incarnation: Incarnation) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.insert(voter, incarnation);
    }

    /// Whether no later process of that voter has connected here.
    pub(super) fn is_newest(&self, voter: BrokerId, incarnation: Incarnation) -> bool {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.get(&voter) == Some(&incarnation)
    }
}

impl<E: Env> Cluster<E> {
    /// Another broker has introduced itself on a connection.
    pub(super) fn note_presence(
        &self,
        peer: BrokerId,
        incarnation: Incarnation,
    ) -> Option<PeerPresence> {
        self.voter_processes.note(peer, incarnation);
        (peer != self.id).then(|| PeerPresence {
            peer,
            incarnation,
            events: self.quorum.sender(),
            doubts: Arc::clone(&self.doubts),
        })
    }
}
