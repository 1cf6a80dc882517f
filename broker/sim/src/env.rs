//! The simulated side of the node's seam: one machine's clock, randomness, disk, tasks and ways to others.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_core::time::Instant;
use taffrail_node::Env;

use crate::disk::SimDisk;
use crate::executor::{Executor, Group, lock};
use crate::network::{Machine, Network};
use crate::peer::SimPeer;
use crate::random::Random;

/// The wall clock at the start of the simulation: November 2023, in milliseconds.
const WALL_START_MS: i64 = 1_700_000_000_000;

/// How long most work on the disk takes at most.
const DISK_DELAY_US: u64 = 2_000;

/// The world as one process on one machine sees it.
#[derive(Clone)]
pub(crate) struct SimEnv {
    pub(crate) executor: Executor,
    pub(crate) network: Network,
    pub(crate) machine: Machine,
    pub(crate) group: Group,
    pub(crate) disk: SimDisk,
    pub(crate) random: Arc<Mutex<Random>>,
    /// How far this machine's wall clock is off; it may jump.
    pub(crate) wall_offset_ms: Arc<AtomicI64>,
}

impl Env for SimEnv {
    type Disk = SimDisk;
    type Peer = SimPeer;

    fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn now(&self) -> Instant {
        self.executor.now()
    }

    fn wall_ms(&self) -> i64 {
        let elapsed = i64::try_from(self.executor.now().0 / 1_000_000).unwrap_or(i64::MAX);
        WALL_START_MS + self.wall_offset_ms.load(Ordering::Relaxed) + elapsed
    }

    fn random(&self) -> u64 {
        lock(&self.random).next()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send {
        self.executor.sleep_until(deadline)
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.executor.spawn(self.group, future);
    }

    async fn run_blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        let (before, after) = {
            let mut random = lock(&self.random);
            let slow = if random.chance(2) { 20 } else { 1 };
            (
                Duration::from_micros(random.below(DISK_DELAY_US * slow)),
                Duration::from_micros(random.below(DISK_DELAY_US)),
            )
        };
        self.executor.sleep(before).await;
        let result = work();
        self.executor.sleep(after).await;
        result
    }

    async fn connect(&self, host: &str, port: u16) -> io::Result<SimPeer> {
        let socket = self.network.connect(self.machine, host, port).await?;
        Ok(SimPeer::new(self.executor.clone(), socket))
    }
}
