//! Every open connection: how many there may be, and who has been silent for too long.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use prometheus::{IntCounter, IntGauge, Registry};
use taffrail_node::ListenerKind;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::logging::Throttle;

/// How often connections are looked through. 10,000 of them take well under a millisecond.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A connection that has been silent for so long gives its read buffer back.
const BUFFER_IDLE_MS: u64 = 3_000;

/// What the connection's task and the sweep share.
#[derive(Debug)]
pub(crate) struct Record {
    clock: Arc<Clock>,
    /// Coarse time of the last byte read or written.
    active_ms: AtomicU64,
    /// Set by the sweep, which then wakes the task: give the read buffer back.
    release: AtomicBool,
    waker: Mutex<Option<Waker>>,
    task: OnceLock<AbortHandle>,
}

impl Record {
    /// Notes that a byte has been read or written.
    pub(super) fn touch(&self) {
        self.active_ms
            .store(self.clock.coarse_ms(), Ordering::Relaxed);
    }

    /// Whether the read buffer should be given back; asked once per request of the sweep.
    pub(super) fn should_release(&self) -> bool {
        self.release.load(Ordering::Relaxed) && self.release.swap(false, Ordering::Relaxed)
    }

    /// Remembers how to wake the task. A task's waker stays the same for its whole life.
    pub(super) fn set_waker(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    /// Remembers the task, so that the sweep can end it wherever it waits.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        // A record has one task.
        let _ = self.task.set(task);
    }
}

/// Limits and what is counted against them.
#[derive(Debug)]
pub(crate) struct Connections {
    clock: Arc<Clock>,
    limits: Limits,
    open: Mutex<Open>,
    metrics: ConnectionMetrics,
    /// Lines about connections that are refused or closed for a reason.
    pub(crate) lines: Throttle,
}

/// How many connections there may be and for how long they may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections of clients.
    pub(crate) clients_max: usize,
    /// Connections from one address, of clients.
    pub(crate) clients_per_address_max: usize,
    /// Silence after which a connection is closed; none for never.
    pub(crate) idle: Option<Duration>,
}

#[derive(Debug, Default)]
struct Open {
    next_id: u64,
    records: BTreeMap<u64, Arc<Record>>,
    clients: usize,
    clients_by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct ConnectionMetrics {
    open: IntGauge,
    accepted: IntCounter,
    refused: IntCounter,
    idle_closed: IntCounter,
}

impl ConnectionMetrics {
    fn register(registry: &Registry) -> prometheus::Result<ConnectionMetrics> {
        let prefix = "kafka_server_socketservermetrics";
        let metrics = ConnectionMetrics {
            open: IntGauge::new(format!("{prefix}_connection_count"), "Open connections.")?,
            accepted: IntCounter::new(
                format!("{prefix}_connection_creation_total"),
                "Connections accepted.",
            )?,
            refused: IntCounter::new(
                "taffrail_connections_refused_total",
                "Connections closed at once because there were too many.",
            )?,
            idle_closed: IntCounter::new(
                "taffrail_connections_idle_closed_total",
                "Connections closed after connections.max.idle.ms of silence.",
            )?,
        };
        registry.register(Box::new(metrics.open.clone()))?;
        registry.register(Box::new(metrics.accepted.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        registry.register(Box::new(metrics.idle_closed.clone()))?;
        Ok(metrics)
    }
}

impl Connections {
    /// No connections yet.
    pub(crate) fn new(
        clock: Arc<Clock>,
        limits: Limits,
        registry: &Registry,
    ) -> prometheus::Result<Arc<Self>> {
        let metrics = ConnectionMetrics::register(registry)?;
        Ok(Arc::new(Connections {
            clock,
            limits,
            open: Mutex::default(),
            metrics,
            lines: Throttle::default(),
        }))
    }

    /// Counts a new connection, or says why it is one too many. Brokers among themselves are never too many: clients
    /// must not be able to cut replication off.
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
        kind: ListenerKind,
    ) -> Result<Registered, String> {
        let mut open = self.lock();
        if kind == ListenerKind::Client {
            let from_address = open.clients_by_address.get(&address).copied().unwrap_or(0);
            let refused = if open.clients >= self.limits.clients_max {
                Some(format!(
                    "all {} connections (max.connections, open files) are taken",
                    self.limits.clients_max
                ))
            } else if from_address >= self.limits.clients_per_address_max {
                Some(format!(
                    "{address} already has {from_address} (max.connections.per.ip)"
                ))
            } else {
                None
            };
            if let Some(reason) = refused {
                self.metrics.refused.inc();
                return Err(reason);
            }
            open.clients += 1;
            *open.clients_by_address.entry(address).or_insert(0) += 1;
        }
        let id = open.next_id;
        open.next_id += 1;
        let record = Arc::new(Record {
            clock: Arc::clone(&self.clock),
            active_ms: AtomicU64::new(self.clock.coarse_ms()),
            release: AtomicBool::new(false),
            waker: Mutex::new(None),
            task: OnceLock::new(),
        });
        open.records.insert(id, Arc::clone(&record));
        self.metrics.accepted.inc();
        self.metrics
            .open
            .set(i64::try_from(open.records.len()).unwrap_or(i64::MAX));
        Ok(Registered {
            connections: Arc::clone(self),
            id,
            address,
            kind,
            record,
        })
    }

    /// Whether one more line about strangers may be logged now, and how many were held back.
    pub(crate) fn admit_line(&self) -> Option<u64> {
        self.lines.admit(self.clock.coarse_ms() / 1000)
    }

    /// Closes silent connections and frees the buffers of quiet ones, for ever.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let idle_ms = self
            .limits
            .idle
            .map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
        loop {
            tokio::time::sleep_until(self.clock.next_round(SWEEP_EVERY).into()).await;
            let now = self.clock.coarse_ms();
            let records: Vec<Arc<Record>> = self.lock().records.values().cloned().collect();
            for record in records {
                let silent_ms = now.saturating_sub(record.active_ms.load(Ordering::Relaxed));
                if idle_ms.is_some_and(|idle_ms| silent_ms >= idle_ms) {
                    self.metrics.idle_closed.inc();
                    if let Some(task) = record.task.get() {
                        task.abort();
                    }
                } else if (BUFFER_IDLE_MS..2 * BUFFER_IDLE_MS).contains(&silent_ms) {
                    record.release.store(true, Ordering::Relaxed);
                    if let Some(waker) = record
                        .waker
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .as_ref()
                    {
                        waker.wake_by_ref();
                    }
                }
            }
        }
    }

