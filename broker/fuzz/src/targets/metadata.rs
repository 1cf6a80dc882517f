//! What brokers read back: metadata records, the metadata log and its snapshots, groups and committed offsets, producers and
//! transactions.

use taffrail_node::fuzzing;
use taffrail_protocol::records::{EndTransactionMarker, RecordBatchBuilder};
use taffrail_protocol::{
    coordinator_records, metadata_records, producer_snapshot, transaction_records,
};

use super::{Memory, Target, decoder};

pub(super) const TARGETS: &[Target] = &[
    target("coordinator_records", coordinator_record, Vec::new),
    target("metadata_records", metadata_record, Vec::new),
    target("producer_snapshot", snapshot, Vec::new),
    target("transaction_records", transaction_record, Vec::new),
    target("transaction_marker", transaction_marker, Vec::new),
    target(
        "metadata_log",
        fuzzing::metadata_log,
        fuzzing::metadata_log_seeds,
    ),
    Target {
        // A group is more than its record: timers, sets, a copy of its name in each.
        memory: Memory {
            times: 64,
            always: 640 * 1024,
        },
        ..target("group_log", fuzzing::group_log, group_logs)
    },
];

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target {
        name,
        run,
        seeds,
        memory: Memory::THERE_AND_BACK,
    }
}

/// Batches of `__consumer_offsets`: a commit, a tombstone, a group without members.
fn group_logs() -> Vec<Vec<u8>> {
    let commit = coordinator_records::CoordinatorKey::OffsetCommit(
        taffrail_protocol::messages::OffsetCommitKey {
            group: "g".to_owned(),
            topic: "t".to_owned(),
            partition: 1,
        },
    );
    let group = coordinator_records::CoordinatorKey::GroupMetadata(
        taffrail_protocol::messages::GroupMetadataKey {
            group: "g".to_owned(),
        },
    );
    let (commit, group) = (
        commit.encode().expect("a key encodes"),
        group.encode().expect("a key encodes"),
    );
    let offset = coordinator_records::encode_offset_commit_value(&Default::default());
    let members = coordinator_records::encode_group_metadata_value(&Default::default());
    let (offset, members) = (
        offset.expect("a value encodes"),
        members.expect("a value encodes"),
    );
    let batch = |pairs: &[(&[u8], Option<&[u8]>)]| {
        let mut builder = RecordBatchBuilder::new(0, 1);
        for (key, value) in pairs {
            builder.push(Some(key), *value, &[]);
        }
        builder.build()
    };
    vec![
        batch(&[(&commit, Some(&offset)), (&group, Some(&members))]),
        batch(&[(&commit, None), (&group, None)]),
        [
            batch(&[(&group, Some(&members))]),
            batch(&[(&commit, Some(&offset))]),
        ]
        .concat(),
    ]
}

/// Keys and values of `__consumer_offsets`.
fn coordinator_record(data: &[u8]) {
    let key = decoder(data.len(), || {
        coordinator_records::CoordinatorKey::decode(data)
    });
    if let Ok(key) = key {
        let bytes = key.encode().expect("a key encodes");
        assert_eq!(coordinator_records::CoordinatorKey::decode(&bytes), Ok(key));
    }
    let _ = coordinator_records::decode_offset_commit_value(data);
    let value = || coordinator_records::decode_group_metadata_value(data);
    let _ = decoder(data.len(), value);
}

/// Keys and values of `__transaction_state`.
fn transaction_record(data: &[u8]) {
    let key = decoder(data.len(), || transaction_records::decode_key(data));
    if let Ok(key) = key {
        let bytes = transaction_records::encode_key(&key).expect("a key encodes");
        assert_eq!(bytes, data);
    }
    let value = decoder(data.len(), || transaction_records::decode_value(data));
    if let Ok(value) = value {
        let bytes = transaction_records::encode_value(&value).expect("a value encodes");
        assert_eq!(transaction_records::decode_value(&bytes), Ok(value));
    }
}

/// The marker of a control batch.
fn transaction_marker(data: &[u8]) {
    let marker = decoder(data.len(), || EndTransactionMarker::read(data));
    if let Ok(Some(marker)) = marker {
        let bytes = marker.batch(1, 2, 3);
        let again = EndTransactionMarker::read(&bytes).expect("a marker reads");
        assert_eq!(again, Some(marker));
    }
}

/// A list of metadata records.
fn metadata_record(data: &[u8]) {
    let _ = metadata_records::decode(data);
    let records = decoder(data.len(), || metadata_records::decode_all(data));
    if let Ok(records) = records {
        let bytes = metadata_records::encode_all(&records).expect("records encode");
        assert_eq!(metadata_records::decode_all(&bytes), Ok(records));
    }
}

/// A producer snapshot.
fn snapshot(data: &[u8]) {
    let entries = decoder(data.len(), || producer_snapshot::decode(data));
    if let Ok(entries) = entries {
        assert_eq!(producer_snapshot::encode(&entries).as_deref(), Ok(data));
    }
}
