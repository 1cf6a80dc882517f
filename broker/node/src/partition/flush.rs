//! Making a replica's records durable off the append path: taken under the lock, run without it, noted under it.

use taffrail_log::{Flush, Flushed, Log, LogError};

use super::upkeep::log_failure;
use super::{Partition, Replica, Role};
use crate::env::Env;

/// What has to be fsynced of a replica's log.
pub(crate) struct ReplicaFlush<E: Env> {
    flush: Flush<E::Disk>,
    log_number: u64,
}

/// What came of it.
pub(crate) struct ReplicaFlushed {
    result: Result<Flushed, LogError>,
    /// It counts for this log only: the replica may have another one since.
    log_number: u64,
}

impl<E: Env> ReplicaFlush<E> {
    fn of(replica: &Replica<E>, flush: Flush<E::Disk>) -> Self {
        let log_number = replica.log_number;
        Self { flush, log_number }
    }

    /// Runs it, without any lock.
    pub(crate) fn run(self) -> ReplicaFlushed {
        ReplicaFlushed {
            result: self.flush.run(),
            log_number: self.log_number,
        }
    }
}

impl<E: Env> Partition<E> {
    /// What has to be fsynced now; none if all is durable.
    pub(crate) fn begin_flush(&self) -> Option<ReplicaFlush<E>> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let flush_ack = replica.flush_ack;
        let log = replica.log.as_mut()?;
        // Without flush=ack only what lies below the active segment is worth an fsync: the rest follows at its roll.
        let end_offset = if flush_ack {
            i64::MAX
        } else {
            log.active_base_offset()
        };
        let flush = log.begin_flush(end_offset).unwrap_or_else(|error| {
            log_failure(&self.name(), "flush", &error);
            None
        })?;
        Some(ReplicaFlush::of(replica, flush))
    }

    /// The same for records that have waited for their segment to be closed, if they are many bytes: after a kill they would
    /// all be read.
    pub(crate) fn begin_flush_of(&self, bytes_min: u64) -> Option<ReplicaFlush<E>> {
        let mut replica = self.lock();
        let log = replica.log.as_mut()?;
        if log.poisoned().is_some() || log.unflushed_bytes() < bytes_min {
            return None;
        }
        let flush = log.begin_flush_with_indexes().unwrap_or_else(|error| {
            log_failure(&self.name(), "flush", &error);
            None
        })?;
        Some(ReplicaFlush::of(&replica, flush))
    }

    /// Bytes of its active segment that are not known to be durable.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let replica = self.lock();
        let log = replica.log.as_ref().filter(|log| log.poisoned().is_none());
        log.map_or(0, Log::unflushed_bytes)
    }

    /// The fsyncs are done, or failed. Tells whether all closed segments are durable now and were not before.
    pub(crate) fn finish_flush(&self, env: &E, done: ReplicaFlushed) -> bool {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let Some(log) = &mut replica.log else {
            return false;
        };
        if done.log_number != replica.log_number {
            // All that was to be made durable is so in the log that it has now, or was asked for again.
            return false;
        }
        let before = log.recovery_point();
        let flushed = match log.finish_flush(done.result) {
            Ok(flushed) => flushed,
            Err(error) => {
                tracing::error!(partition = %self.name(), %error, "fsync failed: the log takes no more records");
                return false;
            }
        };
        let closed = before < log.active_base_offset() && flushed >= log.active_base_offset();
        let again = replica.flush_ack && flushed < log.log_end_offset();
        let mut effects = std::mem::take(&mut replica.effects);
        if let Role::Leader(leader) = &mut replica.role {
            leader.handle_flushed(env.now(), flushed, &mut effects);
        }
        self.settle(replica, effects);
        if again {
            self.flushes.push(self.id);
        }
        closed
    }
}

impl<E: Env> Partition<E> {
    /// Closes the log for good, its producers written beside it. Gives the directory and what came of it.
    pub(crate) fn close(&self) -> Option<(std::path::PathBuf, Result<(), LogError>)> {
        let mut log = self.take_log()?;
        let path = log.directory().path().to_owned();
        let producers = self.take_producers();
        crate::producer_snapshots::write_last(&mut log, &producers);
        Some((path, log.close()))
    }
}
