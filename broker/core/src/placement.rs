//! Where the replicas of a new topic or of new partitions go: Kafka's rotating placement, racks interleaved first.
//!
//! The brokers stand in a ring. The first replica of partition p is `start + p` steps into the ring; each further replica
//! follows at a distance from the first that depends on `shift`, which grows by one each time p has gone round the ring,
//! so that brokers that share one partition do not share them all. Five brokers 0 to 4, five partitions, three replicas,
//! `start` 3, `shift` 0:
//!
//! ```text
//! partition 0: 3 4 0     leads on the fourth broker
//! partition 1: 4 0 1     on the fifth
//! partition 2: 0 1 2     on the first
//! partition 3: 1 2 3     on the second
//! partition 4: 2 3 4     on the third
//! partition 5: 3 0 1     the ring has wrapped, the followers stand one further
//! ```
//!
//! With racks the ring takes one broker of each rack in turn, and a follower goes to the next broker whose rack holds the fewest
//! replicas of the partition: all racks get one before any gets two, as far as they have brokers. (Rule S9; the same
//! idea as Kafka's `AdminUtils.assignReplicasToBrokers`.)

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::BrokerId;

/// A broker that replicas may be placed on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementBroker {
    /// Its id.
    pub id: BrokerId,
    /// Its rack. Racks count only if every broker has one.
    pub rack: Option<String>,
}

/// Why nothing was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Two replicas of a partition never share a broker.
    #[error(
        "replication factor {replication_factor} is larger than the number of brokers, {brokers}"
    )]
    TooFewBrokers {
        /// What was asked for.
        replication_factor: usize,
        /// How many distinct brokers there are.
        brokers: usize,
    },
    /// A partition without replicas holds nothing.
    #[error("the replication factor must be at least 1")]
    NoReplicas,
}

/// The replica lists of partitions `first` to `first + count - 1` of a topic, the preferred leader first.
///
/// `brokers` may come in any order; their ids are distinct. `start` and `shift` may be any number: they count round the ring.
pub fn place(
    brokers: &[PlacementBroker],
    first: usize,
    count: usize,
    replication_factor: usize,
    start: usize,
    shift: usize,
) -> Result<Vec<Vec<BrokerId>>, PlacementError> {
    let ring = Ring::new(brokers);
    ring.check(replication_factor)?;
    let partitions = first..first.saturating_add(count);
    let placed =
        partitions.map(|partition| ring.replicas(partition, replication_factor, start, shift));
    Ok(placed.collect())
}

/// The replica lists of `count` partitions added to a topic that has `first`, going on with the rotation that its partition 0
/// shows. Where that has left the ring since, the rotation starts at the next broker that is in it.
pub fn place_more(
    brokers: &[PlacementBroker],
    partition_0: &[BrokerId],
    first: usize,
    count: usize,
    replication_factor: usize,
) -> Result<Vec<Vec<BrokerId>>, PlacementError> {
    let ring = Ring::new(brokers);
    ring.check(replication_factor)?;
    let (start, shift) = ring.rotation_of(partition_0);
    place(brokers, first, count, replication_factor, start, shift)
}

/// A start and a shift for `place` that look random but are always the same for the same seed, such as the UID of a
/// Kubernetes object.
pub fn start_and_shift(seed: &[u8]) -> (usize, usize) {
    // FNV-1a, then split: both halves depend on all bytes.
    let hash = seed.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = mixed ^ (mixed >> 33);
    ((mixed >> 32) as usize, (mixed & 0xffff_ffff) as usize)
}

struct Ring {
    brokers: Vec<RingBroker>,
    rack_sizes: Vec<usize>,
}

#[derive(Clone, Copy)]
struct RingBroker {
    id: BrokerId,
    rack: usize,
}

impl Ring {
    fn new(brokers: &[PlacementBroker]) -> Self {
        let racks_count = brokers.iter().all(|broker| broker.rack.is_some());
        let mut racks: BTreeMap<&str, BTreeSet<BrokerId>> = BTreeMap::new();
        for broker in brokers {
            let rack = broker.rack.as_deref().filter(|_| racks_count);
            racks
                .entry(rack.unwrap_or(""))
                .or_default()
                .insert(broker.id);
        }
        let racks: Vec<Vec<BrokerId>> = racks
            .into_values()
            .map(|ids| ids.into_iter().collect())
            .collect();
        let rack_sizes: Vec<usize> = racks.iter().map(Vec::len).collect();
        let rounds = rack_sizes.iter().copied().max().unwrap_or(0);
        let in_turn = (0..rounds).flat_map(|round| {
            let of_round = racks.iter().enumerate();
            of_round.filter_map(move |(rack, ids)| {
                Some(RingBroker {
                    id: *ids.get(round)?,
                    rack,
                })
            })
        });
        Self {
            brokers: in_turn.collect(),
            rack_sizes,
        }
    }

    fn check(&self, replication_factor: usize) -> Result<(), PlacementError> {
        if replication_factor == 0 {
            return Err(PlacementError::NoReplicas);
        }
        if replication_factor > self.brokers.len() {
            return Err(PlacementError::TooFewBrokers {
                replication_factor,
                brokers: self.brokers.len(),
            });
        }
        Ok(())
    }

