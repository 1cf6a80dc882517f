//! This broker's seat among the voters: in which log directory it keeps the metadata log, and why it does not vote, if it should.
//! A voter is recorded in the metadata as broker and directory together (`VoterRecord`): one that comes with another directory
//! gives up its seat, tells so, and follows the metadata as a broker that does not vote.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use taffrail_core::ids::{BrokerId, DirectoryId};
use taffrail_core::metadata::{Voter, VoterIntent};
use taffrail_log::{DirectoryError, identify_directory};

use super::{Cluster, metadata_log, observer};
use crate::broker::Broker;
use crate::env::{Env, random_id};
use crate::node::StartError;

/// Known from the start of a voter on.
pub(super) struct Seat {
    place: OnceLock<Place>,
    vacant: Mutex<Option<Vacancy>>,
    /// The last index in its metadata log, durably; -1 before it takes its seat.
    log_end: AtomicI64,
    given_up: AtomicBool,
    joining: AtomicBool,
}

/// A broker does not vote though it is configured to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vacancy {
    /// Why, and what to do; for a person to read.
    pub(super) reason: String,
    /// Whether somebody wanted it so. Otherwise the broker is not ready.
    pub(super) is_wanted: bool,
}

/// Why a voter gives up its seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeatLost {
    /// Another disk is recorded for it, with this directory.
    Replaced(Option<DirectoryId>),
    /// It was taken out of the voters.
    Removed,
    /// Its log ends before where it is known to have been.
    OldCopy {
        /// Where it ends.
        end: i64,
        /// Where it has been.
        had: i64,
    },
}

struct Place {
    path: PathBuf,
    /// None if it is a log directory that cannot be read.
    directory: Option<DirectoryId>,
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            place: OnceLock::new(),
            vacant: Mutex::default(),
            log_end: AtomicI64::new(-1),
            given_up: AtomicBool::new(false),
            joining: AtomicBool::new(false),
        }
    }
}

impl Seat {
    pub(super) fn path(&self) -> Option<&Path> {
        self.place.get().map(|place| place.path.as_path())
    }

    /// The directory by which this voter is known.
    pub(super) fn directory(&self) -> Option<DirectoryId> {
        self.place.get()?.directory
    }

    pub(super) fn set_vacant(&self, vacancy: Option<Vacancy>) {
        *self.vacant.lock().unwrap_or_else(PoisonError::into_inner) = vacancy;
    }

    /// The voter's log is durable up to this index.
    pub(super) fn set_log_end(&self, index: u64) {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        self.log_end.store(index, Ordering::Release);
    }

    /// The last index in its metadata log; -1 before it takes its seat.
    pub(super) fn log_end(&self) -> i64 {
        self.log_end.load(Ordering::Acquire)
    }

    /// It is to vote, and follows until it is taken in.
    pub(super) fn set_joining(&self, joining: bool) {
        self.joining.store(joining, Ordering::Release);
    }

    fn only_follows(&self) -> bool {
        self.given_up.load(Ordering::Acquire) || self.joining.load(Ordering::Acquire)
    }

