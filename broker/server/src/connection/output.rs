//! How answers reach the socket: small ones are joined into one write, file ranges of 32 KiB and more go out by
//! `sendfile` without passing through this process, smaller ones are read and written with their header.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use taffrail_log::{DiskFile, FileRange, RealFile};
use taffrail_node::Response;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use super::connections::Record;
use crate::env::ServerEnv;

/// Below this, reading a range and writing it with its header costs less than a `sendfile` of its own.
const SENDFILE_FROM: u64 = 32 * 1024;

/// How much is joined before it is written.
const JOINED_MAX: usize = 64 * 1024;

/// At most so much goes into one `sendfile`, so that one connection does not hold a worker for long.
const SENDFILE_MAX: usize = 1024 * 1024;

/// Bytes that are to be written next.
#[derive(Default)]
pub(super) struct Output {
    joined: Vec<u8>,
}

impl Output {
    /// Adds an answer; what does not fit is written at once.
    pub(super) async fn push(
        &mut self,
        stream: &mut TcpStream,
        record: &Record,
        response: Response<ServerEnv>,
    ) -> io::Result<()> {
        let mut sent = 0;
        for file in &response.files {
            self.join(&response.buffer[sent..file.position]);
            sent = file.position;
            if file.range.length as u64 >= SENDFILE_FROM {
                send_more(stream, &self.joined, record).await?;
                self.joined.clear();
                send_file(stream, &file.range, record).await?;
            } else {
                self.join_file(&file.range)?;
                if self.joined.len() >= JOINED_MAX {
                    self.flush(stream, record).await?;
                }
            }
        }
        if sent == 0 && self.joined.is_empty() {
            self.joined = response.buffer;
        } else {
            self.join(&response.buffer[sent..]);
        }
        if self.joined.len() >= JOINED_MAX {
            self.flush(stream, record).await?;
        }
        Ok(())
    }

    /// Writes what is there.
    pub(super) async fn flush(
        &mut self,
        stream: &mut TcpStream,
        record: &Record,
    ) -> io::Result<()> {
        let mut rest = self.joined.as_slice();
        while !rest.is_empty() {
            let written = stream.write(rest).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[written..];
            record.touch();
        }
        self.joined.clear();
        if self.joined.capacity() > 2 * JOINED_MAX {
            self.joined = Vec::new();
        }
        Ok(())
    }

    fn join(&mut self, bytes: &[u8]) {
        self.joined.extend_from_slice(bytes);
    }

    fn join_file(&mut self, range: &FileRange<RealFile>) -> io::Result<()> {
        let start = self.joined.len();
        self.joined.resize(start + range.length, 0);
        range
            .file
            .read_exact_at(&mut self.joined[start..], range.position)
    }
}

/// Writes bytes that a `sendfile` follows, so that both may share a segment.
async fn send_more(stream: &TcpStream, mut bytes: &[u8], record: &Record) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = stream
            .async_io(Interest::WRITABLE, || send_with_more(stream.as_fd(), bytes))
            .await?;
        bytes = &bytes[sent..];
        record.touch();
    }
    Ok(())
}

async fn send_file(
    stream: &TcpStream,
    range: &FileRange<RealFile>,
    record: &Record,
) -> io::Result<()> {
    let (mut position, mut rest) = (range.position, range.length);
    while rest > 0 {
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                sendfile(
                    stream.as_fd(),
                    range.file.as_fd(),
                    position,
                    rest.min(SENDFILE_MAX),
                )
            })
            .await?;
        if sent == 0 {
            // The answer's length is already on its way, so the connection cannot go on.
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a log file ended inside a range that was promised",
            ));
        }
        position += sent as u64;
        rest -= sent;
        record.touch();
    }
    Ok(())
}

fn send_with_more(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of a live slice.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_MORE | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn sendfile(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    position: u64,
    length: usize,
) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(position).map_err(io::Error::other)?;
    // SAFETY: both descriptors are open and `offset` outlives the call.
    let sent = unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &mut offset, length) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
