//! Where a transaction coordinator's records meet their bytes: Kafka's formats, one batch per decision.

use std::collections::{BTreeMap, BTreeSet};

use taffrail_core::ids::ProducerId;
use taffrail_core::transaction::{
    Coordinator, Record, State, TransactionPartition, TransactionValue, TransactionVersion,
};
use taffrail_protocol::messages::TransactionLogValue;
use taffrail_protocol::messages::transaction_log_value::PartitionsSchema;
use taffrail_protocol::records::{BatchHeader, RecordBatchBuilder};
use taffrail_protocol::transaction_records::{decode_key, decode_value, encode_key, encode_value};
use taffrail_protocol::{DecodeError, EncodeError};

use crate::coordinator_batch::for_each_record;

/// What Kafka writes for a producer id that there is not.
const NONE: i64 = -1;

/// Why a record says nothing to this coordinator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Its bytes are not those of a transactional id.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It has a state that is never in the log.
    #[error("unknown transaction state {0}")]
    UnknownState(i8),
    /// It was written by rules that are not known here.
    #[error("unknown transaction.version {0}")]
    UnknownVersion(i16),
}

/// One batch of records.
///
/// # Errors
/// If a string or a list is longer than Kafka's format can count.
pub fn encode(records: &[Record], wall_ms: i64) -> Result<Vec<u8>, EncodeError> {
    let mut batch = RecordBatchBuilder::new(0, wall_ms);
    for record in records {
        let key = encode_key(&record.transactional_id)?;
        let value = record.value.as_ref().map(log_value);
        let value = value.as_ref().map(encode_value).transpose()?;
        batch.push(Some(&key), value.as_deref(), &[]);
    }
    Ok(batch.build())
}

/// Applies every record of a batch.
pub fn apply_batch(coordinator: &mut Coordinator, header: &BatchHeader, batch: &[u8]) {
    for_each_record(header, batch, decode, |record| coordinator.apply(&record));
}

/// Reads one record.
///
/// # Errors
/// [`RecordError`] if it is not one of a transactional id, or says what no coordinator of this version writes.
pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Record, RecordError> {
    let transactional_id = decode_key(key)?;
    let value = match value {
        Some(bytes) => Some(transaction_value(decode_value(bytes)?)?),
        None => None,
    };
    Ok(Record {
        transactional_id,
        value,
    })
}

// Both values are taken apart with all of their fields, so that one that is added cannot be left unread or unwritten.

fn log_value(value: &TransactionValue) -> TransactionLogValue {
    let TransactionValue {
        producer_id,
        previous_producer_id,
        next_producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        last_update_ms,
        start_ms,
        client_version,
    } = value;
    TransactionLogValue {
        producer_id: producer_id.0,
        previous_producer_id: previous_producer_id.map_or(NONE, |id| id.0),
        next_producer_id: next_producer_id.map_or(NONE, |id| id.0),
        producer_epoch: *producer_epoch,
        next_producer_epoch: -1,
        transaction_timeout_ms: *timeout_ms,
        transaction_status: state.id(),
        // Kafka has no list, rather than an empty one, where there was no transaction.
        transaction_partitions: (*state != State::Empty).then(|| by_topic(partitions)),
        transaction_last_update_timestamp_ms: *last_update_ms,
        transaction_start_timestamp_ms: *start_ms,
        client_transaction_version: client_version.level(),
    }
}

fn by_topic(partitions: &BTreeSet<TransactionPartition>) -> Vec<PartitionsSchema> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for TransactionPartition { topic, partition } in partitions {
        topics.entry(topic).or_default().push(*partition);
    }
    let schema = |(topic, partition_ids): (&str, Vec<i32>)| PartitionsSchema {
        topic: topic.to_owned(),
        partition_ids,
    };
    topics.into_iter().map(schema).collect()
}

fn transaction_value(value: TransactionLogValue) -> Result<TransactionValue, RecordError> {
    let TransactionLogValue {
        producer_id,
        previous_producer_id,
        next_producer_id,
        producer_epoch,
        // Always −1: where the producer goes on, it does so with epoch 0.
        next_producer_epoch: _,
        transaction_timeout_ms,
        transaction_status,
        transaction_partitions,
        transaction_last_update_timestamp_ms,
        transaction_start_timestamp_ms,
        client_transaction_version,
    } = value;
    let present = |id: i64| (id != NONE).then_some(ProducerId(id));
    let state =
        State::from_id(transaction_status).ok_or(RecordError::UnknownState(transaction_status))?;
    let client_version = TransactionVersion::from_level(client_transaction_version)
        .ok_or(RecordError::UnknownVersion(client_transaction_version))?;
    let mut partitions = BTreeSet::new();
    for PartitionsSchema {
        topic,
        partition_ids,
    } in transaction_partitions.unwrap_or_default()
    {
        let of_topic = |partition| TransactionPartition::new(topic.clone(), partition);
        partitions.extend(partition_ids.into_iter().map(of_topic));
    }
    Ok(TransactionValue {
        producer_id: ProducerId(producer_id),
        previous_producer_id: present(previous_producer_id),
        next_producer_id: present(next_producer_id),
        producer_epoch,
        timeout_ms: transaction_timeout_ms,
        state,
        partitions,
        last_update_ms: transaction_last_update_timestamp_ms,
        start_ms: transaction_start_timestamp_ms,
        client_version,
    })
}

