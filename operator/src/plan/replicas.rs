//! New replicas of a partition whose replication factor changes: what is there stays where it can.

use taffrail_core::ids::BrokerId;
use taffrail_core::placement::{PlacementBroker, PlacementError, place};

use crate::observed::ObservedPartition;

/// The replicas of partition `index` at another replication factor.
///
/// When the factor falls, those in sync stay before others, and among equals the order of the assignment decides: the
/// first stays first unless it is not in sync, since a move to replicas that are all down would never end. When the
/// factor grows, the new ones stand where the rotation that starts at the first replica would have put them, so that
/// they spread over brokers and racks as those of a new topic do.
pub(super) fn replicas_for_factor(
    ring: &[PlacementBroker],
    index: usize,
    partition: &ObservedPartition,
    factor: usize,
) -> Result<Vec<BrokerId>, PlacementError> {
    let mut replicas = partition.replicas.clone();
    if replicas.len() > factor {
        replicas.sort_by_key(|broker| !partition.isr.contains(broker));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_replicas_are_those_in_sync() {
        for (replicas, isr, factor, expected) in [
            (vec![0, 1, 2], vec![0, 1, 2], 1, vec![0]),
            (vec![0, 1, 2], vec![0, 2], 2, vec![0, 2]),
            // The first is dead: a move to it alone would never end.
            (vec![0, 1, 2], vec![1, 2], 1, vec![1]),
            (vec![0, 1, 2], vec![2], 2, vec![2, 0]),
        ] {
            let partition = ObservedPartition {
                leader: isr.first().copied(),
                replicas: replicas.clone(),
                isr: isr.clone(),
                moves_to: None,
            };
            let placed = replicas_for_factor(&[], 0, &partition, factor).expect("fewer");
            let placed: Vec<i32> = placed.into_iter().map(|broker| broker.0).collect();
            assert_eq!(placed, expected, "{replicas:?} {isr:?} {factor}");
        }
    }
}
