//! The aborted transactions of a log, which read_committed leaves out: noted as their markers are appended, looked up by a
//! range of offsets, cut with the log. Losing one would show aborted records, so a failed write ends the log.
//!
//! An entry is durable before a producer snapshot that counts its marker in; after a crash the caller goes through the batches
//! from such a snapshot on, and notes what is missing.

use taffrail_protocol::records::{BATCH_HEADER_LENGTH, BatchHeader};

use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::log::{FileRange, Log};
use crate::transaction_index::{AbortedTransaction, ENTRY_BYTES, TRANSACTION_INDEX_SUFFIX};

/// Entries read at once: 17 KiB.
const ENTRIES_AT_ONCE: u64 = 512;

impl<D: Disk> Log<D> {
    /// Notes an aborted transaction whose marker is in the log. Markers come in their order; one that is noted already, or
    /// whose marker is not in this log, changes nothing.
    pub fn note_aborted(&mut self, aborted: AbortedTransaction) -> Result<(), LogError> {
        self.check_writable()?;
        let index = self.segment_for(aborted.last_offset);
        let segment = &self.segments[index];
        if aborted.last_offset < segment.base_offset || aborted.last_offset >= self.log_end_offset {
            return Ok(());
        }
        let noted = match segment.aborted.checked_sub(1) {
            Some(last) => self.read_aborted(index, last, 1)?.pop(),
            None => None,
        };
        if noted.is_some_and(|last| last.last_offset >= aborted.last_offset) {
            return Ok(());
        }
        let written = self.write_aborted(index, &aborted);
        self.poison_on_any_failure(written)
    }

