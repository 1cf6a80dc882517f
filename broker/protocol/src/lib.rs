//! Kafka bytes to Rust values and back, bounded; no I/O.
//!
//! Messages are defined in `messages/*.msg` and generated into [`messages`]; everything else is written by hand.
//! To read the generated code: `cargo run -q -p taffrail-protocol --example messages -- fetch_request`.
//! No length that a peer claims is believed before the bytes that remain were counted.

pub mod api;
pub mod consumer_protocol;
pub mod coordinator_records;
pub mod error;
pub mod error_code;
pub mod frame;
pub mod header;
pub mod messages;
pub mod metadata_records;
pub mod producer_snapshot;
pub mod reader;
mod record_field;
pub mod records;
pub mod transaction_records;
mod uuid;
pub mod varint;
pub mod writer;

pub use api::{ApiKey, ApiVersionRange};
pub use error::{DecodeError, EncodeError};
pub use error_code::ErrorCode;
pub use header::{HeaderError, RequestHeader};
pub use reader::Reader;
pub use record_field::Records;
pub use uuid::{Uuid, UuidError};
pub use writer::{Hole, Writer};

/// A message or a part of one, in all its versions.
pub trait Message: Sized {
    /// Reads the value; what the version does not carry gets its default.
    fn decode(r: &mut Reader<'_>, version: i16) -> Result<Self, DecodeError>;

    /// Appends the value. On an error the writer holds a part of it.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError>;
}

/// A message that asks for another.
pub trait Request: Message {
    /// The API on the wire.
    const API_KEY: i16;
    /// The first version that this crate can read and write.
    const MIN_VERSION: i16;
    /// The last version that this crate can read and write; see `ApiKey::served` for what a broker answers.
    const MAX_VERSION: i16;
    /// What answers it.
    type Response: Message;
}
