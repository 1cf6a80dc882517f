//! A network that delays, cuts and closes. A connection carries whole frames (length prefix included) in order, as TCP
//! would; while two machines are cut off from each other, what is under way waits, and arrives when they are not.

use std::collections::VecDeque;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use taffrail_core::time::Instant;
use tokio::sync::mpsc;

use crate::executor::{Executor, lock};
use crate::random::Random;
use crate::trace;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often an attempt through a cut is tried again.
const CONNECT_RETRY: Duration = Duration::from_millis(100);

/// A computer in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Machine(pub u32);

/// The network. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Network {
    executor: Executor,
    state: Arc<Mutex<State>>,
}

struct State {
    random: Random,
    listeners: BTreeMap<(String, u16), Listener>,
    /// Ways on which nothing arrives, each in one direction.
    cuts: BTreeSet<(Machine, Machine)>,
    /// Ways on which everything takes so much longer, each in one direction.
    slow: BTreeMap<(Machine, Machine), Duration>,
    links: Vec<Weak<Link>>,
    /// Most frames take up to this long.
    delay: Duration,
    /// A few of a hundred take up to ten times as long.
    slow_percent: u64,
}

struct Listener {
    machine: Machine,
    incoming: mpsc::UnboundedSender<Socket>,
}

struct Link {
    machines: [Machine; 2],
    pipes: Mutex<[Pipe; 2]>,
}

/// What is under way to one end.
#[derive(Default)]
struct Pipe {
    frames: VecDeque<(Instant, Vec<u8>)>,
    /// When the end of the stream arrives, once the other side has closed it.
    closed: Option<Instant>,
    /// Nothing arrives in order before what was sent earlier.
    last_arrival: Instant,
    /// The machine that sends here lost its power and says nothing, not even goodbye.
    silent: bool,
    waker: Option<Waker>,
}

/// One end of a connection. Dropping it closes the connection.
pub(crate) struct Socket {
    network: Network,
    link: Arc<Link>,
    end: usize,
}

impl Network {
    /// A network without machines.
    pub(crate) fn new(executor: Executor, random: Random) -> Network {
        let state = State {
            random,
            listeners: BTreeMap::new(),
            cuts: BTreeSet::new(),
            slow: BTreeMap::new(),
            links: Vec::new(),
            delay: Duration::from_millis(1),
            slow_percent: 2,
        };
        Network {
            executor,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// How long most frames take at most, and how many of a hundred take up to ten times as long.
    pub(crate) fn set_delay(&self, delay: Duration, slow_percent: u64) {
        let mut state = lock(&self.state);
        (state.delay, state.slow_percent) = (delay, slow_percent);
    }

    /// Takes connections to an address.
    pub(crate) fn listen(
        &self,
        machine: Machine,
        host: &str,
        port: u16,
    ) -> mpsc::UnboundedReceiver<Socket> {
        let (incoming, accepted) = mpsc::unbounded_channel();
        let listener = Listener { machine, incoming };
        lock(&self.state)
            .listeners
            .insert((host.to_owned(), port), listener);
        accepted
    }

    /// Nothing listens on a machine any more.
    pub(crate) fn stop_listening(&self, machine: Machine) {
        lock(&self.state)
            .listeners
            .retain(|_, listener| listener.machine != machine);
    }

    /// A machine lost its power: nobody hears of it again on the connections that it had.
    pub(crate) fn power_off(&self, machine: Machine) {
        for link in self.links() {
            let mut pipes = lock(&link.pipes);
            for (end, other) in [(0, 1), (1, 0)] {
                if link.machines[end] == machine {
                    pipes[other].silent = true;
                }
            }
        }
    }

    /// A machine has power again and knows of none of its old connections, so that those who use one learn that it is gone.
    pub(crate) fn power_on(&self, machine: Machine) {
        let now = self.executor.now();
        for link in self.links() {
            let mut pipes = lock(&link.pipes);
            for pipe in pipes.iter_mut().filter(|pipe| pipe.silent) {
                if link.machines.contains(&machine) {
                    pipe.closed = Some(now);
                    pipe.wake();
                }
            }
        }
    }

    /// From now on nothing of what `from` sends arrives at `to`.
    pub(crate) fn cut(&self, from: Machine, to: Machine) {
        lock(&self.state).cuts.insert((from, to));
    }

    /// From now on what `from` sends to `to` takes so much longer.
    pub(crate) fn slow_down(&self, from: Machine, to: Machine, delay: Duration) {
        lock(&self.state).slow.insert((from, to), delay);
    }

    /// All ways are open and fast again.
    pub(crate) fn heal(&self) {
        {
            let mut state = lock(&self.state);
            state.cuts.clear();
            state.slow.clear();
        }
        for link in self.links() {
            for pipe in lock(&link.pipes).iter_mut() {
                pipe.wake();
            }
        }
    }

    /// Closes every connection between two machines; both sides notice.
    pub(crate) fn reset(&self, one: Machine, other: Machine) {
        let now = self.executor.now();
        for link in self.links() {
            if link.machines == [one, other] || link.machines == [other, one] {
                for pipe in lock(&link.pipes).iter_mut() {
                    pipe.frames.clear();
                    pipe.closed = Some(now);
                    pipe.wake();
                }
            }
        }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, from: Machine, host: &str, port: u16) -> io::Result<Socket> {
        let deadline = self.executor.now() + CONNECT_TIMEOUT;
        loop {
            let delay = self.draw_delay(None);
            self.executor.sleep(delay).await;
            if let Some(connected) = self.try_connect(from, host, port) {
                return connected;
            }
            if self.executor.now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.executor.sleep(CONNECT_RETRY).await;
        }
    }

    /// None while the way is cut.
    fn try_connect(&self, from: Machine, host: &str, port: u16) -> Option<io::Result<Socket>> {
        let mut state = lock(&self.state);
        let Some(listener) = state.listeners.get(&(host.to_owned(), port)) else {
            return Some(Err(io::ErrorKind::ConnectionRefused.into()));
        };
        let to = listener.machine;
        if state.cuts.contains(&(from, to)) || state.cuts.contains(&(to, from)) {
            return None;
        }
        let link = Arc::new(Link {
            machines: [from, to],
            pipes: Mutex::default(),
        });
        let socket = |end| Socket {
            network: self.clone(),
            link: Arc::clone(&link),
            end,
        };
        let accepted = listener.incoming.send(socket(1));
        state.links.retain(|link| link.strong_count() > 0);
        state.links.push(Arc::downgrade(&link));
        // A socket that is dropped on the way out takes the lock.
        drop(state);
        let ours = socket(0);
        Some(match accepted {
            Ok(()) => Ok(ours),
            Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
        })
    }

    fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.state)
            .links
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    fn is_cut(&self, from: Machine, to: Machine) -> bool {
        lock(&self.state).cuts.contains(&(from, to))
    }

    fn draw_delay(&self, way: Option<(Machine, Machine)>) -> Duration {
        let mut state = lock(&self.state);
        let percent = state.slow_percent;
        let factor = if state.random.chance(percent) { 10 } else { 1 };
        let limit = u64::try_from(state.delay.as_nanos()).unwrap_or(u64::MAX) * factor;
        // Never at once: time has to pass when two talk to each other.
        let delay = Duration::from_nanos(50_000 + state.random.below(limit));
        let slow = way.and_then(|way| state.slow.get(&way));
        delay + slow.copied().unwrap_or_default()
    }
}

impl Pipe {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Socket {
    /// The machine at the other end.
    pub(crate) fn other_machine(&self) -> Machine {
        self.link.machines[1 - self.end]
    }

