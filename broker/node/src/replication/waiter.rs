//! Requests that wait on partitions: a Fetch for bytes, an acks=all Produce for the high watermark.
//! A waiter is registered with each partition that can end its wait and is woken once; the partition never polls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use taffrail_core::time::Instant;
use tokio::sync::Notify;

use crate::env::Env;

/// One waiting request.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// What is still missing: bytes for a Fetch, partitions for a Produce. The wait is over at zero or below.
    missing: AtomicI64,
    over: AtomicBool,
    superseded: AtomicBool,
    notify: Notify,
}

impl Waiter {
    pub(crate) fn new(missing: i64) -> Arc<Self> {
        Arc::new(Self {
            missing: AtomicI64::new(missing),
            over: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            notify: Notify::new(),
        })
    }

    /// Takes `amount` off what is missing.
    pub(crate) fn credit(&self, amount: i64) {
        if self.missing.fetch_sub(amount, Ordering::AcqRel) <= amount {
            self.wake();
        }
    }

    /// Ends the wait whatever is missing: an error, a leader change, a newer request of the same session.
    pub(crate) fn wake(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.notify.notify_one();
        }
    }

    /// Ends the wait for good, and the fetch answers with what it has: the session's next fetch is here, or is wanted.
    pub(crate) fn supersede(&self) {
        self.superseded.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits until woken or until `deadline`.
    pub(crate) async fn wait<E: Env>(&self, env: &E, deadline: Instant) {
        if self.is_over() {
            return;
        }
        tokio::select! {
            biased;
            () = self.notify.notified() => {}
            () = env.sleep_until(deadline) => {}
        }
    }
}

/// Which end of the log a waiting Fetch looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VisibleEnd {
    /// Consumers see up to the high watermark.
    HighWatermark,
    /// Those that read committed transactions only see up to the last stable offset.
    LastStable,
    /// Followers see up to the log end, and want to hear of a new high watermark at once.
    LogEnd,
}

/// Below this many waiting produces nobody looks for abandoned ones.
const PRUNE_AT_MIN: usize = 64;

/// The requests that wait on one partition.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    fetches: Vec<FetchWait>,
    /// Ascending by offset: appends happen in offset order.
    produces: VecDeque<ProduceWait>,
    /// How many produces to hold before looking for abandoned ones.
    prune_at: usize,
}

#[derive(Debug)]
struct FetchWait {
    end: VisibleEnd,
    waiter: Arc<Waiter>,
}

#[derive(Debug)]
struct ProduceWait {
    /// Over when the high watermark has reached this offset (exclusive end of what was appended).
    required_offset: i64,
    waiter: Arc<Waiter>,
}

impl Waiters {
    pub(crate) fn add_fetch(&mut self, end: VisibleEnd, waiter: &Arc<Waiter>) {
        // Abandoned waits (answered through another partition, or by their deadline) leave with the next one that comes.
        self.fetches
            .retain(|wait| Arc::strong_count(&wait.waiter) > 1 && !wait.waiter.is_over());
        self.fetches.push(FetchWait {
            end,
            waiter: Arc::clone(waiter),
        });
    }

    pub(crate) fn add_produce(&mut self, required_offset: i64, waiter: &Arc<Waiter>) {
        if self.produces.len() >= self.prune_at {
            // Requests that timed out, when nothing is confirmed for long.
            self.produces
                .retain(|wait| Arc::strong_count(&wait.waiter) > 1 && !wait.waiter.is_over());
            self.prune_at = (self.produces.len() * 2).max(PRUNE_AT_MIN);
        }
        let at = self
            .produces
            .partition_point(|wait| wait.required_offset <= required_offset);
        self.produces.insert(
            at,
            ProduceWait {
                required_offset,
                waiter: Arc::clone(waiter),
            },
        );
    }

    /// The log end moved by `bytes`.
    pub(crate) fn log_end_moved(&mut self, bytes: i64) {
        self.credit_fetches(VisibleEnd::LogEnd, bytes);
    }

    /// The high watermark moved to `high_watermark`, which shows consumers about `bytes` more.
    pub(crate) fn high_watermark_moved(&mut self, high_watermark: i64, bytes: i64) {
        while self
            .produces
            .front()
            .is_some_and(|wait| wait.required_offset <= high_watermark)
        {
            if let Some(wait) = self.produces.pop_front() {
                wait.waiter.credit(1);
            }
        }
        self.credit_fetches(VisibleEnd::HighWatermark, bytes.max(1));
        for wait in self
            .fetches
            .iter()
            .filter(|wait| wait.end == VisibleEnd::LogEnd)
        {
            wait.waiter.wake();
        }
        self.fetches.retain(|wait| !wait.waiter.is_over());
    }

    /// The last stable offset moved, which shows those that wait for transactions to end about `bytes` more.
    pub(crate) fn last_stable_offset_moved(&mut self, bytes: i64) {
        self.credit_fetches(VisibleEnd::LastStable, bytes.max(1));
    }

    /// Everything that waits has to look again: the role, the epoch or the replica's state changed.
    pub(crate) fn wake_all(&mut self) {
        for wait in self.fetches.drain(..) {
            wait.waiter.wake();
        }
        // Only this partition's part of a request is decided; the others may still be confirmed.
        for wait in self.produces.drain(..) {
            wait.waiter.credit(1);
        }
    }

    /// Followers are answered with what there is, so that they fetch again.
    pub(crate) fn end_polls_of_followers(&mut self) {
        for wait in self
            .fetches
            .extract_if(.., |wait| wait.end == VisibleEnd::LogEnd)
        {
            wait.waiter.supersede();
        }
    }

    /// Fetches have to look again; produces keep waiting for their offset.
    pub(crate) fn wake_fetches(&mut self) {
        for wait in self.fetches.drain(..) {
            wait.waiter.wake();
        }
    }

    fn credit_fetches(&mut self, end: VisibleEnd, bytes: i64) {
        if self.fetches.is_empty() {
            return;
        }
        for wait in self.fetches.iter().filter(|wait| wait.end == end) {
            wait.waiter.credit(bytes);
        }
        self.fetches.retain(|wait| !wait.waiter.is_over());
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_notified(waiter: &Waiter) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(waiter.notify.notified()).poll(&mut context) == Poll::Ready(())
    }

    #[test]
    fn a_wait_ends_once_whoever_ends_it() {
        let waiter = Waiter::new(2);
        waiter.credit(1);
        assert!(!waiter.is_over() && !is_notified(&waiter));
        waiter.credit(1);
        assert!(waiter.is_over() && is_notified(&waiter));
        waiter.credit(1);
        waiter.wake();
        waiter.supersede();
        assert!(!is_notified(&waiter), "a second end wakes nobody");
    }

    #[test]
    fn a_high_watermark_wakes_the_produces_up_to_it() {
        let mut waiters = Waiters::default();
        let (near, far) = (Waiter::new(1), Waiter::new(1));
        waiters.add_produce(9, &far);
        waiters.add_produce(5, &near);
        waiters.high_watermark_moved(8, 1);
        assert!(near.is_over() && !far.is_over());
        waiters.high_watermark_moved(9, 1);
        assert!(far.is_over());
    }
}
