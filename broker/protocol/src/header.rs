//! Headers of requests (versions 1 and 2) and responses (versions 0 and 1).

use crate::api::ApiKey;
use crate::error::{DecodeError, EncodeError};
use crate::reader::Reader;
use crate::writer::Writer;

/// The header of a request, as it stands in the frame. The API and its version may be unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// As sent; see `ApiKey::try_from`.
    pub api_key: i16,
    /// As sent; see `ApiKey::is_served`.
    pub api_version: i16,
    /// Goes back in the response.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<&'a str>,
}

/// A frame without a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer than the eight bytes that name API, version and correlation id: nothing can be answered.
    #[error("a frame of {0} bytes holds no request header")]
    TooShort(usize),
    /// Client id or tagged fields are damaged; API, version and correlation id are known.
    #[error("bad request header of api {api_key} version {api_version}: {source}")]
    Malformed {
        /// The API.
        api_key: i16,
        /// Its version.
        api_version: i16,
        /// For an answer.
        correlation_id: i32,
        /// What is wrong.
        source: DecodeError,
    },
}

impl<'a> RequestHeader<'a> {
    /// Reads the header of a frame (without its length), and tells where the body starts.
    ///
    /// Of an unknown API the tagged fields of the header are not read, for nothing tells whether there are any.
    pub fn parse(frame: &'a [u8]) -> Result<(Self, usize), HeaderError> {
        let mut r = Reader::new(frame);
        let (Ok(api_key), Ok(api_version), Ok(correlation_id)) = (r.i16(), r.i16(), r.i32()) else {
            return Err(HeaderError::TooShort(frame.len()));
        };
        let malformed = |source| HeaderError::Malformed {
            api_key,
            api_version,
            correlation_id,
            source,
        };
        let client_id = r.nullable_str(false).map_err(malformed)?;
        let flexible =
            ApiKey::try_from(api_key).is_ok_and(|api| api.request_header_version(api_version) == 2);
        // The header of an ApiVersions request too new for us need not be one that we can read; its body is not read.
        let is_future =
            api_key == ApiKey::ApiVersions.code() && !ApiKey::ApiVersions.is_served(api_version);
        if flexible && !is_future {
            r.tagged_fields(|_, _| Ok(false)).map_err(malformed)?;
        }
        Ok((
            Self {
                api_key,
                api_version,
                correlation_id,
                client_id,
            },
            r.position(),
        ))
    }

    /// Writes the header in version 1 or 2.
    pub fn write(&self, w: &mut Writer, header_version: i16) -> Result<(), EncodeError> {
        w.i16(self.api_key);
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        match self.client_id {
            Some(client_id) => w.string(client_id, false)?,
            None => w.null_string(false),
        }
        if header_version >= 2 {
            w.uvarint(0);
        }
        Ok(())
    }
}

/// Writes the header of a response, in version 0 or 1 (`ApiKey::response_header_version`).
pub fn write_response_header(w: &mut Writer, correlation_id: i32, header_version: i16) {
    w.i32(correlation_id);
    if header_version >= 1 {
        w.uvarint(0);
    }
}

/// Reads the header of a response (a frame without its length): correlation id and where the body starts.
pub fn parse_response_header(
    frame: &[u8],
    header_version: i16,
) -> Result<(i32, usize), DecodeError> {
    let mut r = Reader::new(frame);
    let correlation_id = r.i32()?;
    if header_version >= 1 {
        r.tagged_fields(|_, _| Ok(false))?;
    }
    Ok((correlation_id, r.position()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(frame: &[u8], expected: Result<(i16, i16, i32, Option<&str>, usize), HeaderError>) {
        let parsed = RequestHeader::parse(frame).map(|(header, body)| {
            (
                header.api_key,
                header.api_version,
                header.correlation_id,
                header.client_id,
                body,
            )
        });
        assert_eq!(parsed, expected, "{frame:?}");
    }

    #[test]
    fn headers_of_both_versions_and_of_unknown_apis_are_read() {
        check(
            &[0, 3, 0, 8, 0, 0, 0, 7, 0, 1, b'c', 9],
            Ok((3, 8, 7, Some("c"), 11)),
        );
        check(
            &[0, 3, 0, 8, 0, 0, 0, 7, 0xff, 0xff],
            Ok((3, 8, 7, None, 10)),
        );
        // Metadata 9 is flexible: one unknown tag of two bytes.
        check(
            &[0, 3, 0, 9, 0, 0, 0, 7, 0, 0, 1, 5, 2, 8, 8, 9],
            Ok((3, 9, 7, Some(""), 15)),
        );
        check(
            &[0x7f, 0xff, 0, 9, 0, 0, 0, 7, 0, 0, 1, 5],
            Ok((0x7fff, 9, 7, Some(""), 10)),
        );
        // ApiVersions of the future: nothing behind the client id is looked at.
        check(
            &[0, 18, 0, 99, 0, 0, 0, 7, 0, 0, 0xff],
            Ok((18, 99, 7, Some(""), 10)),
        );
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for length in 0..8 {
            check(&[0; 8][..length], Err(HeaderError::TooShort(length)));
        }
        let malformed = |source| HeaderError::Malformed {
            api_key: 3,
            api_version: 9,
            correlation_id: 7,
            source,
        };
        check(
            &[0, 3, 0, 9, 0, 0, 0, 7, 0, 5, b'c'],
            Err(malformed(DecodeError::Truncated {
                position: 10,
                needed: 5,
                remaining: 1,
            })),
        );
        check(
            &[0, 3, 0, 9, 0, 0, 0, 7, 0, 1, 0xff, 0],
            Err(malformed(DecodeError::NotUtf8 { position: 10 })),
        );
        check(
            &[0, 3, 0, 9, 0, 0, 0, 7, 0, 0, 2, 5, 0, 5, 0],
            Err(malformed(DecodeError::TagOrder {
                previous: 5,
                tag: 5,
            })),
        );
        check(
            &[0, 3, 0, 9, 0, 0, 0, 7, 0xff, 0xfe, 0],
            Err(malformed(DecodeError::BadLength {
                position: 10,
                length: -2,
            })),
        );
    }
}
