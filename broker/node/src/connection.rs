//! What a node remembers about one connection: who is at the other end and which listener it came in by.

use std::sync::Arc;

use crate::access::Principal;
use crate::cluster::PeerPresence;

/// Which kind of listener a connection came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// Brokers among themselves (and the operator): private APIs are served.
    Internal,
    /// Everybody else: private APIs are refused.
    Client,
}

/// One connection to this node, owned by its task.
#[derive(Debug)]
pub struct Connection {
    /// The listener's name, as configured.
    pub listener: Arc<str>,
    /// The listener's kind.
    pub kind: ListenerKind,
    /// The other end's address without port, as clients' hosts are shown in groups.
    pub host: Arc<str>,
    /// Who is at the other end.
    pub principal: Principal,
    /// The broker that introduced itself by PeerHello, on an internal listener.
    pub peer: Option<taffrail_core::ids::BrokerId>,
    /// The process of that broker.
    pub(crate) peer_incarnation: Option<taffrail_core::ids::Incarnation>,
    /// Tells the quorum when this connection of a broker ends.
    pub(crate) presence: Option<PeerPresence>,
}

impl Connection {
    /// A connection that has just been accepted; nobody has authenticated on it.
    pub fn new(listener: Arc<str>, kind: ListenerKind, host: Arc<str>) -> Self {
        Self {
            listener,
            kind,
            host,
            principal: Principal::anonymous(),
            peer: None,
            peer_incarnation: None,
            presence: None,
        }
    }
}
