//! New replicas of a partition whose replication factor changes: what is there stays where it can.

use taffrail_core::ids::BrokerId;
use taffrail_core::placement::{PlacementBroker, PlacementError, place};

use crate::observed::ObservedPartition;

/// The replicas of partition `index` at another replication factor.
///
/// The first replica stays first. When the factor falls, those in sync stay before others. When it grows, the new
/// ones stand where the rotation that starts at the first replica would have put them, so that they spread over
/// brokers and racks as those of a new topic do.
pub(super) fn replicas_for_factor(
    ring: &[PlacementBroker],
    index: usize,
    partition: &ObservedPartition,
    factor: usize,
) -> Result<Vec<BrokerId>, PlacementError> {
    let mut replicas = partition.replicas.clone();
    if replicas.len() > factor {
        let first = replicas.first().copied();
        // Stable, so that among equals the order of the assignment decides.
        replicas.sort_by_key(|broker| (Some(*broker) != first, !partition.isr.contains(broker)));
        replicas.truncate(factor);
    } else {
        for candidate in candidates(ring, index, replicas.first().copied())? {
            if replicas.len() >= factor {
                break;
            }
            if !replicas.contains(&candidate.0) {
                replicas.push(candidate.0);
            }
        }
    }
    Ok(replicas.into_iter().map(BrokerId).collect())
}

/// All brokers in the order in which a rotation that starts at `first` takes them.
fn candidates(
    ring: &[PlacementBroker],
    index: usize,
    first: Option<i32>,
) -> Result<Vec<BrokerId>, PlacementError> {
    for start in 0..ring.len() {
        let placed = place(ring, index, 1, ring.len(), start, 0)?;
        let Some(order) = placed.into_iter().next() else {
            break;
        };
        if first.is_none() || order.first().map(|broker| broker.0) == first {
            return Ok(order);
        }
    }
    // The first replica's broker has left the ring: any order will do, as long as it is always the same.
    let placed = place(ring, index, 1, ring.len(), 0, 0)?;
    Ok(placed.into_iter().next().unwrap_or_default())
}
