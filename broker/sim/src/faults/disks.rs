//! What goes wrong with disks: a directory that fails, a volume that fills up, old bytes that change. Of each only one
//! broker suffers at a time, so that the others have what it lacks.

use std::fmt;
use std::io::ErrorKind;
use std::ops::AddAssign;
use std::path::Path;

use taffrail_log::Disk;
use taffrail_protocol::records::Batches;

use crate::cluster::{Cluster, LOG_DIRECTORIES};
use crate::disk::{Call, Fault, SimDisk};
use crate::random::Random;

/// What brokers keep free (`taffrail.disk.reserve.bytes`).
pub(crate) const RESERVE_BYTES: u64 = 512 << 10;
/// What is left beyond the reserve of a volume that is about to fill up, at most.
const LEFT_MAX: u64 = 64 << 10;
/// How many calls succeed at most before one fails.
const CALLS_BEFORE_MAX: u64 = 20;
/// Where in a batch begins what its checksum covers, or is the checksum: no other byte can be told from a right one.
const CHECKED_FROM: usize = 17;
/// What both log directories' paths contain.
const BOTH: &str = "/data";

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// Directories that had calls fail.
    pub failed: u32,
    /// Those of them that a running broker had taken offline when they were mended.
    pub offline: u32,
    /// Volumes that filled up.
    pub filled: u32,
    /// Bits that changed.
    pub flipped: u32,
    /// Brokers that ended because of their disk.
    pub gave_up: u32,
    /// Brokers that left for good.
    pub left: u32,
}

impl fmt::Display for Troubles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} directories failed, {} were offline when they were mended, {} volumes filled up, {} bits flipped, {} brokers ended without their disk, {} left for good",
            self.failed, self.offline, self.filled, self.flipped, self.gave_up, self.left
        )
    }
}

impl AddAssign for Troubles {
    fn add_assign(&mut self, other: Troubles) {
        self.failed += other.failed;
        self.offline += other.offline;
        self.filled += other.filled;
        self.flipped += other.flipped;
        self.gave_up += other.gave_up;
        self.left += other.left;
    }
}

/// The disks' troubles.
#[derive(Default)]
pub(crate) struct Disks {
    failing: Option<Failing>,
    full: Option<Full>,
    /// Whose old bytes change: always the same one's, so that nobody is without a whole replica.
    rotting: Option<usize>,
    /// What happened.
    pub(crate) seen: Troubles,
}

struct Failing {
    broker: usize,
    path: &'static str,
    failures_before: u64,
}

struct Full {
    broker: usize,
    /// Whether there is no reserve that keeps the broker going.
    ends: bool,
}

impl Disks {
    /// Something goes wrong, or is mended. Gives a broker whose process must start anew to use what was mended.
    pub(super) fn act(
        &mut self,
        cluster: &Cluster,
        broker: usize,
        random: &mut Random,
    ) -> Option<usize> {
        match random.below(10) {
            0..4 => return self.fail_or_mend(cluster, broker, random),
            4..7 => self.fill_or_empty(cluster, broker, random),
            _ => self.rot(cluster, broker, random),
        }
        None
    }

    /// Whether a broker has lost what it cannot do without: its last directory, or the one with its metadata log.
    pub(super) fn ends(&self, broker: usize) -> bool {
        let fails =
            |failing: &Failing| failing.broker == broker && failing.path != LOG_DIRECTORIES[1];
        let is_full = |full: &Full| full.broker == broker && full.ends;
        self.failing.as_ref().is_some_and(fails) || self.full.as_ref().is_some_and(is_full)
    }

    fn fail_or_mend(
        &mut self,
        cluster: &Cluster,
        broker: usize,
        random: &mut Random,
    ) -> Option<usize> {
        if self.failing.is_some() {
            return self.mend(cluster);
        }
        let calls = [
            Call::Write,
            Call::Sync,
            Call::Change,
            Call::Read,
            Call::Open,
        ];
        let call = *random.pick(&calls)?;
        let path = match random.below(10) {
            0..7 => LOG_DIRECTORIES[1],
            7..9 => LOG_DIRECTORIES[0],
            _ => BOTH,
        };
        let times = if random.chance(50) { 1 } else { u64::MAX };
        let after = random.below(CALLS_BEFORE_MAX);
        // What cannot be read is given up like what has changed.
        let broker = if matches!(call, Call::Read | Call::Open) {
            *self.rotting.get_or_insert(broker)
        } else {
            broker
        };
        tracing::info!(broker, path, ?call, after, times, "a directory fails");
        let disk = cluster.disk(broker);
        disk.inject(Fault {
            call,
            path_contains: path.to_owned(),
            kind: ErrorKind::Other,
            after,
            times,
        });
        self.failing = Some(Failing {
            broker,
            path,
            failures_before: disk.failures(),
        });
        None
    }

