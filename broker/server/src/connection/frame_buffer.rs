//! The one buffer that a connection reads requests into. It is never zeroed, grows only as bytes arrive whatever length
//! a client announces, and a large frame is read to its exact end so that it never has to be moved.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::request_memory::RequestMemory;

/// The 4-byte length before each frame.
const PREFIX: usize = 4;

/// The first allocation, which holds the small requests of a client that only asks now and then. It doubles whenever a
/// read fills it, so that a busy connection soon reads many requests at once.
const FIRST_CAPACITY: usize = 1024;

/// At most so much is read beyond the start of a frame before its length is known, and so much may have to be moved.
const READ_AHEAD: usize = 64 * 1024;

/// Why reading cannot go on.
#[derive(Debug, Error)]
pub(crate) enum FrameError {
    /// The length prefix is negative or above the limit.
    #[error("a request announces {announced} bytes; socket.request.max.bytes allows {allowed}")]
    Length {
        /// What the prefix says.
        announced: i32,
        /// The limit.
        allowed: i32,
    },
}

/// What became of an attempt to read.
pub(crate) enum Fill {
    /// So many bytes arrived; none means that the peer has closed its side.
    Read(usize),
    /// The buffer would have to grow and all connections together hold as much as they may.
    OutOfMemory,
}

/// Bytes of frames that have arrived and are not handled yet.
pub(crate) struct FrameBuffer {
    bytes: Vec<u8>,
    /// Where the first frame that is not handled yet begins.
    start: usize,
    /// Whether the last read left no room: more was waiting.
    filled: bool,
    frame_bytes_max: i32,
    memory: Arc<RequestMemory>,
    /// What this buffer holds of `memory`.
    taken: usize,
}

impl FrameBuffer {
    /// An empty buffer, without an allocation yet.
    pub(crate) fn new(frame_bytes_max: i32, memory: Arc<RequestMemory>) -> FrameBuffer {
        FrameBuffer {
            bytes: Vec::new(),
            start: 0,
            filled: false,
            frame_bytes_max,
            memory,
            taken: 0,
        }
    }

    /// Where the next complete frame lies (without its prefix), if it has arrived whole. It counts as handled.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Range<usize>>, FrameError> {
        let Some(length) = self.announced()? else {
            return Ok(None);
        };
        let frame = self.start + PREFIX..self.start + PREFIX + length;
        if frame.end > self.bytes.len() {
            return Ok(None);
        }
        self.start = frame.end;
        Ok(Some(frame))
    }

    /// The bytes of a frame that [`FrameBuffer::next_frame`] has just found.
    pub(crate) fn frame_mut(&mut self, frame: Range<usize>) -> &mut [u8] {
        &mut self.bytes[frame]
    }

    /// Reads what has arrived. Must not be called while a complete frame is still in the buffer.
    pub(crate) fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut TcpStream,
    ) -> Poll<std::io::Result<Fill>> {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        if self.bytes.capacity() == 0 {
            // An idle connection holds no buffer: wait for the first byte before there is one.
            ready!(stream.poll_read_ready(context))?;
        }
        let Some(room) = self.make_room() else {
            return Poll::Ready(Ok(Fill::OutOfMemory));
        };
        let mut limited = stream.take(room as u64);
        let Poll::Ready(read) = pin!(limited.read_buf(&mut self.bytes)).poll(context) else {
            if self.bytes.capacity() == FIRST_CAPACITY && self.bytes.is_empty() {
                // A new socket counts as readable until somebody has tried.
                self.bytes = Vec::new();
            }
            return Poll::Pending;
        };
        let read = read?;
        self.filled = self.bytes.len() == self.bytes.capacity();
        Poll::Ready(Ok(Fill::Read(read)))
    }

    /// Whether the beginning of a frame is there whose end is not.
    pub(crate) fn holds_part_of_a_frame(&self) -> bool {
        self.start < self.bytes.len()
    }

    /// Gives the memory back if no part of a frame is in it.
    pub(crate) fn release(&mut self) {
        if self.start == self.bytes.len() {
            self.bytes = Vec::new();
            self.start = 0;
            self.memory.give_back(std::mem::take(&mut self.taken));
        }
    }

    /// Gives a large buffer back at once while memory is short; else it is kept for the next frame.
    pub(crate) fn release_if_short(&mut self) {
        if self.taken > 0 && self.memory.is_short() {
            self.release();
        }
    }

    /// The length that the frame at `start` announces, once its prefix has arrived.
    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = self.bytes[self.start..].first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let announced = i32::from_be_bytes(*prefix);
        match usize::try_from(announced) {
            Ok(length) if announced <= self.frame_bytes_max => Ok(Some(length)),
            Ok(_) | Err(_) => Err(FrameError::Length {
                announced,
                allowed: self.frame_bytes_max,
            }),
        }
    }

    /// Makes room behind the bytes that are there and says how much of it to fill: to the end of the current frame if
    /// that is known and far, else as much as may be read ahead. None if the memory for it is not to be had.
    fn make_room(&mut self) -> Option<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(self.bytes.len() - self.start);
            self.start = 0;
        }
        let have = self.bytes.len();
        let frame_end = self
            .announced()
            .ok()
            .flatten()
            .map_or(0, |length| PREFIX + length);
        let wanted = frame_end.max(READ_AHEAD);
        let small = self.filled && self.bytes.capacity() < READ_AHEAD;
        if have == self.bytes.capacity() || small {
            let capacity = (2 * self.bytes.capacity()).max(FIRST_CAPACITY).min(wanted);
            let beyond = capacity.saturating_sub(READ_AHEAD);
            if beyond > self.taken {
                if !self.memory.take(beyond - self.taken) {
                    return None;
                }
                self.taken = beyond;
            }
            self.bytes.reserve_exact(capacity - have);
            self.filled = false;
        }
        Some(wanted.min(self.bytes.capacity()) - have)
    }
}

