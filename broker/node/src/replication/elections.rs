//! What people must hear of elections: who leads without proof that nothing is lost, and where nobody can lead.

use taffrail_core::ids::TopicPartition;
use taffrail_core::metadata::{Changes, Image, why_leaderless};

use crate::broker::Broker;
use crate::env::Env;

/// How many partitions a line names; the rest is counted.
const NAMED_MAX: usize = 5;

/// The elections of one step of the metadata that somebody has to be told about.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remarkable {
    /// Leaders elected without proof that they have every acknowledged record, with the partition.
    unproven: Vec<TopicPartition>,
    /// Partitions that have lost their leader.
    leaderless: Vec<TopicPartition>,
}

impl Remarkable {
    fn between(old: &Image, new: &Image, changes: &Changes) -> Self {
        let mut found = Self::default();
        for id in &changes.partitions {
            let Some(state) = new.partition(*id) else {
                continue;
            };
            let before = old.partition(*id);
            let was_led = before.is_some_and(|before| before.leader.is_some());
            if state.elects_without_proof(before) {
                found.unproven.push(*id);
            } else if state.leader.is_none() && was_led {
                found.leaderless.push(*id);
            }
        }
        found
    }
}

impl<E: Env> Broker<E> {
    /// Tells the elections between two images. One broker tells: the new leader that it leads without proof, the active
    /// controller that nobody leads. The controller counts where it decides (`broker/node/src/cluster/quorum/task.rs`).
    pub(super) fn report_elections(&self, old: &Image, new: &Image, changes: &Changes) {
        if old.cluster_id().is_none() {
            // What happened before this broker joined was told then.
            return;
        }
        let Remarkable {
            unproven,
            leaderless,
        } = Remarkable::between(old, new, changes);
        let leads = |id: &&TopicPartition| {
            new.partition(**id)
                .is_some_and(|state| state.leader == Some(self.id))
        };
        let mine: Vec<TopicPartition> = unproven.iter().filter(leads).copied().collect();
        if !mine.is_empty() {
            tracing::warn!(
                partitions = mine.len(),
                named = named(new, &mine),
                "this broker was elected leader without proof that it has every acknowledged record"
            );
        }
        if let Some(first) = leaderless.first()
            && self.cluster.controller_id() == Some(self.id)
        {
            let why = new
                .partition(*first)
                .and_then(|state| why_leaderless(new, state));
            tracing::warn!(
                partitions = leaderless.len(),
                named = named(new, &leaderless),
                why_first = why,
                "nobody can lead"
            );
        }
    }
}

/// The first few partitions by name.
fn named(image: &Image, partitions: &[TopicPartition]) -> String {
    let named = partitions.iter().take(NAMED_MAX).map(|id| {
        let topic = image.topic(id.topic_id);
        topic.map_or_else(
            || id.to_string(),
            |topic| format!("{}-{}", topic.name, id.partition),
        )
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    if partitions.len() > NAMED_MAX {
        text.push_str(", …");
    }
    text
}

#[cfg(test)]
mod tests {
    use taffrail_core::ids::{BrokerId, LeaderEpoch, PartitionEpoch, TopicId};
    use taffrail_core::metadata::{Partition, Record};

    use super::*;

    const ID: TopicId = TopicId([1; 16]);

    fn image(leader: Option<i32>, recovering: bool, epoch: i32) -> Image {
        let state = Partition {
            replicas: vec![BrokerId(0), BrokerId(1)],
            isr: leader.map(BrokerId).into_iter().collect(),
            leader: leader.map(BrokerId),
            recovering,
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(epoch),
            ..Partition::default()
        };
        Image::replay(&[
            Record::Topic {
                topic_id: ID,
                name: "a".to_owned(),
            },
            Record::Partition {
                topic_id: ID,
                partition: 0,
                state,
            },
        ])
        .unwrap()
    }

    #[test]
    fn each_election_without_proof_is_told_once() {
        let check =
            |old: (Option<i32>, bool), new: (Option<i32>, bool), expected: (usize, usize)| {
                let (old, new) = (image(old.0, old.1, 1), image(new.0, new.1, 2));
                let found = Remarkable::between(&old, &new, &Changes::between(&old, &new));
                let told = (found.unproven.len(), found.leaderless.len());
                assert_eq!(told, expected);
            };
        check((None, false), (Some(0), true), (1, 0));
        check((Some(0), true), (Some(0), true), (0, 0));
        // Another one leads without proof, too; and the same one again after it was away.
        check((Some(0), true), (Some(1), true), (1, 0));
        check((None, true), (Some(0), true), (1, 0));
        check((Some(0), false), (Some(1), false), (0, 0));
        check((Some(0), false), (None, false), (0, 1));
        check((None, false), (None, false), (0, 0));
    }
}
