//! One task per connection: read a frame, handle it in place, write the answer. Nothing is spawned, queued to another
//! task or allocated per request beyond what the answer itself needs. While answers wait, later requests are read ahead
//! up to a bound; while an answer is being written, nothing is read, so that a slow reader slows itself down.

mod connections;
mod frame_buffer;
mod output;
mod request_memory;
mod response_queue;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use taffrail_node::{Connection, Handled, ListenerKind, Node};
use thiserror::Error;
use tokio::net::TcpStream;
use tracing::{debug, info};

pub(crate) use connections::{Connections, Limits, Registered};
pub(crate) use request_memory::RequestMemory;

use crate::env::ServerEnv;
use frame_buffer::{Fill, FrameBuffer, FrameError};
use output::Output;
use response_queue::ResponseQueue;

/// After so many bytes of requests without a pause the task lets others have the worker.
const BYTES_BETWEEN_PAUSES: usize = 1024 * 1024;

/// How long a connection that found the memory for requests spent rests before it asks again, and how often.
const MEMORY_WAIT: Duration = Duration::from_millis(10);
const MEMORY_WAITS_MAX: u32 = 3_000;

/// The largest frame among brokers is at least this, whatever clients may send: an entry or a snapshot of the metadata log that is not
/// taken would hold up all behind it for ever.
const INTERNAL_FRAME_BYTES_MAX: i32 = 256 << 20;

/// What every connection is given.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The node that handles requests.
    pub(crate) node: Node<ServerEnv>,
    /// Memory for large requests of clients.
    pub(crate) memory: Arc<RequestMemory>,
    /// The same for those of brokers: no client's request keeps the metadata from being read.
    pub(crate) internal_memory: Arc<RequestMemory>,
    /// `socket.request.max.bytes`.
    pub(crate) frame_bytes_max: i32,
    /// `taffrail.connection.requests.max`.
    pub(crate) requests_max: usize,
}

/// Why a connection ended.
#[derive(Debug, Error)]
enum Closed {
    #[error("the other side closed it")]
    ByPeer,
    #[error("the other side closed it in the middle of a request")]
    Truncated,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Refused(String),
    #[error("no memory for its request for {} s (queued.max.request.bytes)", (MEMORY_WAIT * MEMORY_WAITS_MAX).as_secs())]
    OutOfMemory,
}

/// What a waiting task woke up for.
enum Event {
    /// Bytes arrived.
    Read,
    /// The first answer in line is finished.
    Answered,
    /// There is no memory to read more.
    OutOfMemory,
}

/// Serves one connection until it ends, and logs why it did.
pub(crate) async fn serve(
    stream: TcpStream,
    shared: Shared,
    connection: Connection,
    registered: Registered,
) {
    let (listener, host) = (
        Arc::clone(&connection.listener),
        Arc::clone(&connection.host),
    );
    debug!(%listener, %host, "connection opened");
    let frames = match connection.kind {
        ListenerKind::Internal => FrameBuffer::new(
            shared.frame_bytes_max.max(INTERNAL_FRAME_BYTES_MAX),
            shared.internal_memory,
        ),
        ListenerKind::Client => FrameBuffer::new(shared.frame_bytes_max, shared.memory),
    };
    let mut task = Task {
        stream,
        frames,
        waiting: ResponseQueue::new(shared.requests_max),
        output: Output::default(),
        node: shared.node,
        connection,
        registered,
    };
    let closed = task.run().await;
    let client = task.connection.principal.to_string();
    match closed {
        Closed::ByPeer | Closed::Truncated | Closed::Io(_) => {
            debug!(%listener, %host, %client, reason = %closed, "connection closed");
        }
        Closed::Frame(_) | Closed::Refused(_) | Closed::OutOfMemory => {
            if let Some(suppressed) = task.registered.connections().admit_line() {
                info!(%listener, %host, %client, suppressed, reason = %closed, "connection closed by this broker");
            }
        }
    }
}

struct Task {
    stream: TcpStream,
    frames: FrameBuffer,
    waiting: ResponseQueue,
    output: Output,
    node: Node<ServerEnv>,
    connection: Connection,
    registered: Registered,
}

impl Task {
    async fn run(&mut self) -> Closed {
        let registered = poll_fn(|context| {
            self.registered.record.set_waker(context.waker());
            Poll::Ready(())
        });
        registered.await;
        match self.turn().await {
            Ok(never) => match never {},
            Err(closed) => closed,
        }
    }

    async fn turn(&mut self) -> Result<std::convert::Infallible, Closed> {
        let mut memory_waits = 0;
        loop {
            self.handle_frames().await?;
            while let Some(handled) = self.waiting.pop_finished() {
                self.answer(handled).await?;
            }
            self.output
                .flush(&mut self.stream, &self.registered.record)
                .await?;
            match poll_fn(|context| self.poll_event(context)).await? {
                Event::Read => {
                    self.registered.record.touch();
                    memory_waits = 0;
                }
                Event::Answered => {}
                Event::OutOfMemory if memory_waits == MEMORY_WAITS_MAX => {
                    return Err(Closed::OutOfMemory);
                }
                Event::OutOfMemory => {
                    memory_waits += 1;
                    tokio::time::sleep(MEMORY_WAIT).await;
                }
            }
        }
    }

    /// Handles every request that has arrived whole and is admitted.
    async fn handle_frames(&mut self) -> Result<(), Closed> {
        let mut bytes = 0;
        while self.waiting.admits() {
            let Some(frame) = self.frames.next_frame()? else {
                break;
            };
            bytes += frame.len();
            let handled = self
                .node
                .handle(&mut self.connection, self.frames.frame_mut(frame));
            match handled {
                Handled::Pending { .. } => self.waiting.push(handled),
                Handled::Ready(_) | Handled::NoReply | Handled::Close(_)
                    if !self.waiting.is_empty() =>
                {
                    self.waiting.push(handled);
                }
                Handled::Ready(_) | Handled::NoReply | Handled::Close(_) => {
                    self.answer(handled).await?
                }
            }
            if bytes >= BYTES_BETWEEN_PAUSES {
                bytes = 0;
                self.frames.release_if_short();
                self.output
                    .flush(&mut self.stream, &self.registered.record)
                    .await?;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends, or joins to what is sent next, an answer whose turn it is.
    async fn answer(&mut self, handled: Handled<ServerEnv>) -> Result<(), Closed> {
        match handled {
            Handled::Ready(response) => {
                self.output
                    .push(&mut self.stream, &self.registered.record, response)
                    .await?;
                Ok(())
            }
            Handled::NoReply => Ok(()),
            Handled::Close(reason) => {
                self.output
                    .flush(&mut self.stream, &self.registered.record)
                    .await?;
                Err(Closed::Refused(reason))
            }
            Handled::Pending { .. } => {
                Err(Closed::Refused("an answer was put off twice".to_string()))
            }
        }
    }

    /// Waits for the first answer in line, and for bytes while another request would be admitted.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Closed>> {
        if self.waiting.poll_first(context).is_ready() {
            return Poll::Ready(Ok(Event::Answered));
        }
        if self.registered.record.should_release() {
            self.frames.release();
        }
        if !self.waiting.admits() {
            return Poll::Pending;
        }
        self.frames
            .poll_fill(context, &mut self.stream)
            .map(|filled| match filled? {
                Fill::Read(0) if self.frames.holds_part_of_a_frame() => Err(Closed::Truncated),
                Fill::Read(0) => Err(Closed::ByPeer),
                Fill::Read(_) => Ok(Event::Read),
                Fill::OutOfMemory => Ok(Event::OutOfMemory),
            })
    }
}