impl Drop for FrameBuffer {
    fn drop(&mut self) {
        self.memory.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `arriving` in pieces of `piece` bytes, as a socket would, and lists the frames found.
    fn frames(
        buffer: &mut FrameBuffer,
        arriving: &[u8],
        piece: usize,
    ) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut found = Vec::new();
        let mut rest = arriving;
        loop {
            while let Some(frame) = buffer.next_frame()? {
                found.push(buffer.frame_mut(frame).to_vec());
            }
            if rest.is_empty() {
                return Ok(found);
            }
            if buffer.start == buffer.bytes.len() {
                buffer.bytes.clear();
                buffer.start = 0;
            }
            let room = buffer.make_room().expect("memory is not limited here");
            let (now, later) = rest.split_at(room.min(piece).min(rest.len()));
            let capacity = buffer.bytes.capacity();
            buffer.bytes.extend_from_slice(now);
            assert_eq!(buffer.bytes.capacity(), capacity, "room was made before");
            rest = later;
        }
    }

    fn framed(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            bytes.extend_from_slice(&(*length as i32).to_be_bytes());
            bytes.extend(std::iter::repeat_n(number as u8, *length));
        }
        bytes
    }

    fn new(memory: usize) -> FrameBuffer {
        FrameBuffer::new(10_000_000, Arc::new(RequestMemory::new(memory)))
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_arrive() {
        for lengths in [
            vec![],
            vec![0],
            vec![1, 2, 3],
            vec![70_000],
            vec![5, 300_000, 0, 9_000, 100_000, 7],
        ] {
            for piece in [1, 3, 4096, 65_537, 1_000_000] {
                let mut buffer = new(usize::MAX);
                let found = frames(&mut buffer, &framed(&lengths), piece).unwrap();
                let shapes: Vec<(usize, bool)> = found
                    .iter()
                    .enumerate()
                    .map(|(number, frame)| {
                        (frame.len(), frame.iter().all(|byte| *byte == number as u8))
                    })
                    .collect();
                let expected: Vec<(usize, bool)> =
                    lengths.iter().map(|length| (*length, true)).collect();
                assert_eq!(shapes, expected, "{lengths:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn lengths_outside_the_limit_are_refused_by_the_prefix_alone() {
        for announced in [-1, i32::MIN, 10_000_001, i32::MAX] {
            let mut buffer = new(usize::MAX);
            let error = frames(&mut buffer, &announced.to_be_bytes(), 4).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("a request announces {announced} bytes"))
            );
        }
    }

    #[test]
    fn an_announced_length_allocates_nothing_before_its_bytes_arrive() {
        let mut buffer = new(usize::MAX);
        frames(&mut buffer, &9_000_000_i32.to_be_bytes(), 4).unwrap();
        assert!(buffer.bytes.capacity() <= FIRST_CAPACITY);
        let mut buffer = new(usize::MAX);
        frames(&mut buffer, &framed(&[9_000_000])[..500_000], 4096).unwrap();
        assert!(buffer.bytes.capacity() <= 2 * 500_000);
    }

    #[test]
    fn a_released_buffer_gives_its_memory_back() {
        let memory = Arc::new(RequestMemory::new(1_000_000));
        let mut buffer = FrameBuffer::new(10_000_000, Arc::clone(&memory));
        frames(&mut buffer, &framed(&[200_000]), 4096).unwrap();
        assert!(!memory.take(950_000));
        buffer.release();
        assert_eq!(buffer.bytes.capacity(), 0);
        assert!(memory.take(950_000));
    }

    #[test]
    fn part_of_a_frame_is_never_released() {
        let mut buffer = new(usize::MAX);
        frames(&mut buffer, &framed(&[10])[..9], 9).unwrap();
        buffer.release();
        assert_eq!(buffer.bytes.len(), 9);
    }
}
