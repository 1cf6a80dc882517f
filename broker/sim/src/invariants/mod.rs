//! What must hold at every moment, one file each. An invariant looks at the cluster from outside, remembers what it
//! needs, and says in one sentence what is wrong.

mod acknowledged_records;
mod committed_offsets;
mod consumer_view;
mod epoch_fence;
mod frozen_high_watermark;
mod high_watermark;
mod idempotence;
mod in_sync_records;
mod in_sync_replicas;
mod log_matching;
mod metadata_agreement;
mod one_generation;
mod one_leader;
mod readable_logs;
mod refusals;

use crate::observation::Observation;

/// Something that must hold.
pub(crate) trait Invariant {
    /// What it is called in a failure.
    fn name(&self) -> &'static str;

    /// Looks at the cluster; the error says what does not hold.
    fn check(&mut self, seen: &Observation) -> Result<(), String>;
}

/// All of them.
pub(crate) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(acknowledged_records::AcknowledgedRecords::default()),
        Box::new(committed_offsets::CommittedOffsets::default()),
        Box::new(consumer_view::ConsumerView::default()),
        Box::new(epoch_fence::EpochFence::default()),
        Box::new(frozen_high_watermark::FrozenHighWatermark::default()),
        Box::new(high_watermark::HighWatermark::default()),
        Box::new(idempotence::Idempotence::default()),
        Box::new(in_sync_records::InSyncRecords::default()),
        Box::new(in_sync_replicas::InSyncReplicas),
        Box::new(log_matching::LogMatching),
        Box::new(metadata_agreement::MetadataAgreement::default()),
        Box::new(one_generation::OneGeneration::default()),
        Box::new(one_leader::OneLeader::default()),
        Box::new(readable_logs::ReadableLogs),
        Box::new(refusals::Refusals::default()),
    ]
}
