//! The search for bit rot: one task that reads closed segments through and compares checksums, at a rate that nobody notices.
//! What is read by consumers goes from file to socket unseen, so what they read is checked next, and what a follower
//! will not take is checked at once. What it finds is the replica's to act upon (`partition/repair.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail_core::controller::Impairment;
use taffrail_core::ids::TopicPartition;
use taffrail_core::time::Instant;
use taffrail_log::CheckStep;
use tokio::sync::Notify;

use crate::broker::Broker;
use crate::env::Env;
use crate::partition::{Partition, Repair};

/// How often damaged replicas are looked at whether they can be mended, and suspects whether there are any.
const TURN: Duration = Duration::from_millis(500);
/// How often replicas are asked for segments that were read unchecked.
const READ_CHECK: Duration = Duration::from_secs(10);
/// The first pass begins this long after the start, when recovery and catching up are over.
const FIRST_PASS: Duration = Duration::from_secs(60);
/// A partition that was checked on suspicion and found whole is not suspected again for this long.
const UNSUSPECTED: Duration = Duration::from_secs(60);
/// Bytes read at once: small beside what a disk reads in a moment, large beside a batch.
const STEP_BYTES: u64 = 1 << 20;

/// Replicas whose log may be damaged at an offset. At most one offset each: the rest of a log is found by the next pass.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    waiting: Mutex<BTreeMap<TopicPartition, i64>>,
    wake: Notify,
}

impl Suspects {
    /// The log of a replica may be damaged around an offset.
    pub(crate) fn push(&self, partition: TopicPartition, offset: i64) {
        let mut waiting = self.waiting.lock().expect("no panic while locked");
        waiting.entry(partition).or_insert(offset);
        self.wake.notify_one();
    }

    fn take(&self) -> BTreeMap<TopicPartition, i64> {
        std::mem::take(&mut *self.waiting.lock().expect("no panic while locked"))
    }
}

/// Checks and mends until the broker stops.
pub(super) async fn run<E: Env>(broker: Arc<Broker<E>>) {
    let now = broker.env.now();
    let interval = u64::try_from(broker.config.scrub_interval_ms)
        .ok()
        .map(|millis| Duration::from_millis(millis.max(1)));
    let mut scrubber = Scrubber {
        next_pass: interval.map(|interval| now + interval.min(FIRST_PASS)),
        interval,
        rate: u64::try_from(broker.config.scrub_bytes_per_second).unwrap_or(1),
        next_read_check: now + READ_CHECK,
        pass: Vec::new(),
        offset: 0,
        cleared: BTreeMap::new(),
        broker,
    };
    while !scrubber.broker.is_stopping() {
        scrubber.turn().await;
    }
}

struct Scrubber<E: Env> {
    broker: Arc<Broker<E>>,
    interval: Option<Duration>,
    /// Bytes a second.
    rate: u64,
    next_pass: Option<Instant>,
    next_read_check: Instant,
    /// What is left of the pass under way; the last is next, from `offset` on.
    pass: Vec<TopicPartition>,
    offset: i64,
    /// When suspects were found to be whole.
    cleared: BTreeMap<TopicPartition, Instant>,
}

impl<E: Env> Scrubber<E> {
    /// Mends what can be, checks what is suspected, and one more segment.
    async fn turn(&mut self) {
        self.mend().await;
        self.check_suspects().await;
        let now = self.broker.env.now();
        if self.next_read_check <= now {
            self.next_read_check = now + READ_CHECK;
            self.check_read().await;
        }
        if self.next_pass.is_some_and(|due| due <= now) {
            self.next_pass = self.interval.map(|interval| now + interval);
            if self.pass.is_empty() {
                self.pass = self
                    .broker
                    .partitions()
                    .iter()
                    .map(|held| held.id)
                    .collect();
                self.offset = 0;
            }
        }
        if self.pass.is_empty() {
            self.rest(self.broker.env.next_round(TURN)).await;
        } else {
            self.go_on_with_pass().await;
        }
    }

