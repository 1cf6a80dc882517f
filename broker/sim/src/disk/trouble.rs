//! What can be wrong with a simulated disk: calls that fail, a volume without room, bytes that change by themselves.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;

use super::{Call, Fault, Inode, ROOT, SimDisk, State};

/// The size of a volume unless it is said: all that a simulation can ever need.
pub(super) const AMPLE: u64 = 1 << 40;

impl SimDisk {
    /// Puts a failure in the way of calls to come.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Takes all failures away that have not come yet.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Sets the size of the volume, in bytes; writes beyond it find no room.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// All the room that it can ever need.
    pub fn restore_capacity(&self) {
        self.set_capacity(AMPLE);
    }

    /// Bytes in files that have a name or are open.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// How many injected failures came so far.
    pub fn failures(&self) -> u64 {
        self.state().failures
    }

    /// What is in a file, for those who look from outside: no failure is in their way.
    pub fn peek(&self, path: &Path) -> Option<Vec<u8>> {
        let mut state = self.state();
        let inode = state.resolve(path).ok()?;
        state.file(inode).ok().map(|file| file.content.clone())
    }

    /// Whether a byte of a file changed by itself and was neither written again nor cut off.
    pub fn is_rotten(&self, path: &Path) -> bool {
        let state = self.state();
        let Ok(inode) = state.resolve(path) else {
            return false;
        };
        state
            .rot
            .range((inode, 0)..=(inode, usize::MAX))
            .next()
            .is_some()
    }

    /// Changes one byte of a file on the disk, as a failing medium does.
    pub fn flip_bit(&self, path: &Path, position: usize, bit: u8) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.resolve(path)?;
        let file = state.file(inode)?;
        for bytes in [&mut file.content, &mut file.durable] {
            if let Some(byte) = bytes.get_mut(position) {
                *byte ^= 1 << (bit & 7);
            }
        }
        state.rot.insert((inode, position));
        Ok(())
    }
}

impl State {
    pub(super) fn fail_if_due(&mut self, call: Call, path: &Path) -> io::Result<()> {
        let path = path.to_string_lossy();
        for fault in &mut self.faults {
            if fault.call != call || fault.times == 0 || !path.contains(&fault.path_contains) {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            fault.times -= 1;
            self.failures += 1;
            return Err(fault.kind.into());
        }
        Ok(())
    }

    /// These bytes of a file are not what they were when some of them changed by themselves.
    pub(super) fn mend(&mut self, inode: u64, range: Range<usize>) {
        if !self.rot.is_empty() {
            (self.rot).retain(|(rotten, position)| *rotten != inode || !range.contains(position));
        }
    }

    fn used(&self) -> u64 {
        let mut used = 0;
        let mut folders = vec![ROOT];
        let mut named = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            let Some(Inode::Folder(folder)) = self.inodes.get(&folder) else {
                continue;
            };
            for inode in folder.names.values() {
                match self.inodes.get(inode) {
                    Some(Inode::Folder(_)) => folders.push(*inode),
                    Some(Inode::File(_)) | None => {
                        named.insert(*inode);
                    }
                }
            }
        }
        for (number, inode) in &self.inodes {
            if let Inode::File(file) = inode
                && (file.handles > 0 || named.contains(number))
            {
                used += file.content.len() as u64;
            }
        }
        used
    }

    /// Bytes that may still be written; a volume of ample size is not counted through.
    pub(super) fn room(&self) -> u64 {
        if self.capacity >= AMPLE {
            AMPLE
        } else {
            self.capacity.saturating_sub(self.used())
        }
    }
}
