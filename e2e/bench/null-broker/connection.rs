//! Frames in, answers out, in one task and one reusable buffer.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::answer::{self, Answer};
use crate::topic::{Topic, Topics};

/// How much a read asks for while the length of the next frame is unknown.
const READ: usize = 64 * 1024;

/// A piece of a topic's file that follows a part of the answer.
pub(crate) struct Piece {
    pub(crate) topic: Arc<Topic>,
    pub(crate) position: u64,
    pub(crate) length: usize,
}

/// Serves one connection until it closes.
pub(crate) async fn serve(topics: &Topics, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer: Vec<u8> = Vec::with_capacity(READ);
    let mut filled = 0;
    let mut out = Vec::with_capacity(4096);
    loop {
        while filled < 4 {
            filled += read(&mut stream, &mut buffer, filled, filled + READ).await?;
        }
        let length = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]) as usize + 4;
        while filled < length {
            filled += read(&mut stream, &mut buffer, filled, length).await?;
        }
        out.clear();
        match answer::answer(topics, &mut buffer[4..length], &mut out).await? {
            Answer::None => {}
            Answer::Whole => send(&mut stream, &mut out, &[]).await?,
            Answer::WithFiles(pieces) => send(&mut stream, &mut out, &pieces).await?,
        }
        buffer.copy_within(length..filled, 0);
        filled -= length;
    }
}

/// Reads at least one byte into `buffer[filled..target]`.
async fn read(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    filled: usize,
    target: usize,
) -> io::Result<usize> {
    if buffer.len() < target {
        buffer.resize(target, 0);
    }
    match stream.read(&mut buffer[filled..]).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        n => Ok(n),
    }
}

/// Sends the answer, each piece after the part of the answer that ends where the piece belongs.
async fn send(stream: &mut TcpStream, out: &mut [u8], pieces: &[(usize, Piece)]) -> io::Result<()> {
    let files: usize = pieces.iter().map(|(_, piece)| piece.length).sum();
    let length = (out.len() - 4 + files) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    let mut sent = 0;
    for (at, piece) in pieces {
        stream.write_all(&out[sent..*at]).await?;
        sent = *at;
        send_file(stream, piece).await?;
    }
    if sent < out.len() {
        stream.write_all(&out[sent..]).await?;
    }
    Ok(())
}

async fn send_file(stream: &TcpStream, piece: &Piece) -> io::Result<()> {
    let (mut position, mut left) = (piece.position as i64, piece.length);
    while left > 0 {
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                // SAFETY: both descriptors are open for the whole call, and `position` outlives it.
                let sent = unsafe {
                    libc::sendfile(
                        stream.as_raw_fd(),
                        piece.topic.file.as_raw_fd(),
                        &raw mut position,
                        left,
                    )
                };
                usize::try_from(sent).map_err(|_| io::Error::last_os_error())
            })
            .await?;
        if sent == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= sent;
    }
    Ok(())
}
