//! One cleaning of one log, step by step and without the log's lock.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::cleaner::group::group;
use crate::cleaner::offset_map::OffsetMap;
use crate::cleaner::output::Output;
use crate::cleaner::range::{CompactionConfig, DirtyRange};
use crate::cleaner::retain::{ActiveProducers, Kept, Place, Retention, marker_of};
use crate::cleaner::source::{Batches, Source, Sources};
use crate::cleaner::transactions::CleanedTransactions;
use crate::config::LogConfig;
use crate::disk::Disk;
use crate::error::LogError;
use crate::open_files::OpenFiles;
use crate::segment::{LOG_SUFFIX, file_name};
use crate::validate::decompressed_bytes_max;

use taffrail_protocol::records::{BatchHeader, RecordIter, RecordsError, uncompressed_records};

/// Smallest bound on what a batch may be decompressed to, for one that was appended when `max.message.bytes` was higher.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

/// A cleaning under way. Its files beside those of the log are removed by [`Cleaning::abandon`], or at the next start.
#[must_use = "nothing is cleaned until it is stepped"]
pub struct Cleaning<D: Disk> {
    begin: Begin<D>,
    sources: Sources<D::File>,
    map: OffsetMap,
    map_end: i64,
    groups: Vec<Range<usize>>,
    /// How many of them were swapped.
    swapped: usize,
    transactions: CleanedTransactions,
    phase: Phase<D>,
    progress: CleaningProgress,
}

/// What a cleaning begins with, besides the segments.
pub(crate) struct Begin<D: Disk> {
    pub(crate) disk: D,
    pub(crate) files: Arc<OpenFiles<D::File>>,
    pub(crate) folder: PathBuf,
    pub(crate) config: Arc<LogConfig>,
    pub(crate) compaction: CompactionConfig,
    pub(crate) range: DirtyRange,
    pub(crate) producers: ActiveProducers,
    pub(crate) map_bytes_max: usize,
    pub(crate) now_ms: i64,
}

/// Segments, and what is to take their place.
pub(crate) struct Ready<'a, D: Disk> {
    pub(crate) sources: &'a [Source<D::File>],
    pub(crate) output: &'a mut Output<D>,
}

enum Phase<D: Disk> {
    /// Nothing was done yet; the map takes no memory.
    Begun,
    /// Reads the dirty segments into the map.
    Mapping(Reading<D::File>),
    /// Writes what stays of the segments of the group at hand.
    Writing(Reading<D::File>, Box<Output<D>>),
    /// The group's new segment is whole and durable.
    Ready(Box<Output<D>>),
    /// The next group begins, if there is one.
    Between,
}

/// A segment that is being read, by its number; its file is opened when it is its turn.
struct Reading<F> {
    segment: usize,
    position: u64,
    batches: Option<Batches<F>>,
}

impl<F> Reading<F> {
    fn of(segment: usize, position: u64) -> Reading<F> {
        Reading {
            segment,
            position,
            batches: None,
        }
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleaningStep {
    /// So many bytes were read and written, and there are more.
    More(u64),
    /// So many bytes were read and written, and a segment is ready for [`Log::swap_cleaned`](crate::Log::swap_cleaned).
    Swap(u64),
    /// Everything below this offset is clean and in place.
    Done(i64),
}

/// How far a cleaning is, for those who watch it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningProgress {
    /// Bytes that will be read at most: the dirty part twice, the clean one once.
    pub bytes_to_read: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes of new segments.
    pub bytes_written: u64,
    /// Where the first dirty offset will be, as far as it is known.
    pub end_offset: i64,
    /// Below this, everything that will be removed is.
    pub swapped_offset: i64,
    /// Keys in the map.
    pub keys: usize,
    /// Bytes of the map.
    pub map_bytes: usize,
}

impl<D: Disk> Cleaning<D> {
    pub(crate) fn new(begin: Begin<D>, sources: Sources<D::File>) -> Cleaning<D> {
        let range = &begin.range;
        let progress = CleaningProgress {
            bytes_to_read: range.clean_bytes + 2 * range.dirty_bytes - sources.dirty_from.1,
            end_offset: range.first_dirty_offset,
            ..CleaningProgress::default()
        };
        Cleaning {
            map: OffsetMap::new(0, 0),
            map_end: range.first_dirty_offset,
            groups: Vec::new(),
            swapped: 0,
            transactions: CleanedTransactions::new(&sources.aborted),
            phase: Phase::Begun,
            progress,
            begin,
            sources,
        }
    }

