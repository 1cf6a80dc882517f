//! One connection to a broker: frames, correlation ids, and the versions that both sides know. Requests go one by one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};

use taffrail_protocol::api::FIRST_PRIVATE_KEY;
use taffrail_protocol::frame::{decode_response, encode_request};
use taffrail_protocol::messages::api_versions_request::ApiVersionsRequest;
use taffrail_protocol::{DecodeError, EncodeError, ErrorCode, Request};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How the operator names itself to brokers.
const CLIENT_ID: &str = "taffrail-operator";

/// Largest answer that is read. Metadata of 100,000 partitions with three replicas takes about 6 MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long a broker may take to answer. Controller-bound requests wait for the quorum.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a broker may take to accept a connection. An address behind which nothing is any more, as that of a pod on
/// a lost node, must not hold up the others.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(2);

/// A version of ApiVersions that every broker knows.
const API_VERSIONS_VERSION: i16 = 3;

/// Why a broker did not answer.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The network says no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No answer within the time limit.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The answer cannot be read.
    #[error("the answer cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// The request cannot be written.
    #[error("the request cannot be written: {0}")]
    Encode(#[from] EncodeError),
    /// The answer's length is impossible.
    #[error("the answer claims {0} bytes")]
    Length(i32),
    /// The answer belongs to another request.
    #[error("the answer belongs to another request")]
    Correlation,
    /// Broker and operator have no version of the request in common.
    #[error("the broker does not serve API {0} in a version that this operator knows")]
    Unserved(i16),
    /// The broker refused the handshake.
    #[error("the broker refused the handshake with {0}")]
    Handshake(ErrorName),
}

/// An error code by Kafka's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorName(pub i16);

impl fmt::Display for ErrorName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ErrorCode::try_from(self.0) {
            Ok(code) => out.write_str(code.name()),
            Err(_) => write!(out, "error {}", self.0),
        }
    }
}

/// A connection over which versions were agreed.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    correlation_id: i32,
    versions: BTreeMap<i16, (i16, i16)>,
}

impl Connection {
    /// Connects and asks for the versions.
    pub async fn open(address: SocketAddr) -> Result<Self, ConnectionError> {
        let stream = timeout(CONNECT_WAIT_MAX, TcpStream::connect(address))
            .await
            .map_err(|_| ConnectionError::TimedOut(CONNECT_WAIT_MAX))??;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            correlation_id: 0,
            versions: BTreeMap::new(),
        };
        let request = ApiVersionsRequest {
            client_software_name: CLIENT_ID.to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ApiVersionsRequest::default()
        };
        let (response, _) = connection.send(&request, API_VERSIONS_VERSION).await?;
        if response.error_code != 0 {
            return Err(ConnectionError::Handshake(ErrorName(response.error_code)));
        }
        connection.versions = response
            .api_keys
            .iter()
            .map(|api| (api.api_key, (api.min_version, api.max_version)))
            .collect();
        Ok(connection)
    }

    /// Sends a request in the newest version that both sides know and waits for the answer. After an error the
    /// connection must not be used again.
    pub async fn call<R: Request>(&mut self, request: &R) -> Result<R::Response, ConnectionError> {
        let (response, _) = self.call_with_frame(request).await?;
        Ok(response)
    }

    /// As `call`, with the frame that record batches in the answer refer to.
    pub async fn call_with_frame<R: Request>(
        &mut self,
        request: &R,
    ) -> Result<(R::Response, Vec<u8>), ConnectionError> {
        // Brokers list the APIs for clients alone. A private one that they do not know they refuse.
        let private = R::API_KEY >= FIRST_PRIVATE_KEY;
        let (min, max) = self
            .versions
            .get(&R::API_KEY)
            .copied()
            .or_else(|| private.then_some((R::MIN_VERSION, R::MAX_VERSION)))
            .ok_or(ConnectionError::Unserved(R::API_KEY))?;
        let version = R::MAX_VERSION.min(max);
        if version < R::MIN_VERSION || version < min {
            return Err(ConnectionError::Unserved(R::API_KEY));
        }
        self.send(request, version).await
    }

    /// The newest version of an API that the broker serves.
    pub fn served(&self, api_key: i16) -> Option<i16> {
        self.versions.get(&api_key).map(|(_, max)| *max)
    }

    async fn send<R: Request>(
        &mut self,
        request: &R,
        version: i16,
    ) -> Result<(R::Response, Vec<u8>), ConnectionError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = encode_request(self.correlation_id, Some(CLIENT_ID), request, version)?;
        let answer = within(self.exchange(&frame)).await??;
        let (correlation_id, response) = decode_response::<R>(&answer, version)?;
        if correlation_id != self.correlation_id {
            return Err(ConnectionError::Correlation);
        }
        Ok((response, answer))
    }

    async fn exchange(&mut self, frame: &[u8]) -> Result<Vec<u8>, ConnectionError> {
        self.stream.write_all(frame).await?;
        let claimed = self.stream.read_i32().await?;
        let length = usize::try_from(claimed)
            .ok()
            .filter(|length| *length <= ANSWER_BYTES_MAX)
            .ok_or(ConnectionError::Length(claimed))?;
        let mut answer = Vec::new();
        // Grows with what arrives, not with what was claimed.
        let mut body = (&mut self.stream).take(length as u64);
        body.read_to_end(&mut answer).await?;
        if answer.len() < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(answer)
    }
}

async fn within<F: Future>(future: F) -> Result<F::Output, ConnectionError> {
    timeout(ANSWER_WAIT_MAX, future)
        .await
        .map_err(|_| ConnectionError::TimedOut(ANSWER_WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// What opening a connection to a server that answers with these bytes ends in.
    fn check(answer: &'static [u8], expected: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer).await;
            });
            let error = Connection::open(address)
                .await
                .expect_err("garbage")
                .to_string();
            assert!(error.contains(expected), "{error}");
        });
    }

    #[test]
    fn garbage_is_an_error_and_bounded() {
        check(b"", "end of file");
        check(&[0x7f, 0xff, 0xff, 0xff], "claims 2147483647 bytes");
        check(&[0xff, 0xff, 0xff, 0xff], "claims -1 bytes");
        check(&[0x03, 0xff, 0xff, 0xff, 1, 2, 3], "end of file");
        check(&[0, 0, 0, 4, 0, 0, 0, 1], "cannot be read");
        check(
            &[0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0],
            "another request",
        );
    }
}