    /// The way of what is sent.
    fn way(&self) -> (Machine, Machine) {
        (self.link.machines[self.end], self.other_machine())
    }

    /// Sends a frame, length prefix included. Whether it arrives only an answer can tell.
    pub(crate) fn send(&self, frame: Vec<u8>) -> io::Result<()> {
        let delay = self.network.draw_delay(Some(self.way()));
        let now = self.network.executor.now();
        let mut pipes = lock(&self.link.pipes);
        if pipes[self.end].closed.is_some_and(|at| at <= now) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let pipe = &mut pipes[1 - self.end];
        if pipe.silent || pipe.closed.is_some() {
            return Ok(());
        }
        pipe.last_arrival = pipe.last_arrival.max(now + delay);
        pipe.frames.push_back((pipe.last_arrival, frame));
        pipe.wake();
        Ok(())
    }

    /// The next frame, length prefix included; an error once the other side has closed the connection.
    pub(crate) fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let now = self.network.executor.now();
        let cut = self.network.is_cut(
            self.link.machines[1 - self.end],
            self.link.machines[self.end],
        );
        let mut pipes = lock(&self.link.pipes);
        let pipe = &mut pipes[self.end];
        pipe.waker = Some(context.waker().clone());
        if cut {
            return Poll::Pending;
        }
        if pipe
            .frames
            .front()
            .is_some_and(|(arrival, _)| *arrival <= now)
            && let Some((_, frame)) = pipe.frames.pop_front()
        {
            trace::note(("arrived", now.0, self.way(), &frame));
            return Poll::Ready(Ok(frame));
        }
        let next = match (pipe.frames.front(), pipe.closed) {
            (Some((arrival, _)), _) => *arrival,
            (None, Some(closed)) if closed <= now => {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            (None, Some(closed)) => closed,
            (None, None) => return Poll::Pending,
        };
        drop(pipes);
        self.network.executor.wake_at(next, context.waker());
        Poll::Pending
    }

    /// As [`Self::poll_receive`].
    pub(crate) async fn receive(&self) -> io::Result<Vec<u8>> {
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let delay = self.network.draw_delay(Some(self.way()));
        let arrival = self.network.executor.now() + delay;
        let mut pipes = lock(&self.link.pipes);
        let pipe = &mut pipes[1 - self.end];
        if !pipe.silent && pipe.closed.is_none() {
            pipe.last_arrival = pipe.last_arrival.max(arrival);
            pipe.closed = Some(pipe.last_arrival);
            pipe.wake();
        }
    }
}
