//! A leader beside a controller that it hears from late, twice, wrongly or not at all.

use proptest::prelude::*;

use super::leader::{LAG_TIME_MAX_MS, epoch, settings, state};
use crate::ids::{BrokerId, LeaderEpoch, PartitionEpoch};
use crate::replica::{
    AlterPartitionAnswer, BrokerStanding, Effect, FollowerFetch, Leader, LeaderLog, PartitionState,
    Proposal,
};
use crate::time::Instant;

/// Longer than a request may be on its way.
const COPY_LIVES_MS: u64 = 9_999;

#[derive(Clone, Debug)]
enum Step {
    Append(i64),
    /// Which follower, how far it moves towards the leader's end (in eighths).
    Fetch(i32, i64),
    Wait(u64),
    /// One of the proposals on the way reaches the controller; its answer goes on the way.
    Controller(prop::sample::Index),
    /// An answer on the way arrives.
    Answer(prop::sample::Index),
    /// The sender of a proposal gives up: its answer will not be heard, but a copy may still reach the controller.
    GiveUp(prop::sample::Index),
    Metadata,
    Fence(i32, bool),
    /// The controller removes a fenced broker on its own.
    Remove(i32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..5_i64).prop_map(Step::Append),
        8 => (2..4_i32, 0..9_i64).prop_map(|(broker, part)| Step::Fetch(broker, part)),
        2 => (1..LAG_TIME_MAX_MS * 2).prop_map(Step::Wait),
        4 => any::<prop::sample::Index>().prop_map(Step::Controller),
        4 => any::<prop::sample::Index>().prop_map(Step::Answer),
        1 => any::<prop::sample::Index>().prop_map(Step::GiveUp),
        2 => Just(Step::Metadata),
        1 => (2..4_i32, any::<bool>()).prop_map(|(broker, fenced)| Step::Fence(broker, fenced)),
        1 => (2..4_i32).prop_map(Step::Remove),
    ]
}

struct World {
    leader: Leader,
    now_ms: u64,
    /// What each broker's replica really holds.
    log_ends: [i64; 4],
    committed: PartitionState,
    /// On the way to the controller, with the time they were sent at.
    proposals: Vec<(u64, Proposal)>,
    answers: Vec<(u64, AlterPartitionAnswer)>,
}

impl World {
    fn new(min_isr: usize) -> World {
        let log = LeaderLog {
            log_start_offset: 0,
            log_end_offset: 0,
            flushed_offset: 0,
            high_watermark: 0,
        };
        let committed = state(1, &[1, 2, 3]);
        World {
            leader: Leader::new(
                BrokerId(1),
                &committed,
                log,
                settings(min_isr),
                Instant::ZERO,
            ),
            now_ms: 0,
            log_ends: [0; 4],
            committed,
            proposals: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let now = Instant::from_millis(self.now_ms);
        let before = self.leader.high_watermark();
        let mut effects = Vec::new();
        match step {
            Step::Append(count) => {
                self.log_ends[1] += count;
                self.leader
                    .handle_append(now, self.log_ends[1], &mut effects);
            }
            Step::Fetch(broker, part) => {
                let end = &mut self.log_ends[broker as usize];
                *end += (self.leader.log_end_offset() - *end) * part / 8;
                let fetch = FollowerFetch {
                    broker: BrokerId(broker),
                    broker_epoch: Some(epoch(broker)),
                    fetch_offset: *end,
                    log_start_offset: 0,
                    made_after: None,
                    leader_log_end_offset: self.leader.log_end_offset(),
                };
                self.leader
                    .handle_follower_fetch(now, fetch, &mut effects)
                    .unwrap();
            }
            Step::Wait(ms) => {
                self.now_ms += ms;
                let now = Instant::from_millis(self.now_ms);
                self.leader.handle_timeout(now, &mut effects);
            }
            Step::Controller(index) => {
                let now_ms = self.now_ms;
                self.proposals
                    .retain(|(sent_ms, _)| now_ms - sent_ms < COPY_LIVES_MS);
                if !self.proposals.is_empty() {
                    let (_, proposal) = self
                        .proposals
                        .swap_remove(index.index(self.proposals.len()));
                    let answer = self.decide(&proposal);
                    self.answers.push((proposal.id, answer));
                }
            }
            Step::Answer(index) => {
                if !self.answers.is_empty() {
                    let (id, answer) = self.answers.swap_remove(index.index(self.answers.len()));
                    self.leader
                        .handle_alter_partition_answer(now, id, answer, &mut effects);
                }
            }
            Step::GiveUp(index) => {
                if !self.proposals.is_empty() {
                    let id = index.get(&self.proposals).1.id;
                    self.leader.handle_alter_partition_answer(
                        now,
                        id,
                        AlterPartitionAnswer::Unknown,
                        &mut effects,
                    );
                }
            }
            Step::Metadata => {
                let committed = self.committed.clone();
                self.leader.handle_metadata(now, &committed, &mut effects);
            }
            Step::Fence(broker, fenced) => {
                let standing = &mut self.committed.replicas[broker as usize - 1].1;
                *standing = if fenced {
                    BrokerStanding::Fenced(epoch(broker))
                } else {
                    BrokerStanding::Active(epoch(broker))
                };
            }
            Step::Remove(broker) => {
                let fenced = matches!(self.standing(BrokerId(broker)), BrokerStanding::Fenced(_));
                if fenced && self.committed.isr.contains(&BrokerId(broker)) {
                    self.committed
                        .isr
                        .retain(|member| *member != BrokerId(broker));
                    self.committed.partition_epoch.0 += 1;
                }
            }
        }
        self.collect(&effects);
        self.check(before);
    }

    fn collect(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::AlterPartition(proposal) = effect {
                self.proposals.push((self.now_ms, proposal.clone()));
            }
        }
    }