#[cfg(test)]
mod tests {
    use taffrail_core::transaction::Settings;

    use super::*;

    fn value(state: State) -> TransactionValue {
        let partitions = [("q", 1), ("p", 2), ("p", 0)]
            .map(|(topic, partition)| TransactionPartition::new(topic, partition));
        TransactionValue {
            producer_id: ProducerId(7),
            previous_producer_id: Some(ProducerId(6)),
            next_producer_id: Some(ProducerId(8)),
            producer_epoch: 3,
            timeout_ms: 60_000,
            state,
            partitions: BTreeSet::from(partitions),
            last_update_ms: 1_700_000_000_000,
            start_ms: 1_699_999_999_000,
            client_version: TransactionVersion::V2,
        }
    }

    fn record(transactional_id: &str, value: Option<TransactionValue>) -> Record {
        Record {
            transactional_id: transactional_id.to_owned(),
            value,
        }
    }

    fn without_transaction() -> TransactionValue {
        TransactionValue {
            previous_producer_id: None,
            next_producer_id: None,
            partitions: BTreeSet::new(),
            start_ms: -1,
            client_version: TransactionVersion::V0,
            ..value(State::Empty)
        }
    }

    /// A coordinator that has read a log of these batches.
    fn loaded(batches: &[Vec<u8>]) -> Coordinator {
        let mut coordinator = Coordinator::new(Settings::default());
        for batch in batches {
            let header = BatchHeader::parse(batch).unwrap();
            apply_batch(&mut coordinator, &header, batch);
        }
        coordinator
    }

    #[test]
    fn a_coordinator_reads_back_every_state_as_it_was_written() {
        let mut records = vec![record("without", Some(without_transaction()))];
        for state in State::ALL.into_iter().filter(|it| *it != State::Empty) {
            records.push(record(state.name(), Some(value(state))));
        }
        let coordinator = loaded(&[encode(&records, 1).unwrap()]);
        records.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        assert_eq!(coordinator.snapshot(), records);
    }

    #[test]
    fn a_tombstone_forgets_the_id_and_no_other() {
        let both = [
            record("a", Some(without_transaction())),
            record("b", Some(without_transaction())),
        ];
        let batches = [&both[..], &[record("a", None)]].map(|it| encode(it, 1).unwrap());
        assert_eq!(loaded(&batches).snapshot(), both[1..]);
    }

    #[test]
    fn a_value_has_the_fields_of_kafka() {
        let written = log_value(&value(State::PrepareCommit));
        let partitions =
            [("p", vec![0, 2]), ("q", vec![1])].map(|(topic, partition_ids)| PartitionsSchema {
                topic: topic.to_owned(),
                partition_ids,
            });
        let expected = TransactionLogValue {
            producer_id: 7,
            previous_producer_id: 6,
            next_producer_id: 8,
            producer_epoch: 3,
            next_producer_epoch: -1,
            transaction_timeout_ms: 60_000,
            transaction_status: 2,
            transaction_partitions: Some(partitions.to_vec()),
            transaction_last_update_timestamp_ms: 1_700_000_000_000,
            transaction_start_timestamp_ms: 1_699_999_999_000,
            client_transaction_version: 2,
        };
        assert_eq!(written, expected);
    }

    #[test]
    fn where_there_was_no_transaction_kafka_has_no_list_of_partitions() {
        let empty = log_value(&without_transaction());
        assert_eq!(empty.transaction_partitions, None);
        assert_eq!(
            (empty.previous_producer_id, empty.next_producer_id),
            (-1, -1)
        );
        let done = TransactionValue {
            state: State::CompleteAbort,
            ..without_transaction()
        };
        assert_eq!(log_value(&done).transaction_partitions, Some(Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_the_rest_stands() {
        let dead = TransactionLogValue {
            transaction_status: 6,
            ..log_value(&without_transaction())
        };
        let later = TransactionLogValue {
            client_transaction_version: 3,
            ..log_value(&without_transaction())
        };
        let (dead, later) = (encode_value(&dead).unwrap(), encode_value(&later).unwrap());
        let key = encode_key("tx").unwrap();
        assert_eq!(decode(&key, Some(&dead)), Err(RecordError::UnknownState(6)));
        assert_eq!(
            decode(&key, Some(&later)),
            Err(RecordError::UnknownVersion(3))
        );
        let known = record("known", Some(without_transaction()));
        let known_value = encode_value(&log_value(&without_transaction())).unwrap();
        let mut batch = RecordBatchBuilder::new(0, 1);
        batch.push(Some(&key), Some(&dead), &[]);
        batch.push(Some(&key), Some(&later), &[]);
        batch.push(Some(&key), Some(&[]), &[]);
        batch.push(Some(&[0, 9]), None, &[]);
        batch.push(None, None, &[]);
        batch.push(Some(&encode_key("known").unwrap()), Some(&known_value), &[]);
        assert_eq!(loaded(&[batch.build()]).snapshot(), [known]);
    }

    #[test]
    fn a_batch_that_is_none_is_left_out() {
        let known = record("known", Some(without_transaction()));
        let mut batch = encode(std::slice::from_ref(&known), 1).unwrap();
        let header = BatchHeader::parse(&batch).unwrap();
        batch.truncate(batch.len() - 1);
        let mut coordinator = Coordinator::new(Settings::default());
        apply_batch(&mut coordinator, &header, &batch);
        assert_eq!(coordinator.snapshot(), []);
    }
}
