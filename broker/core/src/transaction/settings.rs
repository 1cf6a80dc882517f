//! The configuration of a transaction coordinator.

use std::time::Duration;

use super::record::TransactionVersion;

/// Limits and delays; Kafka's names in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest `transaction.timeout.ms` a producer may ask for, in milliseconds (`transaction.max.timeout.ms`).
    pub transaction_timeout_ms_max: i32,
    /// How long a silent transactional id is kept (`transactional.id.expiration.ms`).
    pub transactional_id_expiration: Duration,
    /// How often to look for silent ones (`transaction.remove.expired.transaction.cleanup.interval.ms`).
    pub expiration_check_interval: Duration,
    /// The rules for what the coordinator ends by itself (the finalized feature `transaction.version`).
    pub version: TransactionVersion,
    /// Transactional ids of one coordinator, which is one of the 50 partitions of `__transaction_state`.
    pub transactional_ids_max: usize,
    /// Bytes of the records of one decision, which must fit into one batch (`max.message.bytes` of the topic). Larger ones
    /// are refused, for an append that fails costs the whole coordinator a reload.
    pub batch_bytes_max: usize,
}

impl Default for Settings {
    /// Kafka's defaults, but for the limit that Kafka does not have: 200,000 transactional ids at rest, at some 400 bytes
    /// each, are 80 MB.
    fn default() -> Settings {
        Settings {
            transaction_timeout_ms_max: 900_000,
            transactional_id_expiration: Duration::from_secs(7 * 24 * 3_600),
            expiration_check_interval: Duration::from_secs(3_600),
            version: TransactionVersion::V2,
            transactional_ids_max: 200_000,
            // 1 MiB + 12 less the batch header.
            batch_bytes_max: 1_048_500,
        }
    }
}