    fn standing(&self, broker: BrokerId) -> BrokerStanding {
        self.committed.replicas[broker.0 as usize - 1].1
    }

    fn decide(&mut self, proposal: &Proposal) -> AlterPartitionAnswer {
        assert_eq!(proposal.leader_epoch, LeaderEpoch(4));
        if proposal.partition_epoch != self.committed.partition_epoch {
            return AlterPartitionAnswer::AwaitMetadata;
        }
        let eligible = |(broker, epoch)| self.standing(broker) == BrokerStanding::Active(epoch);
        if !proposal.new_isr.iter().copied().all(eligible) {
            return AlterPartitionAnswer::NotApplied;
        }
        self.committed.isr = proposal.new_isr.iter().map(|(broker, _)| *broker).collect();
        self.committed.partition_epoch = PartitionEpoch(self.committed.partition_epoch.0 + 1);
        AlterPartitionAnswer::Committed {
            has_eligible: false,
            leader_epoch: LeaderEpoch(4),
            partition_epoch: self.committed.partition_epoch,
            isr: self.committed.isr.clone(),
        }
    }

    fn check(&self, before: i64) {
        let leader = &self.leader;
        let high_watermark = leader.high_watermark();
        assert!(
            high_watermark >= before,
            "the high watermark never goes back"
        );
        assert!(high_watermark <= leader.log_end_offset());
        if high_watermark > before {
            assert!(
                leader.isr_len() >= leader.min_isr(),
                "it stands still under min ISR"
            );
        }
        for replica in leader
            .replicas()
            .iter()
            .filter(|replica| replica.in_isr || replica.joining)
        {
            if high_watermark > before {
                let end = replica
                    .log_end_offset
                    .expect("all of the maximal ISR have fetched");
                assert!(
                    high_watermark <= end,
                    "it is the smallest log end of the maximal ISR"
                );
            }
        }
        // Whoever the controller has in the ISR, also if the leader does not know it yet, could lead next.
        for member in &self.committed.isr {
            assert!(
                high_watermark <= self.log_ends[member.0 as usize],
                "broker {member} lacks committed records"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_was_committed_is_in_every_possible_isr(
        min_isr in 1..4_usize,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(min_isr);
        for step in steps {
            world.step(step);
        }
    }

    /// When everything works again, everyone is back in the ISR and all is committed.
    #[test]
    fn all_is_committed_once_brokers_and_controller_are_back(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new(2);
        for step in steps {
            world.step(step);
        }
        for broker in [2, 3] {
            world.step(Step::Fence(broker, false));
        }
        for _ in 0..40 {
            world.now_ms += 600;
            world.step(Step::Metadata);
            for broker in [2, 3] {
                world.step(Step::Fetch(broker, 8));
            }
            world.step(Step::Wait(1));
            // What was lost on the way turns out to be lost.
            let waiting = world.leader.proposal().map(|proposal| proposal.id);
            let mut answers = std::mem::take(&mut world.answers);
            for (_, proposal) in std::mem::take(&mut world.proposals) {
                answers.push((proposal.id, world.decide(&proposal)));
            }
            answers.extend(waiting.map(|id| (id, AlterPartitionAnswer::Unknown)));
            for (id, answer) in answers {
                let mut effects = Vec::new();
                let now = Instant::from_millis(world.now_ms);
                world.leader.handle_alter_partition_answer(now, id, answer, &mut effects);
                world.collect(&effects);
            }
        }
        prop_assert_eq!(world.committed.isr.len(), 3);
        prop_assert_eq!(world.leader.high_watermark(), world.log_ends[1]);
    }
}
