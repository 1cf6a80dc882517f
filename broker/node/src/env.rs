//! The seam between a node and the world: clock, randomness, disk, tasks and peers.
//! `broker/server` implements it with tokio and real files, `broker/sim` with one thread and one seed.
//! Nothing else in this crate may ask the world for anything.

use std::future::Future;
use std::io;
use std::time::Duration;

use taffrail_core::time::Instant;
use taffrail_log::Disk;

/// Everything that a node needs from outside. Cloned freely; clones share the same world.
pub trait Env: Clone + Send + Sync + 'static {
    /// The file system below the log directories.
    type Disk: Disk;
    /// An open connection to another broker's internal listener.
    type Peer: Peer;

    /// The file system.
    fn disk(&self) -> &Self::Disk;

    /// Monotonic time; never goes back, and stands still only with the whole process.
    fn now(&self) -> Instant;

    /// Wall clock, milliseconds since the Unix epoch. Only stamps records and drives retention.
    fn wall_ms(&self) -> i64;

    /// Sixty-four random bits.
    fn random(&self) -> u64;

    /// Completes at `deadline`, at once if that has passed.
    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send;

    /// When work that comes round about every `interval` is due next. Where waking up costs something, all such work falls
    /// due at the same moments.
    fn next_round(&self, interval: Duration) -> Instant {
        self.now() + interval
    }

    /// Starts a background task. It ends by itself when the node shuts down.
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static);

    /// Runs work that blocks on the disk for long (recovery, retention, fsync) off the event loop.
    fn run_blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send;

    /// Opens a connection to another broker's internal listener.
    fn connect(&self, host: &str, port: u16)
    -> impl Future<Output = io::Result<Self::Peer>> + Send;
}

/// A connection to another broker. Dropping it closes it.
pub trait Peer: Send + Sync + 'static {
    /// Sends one request frame (with its 4-byte length prefix) and waits for the frame that answers it
    /// (without the prefix). Calls may overlap; they are answered in the order in which they were made.
    /// After an error, or when `deadline` has passed, the connection is of no further use.
    fn call(
        &self,
        frame: Vec<u8>,
        deadline: Instant,
    ) -> impl Future<Output = io::Result<Vec<u8>>> + Send;
}

/// 128 random bits, for ids.
pub(crate) fn random_id<E: Env>(env: &E) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&env.random().to_be_bytes());
    id[8..].copy_from_slice(&env.random().to_be_bytes());
    id
}