    /// The aborted transactions that have records from `offset` on and below `end_offset`, by their first offsets.
    pub fn aborted_transactions(
        &self,
        offset: i64,
        end_offset: i64,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        let mut found = Vec::new();
        'segments: for index in self.segment_for(offset)..self.segments.len() {
            let mut next = self.first_aborted_from(index, offset)?;
            while next < self.segments[index].aborted {
                let entries = self.read_aborted(index, next, ENTRIES_AT_ONCE)?;
                for aborted in &entries {
                    if aborted.first_offset < end_offset {
                        found.push(*aborted);
                    }
                    // All that ended later began at or behind this offset.
                    if aborted.last_stable_offset >= end_offset {
                        break 'segments;
                    }
                }
                next += ENTRIES_AT_ONCE;
            }
        }
        found.sort_by_key(|aborted| aborted.first_offset);
        Ok(found)
    }

    /// Those whose markers are at or above `offset` and below `end_offset`, in the order of their markers; no more than a good
    /// number at once, so that whoever gets some asks again behind the last of them.
    pub fn aborted_with_markers(
        &self,
        offset: i64,
        end_offset: i64,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        for index in self.segment_for(offset)..self.segments.len() {
            let first = self.first_aborted_from(index, offset)?;
            let mut entries = self.read_aborted(index, first, ENTRIES_AT_ONCE)?;
            entries.retain(|aborted| (offset..end_offset).contains(&aborted.last_offset));
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }

    /// [`Log::aborted_transactions`] of what was read from `offset` on: as far as the range goes, but not to `end_offset`.
    pub fn aborted_in(
        &self,
        offset: i64,
        range: &FileRange<D::File>,
        end_offset: i64,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        let first = self.segment_for(offset);
        if self.segments[first..]
            .iter()
            .all(|segment| segment.aborted == 0)
        {
            return Ok(Vec::new());
        }
        // The batch behind the range tells where it ends. At the end of a file, or of what a recycled one holds, none does.
        let mut header = [0; BATCH_HEADER_LENGTH];
        let behind = range.position + range.length as u64;
        let next = range
            .file
            .read_exact_at(&mut header, behind)
            .ok()
            .and_then(|()| BatchHeader::parse(&header).ok())
            .map(|header| header.base_offset)
            .filter(|base_offset| (offset..end_offset).contains(base_offset));
        self.aborted_transactions(offset, next.unwrap_or(end_offset))
    }

    /// Makes all entries durable.
    pub(super) fn sync_aborted(&mut self) -> Result<(), LogError> {
        for index in 0..self.segments.len() {
            let segment = &self.segments[index];
            if segment.aborted_synced == segment.aborted {
                continue;
            }
            let path = self
                .place()
                .path(segment.base_offset, TRANSACTION_INDEX_SUFFIX);
            let disk = self.directory.disk();
            let synced = disk.open(&path).and_then(|file| file.sync());
            let synced = synced.map_err(|error| LogError::io("fsync", &path, error));
            self.poison_on_any_failure(synced)?;
            let segment = &mut self.segments[index];
            segment.aborted_synced = segment.aborted;
        }
        Ok(())
    }

    /// After a crash: cuts every index at the first entry that cannot be, or is of a marker that is not in the log any more.
    pub(super) fn settle_aborted(&mut self) -> Result<(), LogError> {
        for index in 0..self.segments.len() {
            let end_offset = self
                .segments
                .get(index + 1)
                .map_or(self.log_end_offset, |next| next.base_offset);
            let mut reached = self.segments[index].base_offset - 1;
            let (mut good, count) = (0, self.segments[index].aborted);
            'entries: while good < count {
                let entries = self.read_aborted(index, good, ENTRIES_AT_ONCE)?;
                if entries.is_empty() {
                    break;
                }
                for aborted in &entries {
                    let fits = aborted.last_offset > reached
                        && aborted.last_offset < end_offset
                        && aborted.first_offset <= aborted.last_offset;
                    if !fits {
                        break 'entries;
                    }
                    reached = aborted.last_offset;
                    good += 1;
                }
            }
            self.cut_aborted_to(index, good)?;
        }
        Ok(())
    }

    /// Forgets the transactions of a segment whose markers are at or above `offset`; for a truncation.
    pub(super) fn cut_aborted(&mut self, index: usize, offset: i64) -> Result<(), LogError> {
        let kept = self.first_aborted_from(index, offset)?;
        self.cut_aborted_to(index, kept)
    }

    fn cut_aborted_to(&mut self, index: usize, kept: u64) -> Result<(), LogError> {
        let segment = &mut self.segments[index];
        let length = kept * ENTRY_BYTES as u64;
        if segment.aborted == kept && segment.aborted_torn == 0 {
            return Ok(());
        }
        segment.aborted = kept;
        segment.aborted_torn = 0;
        segment.aborted_synced = segment.aborted_synced.min(kept);
        let base_offset = segment.base_offset;
        let path = self.place().path(base_offset, TRANSACTION_INDEX_SUFFIX);
        // Durably, for what was cut off must not come back between newer entries.
        let disk = self.directory.disk();
        disk.open(&path)
            .and_then(|file| file.set_length(length).and_then(|()| file.sync()))
            .map_err(|error| LogError::io("cut", &path, error))
    }

    fn write_aborted(
        &mut self,
        index: usize,
        aborted: &AbortedTransaction,
    ) -> Result<(), LogError> {
        let segment = &self.segments[index];
        let position = segment.aborted * ENTRY_BYTES as u64;
        let path = self
            .place()
            .path(segment.base_offset, TRANSACTION_INDEX_SUFFIX);
        let disk = self.directory.disk();
        let file = if segment.aborted == 0 {
            disk.create(&path).or_else(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => disk.open(&path),
                _ => Err(error),
            })
        } else {
            disk.open(&path)
        };
        file.and_then(|file| file.write_all_at(&aborted.encode(), position))
            .map_err(|error| LogError::io("write", &path, error))?;
        if position == 0 {
            self.names_changed += 1;
        }
        self.segments[index].aborted += 1;
        Ok(())
    }

    /// Number of the first entry of a segment whose marker is not below `offset`. Markers ascend.
    fn first_aborted_from(&self, index: usize, offset: i64) -> Result<u64, LogError> {
        let (mut low, mut high) = (0, self.segments[index].aborted);
        if offset <= self.segments[index].base_offset {
            return Ok(0);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.read_aborted(index, middle, 1)?.first() {
                Some(aborted) if aborted.last_offset < offset => low = middle + 1,
                Some(_) | None => high = middle,
            }
        }
        Ok(low)
    }

    /// So many entries from a number on, fewer at the end or before one that is none.
    fn read_aborted(
        &self,
        index: usize,
        first: u64,
        count: u64,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        let segment = &self.segments[index];
        let count = count.min(segment.aborted.saturating_sub(first));
        if count == 0 {
            return Ok(Vec::new());
        }
        let path = self
            .place()
            .path(segment.base_offset, TRANSACTION_INDEX_SUFFIX);
        let mut bytes = vec![0; count as usize * ENTRY_BYTES];
        let read = self.directory.disk().open(&path).and_then(|file| {
            let position = first * ENTRY_BYTES as u64;
            file.read_exact_at(&mut bytes, position)
        });
        read.map_err(|error| LogError::io("read", &path, error))?;
        let entries = bytes.as_chunks::<ENTRY_BYTES>().0.iter();
        Ok(entries.map_while(AbortedTransaction::decode).collect())
    }
}