    /// Reads and writes on, batch by batch, for about `bytes`. May take long; must not run under the log's lock. After an error
    /// all that is left to do is [`Cleaning::abandon`].
    pub fn step(&mut self, bytes: u64) -> Result<CleaningStep, LogError> {
        let done =
            |cleaning: &Cleaning<D>| cleaning.progress.bytes_read + cleaning.progress.bytes_written;
        let before = done(self);
        loop {
            let spent = done(self) - before;
            match &self.phase {
                Phase::Ready(_) => return Ok(CleaningStep::Swap(spent)),
                Phase::Between if self.swapped == self.groups.len() => {
                    return Ok(CleaningStep::Done(self.map_end));
                }
                Phase::Begun | Phase::Between | Phase::Mapping(_) | Phase::Writing(_, _) => {}
            }
            if spent >= bytes.max(1) {
                return Ok(CleaningStep::More(spent));
            }
            match &self.phase {
                Phase::Begun => self.begin_mapping(),
                Phase::Mapping(_) => self.map_batch()?,
                Phase::Writing(_, _) => self.write_batch()?,
                Phase::Between => self.begin_group()?,
                Phase::Ready(_) => {}
            }
        }
    }

    /// How far it is.
    pub fn progress(&self) -> CleaningProgress {
        self.progress
    }

    /// Gives up what was not swapped. Nothing is lost by it but the work.
    pub fn abandon(self) {
        match &self.phase {
            Phase::Ready(output) | Phase::Writing(_, output) => output.remove(),
            Phase::Begun | Phase::Mapping(_) | Phase::Between => {}
        }
    }

    pub(crate) fn begin(&self) -> &Begin<D> {
        &self.begin
    }

    /// The group at hand, if it is ready to be swapped.
    pub(crate) fn ready(&mut self) -> Option<Ready<'_, D>> {
        let group = self.groups.get(self.swapped)?.clone();
        match &mut self.phase {
            Phase::Ready(output) => Some(Ready {
                sources: &self.sources.segments[group],
                output,
            }),
            Phase::Begun | Phase::Mapping(_) | Phase::Writing(_, _) | Phase::Between => None,
        }
    }

    /// The group at hand is in place.
    pub(crate) fn handle_swapped(&mut self) {
        if let Some(group) = self.groups.get(self.swapped) {
            self.progress.swapped_offset = self.sources.segments[group.end - 1].end_offset;
            self.swapped += 1;
            self.phase = Phase::Between;
        }
    }

    fn begin_mapping(&mut self) {
        let range = &self.begin.range;
        // No more keys than offsets.
        let keys = range.end_offset.abs_diff(range.first_dirty_offset);
        self.map = OffsetMap::new(self.begin.map_bytes_max, keys);
        self.progress.map_bytes = self.map.bytes();
        let (segment, position) = self.sources.dirty_from;
        self.phase = Phase::Mapping(Reading::of(segment, position));
    }

    /// Takes the next dirty batch into the map.
    fn map_batch(&mut self) -> Result<(), LogError> {
        let Phase::Mapping(reading) = &mut self.phase else {
            return Ok(());
        };
        let segment = reading.segment;
        let batches = self
            .begin
            .batches(&self.sources.segments[segment], reading)?;
        let Some(batch) = batches.next()? else {
            // Gaps up to the next segment are as clean as can be.
            self.map_end = self.sources.segments[segment].end_offset;
            self.progress.end_offset = self.map_end;
            if segment + 1 < self.sources.segments.len() {
                self.phase = Phase::Mapping(Reading::of(segment + 1, 0));
            } else {
                self.end_mapping();
            }
            return Ok(());
        };
        self.progress.bytes_read += batch.bytes.len() as u64;
        let header = batch.header;
        let full_at = if header.attributes.is_control() {
            match marker_of(&header, batch.bytes) {
                Ok(marker) => self.transactions.handle_marker(&header, marker),
                Err(error) => return Err(batches.corrupt(error)),
            };
            None
        } else if self.transactions.handle_records(&header) {
            None
        } else {
            let first_dirty_offset = self.begin.range.first_dirty_offset;
            let limit = self.begin.decompressed_bytes_max();
            let mapped = map_records(&mut self.map, batch.bytes, first_dirty_offset, limit);
            mapped.map_err(|error| batches.corrupt(error))?
        };
        self.map_end = full_at.unwrap_or(self.map_end.max(header.next_offset()));
        self.progress.end_offset = self.map_end;
        self.progress.keys = self.map.len();
        if full_at.is_some() {
            self.end_mapping();
        }
        Ok(())
    }

    fn end_mapping(&mut self) {
        let segments = &self.sources.segments;
        self.groups = group(segments, self.map_end, &self.begin.config);
        self.transactions = CleanedTransactions::new(&self.sources.aborted);
        self.phase = Phase::Between;
    }

