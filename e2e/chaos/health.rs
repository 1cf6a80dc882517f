//! Whether the cluster is whole again: every broker knows all brokers, every partition is led and all its replicas are in sync.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use taffrail_e2e::wait::wait_for;
use taffrail_protocol::messages::MetadataResponse;

use crate::bed::Bed;
use crate::wire::{metadata, must_be_ready};

/// Waits until every broker is ready and tells that the cluster is whole.
///
/// Ready comes first: until a broker that was started again has registered, the others may tell of the time before it died.
pub(crate) fn wait_whole(bed: &Bed, limit: Duration) -> Result<()> {
    wait_for("the cluster to be whole", limit, || {
        for address in bed.metrics() {
            must_be_ready(&address)?;
        }
        for address in &bed.addresses() {
            must_be_whole(&metadata(address)?, bed.brokers())
                .map_err(|error| error.context(format!("as {address} tells")))?;
        }
        Ok(Some(()))
    })
}

fn must_be_whole(metadata: &MetadataResponse, brokers: usize) -> Result<()> {
    let known = metadata.brokers.len();
    ensure!(known == brokers, "{known} of {brokers} brokers are known");
    for topic in &metadata.topics {
        for partition in &topic.partitions {
            let (replicas, isr) = (&partition.replica_nodes, &partition.isr_nodes);
            ensure!(
                partition.leader_id >= 0 && isr.len() == replicas.len(),
                "{} {}: leader {}, replicas {replicas:?}, in sync {isr:?}",
                topic.name.as_deref().unwrap_or_default(),
                partition.partition_index,
                partition.leader_id,
            );
        }
    }
    Ok(())
}

/// Leader and leader epoch of each partition.
pub(crate) fn leaders(metadata: &MetadataResponse) -> BTreeMap<(String, i32), (i32, i32)> {
    let mut leaders = BTreeMap::new();
    for topic in &metadata.topics {
        for partition in &topic.partitions {
            leaders.insert(
                (
                    topic.name.clone().unwrap_or_default(),
                    partition.partition_index,
                ),
                (partition.leader_id, partition.leader_epoch),
            );
        }
    }
    leaders
}
