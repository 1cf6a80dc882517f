//! ListOffsets: an offset by timestamp or by name. The replica is asked under its lock where to look, and records are looked
//! at without it. Nothing is found that the asker may not see.

use std::sync::Arc;

use taffrail_core::error::ErrorKind;
use taffrail_core::ids::LeaderEpoch;
use taffrail_core::replica::check_leader_epoch;
use taffrail_log::{Disk, Log, LogError, OffsetLookup, OffsetSpec, Searched, TimestampOffset};
use tokio::sync::Semaphore;

use super::read::{Fetcher, Isolation, last_stable_offset};
use super::{Partition, Role, storage_error};
use crate::env::Env;

/// Searches of a broker that are under way at a time. They run on the threads that also write the metadata log, for as long as what
/// producers wrote wants them to; some of those threads must be left.
pub(crate) const SEARCHES_MAX: usize = 2;

type FileOf<E> = <<E as Env>::Disk as Disk>::File;

impl<E: Env> Partition<E> {
    /// ListOffsets: an offset by timestamp or by name, as far as the asker may see. What has to be read and decompressed for it
    /// is done without the replica's lock, since it is producers who say how much that is.
    pub(crate) async fn offset_for(
        &self,
        env: &E,
        searches: &Arc<Semaphore>,
        spec: OffsetSpec,
        fetcher: Fetcher,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<(Option<TimestampOffset>, LeaderEpoch), ErrorKind> {
        let (mut lookup, leader_epoch) = self.look_up(spec, fetcher, current_leader_epoch)?;
        let found = loop {
            let mut search = match lookup {
                OffsetLookup::Known(found) => break found,
                OffsetLookup::Search(search) => search,
            };
            // Never closed. Held until the search is over, also if whoever asked has gone.
            let turn = Arc::clone(searches).acquire_owned().await;
            let (search, searched) = env
                .run_blocking(move || {
                    let searched = search.run();
                    drop(turn);
                    (search, searched)
                })
                .await;
            lookup = self.as_leader(leader_epoch, |log| match searched? {
                Searched::Known(found) => Ok(OffsetLookup::Known(found)),
                Searched::NotInSegment => log.search_on(search),
            })?;
        };
        let epoch = self.as_leader(leader_epoch, |log| {
            let epoch = found.and_then(|found| log.epochs().epoch_at(found.offset));
            Ok(epoch.map_or(leader_epoch, LeaderEpoch))
        })?;
        Ok((found, epoch))
    }

    /// What the log knows at once, and the epoch that this broker leads in.
    fn look_up(
        &self,
        spec: OffsetSpec,
        fetcher: Fetcher,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<(OffsetLookup<FileOf<E>>, LeaderEpoch), ErrorKind> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        let (Some(log), Role::Leader(leader)) = (&mut replica.log, &mut replica.role) else {
            return Err(ErrorKind::NotLeaderOrFollower);
        };
        check_leader_epoch(current_leader_epoch, leader.leader_epoch())?;
        let end_offset = match fetcher {
            Fetcher::Consumer(isolation) => leader
                .exposed_high_watermark()
                .map(|high_watermark| match isolation {
                    Isolation::ReadUncommitted => high_watermark,
                    Isolation::ReadCommitted => {
                        last_stable_offset(log, &replica.producers, high_watermark)
                    }
                })
                .map_err(|error| match spec {
                    OffsetSpec::Earliest => ErrorKind::UnknownServerError,
                    _ => error,
                }),
            Fetcher::Follower { .. } => Ok(log.log_end_offset()),
        };
        let end_offset = match (end_offset, spec) {
            (Ok(end_offset), _) => end_offset,
            (Err(_), OffsetSpec::Earliest) => leader.high_watermark(),
            (Err(error), _) => return Err(error),
        };
        let lookup = log
            .find_offset(spec, end_offset)
            .map_err(|error| storage_error(&error))?;
        Ok((lookup, leader.leader_epoch()))
    }

    /// Asks the log once more in the same leadership; what was found in another may have been taken back meanwhile.
    fn as_leader<T>(
        &self,
        leader_epoch: LeaderEpoch,
        ask: impl FnOnce(&mut Log<E::Disk>) -> Result<T, LogError>,
    ) -> Result<T, ErrorKind> {
        let mut guard = self.lock();
        let replica = &mut *guard;
        match (&mut replica.log, &replica.role) {
            (Some(log), Role::Leader(leader)) if leader.leader_epoch() == leader_epoch => ask(log)
                .map_err(|error| {
                    tracing::warn!(partition = %self.name(), %error, "lookup by time failed");
                    storage_error(&error)
                }),
            _ => Err(ErrorKind::NotLeaderOrFollower),
        }
    }
}
