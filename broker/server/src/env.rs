//! The real side of the node's seam: this machine's clock, randomness, files, threads and sockets.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taffrail_core::time::Instant;
use taffrail_log::RealDisk;
use taffrail_node::Env;

use crate::clock::Clock;
use crate::peer::TcpPeer;

/// A deadline further away than this is as good as never: a year.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a connection attempt to another broker may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The world as tokio and Linux provide it.
#[derive(Clone, Debug)]
pub(crate) struct ServerEnv {
    clock: Arc<Clock>,
    disk: RealDisk,
}

impl ServerEnv {
    /// A world whose time is `clock`'s. Used from within a tokio runtime only.
    pub(crate) fn new(clock: Arc<Clock>) -> ServerEnv {
        ServerEnv {
            clock,
            disk: RealDisk,
        }
    }
}

impl Env for ServerEnv {
    type Disk = RealDisk;
    type Peer = TcpPeer;

    fn disk(&self) -> &RealDisk {
        &self.disk
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.clock.started().elapsed()
    }

    fn wall_ms(&self) -> i64 {
        // A clock before 1970 stamps records with 0 rather than stopping the broker.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
            })
    }

    fn random(&self) -> u64 {
        let mut bytes = [0_u8; 8];
        // SAFETY: the pointer and the length are those of `bytes`.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        // Once the pool is initialised the kernel never gives fewer than 256 bytes.
        assert_eq!(filled, 8, "the kernel has no randomness");
        u64::from_ne_bytes(bytes)
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send {
        // From the start and not from now, so that equal deadlines are one moment to the timer.
        let since_start = (deadline - Instant::ZERO).min(self.clock.started().elapsed() + FAR);
        tokio::time::sleep_until((self.clock.started() + since_start).into())
    }

    fn next_round(&self, interval: Duration) -> Instant {
        let next = self.clock.next_round(interval);
        Instant::ZERO + next.duration_since(self.clock.started())
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(future);
    }

    async fn run_blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going down, and the caller with it.
                Err(_cancelled) => std::future::pending().await,
            },
        }
    }

    async fn connect(&self, host: &str, port: u16) -> io::Result<TcpPeer> {
        match tokio::time::timeout(
            CONNECT_TIMEOUT,
            TcpPeer::connect(Arc::clone(&self.clock), host, port),
        )
        .await
        {
            Ok(connected) => connected,
            Err(_elapsed) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "{host}:{port} did not answer within {} s",
                    CONNECT_TIMEOUT.as_secs()
                ),
            )),
        }
    }
}
