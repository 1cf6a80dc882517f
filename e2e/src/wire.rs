//! Requests that no client library sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, ensure};
use taffrail_protocol::Request;
use taffrail_protocol::frame::{decode_response, encode_request};

/// How long a broker may take to answer.
const LIMIT: Duration = Duration::from_secs(30);
/// Larger answers are not expected.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Sends a request in its newest version to a broker and gives the answer.
pub fn ask<R: Request>(address: &str, request: &R) -> Result<R::Response> {
    ask_in_version(address, request, R::MAX_VERSION)
}

/// As [`ask`], in this version.
pub fn ask_in_version<R: Request>(address: &str, request: &R, version: i16) -> Result<R::Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&encode_request(1, Some("e2e"), request, version)?)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length))?;
    ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes");
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(decode_response::<R>(&answer, version)?.1)
}