    /// The replicas of one partition. `check` has passed.
    fn replicas(
        &self,
        partition: usize,
        replication_factor: usize,
        start: usize,
        shift: usize,
    ) -> Vec<BrokerId> {
        let size = self.brokers.len();
        let first = (start % size + partition % size) % size;
        let mut replicas = vec![self.brokers[first].id];
        let mut in_rack = vec![0_usize; self.rack_sizes.len()];
        in_rack[self.brokers[first].rack] += 1;
        if size == 1 {
            return replicas;
        }
        // Distances from the first replica go 1 to size - 1, round and round, beginning at the shift.
        let others = size - 1;
        let mut distance = (shift % others + (partition / size) % others) % others;
        while replicas.len() < replication_factor {
            let fewest = self.fewest_in_a_rack_with_room(&in_rack);
            let broker = loop {
                let broker = self.brokers[(first + 1 + distance) % size];
                distance = (distance + 1) % others;
                if in_rack[broker.rack] == fewest && !replicas.contains(&broker.id) {
                    break broker;
                }
            };
            replicas.push(broker.id);
            in_rack[broker.rack] += 1;
        }
        replicas
    }

    fn fewest_in_a_rack_with_room(&self, in_rack: &[usize]) -> usize {
        let racks = in_rack.iter().zip(&self.rack_sizes);
        let with_room = racks
            .filter(|(used, size)| used < size)
            .map(|(used, _)| *used);
        with_room
            .min()
            .expect("fewer replicas than brokers are placed")
    }

