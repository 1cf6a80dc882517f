//! What a seed's cluster and its topics look like.

use taffrail_core::config::ConfigMap;

use crate::random::Random;

/// The least that a segment may have: every batch of the clients fits into one.
const SEGMENT_BYTES_MIN: u64 = 8 << 10;

/// A cluster and its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Brokers; the first three vote.
    pub brokers: u32,
    /// How many of them, the last ones, join while the simulation runs.
    pub late: u32,
    /// Partitions of the topic.
    pub partitions: i32,
    /// What the topic is made with.
    pub configs: ConfigMap,
    /// Whether all batches have the same size, so that in a file that is used again old ones stand where new ones end.
    pub uniform: bool,
    /// Whether there is a second topic that comes and goes, and replicas are moved.
    pub changes: bool,
}

impl Shape {
    /// Draws one.
    pub(crate) fn draw(random: &mut Random) -> Shape {
        let brokers = match random.below(10) {
            0..5 => 3,
            5..7 => 4,
            7..9 => 5,
            _ => 6 + random.below(2) as u32,
        };
        let late = if brokers > 3 && random.chance(50) {
            1
        } else {
            0
        };
        let mut configs = ConfigMap::new();
        if random.chance(60) {
            let segment_bytes = random.between(SEGMENT_BYTES_MIN, 4 * SEGMENT_BYTES_MIN);
            configs.insert(
                "internal.segment.bytes".to_owned(),
                segment_bytes.to_string(),
            );
            if random.chance(70) {
                let kept = segment_bytes * random.between(1, 4);
                configs.insert("retention.bytes".to_owned(), kept.to_string());
            }
        }
        Shape {
            brokers,
            late,
            partitions: random.between(1, 3) as i32,
            configs,
            uniform: random.chance(50),
            changes: random.chance(50),
        }
    }
}
