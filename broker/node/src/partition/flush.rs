//! Making a replica's records durable off the append path: taken under the lock, run without it, noted under it.

use taffrail_log::{Flush, Flushed, Log, LogError};

use super::upkeep::log_failure;
use super::{Partition, Role};
use crate::env::Env;

impl<E: Env> Partition<E> {
    /// What has to be fsynced now; none if all is durable.
    pub(crate) fn begin_flush(&self) -> Option<Flush<E::Disk>> {
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
        match log.begin_flush(end_offset) {
            Ok(flush) => flush,
            Err(error) => {
                log_failure(&self.name(), "flush", &error);
                None
            }
        }
    }

    /// The same for records that have waited for their segment to be closed, if they are many bytes: after a kill they would
    /// all be read.
    pub(crate) fn begin_flush_of(&self, bytes_min: u64) -> Option<Flush<E::Disk>> {
        let mut replica = self.lock();
        let log = replica.log.as_mut()?;
        if log.poisoned().is_some() || log.unflushed_bytes() < bytes_min {
            return None;
        }
        log.begin_flush_with_indexes().unwrap_or_else(|error| {
            log_failure(&self.name(), "flush", &error);
            None
        })
    }

    /// Bytes of its active segment that are not known to be durable.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let replica = self.lock();
        let log = replica.log.as_ref().filter(|log| log.poisoned().is_none());
        log.map_or(0, Log::unflushed_bytes)
    }

    /// The fsyncs are done, or failed. Tells whether all closed segments are durable now and were not before.
    pub(crate) fn finish_flush(&self, env: &E, result: Result<Flushed, LogError>) -> bool {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let Some(log) = &mut replica.log else {
            return false;
        };
        let before = log.recovery_point();
        let flushed = match log.finish_flush(result) {
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
