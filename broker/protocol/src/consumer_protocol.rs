//! The bytes that members of a consumer group hand each other through the coordinator (`ConsumerProtocol` in Kafka).
//! The broker reads subscriptions only to tell which topics a group uses; it never writes them for members.

use crate::Message;
use crate::error::{DecodeError, EncodeError};
use crate::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use crate::reader::Reader;
use crate::writer::Writer;

/// Reads a member's subscription: the metadata of its protocol in JoinGroup.
pub fn decode_subscription(bytes: &[u8]) -> Result<ConsumerProtocolSubscription, DecodeError> {
    decode(bytes, ConsumerProtocolSubscription::MAX_VERSION)
}

/// Writes a subscription in a version that readers of every later one understand.
pub fn encode_subscription(
    subscription: &ConsumerProtocolSubscription,
    version: i16,
) -> Result<Vec<u8>, EncodeError> {
    encode(subscription, version)
}

/// Reads a member's assignment, as SyncGroup carries it.
pub fn decode_assignment(bytes: &[u8]) -> Result<ConsumerProtocolAssignment, DecodeError> {
    decode(bytes, ConsumerProtocolAssignment::MAX_VERSION)
}

/// Writes an assignment.
pub fn encode_assignment(
    assignment: &ConsumerProtocolAssignment,
    version: i16,
) -> Result<Vec<u8>, EncodeError> {
    encode(assignment, version)
}

/// A version of the future is read as the last one known: later versions only add at the end.
fn decode<M: Message>(bytes: &[u8], last: i16) -> Result<M, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = r.i16()?.min(last);
    M::decode(&mut r, version)
}

fn encode<M: Message>(message: &M, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut w = Writer::new();
    w.i16(version);
    message.encode(&mut w, version)?;
    Ok(w.buf)
}
