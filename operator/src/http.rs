//! Just enough HTTP/1.1 for probes and metrics: GET without bodies, one request a connection, everything bounded.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Bytes of a request's head that are read before it is refused.
const HEAD_BYTES_MAX: u64 = 8 << 10;

/// Bytes of an answer's body that are read.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// How long a peer may take for one request or answer.
const EXCHANGE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Connections served at a time: a scraper or two, and someone with curl. 32 × (8 KiB + an answer) stays under 4 MiB.
const CONNECTIONS_MAX: usize = 32;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Asks a server on this machine.
pub async fn get(address: SocketAddr, path: &str) -> io::Result<Answer> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream
            .take(BODY_BYTES_MAX + HEAD_BYTES_MAX)
            .read_to_end(&mut answer)
            .await?;
        parse_answer(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))
    };
    timeout(EXCHANGE_WAIT_MAX, exchange)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn parse_answer(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(Answer {
        status,
        body: body.to_owned(),
    })
}

/// Serves GET requests until the task is dropped. `answer` gets the path and returns none for 404.
pub async fn serve<F>(listener: TcpListener, answer: F)
where
    F: Fn(&str) -> Option<Page> + Clone + Send + 'static,
{
    let slots = std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = std::sync::Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely; accepting again at once would spin.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let _slot = slot;
            if let Ok(Err(error)) = timeout(EXCHANGE_WAIT_MAX, exchange(stream, answer)).await {
                tracing::debug!(%error, "HTTP connection failed");
            }
        });
    }
}

/// What a path shows.
#[derive(Clone, Debug)]
pub struct Page {
    /// Status line after the version, for example `200 OK`.
    pub status: &'static str,
    /// Media type.
    pub content_type: &'static str,
    /// Body.
    pub body: String,
}

impl Page {
    /// A page of plain text.
    pub fn ok(body: String) -> Self {
        Self {
            status: "200 OK",
            content_type: "text/plain; charset=utf-8",
            body,
        }
    }
}

async fn exchange(mut stream: TcpStream, answer: impl Fn(&str) -> Option<Page>) -> io::Result<()> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    let complete = loop {
        let read = stream.read(&mut chunk).await?;
        head.extend_from_slice(&chunk[..read]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            break true;
        }
        if read == 0 || head.len() as u64 > HEAD_BYTES_MAX {
            break false;
        }
    };
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, page) = match (complete, method, answer(path)) {
        (false, _, _) => ("400 Bad Request", None),
        (true, Some("GET" | "HEAD"), Some(page)) => (page.status, Some(page)),
        (true, Some("GET" | "HEAD"), None) => ("404 Not Found", None),
        (true, _, _) => ("405 Method Not Allowed", None),
    };
    let page = page.unwrap_or_else(|| Page::ok(format!("{status}\n")));
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.content_type,
        page.body.len(),
    );
    stream.write_all(text.as_bytes()).await?;
    if method != Some("HEAD") {
        stream.write_all(page.body.as_bytes()).await?;
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(serve(listener, |path| {
            (path == "/metrics").then(|| Page {
                content_type: "text/plain",
                ..Page::ok("up 1\n".to_owned())
            })
        }));
        address
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        runtime.block_on(test);
    }

    #[test]
    fn client_and_server_understand_each_other() {
        run(async {
            let address = server().await;
            let answer = get(address, "/metrics?x=1").await.expect("an answer");
            assert_eq!((answer.status, answer.body.as_str()), (200, "up 1\n"));
            assert_eq!(get(address, "/").await.expect("an answer").status, 404);
        });
    }

    #[test]
    fn garbage_is_answered_and_bounded() {
        run(async {
            let address = server().await;
            for garbage in [
                &b"\0\0\0\r\n\r\n"[..],
                b"POST / HTTP/1.1\r\n\r\n",
                &[b'a'; 10_000],
            ] {
                let mut stream = TcpStream::connect(address).await.expect("connects");
                let _ = stream.write_all(garbage).await;
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer).await;
                assert!(answer.starts_with(b"HTTP/1.1 4") || answer.is_empty());
            }
            assert_eq!(
                get(address, "/metrics").await.expect("still serves").status,
                200
            );
        });
    }
}