    fn vacant(&self) -> Option<Vacancy> {
        self.vacant
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl<E: Env> Cluster<E> {
    /// Whether this broker only follows the metadata.
    pub(crate) fn is_observer(&self) -> bool {
        !self.configured_voters.contains(&self.id) || self.seat.only_follows()
    }

    /// Why this broker does not vote though it is configured to, with what to do.
    pub(crate) fn vacant_seat(&self) -> Option<String> {
        self.seat.vacant().map(|vacancy| vacancy.reason)
    }

    /// The same, unless somebody wanted it so.
    pub(crate) fn lost_seat(&self) -> Option<String> {
        let vacancy = self.seat.vacant().filter(|vacancy| !vacancy.is_wanted);
        vacancy.map(|vacancy| vacancy.reason)
    }

    /// This member's directory, and since when it is recorded as far as this broker knows; -1 for never.
    pub(super) fn own_seat(&self) -> Voter {
        let directory = self.seat.directory();
        let image = self.image();
        let invited = match image.voter_intent(self.id) {
            Some(VoterIntent::Invited {
                directory, since, ..
            }) => Some(Voter { directory, since }),
            Some(VoterIntent::Removed { .. }) | None => None,
        };
        let recorded = image.voter(self.id).or(invited);
        let recorded = recorded.filter(|recorded| recorded.directory == directory);
        Voter {
            directory,
            since: recorded.map_or(-1, |recorded| recorded.since),
        }
    }

    /// Notes in which directory the metadata log is. One that is no log directory is given an id of its own.
    pub(super) fn place_seat(&self, broker: &Broker<E>, path: &Path) -> Result<(), StartError> {
        let mut directories = broker.replication.directories().iter();
        let holder = directories.find(|directory| directory.path() == path);
        let mut log_dirs = broker.config.log_dirs.iter();
        let directory = match holder {
            Some(directory) => Some(directory.identity().directory_id),
            // A log directory that could not be opened.
            None if log_dirs.any(|log_dir| Path::new(log_dir) == path) => None,
            None => Some(self.identify(broker, path)?),
        };
        self.seat.place.get_or_init(|| Place {
            path: path.to_owned(),
            directory: directory.map(DirectoryId),
        });
        Ok(())
    }

    fn identify(&self, broker: &Broker<E>, path: &Path) -> Result<[u8; 16], StartError> {
        let cluster_id = self.configured_cluster_id.clone().unwrap_or_default();
        let new_id = random_id(&broker.env);
        identify_directory(broker.env.disk(), path, &cluster_id, self.id.0, new_id)
            .map(|identity| identity.directory_id)
            .map_err(|error| match error {
                DirectoryError::InUse { .. } | DirectoryError::Foreign { .. } => {
                    StartError::Identity(format!("metadata.log.dir: {error}"))
                }
                DirectoryError::Unreadable { .. } | DirectoryError::Io { .. } => {
                    StartError::Storage(format!("metadata.log.dir: {error}"))
                }
            })
    }

    /// Leaves the seat. This broker only follows from now on, until it is started anew.
    pub(super) fn give_up_seat(&self, broker: &Arc<Broker<E>>, lost: SeatLost) {
        let path = self.seat.path().unwrap_or_else(|| Path::new(""));
        let vacancy = match lost {
            SeatLost::Replaced(recorded) => Vacancy {
                reason: replaced_reason(self.id, path, recorded, self.seat.directory()),
                is_wanted: false,
            },
            SeatLost::OldCopy { end, had } => Vacancy {
                reason: format!(
                    "the metadata log in {} ends at {end}, but this voter had it up to {had}: it is on an old copy of its disk, or \
                     the disk lost it. It does not vote. Bring the newest disk back; or, if it is lost and all other voters run, move \
                     the folder {} away and start this broker again: its log is then restored from theirs",
                    path.display(),
                    metadata_log::FOLDER,
                ),
                is_wanted: false,
            },
            SeatLost::Removed => Vacancy {
                reason: format!(
                    "broker {} was taken out of the voters and follows the metadata. To have it vote again, move the folder {} \
                     in {} away, start this broker again and add it as a voter",
                    self.id,
                    metadata_log::FOLDER,
                    path.display()
                ),
                is_wanted: true,
            },
        };
        if vacancy.is_wanted {
            tracing::warn!(broker = %self.id, reason = vacancy.reason, "does not vote");
        } else {
            tracing::error!(broker = %self.id, reason = vacancy.reason, "does not vote");
        }
        self.seat.set_vacant(Some(vacancy));
        self.seat.given_up.store(true, Ordering::Release);
        self.waiting.refuse();
        self.history.clear();
        broker.env.spawn(observer::run(Arc::clone(broker)));
    }
}

fn replaced_reason(
    broker: BrokerId,
    path: &Path,
    recorded: Option<DirectoryId>,
    own: Option<DirectoryId>,
) -> String {
    let named = |id: Option<DirectoryId>| {
        id.map_or_else(|| "an unknown one".to_owned(), |id| id.to_string())
    };
    format!(
        "the metadata log in {} is not the one of this voter: directory {} is recorded for broker {broker}, this is {}, an old or \
         another disk. It does not vote. Bring the recorded disk back; or, if it is lost and all other voters run, move the \
         folder {} away and start this broker again: its log is then restored from theirs, and this directory recorded",
        path.display(),
        named(recorded),
        named(own),
        metadata_log::FOLDER,
    )
}

/// Whether what is recorded of a voter speaks against one that comes with this directory, recorded since that index as far as the
/// one who says so knows. Of two records the later one holds; who knows only the earlier one is behind.
pub(super) fn speaks_against(
    recorded: Option<Voter>,
    directory: Option<DirectoryId>,
    since: i64,
) -> bool {
    is_other(recorded, directory) && recorded.is_some_and(|recorded| recorded.since > since)
}

/// Whether a directory is another one than the recorded. Nothing is known of a voter that has not told its own.
pub(super) fn is_other(recorded: Option<Voter>, directory: Option<DirectoryId>) -> bool {
    let recorded = recorded.and_then(|voter| voter.directory);
    recorded.is_some() && recorded != directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_recorded_directory_can_be_another_one() {
        let id = |byte| Some(DirectoryId([byte; 16]));
        let voter = |directory| {
            Some(Voter {
                directory,
                since: 1,
            })
        };
        for (recorded, directory, expected) in [
            (None, id(1), false),
            (voter(None), id(1), false),
            (voter(id(1)), id(1), false),
            (voter(id(1)), id(2), true),
            (voter(id(1)), None, true),
        ] {
            assert_eq!(is_other(recorded, directory), expected, "{recorded:?}");
        }
    }

    #[test]
    fn of_two_records_the_later_one_holds() {
        let (old, new) = (Some(DirectoryId([1; 16])), Some(DirectoryId([2; 16])));
        let voter = |directory, since| Some(Voter { directory, since });
        for (recorded, directory, since, expected) in [
            (voter(new, 9), old, 5, true),
            (voter(new, 9), old, -1, true),
            (voter(old, 5), new, 9, false),
            (voter(new, 9), new, 9, false),
            (voter(new, 9), new, -1, false),
            (None, old, -1, false),
        ] {
            let against = speaks_against(recorded, directory, since);
            assert_eq!(against, expected, "{recorded:?} {directory:?} {since}");
        }
    }
}
