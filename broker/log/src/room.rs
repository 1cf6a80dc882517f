//! How much may still be appended in a log directory. Some room is kept in reserve, so that a volume that fills up stops
//! producers before it stops the broker: replication and the brokers' own topics may use a part of it, and
//! what is left is for checkpoints, the metadata log and the work of deleting.
//!
//! The volume is asked now and then; in between, what is appended is subtracted.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::disk::Space;

/// What wants to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomFor {
    /// Producers: nothing of the reserve.
    Produce,
    /// Followers: half of it, since what a leader took it may no longer refuse.
    Replication,
    /// The brokers' own topics: three quarters of it.
    Internal,
}

/// How much room is kept free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// A twentieth of the volume, at most a gigabyte.
    OfVolume,
    /// This many bytes.
    Bytes(u64),
}

/// Whether a directory ran full or has room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomChange {
    /// Producers are refused from now on.
    Full,
    /// They are served again.
    Again,
}

const RESERVE_OF_VOLUME: u64 = 20;
const RESERVE_MAX: u64 = 1 << 30;
/// A full directory must get an eighth of its reserve more before producers are served again, so that it is not full
/// again with the next record.
const AGAIN: u64 = 8;

/// The room of one directory.
#[derive(Debug)]
pub(crate) struct Room {
    /// Bytes above the reserve: negative when a part of it is used. Not known before it was measured.
    above: AtomicI64,
    reserve: AtomicU64,
    usable: AtomicU64,
    full: AtomicBool,
}

impl Reserve {
    /// The reserve on a volume of this size.
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            Reserve::OfVolume => (total / RESERVE_OF_VOLUME).min(RESERVE_MAX),
            Reserve::Bytes(bytes) => bytes,
        }
    }
}

impl Default for Room {
    fn default() -> Self {
        Room {
            above: AtomicI64::new(i64::MAX),
            reserve: AtomicU64::new(0),
            usable: AtomicU64::new(u64::MAX),
            full: AtomicBool::new(false),
        }
    }
}

impl Room {
    /// Takes over what the volume said.
    pub(crate) fn measured(&self, space: Space, reserve: Reserve) -> Option<RoomChange> {
        let reserve = reserve.bytes(space.total);
        let above = signed(space.usable).saturating_sub(signed(reserve));
        self.reserve.store(reserve, Ordering::Relaxed);
        self.usable.store(space.usable, Ordering::Relaxed);
        self.above.store(above, Ordering::Relaxed);
        let was_full = self.full.load(Ordering::Relaxed);
        let full = above <= if was_full { signed(reserve / AGAIN) } else { 0 };
        // Without a reserve only the volume itself is the limit, and one that has a byte is not full.
        let full = full && (reserve > 0 || space.usable == 0);
        self.full.store(full, Ordering::Relaxed);
        match (was_full, full) {
            (false, true) => Some(RoomChange::Full),
            (true, false) => Some(RoomChange::Again),
            (true, true) | (false, false) => None,
        }
    }

    /// Bytes were appended.
    pub(crate) fn used(&self, bytes: u64) {
        let known = self.above.load(Ordering::Relaxed) != i64::MAX;
        if known {
            self.above.fetch_sub(signed(bytes), Ordering::Relaxed);
        }
    }

    /// A write found no room, whatever was measured.
    pub(crate) fn exhausted(&self) {
        self.above.store(i64::MIN / 2, Ordering::Relaxed);
    }

    /// Whether so many bytes may be appended.
    pub(crate) fn has(&self, bytes: u64, what: RoomFor) -> bool {
        let reserve = self.reserve.load(Ordering::Relaxed);
        let may_use = match what {
            RoomFor::Produce if self.full.load(Ordering::Relaxed) => return false,
            RoomFor::Produce => 0,
            RoomFor::Replication => reserve / 2,
            RoomFor::Internal => reserve / 4 * 3,
        };
        let left = self.above.load(Ordering::Relaxed);
        left.saturating_add(signed(may_use)) >= signed(bytes)
    }

    pub(crate) fn is_full(&self) -> bool {
        !self.has(1, RoomFor::Produce)
    }

    pub(crate) fn usable(&self) -> u64 {
        self.usable.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 1000;

    fn measured(room: &Room, usable: u64) -> Option<RoomChange> {
        let space = Space {
            total: TOTAL,
            usable,
        };
        room.measured(space, Reserve::Bytes(80))
    }

    #[test]
    fn the_reserve_is_kept_from_producers_and_in_part_from_others() {
        let room = Room::default();
        assert!(room.has(1 << 40, RoomFor::Produce), "not measured yet");
        measured(&room, 100);
        let largest = |what| (0..200).take_while(|bytes| room.has(*bytes, what)).last();
        assert_eq!(largest(RoomFor::Produce), Some(20));
        assert_eq!(largest(RoomFor::Replication), Some(60));
        assert_eq!(largest(RoomFor::Internal), Some(80));
        room.used(15);
        assert_eq!(largest(RoomFor::Produce), Some(5));
        room.exhausted();
        assert_eq!(largest(RoomFor::Internal), None);
    }

    #[test]
    fn full_directory_is_told_once_and_must_get_more_than_a_little() {
        let room = Room::default();
        assert_eq!(measured(&room, 81), None);
        assert_eq!(measured(&room, 80), Some(RoomChange::Full));
        assert_eq!(measured(&room, 60), None);
        assert_eq!(measured(&room, 89), None, "80 and an eighth of it");
        assert!(!room.has(1, RoomFor::Produce) && room.is_full());
        assert_eq!(measured(&room, 91), Some(RoomChange::Again));
        assert!(room.has(11, RoomFor::Produce) && !room.is_full());
    }

    #[test]
    fn reserve_is_a_share_of_the_volume_up_to_a_limit() {
        assert_eq!(Reserve::OfVolume.bytes(10 << 30), 512 << 20);
        assert_eq!(Reserve::OfVolume.bytes(1 << 40), 1 << 30);
        assert_eq!(Reserve::Bytes(7).bytes(1 << 40), 7);
        let room = Room::default();
        let space = |usable| Space {
            total: TOTAL,
            usable,
        };
        assert_eq!(room.measured(space(1), Reserve::Bytes(0)), None);
        assert_eq!(
            room.measured(space(0), Reserve::Bytes(0)),
            Some(RoomChange::Full)
        );
        assert_eq!(
            room.measured(space(1), Reserve::Bytes(0)),
            Some(RoomChange::Again)
        );
    }
}