    fn begin_group(&mut self) -> Result<(), LogError> {
        let first = self.groups[self.swapped].start;
        let output = Output::create(
            self.begin.disk.clone(),
            &self.begin.folder,
            self.sources.segments[first].base_offset,
            self.begin.config.index_interval_bytes,
            self.begin.now_ms,
        )?;
        self.phase = Phase::Writing(Reading::of(first, 0), Box::new(output));
        Ok(())
    }

    /// Writes what stays of the next batch of the group.
    fn write_batch(&mut self) -> Result<(), LogError> {
        let group = &self.groups[self.swapped];
        let segments = &self.sources.segments;
        let Phase::Writing(reading, output) = &mut self.phase else {
            return Ok(());
        };
        let segment = reading.segment;
        let batches = self.begin.batches(&segments[segment], reading)?;
        let Some(batch) = batches.next()? else {
            if segment + 1 < group.end {
                *reading = Reading::of(segment + 1, 0);
                return Ok(());
            }
            return self.finish_group();
        };
        self.progress.bytes_read += batch.bytes.len() as u64;
        let header = batch.header;
        let is_dispensable = if header.attributes.is_control() {
            match marker_of(&header, batch.bytes) {
                Ok(marker) => self.transactions.handle_marker(&header, marker),
                Err(error) => return Err(batches.corrupt(error)),
            }
        } else {
            self.transactions.handle_records(&header)
        };
        output.note_aborted(self.transactions.take_kept());
        let mut behind = segments[segment + 1..group.end].iter();
        let place = Place {
            is_dispensable,
            is_last: batch.is_last && behind.all(|source| source.size == 0),
        };
        let retention = Retention {
            map: &self.map,
            map_end: self.map_end,
            producers: &self.begin.producers,
            now_ms: self.begin.now_ms,
            delete_retention_ms: self.begin.compaction.delete_retention_ms,
            decompressed_bytes_max: self.begin.decompressed_bytes_max(),
        };
        let written = match retention.keep(&header, batch.bytes, place) {
            Ok(Kept::Nothing) => 0,
            Ok(Kept::AsItIs) => output.append(&header, batch.bytes)?,
            Ok(Kept::Rewritten(bytes)) => match BatchHeader::parse(&bytes) {
                Ok(header) => output.append(&header, &bytes)?,
                Err(error) => return Err(batches.corrupt(error)),
            },
            Err(error) => return Err(batches.corrupt(error)),
        };
        self.progress.bytes_written += written;
        Ok(())
    }

    fn finish_group(&mut self) -> Result<(), LogError> {
        let group = self.groups[self.swapped].clone();
        if let Phase::Writing(_, output) = &mut self.phase {
            let segments = &self.sources.segments[group];
            let has_aborted = segments.iter().any(|source| source.has_aborted);
            self.progress.bytes_written += output.finish(has_aborted)?;
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Writing(_, output) => Phase::Ready(output),
            phase @ (Phase::Begun | Phase::Mapping(_) | Phase::Ready(_) | Phase::Between) => phase,
        };
        Ok(())
    }
}

impl<D: Disk> Begin<D> {
    /// The batches of the segment that is being read.
    fn batches<'a>(
        &self,
        source: &Source<D::File>,
        reading: &'a mut Reading<D::File>,
    ) -> Result<&'a mut Batches<D::File>, LogError> {
        let batches = match reading.batches.take() {
            Some(batches) => batches,
            None => {
                let path = self.folder.join(file_name(source.base_offset, LOG_SUFFIX));
                let file = self
                    .files
                    .get(&source.handle, || self.disk.open(&path))
                    .map_err(|error| LogError::io("open", &path, error))?;
                Batches::new(file, path, source, reading.position)
            }
        };
        Ok(reading.batches.insert(batches))
    }

    fn decompressed_bytes_max(&self) -> usize {
        decompressed_bytes_max(&self.config).max(DECOMPRESSED_BYTES_MAX)
    }
}

/// Notes the records of a batch. Returns the offset of the first one for whose key there is no room.
fn map_records(
    map: &mut OffsetMap,
    batch: &[u8],
    first_dirty_offset: i64,
    limit: usize,
) -> Result<Option<i64>, RecordsError> {
    let (header, records) = uncompressed_records(batch, limit)?;
    for (index, record) in (0..).zip(RecordIter::new(&header, &records)) {
        let record = record.map_err(|source| RecordsError::Record { index, source })?;
        if let Some(key) = record.key
            && record.offset >= first_dirty_offset
            && !map.put(key, record.offset)
        {
            return Ok(Some(record.offset));
        }
    }
    Ok(None)
}

impl<D: Disk> fmt::Debug for Cleaning<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cleaning")
            .field("folder", &self.begin.folder)
            .field("range", &self.begin.range)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