    /// A directory that failed can be used again, by a process that starts.
    fn mend(&mut self, cluster: &Cluster) -> Option<usize> {
        let failing = self.failing.take()?;
        let disk = cluster.disk(failing.broker);
        disk.clear_faults();
        self.seen.failed += u32::from(disk.failures() > failing.failures_before);
        let state = cluster.state(failing.broker);
        let offline =
            state.is_some_and(|state| state.log_directories.iter().any(|one| one.offline));
        self.seen.offline += u32::from(offline);
        tracing::info!(broker = failing.broker, "the directory is mended");
        Some(failing.broker)
    }

    fn fill_or_empty(&mut self, cluster: &Cluster, broker: usize, random: &mut Random) {
        if self.empty(cluster) {
            return;
        }
        let ends = random.chance(30);
        let left = random.below(LEFT_MAX) + if ends { 0 } else { RESERVE_BYTES };
        let disk = cluster.disk(broker);
        tracing::info!(broker, left, "a volume fills up");
        disk.set_capacity(disk.used() + left);
        self.full = Some(Full { broker, ends });
        self.seen.filled += 1;
    }

    /// The full volume has room again, if there is one.
    fn empty(&mut self, cluster: &Cluster) -> bool {
        let full = self.full.take();
        if let Some(full) = &full {
            tracing::info!(broker = full.broker, "the volume has room again");
            cluster.disk(full.broker).restore_capacity();
        }
        full.is_some()
    }

    /// One bit of an old segment changes.
    fn rot(&mut self, cluster: &Cluster, broker: usize, random: &mut Random) {
        let broker = *self.rotting.get_or_insert(broker);
        let disk = cluster.disk(broker);
        let cold = cold_segments(disk);
        let Some(path) = random.pick(&cold) else {
            return;
        };
        let path = Path::new(path);
        let bytes = disk.peek(path).unwrap_or_default();
        let batches: Vec<_> = Batches::new(&bytes)
            .map_while(Result::ok)
            .map(|(_, range)| range)
            .collect();
        let Some(range) = random.pick(&batches) else {
            return;
        };
        let length = range.len().saturating_sub(CHECKED_FROM);
        let position = range.start + CHECKED_FROM + random.index_below(length);
        let bit = random.below(8) as u8;
        if disk.flip_bit(path, position, bit).is_ok() {
            tracing::info!(broker, path = %path.display(), position, bit, "a bit flips");
            self.seen.flipped += 1;
        }
    }

    /// Everything works again. Gives a broker that must start anew to use it.
    pub(super) fn make_peace(&mut self, cluster: &Cluster) -> Option<usize> {
        self.empty(cluster);
        self.mend(cluster)
    }
}

/// Closed segments that a start does not read, and that were committed: all that had to have them had them.
fn cold_segments(disk: &SimDisk) -> Vec<String> {
    let mut cold = Vec::new();
    for directory in LOG_DIRECTORIES {
        let checkpoint = |name: &str| {
            let bytes = disk.peek(&Path::new(directory).join(name));
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        };
        let recovery_points = checkpoint("recovery-point-offset-checkpoint");
        let high_watermarks = checkpoint("replication-offset-checkpoint");
        for folder in names_of(disk, Path::new(directory)) {
            let safe =
                offset_of(&recovery_points, &folder).min(offset_of(&high_watermarks, &folder));
            let path = Path::new(directory).join(&folder);
            let mut segments = names_of(disk, &path);
            segments.retain(|name| name.ends_with(".log"));
            segments.sort();
            for pair in segments.windows(2) {
                let end = pair[1].trim_end_matches(".log").parse::<i64>();
                let path = path.join(&pair[0]);
                if end.is_ok_and(|end| end <= safe) && !disk.is_rotten(&path) {
                    cold.push(path.display().to_string());
                }
            }
        }
    }
    cold
}

/// What a checkpoint file says of a replica's folder; 0 if nothing.
fn offset_of(checkpoint: &str, folder: &str) -> i64 {
    let offset = |line: &str| {
        let (partition, offset) = line.rsplit_once(' ')?;
        let (topic, index) = partition.rsplit_once(' ')?;
        (format!("{topic}-{index}") == folder).then(|| offset.parse::<i64>().ok())?
    };
    checkpoint.lines().find_map(offset).unwrap_or(0)
}

fn names_of(disk: &SimDisk, folder: &Path) -> Vec<String> {
    let entries = disk.list(folder).unwrap_or_default();
    entries.into_iter().map(|entry| entry.name).collect()
}

/// The first file of a replica that has rot in it.
pub(crate) fn rotten_file(disk: &SimDisk) -> Option<String> {
    for directory in LOG_DIRECTORIES {
        for folder in names_of(disk, Path::new(directory)) {
            if folder.ends_with("-delete") || folder.ends_with("-stray") {
                continue;
            }
            let path = Path::new(directory).join(&folder);
            let mut paths = names_of(disk, &path)
                .into_iter()
                .map(|name| path.join(name));
            if let Some(rotten) = paths.find(|path| disk.is_rotten(path)) {
                return Some(rotten.display().to_string());
            }
        }
    }
    None
}
