//! Frames: four bytes of length, header, body.

use crate::api::ApiKey;
use crate::error::{DecodeError, EncodeError};
use crate::header::{RequestHeader, parse_response_header, write_response_header};
use crate::reader::Reader;
use crate::writer::Writer;
use crate::{Message, Request};

/// Bytes of the length in front of a frame.
pub const LENGTH_WIDTH: usize = 4;

/// A request with its length in front, ready to send.
pub fn encode_request<R: Request>(
    correlation_id: i32,
    client_id: Option<&str>,
    request: &R,
    version: i16,
) -> Result<Vec<u8>, EncodeError> {
    let mut w = Writer::new();
    w.i32(0);
    let header = RequestHeader {
        api_key: R::API_KEY,
        api_version: version,
        correlation_id,
        client_id,
    };
    let header_version =
        ApiKey::try_from(R::API_KEY).map_or(1, |api| api.request_header_version(version));
    header.write(&mut w, header_version)?;
    request.encode(&mut w, version)?;
    if let Some(hole) = w.holes.first() {
        return Err(EncodeError::TooLong {
            length: hole.length,
        });
    }
    write_length(&mut w)?;
    Ok(w.buf)
}

/// A response with its length in front; the length counts the holes.
pub fn encode_response<M: Message>(
    correlation_id: i32,
    api_key: ApiKey,
    version: i16,
    response: &M,
) -> Result<Writer, EncodeError> {
    encode_response_into(Vec::new(), correlation_id, api_key, version, response)
}

/// As `encode_response`, into a buffer that is cleared and used again.
pub fn encode_response_into<M: Message>(
    mut buf: Vec<u8>,
    correlation_id: i32,
    api_key: ApiKey,
    version: i16,
    response: &M,
) -> Result<Writer, EncodeError> {
    buf.clear();
    let mut w = Writer::with_buffer(buf);
    w.i32(0);
    write_response_header(
        &mut w,
        correlation_id,
        api_key.response_header_version(version),
    );
    response.encode(&mut w, version)?;
    write_length(&mut w)?;
    Ok(w)
}

/// The correlation id and the response of a frame (without its length). `Records::Range` counts from the frame's start.
pub fn decode_response<R: Request>(
    frame: &[u8],
    version: i16,
) -> Result<(i32, R::Response), DecodeError> {
    let header_version =
        ApiKey::try_from(R::API_KEY).map_or(0, |api| api.response_header_version(version));
    let (correlation_id, body) = parse_response_header(frame, header_version)?;
    let response = R::Response::decode(&mut Reader::at(frame, body), version)?;
    Ok((correlation_id, response))
}

fn write_length(w: &mut Writer) -> Result<(), EncodeError> {
    let length = w.total_length() - LENGTH_WIDTH;
    let prefix = i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?;
    w.buf[..LENGTH_WIDTH].copy_from_slice(&prefix.to_be_bytes());
    Ok(())
}
