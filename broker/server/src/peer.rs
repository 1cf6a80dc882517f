//! A connection to another broker. Calls may overlap: requests leave in the order of the calls, and each caller reads
//! its own answer when its turn comes, so that no task stands between the socket and whoever waits.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use taffrail_core::time::Instant;
use taffrail_node::Peer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, Semaphore};

use crate::clock::Clock;
use crate::socket::give_up_when_unreachable;

/// The 4-byte length before each frame.
const PREFIX: usize = 4;

/// Room for one read of small answers.
const READ_AHEAD: usize = 16 * 1024;

/// Room for so much of an answer is made before it has arrived; for the rest as it arrives. The length is the other side's word,
/// and whoever speaks another protocol behind that port says anything: the start of a TLS alert reads as 352 MB.
/// A replica fetch has up to `replica.fetch.response.max.bytes` (10 MiB) and is not to be copied while it grows.
const ROOM_AHEAD: usize = 16 * 1024 * 1024;

/// The largest answer that is believed. A replica fetch is bounded by `replica.fetch.response.max.bytes` (10 MiB) plus
/// one batch (`message.max.bytes`), a metadata snapshot by the number of partitions: 1 GiB is far above both.
const ANSWER_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Names that are looked up at a time. A lookup occupies a thread until the name server answers or the system gives
/// up, which takes many seconds; the threads of the disks must not be among them.
pub(crate) const LOOKUPS_MAX: usize = 4;

static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// The addresses of a host, asked for anew each time: a broker that was started elsewhere has another one.
async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let place = LOOKUPS.acquire().await.map_err(io::Error::other)?;
    let host = host.to_owned();
    let lookup = tokio::task::spawn_blocking(move || {
        // Given back when the thread is free, not when the caller gives up.
        let _place = place;
        let found = (host.as_str(), port).to_socket_addrs();
        found.map(Iterator::collect::<Vec<SocketAddr>>)
    });
    lookup.await.map_err(io::Error::other)?
}

/// A connection to another broker's internal listener.
pub(crate) struct TcpPeer {
    clock: Arc<Clock>,
    requests: Mutex<OwnedWriteHalf>,
    /// tokio's mutex hands itself over in the order in which it was asked for.
    answers: Mutex<Answers<OwnedReadHalf>>,
    broken: AtomicBool,
}

struct Answers<R> {
    half: R,
    /// Bytes that arrived behind the last answer.
    ahead: Vec<u8>,
}

impl TcpPeer {
    /// Connects; every address of the name is tried.
    pub(crate) async fn connect(clock: Arc<Clock>, host: &str, port: u16) -> io::Result<TcpPeer> {
        let addresses = resolve(host, port).await?;
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        stream.set_nodelay(true)?;
        give_up_when_unreachable(&stream)?;
        let (half, requests) = stream.into_split();
        let answers = Answers {
            half,
            ahead: Vec::new(),
        };
        Ok(TcpPeer {
            clock,
            requests: Mutex::new(requests),
            answers: Mutex::new(answers),
            broken: AtomicBool::new(false),
        })
    }

    async fn exchange(&self, frame: Vec<u8>) -> io::Result<Vec<u8>> {
        let correlation_id = correlation_id_of(&frame)?;
        let mut requests = self.requests.lock().await;
        requests.write_all(&frame).await?;
        drop(frame);
        // The place in the line of readers must be taken before another request can leave; a task that has used up its
        // share of the worker would not take it at the first poll.
        let mut turn = pin!(tokio::task::unconstrained(self.answers.lock()));
        let mut answers = None;
        poll_fn(|context| {
            if let Poll::Ready(guard) = turn.as_mut().poll(context) {
                answers = Some(guard);
            }
            Poll::Ready(())
        })
        .await;
        drop(requests);
        let mut answers = match answers {
            Some(answers) => answers,
            None => turn.await,
        };
        if self.broken.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let answer = answers.read().await?;
        if answer.get(..4) != Some(&correlation_id) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer belongs to another request",
            ));
        }
        Ok(answer)
    }
}

impl Peer for TcpPeer {
    async fn call(&self, frame: Vec<u8>, deadline: Instant) -> io::Result<Vec<u8>> {
        if self.broken.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Whoever gives up in the middle leaves an answer behind that nobody reads, so the connection is done for.
        let mut unfinished = Unfinished {
            broken: &self.broken,
            finished: false,
        };
        let wait = deadline - (Instant::ZERO + self.clock.started().elapsed());
        let answer = match tokio::time::timeout(wait, self.exchange(frame)).await {
            Ok(answer) => answer?,
            Err(_elapsed) => return Err(io::ErrorKind::TimedOut.into()),
        };
        unfinished.finished = true;
        Ok(answer)
    }
}

/// Marks the connection as broken unless the call came to its end.
struct Unfinished<'a> {
    broken: &'a AtomicBool,
    finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.broken.store(true, Ordering::Release);
        }
    }
}

