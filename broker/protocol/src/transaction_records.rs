//! Bytes of the records in `__transaction_state`, as Kafka's transaction coordinator writes and reads them.
//!
//! A key starts with an `i16` that is the record's type (0), a value with an `i16` that is its version. A record with a null
//! value says that the transactional id expired.

use crate::Message;
use crate::coordinator_records::{decode_versioned, encode_behind};
use crate::error::{DecodeError, EncodeError};
use crate::messages::{TransactionLogKey, TransactionLogValue};
use crate::reader::Reader;

const TRANSACTION_LOG: i16 = 0;
const KEY_VERSION: i16 = 0;

/// The bytes of the key of a transactional id.
pub fn encode_key(transactional_id: &str) -> Result<Vec<u8>, EncodeError> {
    let key = TransactionLogKey {
        transactional_id: transactional_id.to_owned(),
    };
    encode_behind(TRANSACTION_LOG, &key, KEY_VERSION)
}

/// Reads a key. `UnknownType` means a record of a later coordinator, which a reader may skip.
pub fn decode_key(bytes: &[u8]) -> Result<String, DecodeError> {
    let mut r = Reader::new(bytes);
    match r.i16()? {
        TRANSACTION_LOG => {}
        unknown => return Err(DecodeError::UnknownType(unknown as u16 as u32)),
    }
    let key = TransactionLogKey::decode(&mut r, KEY_VERSION)?;
    r.finish()?;
    Ok(key.transactional_id)
}

/// A value in version 1, which Kafka writes from `transaction.version` 1 on and reads always.
pub fn encode_value(value: &TransactionLogValue) -> Result<Vec<u8>, EncodeError> {
    let version = TransactionLogValue::MAX_VERSION;
    encode_behind(version, value, version)
}

/// Reads a value.
pub fn decode_value(bytes: &[u8]) -> Result<TransactionLogValue, DecodeError> {
    decode_versioned(bytes)
}

/// The bytes were written by Kafka 4.4.0.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::transaction_log_value::PartitionsSchema;

    fn from_hex(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn keys_have_the_bytes_of_kafka() {
        let bytes = from_hex("000000027478");
        assert_eq!(encode_key("tx").unwrap(), bytes);
        assert_eq!(decode_key(&bytes), Ok("tx".to_owned()));
        assert_eq!(decode_key(&[0, 1, 0, 0]), Err(DecodeError::UnknownType(1)));
        for length in 0..bytes.len() {
            assert!(decode_key(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn values_have_the_bytes_of_kafka() {
        let value = TransactionLogValue {
            producer_id: 7,
            previous_producer_id: 6,
            next_producer_id: 8,
            producer_epoch: 3,
            next_producer_epoch: -1,
            transaction_timeout_ms: 60_000,
            transaction_status: 2,
            transaction_partitions: Some(vec![PartitionsSchema {
                topic: "p".into(),
                partition_ids: vec![0, 2],
            }]),
            transaction_last_update_timestamp_ms: 1_700_000_000_000,
            transaction_start_timestamp_ms: 1_699_999_999_000,
            client_transaction_version: 2,
        };
        let bytes = from_hex(
            "0001000000000000000700030000ea6002020270030000000000000002000000018bcfe568000000018bcfe564180300\
             0800000000000000060108000000000000000802020002",
        );
        assert_eq!(encode_value(&value).unwrap(), bytes);
        assert_eq!(decode_value(&bytes), Ok(value));
        for length in 0..bytes.len() {
            assert!(decode_value(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn a_producer_without_transaction_has_the_bytes_of_kafka_in_both_versions() {
        let value = TransactionLogValue {
            producer_id: 7,
            transaction_timeout_ms: 60_000,
            transaction_partitions: None,
            transaction_last_update_timestamp_ms: 1_700_000_000_000,
            transaction_start_timestamp_ms: -1,
            ..TransactionLogValue::default()
        };
        let flexible =
            from_hex("0001000000000000000700000000ea6000000000018bcfe56800ffffffffffffffff00");
        assert_eq!(encode_value(&value).unwrap(), flexible);
        assert_eq!(decode_value(&flexible), Ok(value.clone()));
        let old =
            from_hex("0000000000000000000700000000ea6000ffffffff0000018bcfe56800ffffffffffffffff");
        assert_eq!(decode_value(&old), Ok(value));
    }
}
