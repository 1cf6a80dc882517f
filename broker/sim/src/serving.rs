//! The server's part on a simulated machine: accepts connections, hands frames to the node, sends the answers in the
//! order of the requests. Like the real one, it lets requests in behind answers that wait, if those allow it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use taffrail_log::DiskFile;
use taffrail_node::{Connection, Env, Handled, ListenerKind, Node, Response, ResponseFuture};
use tokio::sync::mpsc;

use crate::env::SimEnv;
use crate::network::Socket;

/// Bytes of the length in front of a frame.
const PREFIX: usize = 4;

/// As `taffrail.connection.requests.max`.
const REQUESTS_MAX: usize = 64;

/// Serves every connection that comes in by one listener.
pub(crate) async fn accept(
    env: SimEnv,
    node: Node<SimEnv>,
    listener: &'static str,
    kind: ListenerKind,
    mut incoming: mpsc::UnboundedReceiver<Socket>,
) {
    while let Some(socket) = incoming.recv().await {
        let host: Arc<str> = format!("10.0.0.{}", socket.other_machine().0).into();
        let connection = Connection::new(listener.into(), kind, host);
        let serving = Serving {
            node: node.clone(),
            connection,
            socket,
            waiting: VecDeque::new(),
        };
        env.spawn(serving.run());
    }
}

struct Serving {
    node: Node<SimEnv>,
    connection: Connection,
    socket: Socket,
    waiting: VecDeque<Slot>,
}

/// One request's answer.
enum Slot {
    Finished(Handled<SimEnv>),
    Waiting {
        future: ResponseFuture<SimEnv>,
        read_ahead: bool,
    },
}

enum Event {
    Request(Vec<u8>),
    Answer(Handled<SimEnv>),
}

impl Serving {
    async fn run(mut self) {
        let (listener, machine) = (
            Arc::clone(&self.connection.listener),
            self.socket.other_machine(),
        );
        if let Err(error) = self.serve().await {
            tracing::trace!(%listener, from = machine.0, %error, "connection closed");
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        loop {
            match poll_fn(|context| self.poll_event(context)).await? {
                Event::Request(mut frame) => {
                    let body = frame.get_mut(PREFIX..).ok_or(io::ErrorKind::InvalidData)?;
                    let handled = self.node.handle(&mut self.connection, body);
                    self.waiting.push_back(match handled {
                        Handled::Pending { future, read_ahead } => {
                            Slot::Waiting { future, read_ahead }
                        }
                        handled => Slot::Finished(handled),
                    });
                }
                Event::Answer(Handled::Ready(response)) => self.socket.send(joined(&response)?)?,
                Event::Answer(Handled::NoReply) => {}
                Event::Answer(Handled::Close(reason)) => return Err(io::Error::other(reason)),
                Event::Answer(Handled::Pending { .. }) => {
                    return Err(io::Error::other("an answer was put off twice"));
                }
            }
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Event>> {
        for slot in &mut self.waiting {
            if let Slot::Waiting { future, .. } = slot
                && let Poll::Ready(handled) = future.as_mut().poll(context)
            {
                *slot = Slot::Finished(handled);
            }
        }
        if matches!(self.waiting.front(), Some(Slot::Finished(_)))
            && let Some(Slot::Finished(handled)) = self.waiting.pop_front()
        {
            return Poll::Ready(Ok(Event::Answer(handled)));
        }
        let admits = match self.waiting.back() {
            Some(Slot::Waiting { read_ahead, .. }) => *read_ahead,
            Some(Slot::Finished(_)) | None => true,
        };
        if !admits || self.waiting.len() >= REQUESTS_MAX {
            return Poll::Pending;
        }
        self.socket
            .poll_receive(context)
            .map(|frame| frame.map(Event::Request))
    }
}

/// The bytes of a response, file ranges read into their places.
fn joined(response: &Response<SimEnv>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(response.buffer.len());
    let mut from = 0;
    for file in &response.files {
        bytes.extend_from_slice(&response.buffer[from..file.position]);
        from = file.position;
        let start = bytes.len();
        bytes.resize(start + file.range.length, 0);
        file.range
            .file
            .read_exact_at(&mut bytes[start..], file.range.position)?;
    }
    bytes.extend_from_slice(&response.buffer[from..]);
    Ok(bytes)
}
