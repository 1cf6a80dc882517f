//! How much memory a group coordinator takes for a request: a small multiple of the bytes that arrived, however often the
//! request names the same thing.

use taffrail_allocation::{Counting, measure};
use taffrail_core::error::ErrorKind;
use taffrail_core::group::{
    CommitPartition, Coordinator, OffsetCommit, OffsetDelete, Settings, WantedOffsets,
};
use taffrail_core::ids::TopicId;
use taffrail_core::time::Instant;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// As many partitions as a request of a few hundred kilobytes names.
const PARTITIONS: i32 = 20_000;

fn coordinator() -> Coordinator {
    let mut coordinator = Coordinator::new(Settings::default());
    coordinator.handle_loaded(Instant::ZERO);
    coordinator
}

fn commit(group_id: &str, partitions: impl Iterator<Item = i32>) -> OffsetCommit {
    let topic = "t".into();
    let offsets = partitions.map(|partition| CommitPartition {
        topic: std::sync::Arc::clone(&topic),
        topic_id: TopicId::ZERO,
        partition,
        offset: 5,
        leader_epoch: -1,
        metadata: None,
    });
    OffsetCommit {
        group_id: group_id.into(),
        generation: -1,
        member_id: String::new(),
        group_instance_id: None,
        retention_time_ms: None,
        knows_group_id_not_found: true,
        offsets: offsets.collect(),
    }
}

#[test]
fn a_long_name_of_a_topic_is_not_copied_for_each_of_its_partitions() {
    let coordinator = coordinator();
    let wanted = [WantedOffsets {
        topic: "x".repeat(30_000),
        topic_id: TopicId::ZERO,
        partitions: (0..PARTITIONS).collect(),
    }];
    let (fetched, taken) = measure(|| coordinator.fetch_offsets("g", Some(&wanted)));
    assert_eq!(fetched[0].partitions.len(), wanted[0].partitions.len());
    assert!(taken.peak < 4_000_000, "{taken:?}");
}

#[test]
fn a_long_group_id_is_not_copied_for_each_offset_and_what_cannot_be_written_is_not_made() {
    let mut coordinator = coordinator();
    let requests = [
        commit(&"g".repeat(32_000), 0..PARTITIONS),
        commit("g", std::iter::repeat_n(0, 20_000)),
    ];
    for request in requests {
        let (decision, taken) =
            measure(|| coordinator.handle_offset_commit(Instant::ZERO, 0, &request));
        let refusal = Some(ErrorKind::InvalidCommitOffsetSize);
        assert!(decision.reply.iter().all(|error| *error == refusal));
        assert_eq!(decision.reply.len(), request.offsets.len());
        assert!(taken.peak < 4_000_000, "{taken:?}");
    }
}

#[test]
fn an_offset_that_is_deleted_again_and_again_has_one_tombstone() {
    let mut coordinator = coordinator();
    let decision = coordinator.handle_offset_commit(Instant::ZERO, 0, &commit("g", 0..1));
    decision
        .records
        .iter()
        .for_each(|record| coordinator.apply(record));
    let request = OffsetDelete {
        group_id: "g".to_owned(),
        topics: vec![("t".to_owned(), vec![0; 100_000]); 2],
    };
    let (decision, taken) = measure(|| coordinator.handle_offset_delete(&request));
    assert_eq!(decision.records.len(), 1);
    assert!(taken.peak < 4_000_000, "{taken:?}");
}