    /// Ends every connection.
    pub(crate) fn close_all(&self) {
        let records: Vec<Arc<Record>> = self.lock().records.values().cloned().collect();
        for record in records {
            if let Some(task) = record.task.get() {
                task.abort();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    connections: Arc<Connections>,
    id: u64,
    address: IpAddr,
    kind: ListenerKind,
    /// What its task shares with the sweep.
    pub(crate) record: Arc<Record>,
}

impl Registered {
    /// The registry.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.records.remove(&self.id);
        if self.kind == ListenerKind::Client {
            open.clients -= 1;
            if let Some(count) = open.clients_by_address.get_mut(&self.address) {
                *count -= 1;
                if *count == 0 {
                    open.clients_by_address.remove(&self.address);
                }
            }
        }
        self.connections
            .metrics
            .open
            .set(i64::try_from(open.records.len()).unwrap_or(i64::MAX));
        // The waker keeps the task's memory; the record may outlive it in a sweep.
        *self
            .record
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(clients_max: usize, clients_per_address_max: usize) -> Arc<Connections> {
        let limits = Limits {
            clients_max,
            clients_per_address_max,
            idle: None,
        };
        Connections::new(Clock::start(), limits, &Registry::new()).expect("metric names are valid")
    }

    #[test]
    fn connections_above_a_limit_are_refused_until_another_closes() {
        fn check(clients_max: usize, per_address_max: usize, expected: &[bool]) {
            let connections = connections(clients_max, per_address_max);
            let addresses = [[10, 0, 0, 1], [10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];
            let mut kept = Vec::new();
            for (address, expected) in addresses.into_iter().zip(expected) {
                let admitted = connections.admit(IpAddr::from(address), ListenerKind::Client);
                assert_eq!(admitted.is_ok(), *expected, "{address:?}");
                kept.extend(admitted.ok());
            }
            drop(kept);
            assert!(
                connections
                    .admit(IpAddr::from([10, 0, 0, 1]), ListenerKind::Client)
                    .is_ok()
            );
            assert!(connections.lock().clients_by_address.is_empty());
        }
        check(10, 10, &[true, true, true, true]);
        check(3, 10, &[true, true, true, false]);
        check(10, 1, &[true, false, true, true]);
    }

    #[test]
    fn brokers_are_never_one_too_many() {
        let connections = connections(0, 0);
        assert!(
            connections
                .admit(IpAddr::from([10, 0, 0, 1]), ListenerKind::Internal)
                .is_ok()
        );
        assert!(
            connections
                .admit(IpAddr::from([10, 0, 0, 1]), ListenerKind::Client)
                .is_err()
        );
    }
}
