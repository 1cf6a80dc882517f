//! Coordinators whose log is Kafka's bytes: live state, the replayed log and the replayed compacted log are the same,
//! for whatever members, tools and time do. A failure names its seed.

use std::collections::BTreeMap;

use taffrail_core::group::{
    CommitPartition, Coordinator, Effect, JoinGroup, LeaveGroup, LeaveMember, OffsetCommit,
    OffsetDelete, Record, RequestToken, Settings, State, SyncGroup,
};
use taffrail_core::ids::TopicId;
use taffrail_core::time::Instant;
use taffrail_protocol::records::{Batches, RecordBatchBuilder, RecordIter, uncompressed_records};

use super::{behind, bytes};

const SEEDS: u64 = 30;
const STEPS: usize = 120;
const START_MS: i64 = 1_700_000_000_000;
const GROUPS: [&str; 3] = ["g", "another group", ""];
const TOPICS: [&str; 2] = ["t", "u"];

/// A stream of numbers from a seed (splitmix64).
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A coordinator at work, with its log.
struct Live {
    coordinator: Coordinator,
    log: Vec<u8>,
    now_ms: u64,
    tokens: u64,
    topic_ids: BTreeMap<&'static str, TopicId>,
}

impl Live {
    fn new() -> Live {
        let topic_ids = TOPICS.map(|name| (name, TopicId([name.as_bytes()[0]; 16])));
        Live {
            coordinator: replay(&[], Instant::ZERO),
            log: Vec::new(),
            now_ms: 0,
            tokens: 0,
            topic_ids: BTreeMap::from(topic_ids),
        }
    }

    fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn wall_ms(&self) -> i64 {
        START_MS + i64::try_from(self.now_ms).unwrap_or(0)
    }

    /// As a shard does: to the log in Kafka's bytes, then applied.
    fn write(&mut self, records: &[Record]) {
        for batch in bytes::batches(records, 1_000) {
            self.log
                .extend(bytes::encode(batch, self.wall_ms()).expect("records can be written"));
        }
        for record in records {
            self.coordinator.apply(record);
        }
    }

    fn step(&mut self, source: &mut Source) {
        let group_id = source.pick(&GROUPS);
        match source.below(20) {
            0..5 => self.join(source, group_id),
            5..9 => self.sync(source, group_id),
            9..13 => self.commit(source, group_id),
            13 => self.leave(source, group_id),
            14 => {
                let decision = self
                    .coordinator
                    .handle_delete_groups(&[group_id.to_owned()]);
                self.write(&decision.records);
            }
            15 => {
                let topics = vec![(source.pick(&TOPICS).to_owned(), vec![0, 1])];
                let group_id = group_id.to_owned();
                let request = OffsetDelete { group_id, topics };
                let decision = self.coordinator.handle_offset_delete(&request);
                self.write(&decision.records);
            }
            16 => self.replace_topic(source),
            17 => {
                self.coordinator = replay(&self.log, self.now());
            }
            _ => self.pass(source),
        }
    }