    /// Damaged replicas that nobody counts on any more are mended.
    async fn mend(&self) {
        for id in self
            .broker
            .replication
            .impairments
            .replicas(Impairment::Damaged)
        {
            let Some(partition) = self.broker.partition(id) else {
                continue;
            };
            let mending = Arc::clone(&self.broker);
            let mended = self.broker.env.run_blocking(move || {
                let (now, wall_ms) = (mending.env.now(), mending.env.wall_ms());
                // Read first: the image is this new or newer.
                let index = mending.cluster.applied_index();
                mending
                    .cluster
                    .with_followed(|image| partition.try_repair(index, image, now, wall_ms))
            });
            if let Repair::Fetch(leader) = mended.await {
                // Unless another one leads by now: whoever applied that has told the fetchers, and must have the last word.
                self.broker.cluster.with_followed(|image| {
                    let state = image.partition(id);
                    if state.is_some_and(|state| state.leader == Some(leader)) {
                        self.broker.replication.follow(&self.broker, leader, id);
                    }
                });
            }
        }
    }

    async fn check_suspects(&mut self) {
        for (id, offset) in self.broker.replication.suspects.take() {
            let now = self.broker.env.now();
            self.cleared
                .retain(|_, at| now.saturating_since(*at) < UNSUSPECTED);
            if self.cleared.contains_key(&id) {
                continue;
            }
            if let Some(partition) = self.broker.partition(id) {
                tracing::info!(partition = %partition.name(), offset, "checks whether the log is damaged");
                self.check(&partition, offset, true, false).await;
                self.cleared.insert(id, self.broker.env.now());
            }
        }
    }

    /// Closed segments that consumers or followers read, one of each replica.
    async fn check_read(&self) {
        for partition in self.broker.partitions() {
            if let Some(base_offset) = partition.unchecked_read() {
                self.check(&partition, base_offset, false, true).await;
            }
            if self.broker.is_stopping() {
                return;
            }
        }
    }

    /// The next segment of the pass.
    async fn go_on_with_pass(&mut self) {
        let Some(id) = self.pass.last().copied() else {
            return;
        };
        let next = match self.broker.partition(id) {
            Some(partition) => self.check(&partition, self.offset, false, true).await,
            None => None,
        };
        match next {
            Some(offset) => self.offset = offset,
            None => {
                self.offset = 0;
                self.pass.pop();
                if self.pass.is_empty() {
                    tracing::info!("every closed segment was read through for damage");
                }
            }
        }
    }

    /// Checks one segment. Gives where the next one begins; `None` if there was none to check, or it is damaged.
    async fn check(
        &self,
        partition: &Arc<Partition<E>>,
        offset: i64,
        active: bool,
        gently: bool,
    ) -> Option<i64> {
        let mut check = partition.begin_check(offset, active)?;
        let next = check.end_offset();
        loop {
            let (checked, step) = self
                .broker
                .env
                .run_blocking(move || {
                    let step = check.step(STEP_BYTES);
                    (check, step)
                })
                .await;
            check = checked;
            let read = match &step {
                CheckStep::More(read) | CheckStep::Whole(read) => *read,
                CheckStep::Damaged(_) => 0,
            };
            self.broker.metrics().scrubbed_bytes.inc_by(read);
            if gently {
                let pause = Duration::from_millis(read.saturating_mul(1000) / self.rate.max(1));
                self.rest(self.broker.env.now() + pause).await;
            }
            match step {
                CheckStep::More(_) if self.broker.is_stopping() => return None,
                CheckStep::More(_) => {}
                CheckStep::Whole(_) => {
                    partition.finish_check(&check, &step);
                    return (next > offset).then_some(next);
                }
                CheckStep::Damaged(_) => {
                    partition.finish_check(&check, &step);
                    return None;
                }
            }
        }
    }

    /// Waits, at most until somebody is suspected.
    async fn rest(&self, until: Instant) {
        tokio::select! {
            biased;
            () = self.broker.replication.suspects.wake.notified() => {}
            () = self.broker.env.sleep_until(until) => {}
        }
    }
}
