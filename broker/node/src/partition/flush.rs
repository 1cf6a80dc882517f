//! Making a replica's records durable off the append path: taken under the lock, run without it, noted under it.

use taffrail_log::{Flush, Flushed, LogError};

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

    /// The fsyncs are done, or failed.
    pub(crate) fn finish_flush(&self, env: &E, result: Result<Flushed, LogError>) {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let Some(log) = &mut replica.log else { return };
        let flushed = match log.finish_flush(result) {
            Ok(flushed) => flushed,
            Err(error) => {
                tracing::error!(partition = %self.name(), %error, "fsync failed: the log takes no more records");
                return;
            }
        };
        let again = replica.flush_ack && flushed < log.log_end_offset();
        let mut effects = std::mem::take(&mut replica.effects);
        if let Role::Leader(leader) = &mut replica.role {
            leader.handle_flushed(env.now(), flushed, &mut effects);
        }
        self.settle(replica, effects);
        if again {
            self.flushes.push(self.id);
        }
    }
}

impl<E: Env> Partition<E> {
    /// Closes the log for good, its producers written beside it. Gives the directory and what came of it.
    pub(crate) fn close(&self) -> Option<(std::path::PathBuf, Result<(), LogError>)> {
        let mut log = self.take_log()?;
        let path = log.directory().path().to_owned();
        let producers = self.take_producers();
        let end_offset = log.log_end_offset();
        crate::producer_snapshots::write(&mut log, end_offset, &producers);
        Some((path, log.close()))
    }
}
