//! Requests that no client library sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;
use taffrail_protocol::Request;
use taffrail_protocol::frame::{decode_response, encode_request};

/// How long a broker may take to answer.
const LIMIT: Duration = Duration::from_secs(30);
/// Larger answers are not expected.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Sends a request in its newest version to a broker and gives the answer.
pub fn ask<R: Request>(address: &str, request: &R) -> Result<R::Response> {
    let version = R::MAX_VERSION;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&encode_request(1, Some("e2e"), request, version)?)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?.min(ANSWER_BYTES_MAX)];
    stream.read_exact(&mut answer)?;
    Ok(decode_response::<R>(&answer, version)?.1)
}
