//! Runs futures on one thread under a clock that moves only when nobody can go on. Which task goes on first is drawn
//! from the seed. It knows nothing of nodes: tasks belong to a group, and a group can be ended at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use taffrail_core::time::Instant;

use crate::random::Random;

/// Polls at one moment of the clock after which the tasks are taken to be spinning. A busy moment of three nodes takes
/// some hundreds.
const POLLS_AT_ONE_MOMENT_MAX: u64 = 1_000_000;

/// Tasks that end together, as those of one process do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group(pub u64);

/// The tasks that can go on. Ordered, so that it does not matter in which order they were woken.
type Ready = Arc<Mutex<BTreeSet<u64>>>;

/// The one thread. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Executor {
    state: Arc<Mutex<State>>,
    ready: Ready,
}

struct State {
    now: Instant,
    random: Random,
    next_group: u64,
    next_task: u64,
    next_timer: u64,
    tasks: BTreeMap<u64, Task>,
    timers: BTreeMap<(Instant, u64), Waker>,
    /// Groups that stand still, with their tasks that could go on.
    paused: BTreeMap<Group, Vec<u64>>,
    polls_now: u64,
    /// What a task said when it panicked. Nothing goes on after that.
    panic: Option<String>,
}

struct Task {
    group: Group,
    /// Away while it is polled.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    wake: Arc<TaskWake>,
}

struct TaskWake {
    task: u64,
    queued: AtomicBool,
    ready: Ready,
}

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            lock(&self.ready).insert(self.task);
        }
    }
}

impl Executor {
    /// A thread with nothing to do, at the start of the clock.
    pub(crate) fn new(random: Random) -> Executor {
        let state = State {
            now: Instant::ZERO,
            random,
            next_group: 0,
            next_task: 0,
            next_timer: 0,
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            paused: BTreeMap::new(),
            polls_now: 0,
            panic: None,
        };
        Executor {
            state: Arc::new(Mutex::new(state)),
            ready: Arc::default(),
        }
    }

    /// The clock.
    pub(crate) fn now(&self) -> Instant {
        lock(&self.state).now
    }

    /// A group without tasks.
    pub(crate) fn group(&self) -> Group {
        let mut state = lock(&self.state);
        state.next_group += 1;
        Group(state.next_group)
    }

    /// Adds a task to a group.
    pub(crate) fn spawn(&self, group: Group, future: impl Future<Output = ()> + Send + 'static) {
        let mut state = lock(&self.state);
        let task = state.next_task;
        state.next_task += 1;
        let wake = Arc::new(TaskWake {
            task,
            queued: AtomicBool::new(true),
            ready: Arc::clone(&self.ready),
        });
        let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
        let future = Some(future);
        state.tasks.insert(
            task,
            Task {
                group,
                future,
                wake,
            },
        );
        drop(state);
        lock(&self.ready).insert(task);
    }

    /// Ends all tasks of a group where they stand. Not to be called by one of them.
    pub(crate) fn end(&self, group: Group) {
        let mut state = lock(&self.state);
        state.paused.remove(&group);
        let ids: Vec<u64> = (state.tasks.iter())
            .filter(|(_, task)| task.group == group)
            .map(|(id, _)| *id)
            .collect();
        let ended: Vec<Option<Task>> = ids.iter().map(|id| state.tasks.remove(id)).collect();
        // What they hold may wake others or end timers on its way out.
        drop(state);
        drop(ended);
    }

    /// Lets a group stand still, as a stopped process does: time passes, and what is sent to it waits.
    pub(crate) fn pause(&self, group: Group) {
        lock(&self.state).paused.entry(group).or_default();
    }

    /// Lets a group go on.
    pub(crate) fn resume(&self, group: Group) {
        let held = lock(&self.state).paused.remove(&group);
        lock(&self.ready).extend(held.into_iter().flatten());
    }

    /// What a task panicked with, if one did.
    pub(crate) fn panic(&self) -> Option<String> {
        lock(&self.state).panic.clone()
    }

