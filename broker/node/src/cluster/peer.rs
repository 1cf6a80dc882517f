//! A dedicated connection to another broker's internal listener, opened with PeerHello: both ends name cluster and
//! broker, and a mismatch is refused with a text that says who was reached instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use taffrail_core::ids::{BrokerId, Incarnation};
use taffrail_core::time::Instant;
use taffrail_protocol::frame::{decode_response, encode_request};
use taffrail_protocol::header::parse_response_header;
use taffrail_protocol::messages::{PeerHelloRequest, PeerHelloResponse};
use taffrail_protocol::{ApiKey, ErrorCode, Request, Uuid};
use thiserror::Error;

use crate::broker::Broker;
use crate::connection::Connection;
use crate::dispatch::{RequestContext, decode, encode};
use crate::env::{Env, Peer};
use crate::response::Handled;

/// How long a connection and its hello may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why another broker could not be asked.
#[derive(Debug, Error)]
pub(crate) enum PeerError {
    #[error(
        "no address of broker {0} is known: it is neither registered nor in controller.quorum.voters"
    )]
    NoAddress(BrokerId),
    #[error("broker {broker} at {address}: {source}")]
    Connect {
        broker: BrokerId,
        address: String,
        source: std::io::Error,
    },
    #[error("broker {broker} at {address} was refused: {reason}")]
    Identity {
        broker: BrokerId,
        address: String,
        reason: String,
    },
    #[error("broker {broker}: {source}")]
    Io {
        broker: BrokerId,
        source: std::io::Error,
    },
    #[error("broker {broker} answered error {code}")]
    Refused { broker: BrokerId, code: i16 },
    #[error("broker {broker} sent what cannot be read: {reason}")]
    Malformed { broker: BrokerId, reason: String },
    #[error("request for broker {broker} cannot be written: {reason}")]
    Unwritable { broker: BrokerId, reason: String },
}

/// An open connection to another broker. Dropping it closes it.
pub(crate) struct PeerConnection<E: Env> {
    broker: BrokerId,
    client_id: String,
    correlation_id: AtomicI32,
    peer: E::Peer,
}

impl<E: Env> PeerConnection<E> {
    /// The broker at the other end.
    pub(crate) fn broker(&self) -> BrokerId {
        self.broker
    }

    /// Sends a request and waits for its response. After an error the connection is of no further use.
    pub(crate) async fn call<R: Request>(
        &self,
        request: &R,
        version: i16,
        deadline: Instant,
    ) -> Result<R::Response, PeerError> {
        let frame = self.call_raw(request, version, deadline).await?;
        decode_response::<R>(&frame, version)
            .map(|(_, response)| response)
            .map_err(|error| self.malformed(error))
    }

    /// As [`Self::call`], but gives the response's frame (without length prefix), in which the `Records::Range` of the
    /// response that [`decode_response`] gives are positions.
    pub(crate) async fn call_raw<R: Request>(
        &self,
        request: &R,
        version: i16,
        deadline: Instant,
    ) -> Result<Vec<u8>, PeerError> {
        let correlation_id = self.correlation_id.fetch_add(1, Ordering::Relaxed);
        let frame = encode_request(correlation_id, Some(&self.client_id), request, version)
            .map_err(|error| PeerError::Unwritable {
                broker: self.broker,
                reason: error.to_string(),
            })?;
        let response = self
            .peer
            .call(frame, deadline)
            .await
            .map_err(|source| PeerError::Io {
                broker: self.broker,
                source,
            })?;
        let header_version =
            ApiKey::try_from(R::API_KEY).map_or(0, |api| api.response_header_version(version));
        let (found, _) = parse_response_header(&response, header_version)
            .map_err(|error| self.malformed(error))?;
        if found == correlation_id {
            Ok(response)
        } else {
            Err(self.malformed(format!(
                "correlation id {found} instead of {correlation_id}"
            )))
        }
    }

    fn malformed(&self, reason: impl ToString) -> PeerError {
        PeerError::Malformed {
            broker: self.broker,
            reason: reason.to_string(),
        }
    }
}