    fn join(&mut self, source: &mut Source, group_id: &str) {
        self.tokens += 1;
        let (member_id, group_instance_id) = match self.somebody(source, group_id) {
            Some(known) if source.one_in(2) => known,
            _ if source.one_in(3) => (String::new(), Some(format!("i{}", source.below(2)))),
            _ => (String::new(), None),
        };
        let request = JoinGroup {
            group_id: group_id.to_owned(),
            member_id,
            group_instance_id,
            client_id: "client".to_owned(),
            client_host: "/10.0.0.1".to_owned(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 20_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), b"\0\0\0\0\0\x01\0\x01t"[..].into())],
            requires_known_member_id: source.one_in(2),
            supports_skipping_assignment: true,
            random: u128::from(self.tokens),
        };
        let (now, wall_ms, token) = (self.now(), self.wall_ms(), RequestToken(self.tokens));
        let mut effects: Vec<Effect> = Vec::new();
        let records =
            self.coordinator
                .handle_join_group(now, wall_ms, token, &request, &mut effects);
        self.write(&records);
    }

    fn sync(&mut self, source: &mut Source, group_id: &str) {
        let Some((member_id, group_instance_id)) = self.somebody(source, group_id) else {
            return;
        };
        self.tokens += 1;
        let request = SyncGroup {
            group_id: group_id.to_owned(),
            generation: self.generation(group_id),
            assignments: vec![(member_id.clone(), b"mine"[..].into())],
            member_id,
            group_instance_id,
            protocol_type: None,
            protocol: None,
        };
        let (now, wall_ms, token) = (self.now(), self.wall_ms(), RequestToken(self.tokens));
        let records =
            self.coordinator
                .handle_sync_group(now, wall_ms, token, &request, &mut Vec::new());
        self.write(&records);
    }

    fn commit(&mut self, source: &mut Source, group_id: &str) {
        let member = self.somebody(source, group_id).filter(|_| source.one_in(2));
        let (member_id, group_instance_id) = member.unwrap_or_default();
        let generation = if member_id.is_empty() {
            -1
        } else {
            self.generation(group_id)
        };
        let topic = source.pick(&TOPICS);
        let offsets = (0..2).map(|partition| CommitPartition {
            topic: topic.into(),
            topic_id: self.topic_ids[topic],
            partition,
            offset: i64::try_from(source.below(1_000)).unwrap_or(0),
            leader_epoch: 3,
            metadata: source.one_in(2).then(|| "a note".to_owned()),
        });
        let offsets = offsets.collect();
        let request = OffsetCommit {
            group_id: group_id.into(),
            generation,
            member_id,
            group_instance_id,
            retention_time_ms: source.one_in(4).then_some(3_600_000),
            knows_group_id_not_found: true,
            offsets,
        };
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let decision = self
            .coordinator
            .handle_offset_commit(now, wall_ms, &request);
        self.write(&decision.records);
    }

    fn leave(&mut self, source: &mut Source, group_id: &str) {
        let Some((member_id, group_instance_id)) = self.somebody(source, group_id) else {
            return;
        };
        let request = LeaveGroup {
            group_id: group_id.to_owned(),
            members: vec![LeaveMember {
                member_id,
                group_instance_id,
            }],
        };
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let decision = self
            .coordinator
            .handle_leave_group(now, wall_ms, &request, &mut Vec::new());
        self.write(&decision.records);
    }

    /// A topic is deleted and made anew; offsets of the new one may be there already.
    fn replace_topic(&mut self, source: &mut Source) {
        let topic = source.pick(&TOPICS);
        self.tokens += 1;
        let old = self.topic_ids[topic];
        let new = TopicId(u128::from(self.tokens).to_be_bytes());
        self.topic_ids.insert(topic, new);
        self.commit(source, GROUPS[0]);
        let removed = BTreeMap::from([(old, topic.to_owned())]);
        let records = self.coordinator.handle_topics_removed(&removed);
        self.write(&records);
    }

    fn pass(&mut self, source: &mut Source) {
        const DAY_MS: u64 = 24 * 3_600_000;
        let passes_ms = [100, 3_000, 3_000, 12_000, 25_000, DAY_MS, 8 * DAY_MS];
        self.now_ms += passes_ms[source.below(passes_ms.len())];
        for _ in 0..20 {
            let due = self.coordinator.next_deadline();
            if due.is_none_or(|due| due > self.now()) {
                return;
            }
            let (now, wall_ms) = (self.now(), self.wall_ms());
            let records = self
                .coordinator
                .handle_timeout(now, wall_ms, &mut Vec::new());
            self.write(&records);
        }
    }

    /// A member, or one that was told its id, with its instance id.
    fn somebody(&self, source: &mut Source, group_id: &str) -> Option<(String, Option<String>)> {
        let classic = self.coordinator.group(group_id)?.classic();
        let members = classic.members().iter();
        let members = members.map(|(id, member)| (id.clone(), member.group_instance_id.clone()));
        let pending = classic.pending_members().map(|id| (id.to_owned(), None));
        let mut known: Vec<(String, Option<String>)> = members.chain(pending).collect();
        if known.is_empty() {
            return None;
        }
        Some(known.swap_remove(source.below(known.len())))
    }

    fn generation(&self, group_id: &str) -> i32 {
        self.coordinator
            .group(group_id)
            .map_or(-1, |group| group.classic().generation())
    }
}

fn replay(log: &[u8], now: Instant) -> Coordinator {
    let mut coordinator = Coordinator::new(Settings::default());
    for batch in Batches::new(log) {
        let (header, range) = batch.expect("a whole batch");
        bytes::apply_batch(&mut coordinator, &header, &log[range]);
    }
    coordinator.handle_loaded(now);
    coordinator
}

/// The last record of each key, in the order of keys; without tombstones as some time later.
fn compact(log: &[u8], keep_tombstones: bool) -> Vec<u8> {
    let mut last: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    for batch in Batches::new(log) {
        let (_, range) = batch.expect("a whole batch");
        let (header, records) = uncompressed_records(&log[range], 1 << 20).expect("records");
        for record in RecordIter::new(&header, &records) {
            let record = record.expect("a record");
            let key = record.key.expect("a key").to_vec();
            last.insert(key, record.value.map(<[u8]>::to_vec));
        }
    }
    let mut compacted = Vec::new();
    for (key, value) in last
        .iter()
        .filter(|(_, value)| keep_tombstones || value.is_some())
    {
        let mut batch = RecordBatchBuilder::new(0, START_MS);
        batch.push(Some(key), value.as_deref(), &[]);
        compacted.extend(batch.build());
    }
    compacted
}

#[test]
fn live_state_is_what_kafkas_bytes_say_compacted_or_not() {
    let (mut generations, mut offsets) = (0, 0);
    for seed in 0..SEEDS {
        let mut source = Source(seed);
        let mut live = Live::new();
        for step in 0..STEPS {
            live.step(&mut source);
            if step % 6 != 5 {
                continue;
            }
            let snapshot = live.coordinator.snapshot();
            let same = |log: &[u8], what: &str| {
                let replayed = replay(log, live.now()).snapshot();
                assert_eq!(replayed, snapshot, "seed {seed} step {step}: {what}");
            };
            same(&live.log, "the log");
            same(&compact(&live.log, true), "the compacted log");
            same(
                &compact(&live.log, false),
                "the compacted log without tombstones",
            );
            let stable = |group: &&&str| live.coordinator.state(group) == State::Stable;
            generations += GROUPS.iter().filter(stable).count();
            offsets += snapshot
                .iter()
                .filter(|record| matches!(record, Record::Offset { .. }))
                .count();
        }
    }
    assert!(generations > 25 && offsets > 500, "{generations} {offsets}");
}

#[test]
fn a_group_is_never_behind_by_less_than_nothing_whatever_it_committed() {
    let check = |committed, expected| assert_eq!(behind(10, committed), expected, "{committed}");
    check(4, 6);
    check(10, 0);
    check(i64::MAX, 0);
    check(-1, 11);
    check(i64::MIN, i64::MAX);
}
