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
    processes: Arc<VoterProcesses>,
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
        self.processes.forget(self.peer, self.incarnation);
        self.doubts.raise(self.peer, self.incarnation);
        let Some(events) = &self.events else { return };
        // A queue that is full, or a task that has ended, leaves it to heartbeats and election timeouts.
        let _ = events.try_send(Event::ConnectionLost {
            peer: self.peer,
            incarnation: self.incarnation,
        });
    }
}

/// The newest process of each other broker that is connected here: any of them may vote one day. As many as there are
/// connections, whatever peers claim to be.
#[derive(Default)]
pub(super) struct VoterProcesses {
    newest: Mutex<BTreeMap<BrokerId, Newest>>,
}

struct Newest {
    incarnation: Incarnation,
    /// How many connections it has here.
    connections: usize,
}

impl VoterProcesses {
    fn note(&self, voter: BrokerId, incarnation: Incarnation) {
        self.with(|newest| match newest.get_mut(&voter) {
            Some(known) if known.incarnation == incarnation => known.connections += 1,
            Some(_) | None => {
                let connections = 1;
                newest.insert(
                    voter,
                    Newest {
                        incarnation,
                        connections,
                    },
                );
            }
        });
    }

    /// A connection of that process ended.
    fn forget(&self, voter: BrokerId, incarnation: Incarnation) {
        self.with(|newest| {
            let Some(known) = newest.get_mut(&voter) else {
                return;
            };
            if known.incarnation == incarnation {
                known.connections = known.connections.saturating_sub(1);
                if known.connections == 0 {
                    newest.remove(&voter);
                }
            }
        });
    }

    /// Whether that process was the last one of that voter to connect here, and still is connected.
    pub(super) fn is_newest(&self, voter: BrokerId, incarnation: Incarnation) -> bool {
        self.with(|newest| {
            newest
                .get(&voter)
                .is_some_and(|known| known.incarnation == incarnation)
        })
    }

    /// Whether a later process of that voter is connected here.
    pub(super) fn is_outdated(&self, voter: BrokerId, incarnation: Incarnation) -> bool {
        self.with(|newest| {
            newest
                .get(&voter)
                .is_some_and(|known| known.incarnation != incarnation)
        })
    }

    fn with<R>(&self, work: impl FnOnce(&mut BTreeMap<BrokerId, Newest>) -> R) -> R {
        work(&mut self.newest.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<E: Env> Cluster<E> {
    /// Another broker has introduced itself on a connection.
    pub(super) fn note_presence(
        &self,
        peer: BrokerId,
        incarnation: Incarnation,
    ) -> Option<PeerPresence> {
        if peer == self.id {
            return None;
        }
        self.voter_processes.note(peer, incarnation);
        Some(PeerPresence {
            peer,
            incarnation,
            processes: Arc::clone(&self.voter_processes),
            events: self.quorum.sender(),
            doubts: Arc::clone(&self.doubts),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Incarnation = Incarnation([1; 16]);
    const NEW: Incarnation = Incarnation([2; 16]);

    #[test]
    fn of_two_processes_the_later_one_counts_while_it_is_connected_and_neither_is_remembered_after()
    {
        let processes = VoterProcesses::default();
        let voter = BrokerId(7);
        let is_newest = |incarnation| processes.is_newest(voter, incarnation);
        processes.note(voter, OLD);
        processes.note(voter, OLD);
        assert!(is_newest(OLD) && !processes.is_outdated(voter, OLD));
        processes.note(voter, NEW);
        assert!(is_newest(NEW) && !is_newest(OLD) && processes.is_outdated(voter, OLD));
        // Its other connection is still there, and does not count for the new one.
        processes.forget(voter, OLD);
        processes.forget(voter, OLD);
        assert!(is_newest(NEW));
        processes.forget(voter, NEW);
        assert!(!is_newest(NEW) && !is_newest(OLD));
        assert_eq!(processes.with(|newest| newest.len()), 0);
    }

    #[test]
    fn a_process_that_reconnects_before_its_earlier_connection_ends_is_still_the_newest() {
        let processes = VoterProcesses::default();
        let voter = BrokerId(7);
        processes.note(voter, OLD);
        processes.note(voter, OLD);
        processes.forget(voter, OLD);
        assert!(processes.is_newest(voter, OLD));
    }
}