    /// Completes at `deadline`.
    pub(crate) fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep {
            executor: self.clone(),
            deadline,
            timer: None,
        }
    }

    /// Completes after so long.
    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Wakes a task at a moment, once.
    pub(crate) fn wake_at(&self, deadline: Instant, waker: &Waker) {
        lock(&self.state).add_timer(deadline, waker);
    }

    /// Lets everything happen that happens in so long.
    #[cfg(test)]
    pub(crate) fn run_for(&self, duration: Duration) {
        self.run_until(self.now() + duration, || false);
    }

    /// Lets everything happen until `deadline`, or until `done`, which is asked each time the clock is about to move.
    pub(crate) fn run_until(&self, deadline: Instant, mut done: impl FnMut() -> bool) {
        loop {
            while self.poll_one() {}
            if done() || !self.move_clock(deadline) {
                return;
            }
        }
    }

    /// Runs one future to its end, everything else beside it; none if it has not ended after `patience`.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        group: Group,
        patience: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let result = Arc::new(Mutex::new(None));
        let filled = Arc::clone(&result);
        self.spawn(group, async move {
            let value = future.await;
            *lock(&filled) = Some(value);
        });
        self.run_until(self.now() + patience, || lock(&result).is_some());
        lock(&result).take()
    }

    /// Polls one of the tasks that can go on.
    fn poll_one(&self) -> bool {
        let mut state = lock(&self.state);
        if state.panic.is_some() {
            return false;
        }
        let id = {
            let mut ready = lock(&self.ready);
            let index = state.random.below(ready.len() as u64) as usize;
            let Some(id) = ready.iter().nth(index).copied() else {
                return false;
            };
            ready.remove(&id);
            id
        };
        state.polls_now += 1;
        assert!(
            state.polls_now < POLLS_AT_ONE_MOMENT_MAX,
            "tasks spin without time passing"
        );
        let State { tasks, paused, .. } = &mut *state;
        let Some(task) = tasks.get_mut(&id) else {
            return true;
        };
        if let Some(held) = paused.get_mut(&task.group) {
            held.push(id);
            return true;
        }
        let Some(mut future) = task.future.take() else {
            return true;
        };
        task.wake.queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&task.wake));
        drop(state);
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let mut state = lock(&self.state);
        let polled = match polled {
            Ok(polled) => polled,
            Err(panic) => {
                state.panic = Some(text_of(&*panic));
                // What it holds is in no state to be dropped.
                std::mem::forget(future);
                return false;
            }
        };
        match polled {
            Poll::Ready(()) => {
                let ended = state.tasks.remove(&id);
                drop(state);
                drop((ended, future));
            }
            Poll::Pending => {
                if let Some(task) = state.tasks.get_mut(&id) {
                    task.future = Some(future);
                }
            }
        }
        true
    }

    /// Moves the clock to the next timer, at most to `deadline`; false once it stands there.
    fn move_clock(&self, deadline: Instant) -> bool {
        let mut state = lock(&self.state);
        if state.panic.is_some() {
            return false;
        }
        state.polls_now = 0;
        let next = state.timers.first_key_value().map(|((at, _), _)| *at);
        let Some(at) = next.filter(|at| *at <= deadline) else {
            state.now = state.now.max(deadline);
            return false;
        };
        state.now = state.now.max(at);
        crate::log_time::set(state.now);
        let later = state.timers.split_off(&(Instant(at.0 + 1), 0));
        let due = std::mem::replace(&mut state.timers, later);
        drop(state);
        for (_, waker) in due {
            waker.wake();
        }
        true
    }
}

impl State {
    fn add_timer(&mut self, deadline: Instant, waker: &Waker) -> (Instant, u64) {
        let timer = (deadline, self.next_timer);
        self.next_timer += 1;
        self.timers.insert(timer, waker.clone());
        timer
    }
}

/// A wait for a moment of the clock.
pub(crate) struct Sleep {
    executor: Executor,
    deadline: Instant,
    timer: Option<(Instant, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let executor = self.executor.clone();
        let mut state = lock(&executor.state);
        if state.now >= self.deadline {
            return Poll::Ready(());
        }
        if let Some(timer) = self.timer
            && let Some(waker) = state.timers.get_mut(&timer)
        {
            waker.clone_from(context.waker());
        } else {
            self.timer = Some(state.add_timer(self.deadline, context.waker()));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = lock(&self.executor.state).timers.remove(&timer);
            drop(waker);
        }
    }
}

/// What a panic says.
pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("panic: {}", text.unwrap_or_default())
}

/// Locks what only this thread uses; the lock is there because futures must be `Send`.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64) -> Vec<(u64, u32)> {
        let executor = Executor::new(Random::new(seed));
        let group = executor.group();
        let seen = Arc::new(Mutex::new(Vec::new()));
        for number in 0..5 {
            let (executor_, seen) = (executor.clone(), Arc::clone(&seen));
            executor.spawn(group, async move {
                for turn in 1..4 {
                    executor_.sleep(Duration::from_millis(turn)).await;
                    lock(&seen).push((executor_.now().0, number));
                }
            });
        }
        executor.run_for(Duration::from_secs(1));
        assert_eq!(executor.now(), Instant::from_millis(1000));
        std::mem::take(&mut *lock(&seen))
    }

    #[test]
    fn a_seed_repeats_and_another_orders_otherwise() {
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let times: Vec<u64> = order(3).iter().map(|(at, _)| at / 1_000_000).collect();
        assert_eq!(times, [1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 6, 6, 6, 6, 6]);
    }

    #[test]
    fn a_group_ends_where_it_stands() {
        let executor = Executor::new(Random::new(1));
        let (ended, kept) = (executor.group(), executor.group());
        let count = Arc::new(Mutex::new(BTreeMap::new()));
        for group in [ended, kept] {
            let (executor_, count) = (executor.clone(), Arc::clone(&count));
            executor.spawn(group, async move {
                loop {
                    *lock(&count).entry(group).or_insert(0) += 1;
                    executor_.sleep(Duration::from_millis(1)).await;
                }
            });
        }
        executor.run_for(Duration::from_millis(10));
        executor.end(ended);
        executor.run_for(Duration::from_millis(10));
        assert_eq!(*lock(&count), BTreeMap::from([(ended, 11), (kept, 21)]));
    }

    #[test]
    fn a_paused_group_goes_on_where_it_stood() {
        let executor = Executor::new(Random::new(1));
        let group = executor.group();
        let count = Arc::new(Mutex::new(0));
        let (sleeper, counted) = (executor.clone(), Arc::clone(&count));
        executor.spawn(group, async move {
            loop {
                *lock(&counted) += 1;
                sleeper.sleep(Duration::from_millis(1)).await;
            }
        });
        executor.run_for(Duration::from_millis(10));
        executor.pause(group);
        executor.run_for(Duration::from_millis(10));
        assert_eq!(*lock(&count), 11);
        executor.resume(group);
        executor.run_for(Duration::from_millis(10));
        assert_eq!(*lock(&count), 22);
    }

    #[test]
    fn a_panic_stops_everything_and_is_told() {
        let executor = Executor::new(Random::new(1));
        let group = executor.group();
        executor.spawn(group, async { panic!("this test's own") });
        executor.run_for(Duration::from_millis(10));
        assert_eq!(executor.panic().as_deref(), Some("panic: this test's own"));
    }
}
