//! Looking for a broker that may be gone: a new connection to its internal listener that asks who is there, from here
//! or from other voters. What follows from what is met is the controller's to decide, or the voter's.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::controller::{Search, Sighting};
use taffrail_core::ids::{BrokerId, Incarnation};
use taffrail_core::time::Instant;
use taffrail_protocol::messages::{LookForBrokerRequest, LookForBrokerResponse};
use taffrail_protocol::{ErrorCode, Request, Uuid};
use tokio::sync::mpsc;

use super::peer::{self, PeerConnection, PeerError};
use super::quorum::Event;
use crate::broker::Broker;
use crate::dispatch::RequestContext;
use crate::env::Env;

/// How long a broker that is there may take to answer. Silence alone fences nobody, so that one that stalls for longer
/// needs a lost connection and another voter that finds the same.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);
/// How long another voter may take to tell what it met: a look of its own, and the way there and back.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(1000);
/// The pause before the next try where a connection was closed before there was an answer: a process that ends may
/// still take connections for a moment.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Looks for a suspect in the background, and tells the quorum's task what was met.
pub(super) fn start<E: Env>(broker: &Arc<Broker<E>>, search: Search) {
    let broker = Arc::clone(broker);
    broker.env.clone().spawn(async move {
        let event = match search {
            Search::Look(suspect) => {
                let sighting = look(&broker, suspect.broker).await;
                tracing::debug!(suspect = %suspect.broker, ?sighting, "looked for a broker");
                Event::Looked(suspect, sighting)
            }
            Search::Confirm(suspect) => {
                let sightings = ask_voters(&broker, suspect.broker).await;
                tracing::debug!(suspect = %suspect.broker, ?sightings, "had a broker looked for");
                Event::Confirmed(suspect, sightings)
            }
        };
        broker.cluster.quorum.report(event).await;
    });
}

/// Looks for the leader that a voter has lost a connection of.
pub(super) fn start_for_leader<E: Env>(
    broker: &Arc<Broker<E>>,
    leader: BrokerId,
    incarnation: Incarnation,
    term: u64,
) {
    let broker = Arc::clone(broker);
    broker.env.clone().spawn(async move {
        let sighting = look(&broker, leader).await;
        tracing::debug!(%leader, ?sighting, "looked for the leader of the metadata quorum");
        let gone = match sighting {
            Sighting::Answered(answered) => answered != incarnation,
            Sighting::Refused => true,
            Sighting::Silent | Sighting::Unclear => false,
        };
        let event = Event::LookedForLeader { leader, term, gone };
        broker.cluster.quorum.report(event).await;
    });
}

/// Looks for a broker at its addresses.
pub(super) async fn look<E: Env>(broker: &Arc<Broker<E>>, id: BrokerId) -> Sighting {
    if id == broker.id {
        return Sighting::Answered(broker.incarnation);
    }
    let mut met = None;
    for (host, port) in peer::addresses(broker, id) {
        let here = look_at(broker, id, &host, port).await;
        met = Some(match (met, here) {
            (_, Sighting::Answered(incarnation)) => return Sighting::Answered(incarnation),
            (None | Some(Sighting::Refused), here) => here,
            // One address that may still be its own is enough to be unsure.
            (Some(before), Sighting::Refused) => before,
            (Some(Sighting::Silent), Sighting::Silent) => Sighting::Silent,
            (Some(_), Sighting::Silent | Sighting::Unclear) => Sighting::Unclear,
        });
    }
    met.unwrap_or(Sighting::Unclear)
}

async fn look_at<E: Env>(broker: &Arc<Broker<E>>, id: BrokerId, host: &str, port: u16) -> Sighting {
    let deadline = broker.env.now() + LOOK_TIMEOUT;
    loop {
        let met = match peer::connect(broker, id, host, port, deadline).await {
            Ok(connection) => ask(broker, &connection, id, id, deadline).await,
            Err(error) => Err(error),
        };
        let error = match met {
            Ok(sighting) => return sighting,
            Err(error) => error,
        };
        match of_error(&error) {
            Some(sighting) => return sighting,
            None if broker.env.now() + RETRY_PAUSE >= deadline => return Sighting::Unclear,
            None => {
                let until = broker.env.now() + RETRY_PAUSE;
                broker.env.sleep_until(until).await;
            }
        }
    }
}

/// What a failure says; nothing if another try may say more.
fn of_error(error: &PeerError) -> Option<Sighting> {
    let kind = match error {
        PeerError::Connect { source, .. } | PeerError::Io { source, .. } => source.kind(),
        PeerError::NoAddress(_)
        | PeerError::Identity { .. }
        | PeerError::Refused { .. }
        | PeerError::Malformed { .. }
        | PeerError::Unwritable { .. } => return Some(Sighting::Unclear),
    };
    match kind {
        ErrorKind::ConnectionRefused => Some(Sighting::Refused),
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            Some(Sighting::Silent)
        }
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => None,
        _ => Some(Sighting::Unclear),
    }
}

