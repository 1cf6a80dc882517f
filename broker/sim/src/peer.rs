//! A connection from one node to another's internal listener. Calls overlap; answers come in the order of the calls,
//! and whoever gives up on one leaves a connection that nobody can use any more.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use taffrail_core::time::Instant;
use taffrail_node::Peer;
use tokio::sync::watch;

use crate::executor::Executor;
use crate::network::Socket;

/// Bytes of the length in front of a frame.
const PREFIX: usize = 4;

/// The calling end.
pub(crate) struct SimPeer {
    executor: Executor,
    socket: Socket,
    /// How many calls were made.
    calls: AtomicU64,
    /// How many of them were answered.
    answered: watch::Sender<u64>,
    broken: Arc<AtomicBool>,
}

impl SimPeer {
    pub(crate) fn new(executor: Executor, socket: Socket) -> SimPeer {
        SimPeer {
            executor,
            socket,
            calls: AtomicU64::new(0),
            answered: watch::Sender::new(0),
            broken: Arc::new(AtomicBool::new(false)),
        }
    }

    async fn exchange(&self, frame: Vec<u8>) -> io::Result<Vec<u8>> {
        let sent_id = frame.get(8..12).map(<[u8]>::to_vec);
        self.socket.send(frame)?;
        let turn = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut answered = self.answered.subscribe();
        // The sender lives in self.
        let _ = answered.wait_for(|answered| *answered >= turn).await;
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut answer = self.socket.receive().await?;
        answer.drain(..PREFIX.min(answer.len()));
        if answer.get(..4) != sent_id.as_deref() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer belongs to another request",
            ));
        }
        self.answered.send_modify(|answered| *answered += 1);
        Ok(answer)
    }
}

impl Peer for SimPeer {
    async fn call(&self, frame: Vec<u8>, deadline: Instant) -> io::Result<Vec<u8>> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut unfinished = Unfinished {
            peer: self,
            finished: false,
        };
        let mut exchange = pin!(self.exchange(frame));
        let answer = tokio::select! {
            biased;
            answer = exchange.as_mut() => answer?,
            () = self.executor.sleep_until(deadline) => return Err(io::ErrorKind::TimedOut.into()),
        };
        unfinished.finished = true;
        Ok(answer)
    }
}

/// Breaks the connection unless the call came to its end.
struct Unfinished<'a> {
    peer: &'a SimPeer,
    finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.peer.broken.store(true, Ordering::Relaxed);
            self.peer.answered.send_replace(u64::MAX / 2);
        }
    }
}
