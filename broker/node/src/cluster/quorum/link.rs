//! The way of Raft's messages to one other voter: a bounded queue and a task that sends in order. While the peer is
//! down, messages are dropped; Raft sends again what matters.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::Voter;
use taffrail_core::raft::Message;
use taffrail_protocol::messages::RaftMessagesRequest;
use taffrail_protocol::{ErrorCode, Request};
use tokio::sync::mpsc;

use super::{Event, wire};
use crate::broker::Broker;
use crate::cluster::peer::{self, PeerConnection, PeerError};
use crate::cluster::records;
use crate::env::Env;

/// Messages that wait for one peer. Raft has at most 256 appends in flight to it, and little else.
const QUEUE_MAX: usize = 512;
/// Messages in one request. With appends of at most 1 MiB a request stays far below `socket.request.max.bytes`.
const BATCH_MAX: usize = 32;
/// Appends in one request, in bytes, after which the next message waits for the next request.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How long a peer that was lost is left alone before the next attempt.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
/// How long one request may take. Its answer comes once the peer has queued the messages.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The sending end of one link.
pub(super) struct Link {
    peer: BrokerId,
    queue: mpsc::Sender<Message>,
}

impl Link {
    /// Opens the link in the background.
    pub(super) fn new<E: Env>(
        broker: &Arc<Broker<E>>,
        peer: BrokerId,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        broker
            .env
            .spawn(run(Arc::clone(broker), peer, messages, events));
        Self { peer, queue }
    }

    /// Queues a message, or drops it if the queue is full.
    pub(super) fn send(&self, message: Message) {
        if self.queue.try_send(message).is_err() {
            tracing::debug!(peer = %self.peer, "dropped a raft message: the queue is full");
        }
    }
}

async fn run<E: Env>(
    broker: Arc<Broker<E>>,
    peer: BrokerId,
    mut messages: mpsc::Receiver<Message>,
    events: mpsc::Sender<Event>,
) {
    let mut connection: Option<PeerConnection<E>> = None;
    let mut was_reachable = true;
    while let Some(first) = messages.recv().await {
        let batch = drain(first, &mut messages);
        match deliver(&broker, peer, &mut connection, &events, batch).await {
            Ok(()) => {
                if !was_reachable {
                    tracing::info!(%peer, "voter is reachable again");
                }
                was_reachable = true;
            }
            Err(error) => {
                if was_reachable {
                    tracing::warn!(%peer, %error, "voter is not reachable");
                }
                was_reachable = false;
                connection = None;
                // A full queue of events only delays that the peer is sent less.
                let _ = events.try_send(Event::Unreachable(peer));
                broker
                    .env
                    .sleep_until(broker.env.now() + RECONNECT_PAUSE)
                    .await;
                while messages.try_recv().is_ok() {}
            }
        }
    }
}

/// What waits in the queue, up to the limits of one request.
fn drain(first: Message, messages: &mut mpsc::Receiver<Message>) -> Vec<Message> {
    let size = |message: &Message| {
        let entries: usize = message.entries.iter().map(|entry| entry.data.len()).sum();
        entries
            + message
                .snapshot
                .as_ref()
                .map_or(0, |snapshot| snapshot.data.len())
    };
    let mut bytes = size(&first);
    let mut batch = vec![first];
    while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
        let Ok(message) = messages.try_recv() else {
            break;
        };
        bytes += size(&message);
        batch.push(message);
    }
    batch
}

async fn deliver<E: Env>(
    broker: &Arc<Broker<E>>,
    peer: BrokerId,
    connection: &mut Option<PeerConnection<E>>,
    events: &mpsc::Sender<Event>,
    batch: Vec<Message>,
) -> Result<(), PeerError> {
    let open = match connection.take() {
        Some(open) => open,
        None => peer::open(broker, peer).await?,
    };
    let own = broker.cluster.own_seat();
    let image = broker.cluster.image();
    let recorded = image.voter(peer);
    let request = RaftMessagesRequest {
        from: broker.id.0,
        to: peer.0,
        from_directory: records::directory_to_wire(own.directory),
        from_since: own.since,
        to_directory: records::directory_to_wire(recorded.and_then(|voter| voter.directory)),
        to_since: recorded.map_or(-1, |voter| voter.since),
        from_log_end: broker.cluster.seat.log_end(),
        to_log_had: image.voter_log_end(peer).unwrap_or(-1),
        messages: batch.into_iter().map(wire::from_core).collect(),
    };
    let deadline = broker.env.now() + SEND_TIMEOUT;
    let answer = open
        .call(&request, RaftMessagesRequest::MAX_VERSION, deadline)
        .await?;
    if answer.error_code == ErrorCode::InvalidVoterKey.code() {
        let news = if answer.log_had >= 0 {
            Event::OldCopy {
                had: answer.log_had,
            }
        } else if answer.removed {
            Event::Removed {
                since: answer.recorded_since,
            }
        } else {
            Event::Replaced(Voter {
                directory: records::directory_from_wire(answer.recorded_directory),
                since: answer.recorded_since,
            })
        };
        // A full queue only delays it until the next refusal.
        let _ = events.try_send(news);
    }
    if answer.error_code != ErrorCode::None.code() {
        // It may hold this process for an earlier one; a new connection begins with who we are.
        return Err(PeerError::Refused {
            broker: peer,
            code: answer.error_code,
        });
    }
    *connection = Some(open);
    Ok(())
}