/// Connects to a broker: at the address that the metadata gives for it, else at the one that the configuration gives
/// for a voter (which a broker needs before it has metadata, and after all brokers moved).
pub(super) async fn open<E: Env>(
    broker: &Arc<Broker<E>>,
    id: BrokerId,
) -> Result<PeerConnection<E>, PeerError> {
    let mut failure = PeerError::NoAddress(id);
    for (host, port) in addresses(broker, id) {
        match open_at(broker, id, &host, port).await {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

pub(super) fn addresses<E: Env>(broker: &Arc<Broker<E>>, id: BrokerId) -> Vec<(String, u16)> {
    let image = broker.cluster.image();
    let registered = image.listener(id, &broker.config.inter_broker_listener_name);
    let registered = registered.map(|listener| (listener.host.clone(), listener.port));
    let voters = &broker.config.controller_quorum_voters;
    let configured = voters
        .iter()
        .find(|voter| voter.id == id.0)
        .map(|voter| (voter.host.clone(), voter.port));
    let mut addresses: Vec<(String, u16)> = registered.into_iter().chain(configured).collect();
    addresses.dedup();
    addresses
}

/// Connects to an address of a broker, without asking who is there.
pub(super) async fn connect<E: Env>(
    broker: &Arc<Broker<E>>,
    id: BrokerId,
    host: &str,
    port: u16,
    deadline: Instant,
) -> Result<PeerConnection<E>, PeerError> {
    let connected = tokio::select! {
        biased;
        connected = broker.env.connect(host, port) => connected,
        () = broker.env.sleep_until(deadline) => Err(std::io::ErrorKind::TimedOut.into()),
    };
    let peer = connected.map_err(|source| PeerError::Connect {
        broker: id,
        address: format!("{host}:{port}"),
        source,
    })?;
    Ok(PeerConnection {
        broker: id,
        client_id: format!("broker-{}", broker.id),
        correlation_id: AtomicI32::new(0),
        peer,
    })
}

async fn open_at<E: Env>(
    broker: &Arc<Broker<E>>,
    id: BrokerId,
    host: &str,
    port: u16,
) -> Result<PeerConnection<E>, PeerError> {
    let address = format!("{host}:{port}");
    let deadline = broker.env.now() + CONNECT_TIMEOUT;
    let connection = connect(broker, id, host, port, deadline).await?;
    let hello = PeerHelloRequest {
        cluster_id: broker.cluster.cluster_id().unwrap_or_default(),
        broker_id: broker.id.0,
        incarnation: Uuid(broker.incarnation.0),
        target_broker_id: id.0,
    };
    let answer: PeerHelloResponse = connection
        .call(&hello, PeerHelloRequest::MAX_VERSION, deadline)
        .await?;
    let reason = if answer.error_code != ErrorCode::None.code() {
        Some(
            answer
                .error_message
                .unwrap_or_else(|| format!("error {}", answer.error_code)),
        )
    } else {
        mismatch(broker, id, &answer.cluster_id, answer.broker_id)
    };
    match reason {
        Some(reason) => Err(PeerError::Identity {
            broker: id,
            address,
            reason,
        }),
        None => Ok(connection),
    }
}

/// What is wrong with the identity of somebody who should be broker `expected` of our cluster.
fn mismatch<E: Env>(
    broker: &Broker<E>,
    expected: BrokerId,
    cluster_id: &str,
    broker_id: i32,
) -> Option<String> {
    if broker_id != expected.0 {
        return Some(format!("it is broker {broker_id}"));
    }
    foreign_cluster(broker, cluster_id)
}

/// Whether a cluster id is another one than ours. A broker that does not know its cluster yet sends an empty one.
pub(super) fn foreign_cluster<E: Env>(broker: &Broker<E>, cluster_id: &str) -> Option<String> {
    let ours = broker.cluster.cluster_id()?;
    (!cluster_id.is_empty() && cluster_id != ours)
        .then(|| format!("it is of cluster {cluster_id}, not {ours}"))
}

/// Answers the hello of another broker, and notes on the connection who is at its other end.
pub(crate) fn handle_hello<E: Env>(
    broker: &Arc<Broker<E>>,
    connection: &mut Connection,
    context: &RequestContext,
    body: &[u8],
) -> Handled<E> {
    let request = match decode::<PeerHelloRequest>(context, body) {
        Ok(request) => request,
        Err(reason) => return Handled::Close(reason),
    };
    let refusal = if request.target_broker_id != broker.id.0 {
        Some((
            ErrorCode::BrokerIdNotRegistered,
            format!("this is broker {}", broker.id),
        ))
    } else if request.broker_id == broker.id.0 && request.incarnation.0 != broker.incarnation.0 {
        Some((
            ErrorCode::DuplicateBrokerRegistration,
            format!("this is broker {}, too", broker.id),
        ))
    } else {
        foreign_cluster(broker, &request.cluster_id).map(|_| {
            let ours = broker.cluster.cluster_id().unwrap_or_default();
            (
                ErrorCode::InconsistentClusterId,
                format!("this is cluster {ours}"),
            )
        })
    };
    let (error_code, error_message) = match refusal {
        Some((code, message)) => {
            tracing::warn!(from = request.broker_id, host = %connection.host, %message, "refused a broker's connection");
            (code.code(), Some(message))
        }
        None => {
            let peer = BrokerId(request.broker_id);
            let incarnation = Incarnation(request.incarnation.0);
            connection.peer = Some(peer);
            connection.peer_incarnation = Some(incarnation);
            connection.presence = broker.cluster.note_presence(peer, incarnation);
            (ErrorCode::None.code(), None)
        }
    };
    let response = PeerHelloResponse {
        error_code,
        error_message,
        cluster_id: broker.cluster.cluster_id().unwrap_or_default(),
        broker_id: broker.id.0,
        incarnation: Uuid(broker.incarnation.0),
    };
    encode(context, &response)
}