    /// The start and shift that give partition 0 these replicas, or come closest to it.
    fn rotation_of(&self, partition_0: &[BrokerId]) -> (usize, usize) {
        let size = self.brokers.len();
        let Some(first) = partition_0.first() else {
            return (0, 0);
        };
        let position = |id: BrokerId| self.brokers.iter().position(|broker| broker.id == id);
        let start = position(*first).unwrap_or_else(|| {
            // Its broker is gone: the next higher id takes its place, or the lowest.
            let ids = self.brokers.iter().map(|broker| broker.id);
            let heir = ids
                .clone()
                .filter(|id| id > first)
                .min()
                .or_else(|| ids.min());
            heir.and_then(position).unwrap_or(0)
        });
        let replication_factor = partition_0.len().min(size);
        let follows = |shift: usize, count: usize| {
            let placed = self.replicas(0, count, start, shift);
            placed[1..] == partition_0[1..count]
        };
        let shifts = 0..size.saturating_sub(1);
        let exact = shifts
            .clone()
            .find(|shift| follows(*shift, replication_factor));
        let nearly = || {
            shifts
                .clone()
                .find(|shift| follows(*shift, replication_factor.min(2)))
        };
        (start, exact.or_else(nearly).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn brokers(racks: &[&str]) -> Vec<PlacementBroker> {
        let with_ids = (0..).zip(racks);
        let broker = |(id, rack): (i32, &&str)| PlacementBroker {
            id: BrokerId(id),
            rack: (!rack.is_empty()).then(|| (*rack).to_owned()),
        };
        with_ids.map(broker).collect()
    }

    fn text(placed: &[Vec<BrokerId>]) -> String {
        let list = |replicas: &Vec<BrokerId>| {
            let ids: Vec<String> = replicas.iter().map(BrokerId::to_string).collect();
            ids.join("")
        };
        placed.iter().map(list).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn golden_tables() {
        let check = |racks: &[&str], count, replication_factor, start, shift, expected: &str| {
            let placed = place(&brokers(racks), 0, count, replication_factor, start, shift);
            assert_eq!(
                text(&placed.unwrap()),
                expected,
                "{racks:?} {start} {shift}"
            );
        };
        let none_of_5 = ["", "", "", "", ""];
        // The worked example of S9: the first on the fourth broker, so the second on the fifth, the third on the first.
        check(&none_of_5, 5, 1, 3, 0, "3 4 0 1 2");
        check(&none_of_5, 6, 3, 3, 0, "340 401 012 123 234 301");
        // Kafka's own example in the comment of AdminUtils: 5 brokers, 10 partitions, shift 0.
        check(
            &none_of_5,
            10,
            3,
            0,
            0,
            "012 123 234 340 401 023 134 240 301 412",
        );
        check(&none_of_5, 5, 3, 0, 3, "041 102 213 324 430");
        check(&["", "", ""], 3, 3, 1, 1, "102 210 021");
        check(&[""], 3, 1, 7, 9, "0 0 0");
        // Racks a: 0 3, b: 1 4, c: 2 5; the ring is 0 1 2 3 4 5.
        let three_racks = ["a", "b", "c", "a", "b", "c"];
        check(&three_racks, 6, 3, 0, 0, "012 123 234 345 450 501");
        check(&three_racks, 6, 3, 0, 2, "045 150 201 312 423 534");
        // Racks a: 0 1, b: 2 3; the ring is 0 2 1 3.
        check(&["a", "a", "b", "b"], 4, 2, 0, 0, "02 21 13 30");
        check(&["a", "a", "b", "b"], 4, 3, 0, 0, "021 213 130 302");
        // One broker without a rack, and no rack counts.
        check(&["a", "a", "", "b"], 4, 2, 0, 0, "01 12 23 30");
        // More replicas than racks: the second of a rack only after each has one.
        check(&["a", "a", "a", "b"], 2, 3, 0, 0, "031 312");
    }

    #[test]
    fn refusals() {
        let check = |count: usize, replication_factor, expected| {
            let placed = place(&brokers(&vec![""; count]), 0, 1, replication_factor, 0, 0);
            assert_eq!(placed.unwrap_err(), expected);
        };
        let too_few = |replication_factor, brokers| PlacementError::TooFewBrokers {
            replication_factor,
            brokers,
        };
        check(2, 3, too_few(3, 2));
        check(0, 1, too_few(1, 0));
        check(3, 0, PlacementError::NoReplicas);
    }

    #[test]
    fn a_topic_whose_first_broker_is_gone_still_grows() {
        let check = |partition_0: &[i32], expected: &str| {
            let partition_0: Vec<_> = partition_0.iter().copied().map(BrokerId).collect();
            let placed = place_more(&brokers(&["", "", ""]), &partition_0, 1, 2, 2);
            assert_eq!(text(&placed.unwrap()), expected);
        };
        check(&[0, 1], "12 20");
        check(&[0, 2], "10 21");
        check(&[7, 1], "12 20");
        check(&[-1, 1], "12 20");
        check(&[], "12 20");
        check(&[1, 9, 8, 7], "20 01");
    }

    proptest! {
        #[test]
        fn placement_is_balanced_distinct_and_spread(
            racks in prop::collection::vec(0_u8..4, 1..12),
            with_racks: bool,
            count in 1_usize..60,
            factor in 1_usize..12,
            start: usize,
            shift: usize,
        ) {
            let names: Vec<String> = racks.iter().map(|rack| if with_racks { format!("r{rack}") } else { String::new() }).collect();
            let brokers = brokers(&names.iter().map(String::as_str).collect::<Vec<_>>());
            let factor = 1 + (factor - 1) % brokers.len();
            let placed = place(&brokers, 0, count, factor, start, shift).unwrap();
            prop_assert_eq!(placed.len(), count);
            let rack_of = |id: BrokerId| &names[id.0 as usize];
            let mut sizes: BTreeMap<&String, usize> = BTreeMap::new();
            for name in &names {
                *sizes.entry(name).or_default() += 1;
            }
            let mut leads = vec![0_usize; brokers.len()];
            for replicas in &placed {
                leads[replicas[0].0 as usize] += 1;
                let distinct: BTreeSet<_> = replicas.iter().collect();
                prop_assert_eq!(distinct.len(), factor);
                let mut used: BTreeMap<&String, usize> = BTreeMap::new();
                for replica in replicas {
                    *used.entry(rack_of(*replica)).or_default() += 1;
                }
                // No rack holds two more than another that had room.
                for (rack, size) in &sizes {
                    let here = used.get(rack).copied().unwrap_or(0);
                    let most = used.values().copied().max().unwrap_or(0);
                    prop_assert!(here == *size || here + 1 >= most, "{:?} {:?}", used, sizes);
                }
            }
            let (least, most) = (leads.iter().min().unwrap(), leads.iter().max().unwrap());
            prop_assert!(most - least <= 1, "leaders are balanced: {:?}", leads);
        }

        #[test]
        fn added_partitions_go_on_as_if_they_had_been_there_at_once(
            racks in prop::collection::vec(0_u8..3, 1..9),
            factor in 1_usize..9,
            before in 1_usize..20,
            added in 1_usize..20,
            start: usize,
            shift: usize,
        ) {
            let names: Vec<String> = racks.iter().map(|rack| format!("r{rack}")).collect();
            let brokers = brokers(&names.iter().map(String::as_str).collect::<Vec<_>>());
            let factor = 1 + (factor - 1) % brokers.len();
            let all = place(&brokers, 0, before + added, factor, start, shift).unwrap();
            let more = place_more(&brokers, &all[0], before, added, factor).unwrap();
            // Several shifts may give partition 0 the same replicas when racks are uneven; leaders always go on.
            let leaders = |placed: &[Vec<BrokerId>]| placed.iter().map(|replicas| replicas[0]).collect::<Vec<_>>();
            prop_assert_eq!(leaders(&more), leaders(&all[before..]));
        }

        #[test]
        fn without_racks_added_partitions_are_exactly_those(
            size in 1_usize..9, factor in 2_usize..9, before in 1_usize..20, added in 1_usize..20, start: usize, shift: usize,
        ) {
            let brokers = brokers(&vec![""; size]);
            let factor = 1 + (factor - 1) % brokers.len();
            prop_assume!(factor > 1 || size == 1);
            let all = place(&brokers, 0, before + added, factor, start, shift).unwrap();
            let more = place_more(&brokers, &all[0], before, added, factor).unwrap();
            prop_assert_eq!(&more[..], &all[before..]);
        }
    }
}
