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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::fetch_response::{FetchableTopicResponse, PartitionData};
    use crate::messages::{ApiVersionsResponse, FetchResponse, HeartbeatRequest};
    use crate::{Hole, Records};

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = HeartbeatRequest {
            group_id: "g".into(),
            member_id: "m".into(),
            ..HeartbeatRequest::default()
        };
        for version in 0..=4 {
            let frame = encode_request(7, Some("client"), &request, version).unwrap();
            assert_eq!(frame[..4], (frame.len() as i32 - 4).to_be_bytes());
            let (header, body) = RequestHeader::parse(&frame[4..]).unwrap();
            assert_eq!(
                (header.api_key, header.api_version, header.client_id),
                (12, version, Some("client"))
            );
            let mut r = Reader::at(&frame[4..], body);
            assert_eq!(
                HeartbeatRequest::decode(&mut r, version),
                Ok(request.clone())
            );
            assert_eq!(r.finish(), Ok(()));
        }
    }

    fn fetch_response(records: Records) -> FetchResponse {
        let partition = PartitionData {
            records,
            ..PartitionData::default()
        };
        let topic = FetchableTopicResponse {
            partitions: vec![partition],
            ..FetchableTopicResponse::default()
        };
        FetchResponse {
            responses: vec![topic],
            ..FetchResponse::default()
        }
    }

    #[test]
    fn holes_count_in_the_length_and_stand_where_the_records_go() {
        for version in [4, 11, 12, 18] {
            let inline = encode_response(
                7,
                ApiKey::Fetch,
                version,
                &fetch_response(Records::Inline(vec![5; 300])),
            );
            let inline = inline.unwrap().buf;
            let holed = encode_response(
                7,
                ApiKey::Fetch,
                version,
                &fetch_response(Records::Hole(300)),
            )
            .unwrap();
            let [
                Hole {
                    position,
                    length: 300,
                },
            ] = holed.holes[..]
            else {
                panic!("{:?}", holed.holes)
            };
            let mut filled = holed.buf.clone();
            filled.splice(position..position, [5; 300]);
            assert_eq!((&filled, filled.len()), (&inline, holed.total_length()));
            let (correlation_id, decoded) =
                decode_response::<crate::messages::FetchRequest>(&inline[4..], version).unwrap();
            assert_eq!(correlation_id, 7);
            let records = &decoded.responses[0].partitions[0].records;
            assert_eq!(records.bytes(&inline[4..]), Some(&[5; 300][..]));
            let again = encode_response(7, ApiKey::Fetch, version, &decoded);
            assert_eq!(again, Err(EncodeError::RecordsOfAnotherFrame));
        }
    }

    /// Null records break librdkafka and sarama (KAFKA-18646).
    #[test]
    fn records_left_alone_are_empty_and_not_null() {
        let frame =
            encode_response(7, ApiKey::Fetch, 11, &fetch_response(Records::default())).unwrap();
        assert_eq!(frame.buf[frame.buf.len() - 4..], [0; 4]);
        assert!(frame.holes.is_empty());
    }

    /// KIP-511: whatever the body's version, the header of an ApiVersions response has no tagged fields.
    #[test]
    fn an_api_versions_response_has_the_plain_header() {
        let response = ApiVersionsResponse {
            error_code: 35,
            ..ApiVersionsResponse::default()
        };
        let old = encode_response(7, ApiKey::ApiVersions, 0, &response).unwrap();
        assert_eq!(old.buf, [0, 0, 0, 10, 0, 0, 0, 7, 0, 35, 0, 0, 0, 0]);
        let new = encode_response(7, ApiKey::ApiVersions, 4, &response).unwrap();
        assert_eq!(new.buf, [0, 0, 0, 12, 0, 0, 0, 7, 0, 35, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_field_that_the_version_lacks_is_refused_unless_it_may_be_dropped() {
        let mut response = fetch_response(Records::default());
        response.error_code = 1;
        assert!(encode_response(7, ApiKey::Fetch, 4, &response).is_ok());
        response.session_id = 1;
        let refused = EncodeError::FieldNotInVersion {
            field: "FetchResponse.session_id",
            version: 4,
        };
        assert_eq!(
            encode_response(7, ApiKey::Fetch, 4, &response),
            Err(refused)
        );
    }
}