/// Has all other voters look for a broker; gives what they met, without those that did not say.
async fn ask_voters<E: Env>(broker: &Arc<Broker<E>>, about: BrokerId) -> Vec<Sighting> {
    let voters = broker.cluster.voters().into_iter();
    let others: Vec<BrokerId> = voters
        .filter(|voter| *voter != broker.id && *voter != about)
        .collect();
    let deadline = broker.env.now() + CONFIRM_TIMEOUT;
    let (told, mut answers) = mpsc::channel(others.len().max(1));
    for voter in others {
        let (asking, told) = (Arc::clone(broker), told.clone());
        broker.env.spawn(async move {
            if let Some(sighting) = ask_voter(&asking, voter, about, deadline).await {
                // The receiver waits for all.
                let _ = told.send(sighting).await;
            }
        });
    }
    drop(told);
    let mut sightings = Vec::new();
    while let Some(sighting) = answers.recv().await {
        sightings.push(sighting);
    }
    sightings
}

async fn ask_voter<E: Env>(
    broker: &Arc<Broker<E>>,
    voter: BrokerId,
    about: BrokerId,
    deadline: Instant,
) -> Option<Sighting> {
    for (host, port) in peer::addresses(broker, voter) {
        let asked = match peer::connect(broker, voter, &host, port, deadline).await {
            Ok(connection) => ask(broker, &connection, voter, about, deadline).await,
            Err(error) => Err(error),
        };
        match asked {
            Ok(sighting) => return Some(sighting),
            Err(error) => {
                tracing::debug!(%voter, %error, "a voter could not be asked for a broker")
            }
        }
    }
    None
}

async fn ask<E: Env>(
    broker: &Broker<E>,
    connection: &PeerConnection<E>,
    asked: BrokerId,
    about: BrokerId,
    deadline: Instant,
) -> Result<Sighting, PeerError> {
    let request = LookForBrokerRequest {
        cluster_id: broker.cluster.cluster_id().unwrap_or_default(),
        asked_broker_id: asked.0,
        broker_id: about.0,
    };
    let response = connection
        .call(&request, LookForBrokerRequest::MAX_VERSION, deadline)
        .await?;
    Ok(from_wire(&response))
}

/// Answers whether a broker's process is there: for this broker at once, for another after a look.
pub(crate) async fn handle_look_for_broker<E: Env>(
    broker: Arc<Broker<E>>,
    _context: RequestContext,
    request: LookForBrokerRequest,
) -> LookForBrokerResponse {
    let is_ours = peer::foreign_cluster(&broker, &request.cluster_id).is_none();
    if !is_ours || request.asked_broker_id != broker.id.0 {
        return LookForBrokerResponse {
            error_code: ErrorCode::BrokerIdNotRegistered.code(),
            ..Default::default()
        };
    }
    to_wire(look(&broker, BrokerId(request.broker_id)).await)
}

fn to_wire(sighting: Sighting) -> LookForBrokerResponse {
    let (sighting, incarnation) = match sighting {
        Sighting::Answered(incarnation) => (0, Uuid(incarnation.0)),
        Sighting::Refused => (1, Uuid::default()),
        Sighting::Silent => (2, Uuid::default()),
        Sighting::Unclear => (3, Uuid::default()),
    };
    LookForBrokerResponse {
        error_code: ErrorCode::None.code(),
        sighting,
        incarnation,
    }
}

fn from_wire(response: &LookForBrokerResponse) -> Sighting {
    if response.error_code != ErrorCode::None.code() {
        return Sighting::Unclear;
    }
    match response.sighting {
        0 => Sighting::Answered(Incarnation(response.incarnation.0)),
        1 => Sighting::Refused,
        2 => Sighting::Silent,
        _ => Sighting::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sightings_survive_the_wire() {
        let sightings = [
            Sighting::Answered(Incarnation([7; 16])),
            Sighting::Refused,
            Sighting::Silent,
            Sighting::Unclear,
        ];
        for sighting in sightings {
            assert_eq!(from_wire(&to_wire(sighting)), sighting);
        }
        let foreign = LookForBrokerResponse {
            error_code: ErrorCode::BrokerIdNotRegistered.code(),
            ..Default::default()
        };
        assert_eq!(from_wire(&foreign), Sighting::Unclear);
    }

    #[test]
    fn failures_that_prove_nothing_are_not_taken_for_a_refusal() {
        let check = |kind: ErrorKind, expected| {
            let error = PeerError::Connect {
                broker: BrokerId(1),
                address: String::new(),
                source: kind.into(),
            };
            assert_eq!(of_error(&error), expected, "{kind:?}");
        };
        check(ErrorKind::ConnectionRefused, Some(Sighting::Refused));
        check(ErrorKind::TimedOut, Some(Sighting::Silent));
        check(ErrorKind::HostUnreachable, Some(Sighting::Silent));
        check(ErrorKind::UnexpectedEof, None);
        check(ErrorKind::ConnectionReset, None);
        check(ErrorKind::Other, Some(Sighting::Unclear));
    }
}