impl<R: AsyncRead + Unpin> Answers<R> {
    /// The next answer, without its length prefix. Large ones are read straight into the buffer that is returned.
    async fn read(&mut self) -> io::Result<Vec<u8>> {
        let length = loop {
            if let Some(prefix) = self.ahead.first_chunk::<PREFIX>() {
                break i32::from_be_bytes(*prefix);
            }
            self.read_ahead().await?;
        };
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= ANSWER_BYTES_MAX)
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("an answer announces {length} bytes"),
                )
            })?;
        let here = length.min(self.ahead.len() - PREFIX);
        let mut answer = Vec::with_capacity(length.min(ROOM_AHEAD));
        answer.extend_from_slice(&self.ahead[PREFIX..PREFIX + here]);
        self.ahead.drain(..PREFIX + here);
        while answer.len() < length {
            if answer.len() == answer.capacity() {
                // Doubled, so that what is copied stays in proportion, and never more than announced.
                let more = answer.len().max(ROOM_AHEAD);
                answer.reserve_exact(more.min(length - answer.len()));
            }
            let missing = (length - answer.len()) as u64;
            if (&mut self.half).take(missing).read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(answer)
    }

    async fn read_ahead(&mut self) -> io::Result<()> {
        self.ahead.reserve(READ_AHEAD);
        match self.half.read_buf(&mut self.ahead).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// A request has its correlation id behind length (4 bytes), API key (2) and version (2); an answer begins with it.
fn correlation_id_of(frame: &[u8]) -> io::Result<[u8; 4]> {
    frame
        .get(8..12)
        .and_then(|bytes| bytes.first_chunk::<4>())
        .copied()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a request without a header"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::Context;
    use std::time::Duration;
    use tokio::io::ReadBuf;
    use tokio::net::TcpListener;

    fn request(correlation_id: i32) -> Vec<u8> {
        let mut frame = 8_i32.to_be_bytes().to_vec();
        frame.extend_from_slice(&[0, 1, 0, 0]);
        frame.extend_from_slice(&correlation_id.to_be_bytes());
        frame
    }

    /// Answers each request with its correlation id and as many bytes as that says; a negative one never.
    async fn echo(listener: TcpListener) {
        let Ok((mut stream, _)) = listener.accept().await else {
            return;
        };
        let mut frame = [0; 12];
        while stream.read_exact(&mut frame).await.is_ok() {
            let id = i32::from_be_bytes([frame[8], frame[9], frame[10], frame[11]]);
            let Ok(size) = usize::try_from(id) else {
                continue;
            };
            let mut answer = (4 + id).to_be_bytes().to_vec();
            answer.extend_from_slice(&id.to_be_bytes());
            answer.resize(8 + size, 7);
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    async fn peer() -> (Arc<Clock>, Arc<TcpPeer>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(echo(listener));
        let clock = Clock::start();
        (
            Arc::clone(&clock),
            Arc::new(TcpPeer::connect(clock, "127.0.0.1", port).await.unwrap()),
        )
    }

    #[tokio::test]
    async fn overlapping_calls_get_their_own_answers() {
        let (_, peer) = peer().await;
        let calls: Vec<_> = [3, 500_000, 0, 16_380, 16_381, 40_000, 1]
            .into_iter()
            .map(|id| {
                let peer = Arc::clone(&peer);
                tokio::spawn(async move { (id, peer.call(request(id), Instant(u64::MAX)).await) })
            })
            .collect();
        for call in calls {
            let (id, answer) = call.await.unwrap();
            let answer = answer.unwrap();
            assert_eq!(
                (answer.len(), &answer[..4]),
                (4 + id as usize, &id.to_be_bytes()[..])
            );
        }
    }

    /// Gives these bytes and then no more, and notes the largest room that it was offered.
    struct Offered<'a> {
        bytes: &'a [u8],
        largest: usize,
    }

    impl AsyncRead for Offered<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.largest = self.largest.max(room.remaining());
            let (now, later) = self.bytes.split_at(self.bytes.len().min(room.remaining()));
            room.put_slice(now);
            self.bytes = later;
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn room_is_made_as_an_answer_arrives_and_not_by_the_word_of_its_length() {
        // A TLS alert, and a frame of which only 40 MB of 1 GiB come.
        let alert = [21, 3, 3, 0, 2, 2, 70].to_vec();
        let mut cut = (ANSWER_BYTES_MAX as i32).to_be_bytes().to_vec();
        cut.resize(40_000_000, 7);
        for bytes in [alert, cut] {
            let half = Offered {
                bytes: &bytes,
                largest: 0,
            };
            let mut answers = Answers {
                half,
                ahead: Vec::new(),
            };
            let error = answers.read().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            let largest = answers.half.largest;
            assert!(largest <= bytes.len().max(ROOM_AHEAD), "{largest}");
        }
    }

    #[tokio::test]
    async fn a_call_that_times_out_ends_the_connection() {
        let (clock, peer) = peer().await;
        let deadline = Instant::ZERO + clock.started().elapsed() + Duration::from_millis(50);
        assert_eq!(
            peer.call(request(-1), deadline).await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert_eq!(
            peer.call(request(1), Instant(u64::MAX))
                .await
                .unwrap_err()
                .kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
