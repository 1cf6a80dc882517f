//! A coordinator with its log, and clients that say what they want in one line.

use std::collections::BTreeMap;

use crate::error::ErrorKind;
use crate::group::*;
use crate::ids::TopicId;
use crate::time::Instant;

pub(super) const WALL_MS: i64 = 1_700_000_000_000;

pub(super) struct World {
    pub(super) coordinator: Coordinator,
    pub(super) log: Vec<Record>,
    pub(super) now_ms: u64,
    tokens: u64,
    joined: BTreeMap<u64, JoinReply>,
    synced: BTreeMap<u64, SyncReply>,
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::from(text.as_bytes())
}

pub(super) fn join(member_id: &str) -> JoinGroup {
    JoinGroup {
        group_id: "g".to_owned(),
        member_id: member_id.to_owned(),
        group_instance_id: None,
        client_id: "c".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), bytes("m"))],
        requires_known_member_id: false,
        supports_skipping_assignment: true,
        random: 0,
    }
}

pub(super) fn sync(member_id: &str, generation: i32, assignments: &[(&str, &str)]) -> SyncGroup {
    SyncGroup {
        group_id: "g".to_owned(),
        generation,
        member_id: member_id.to_owned(),
        group_instance_id: None,
        protocol_type: None,
        protocol: None,
        assignments: assignments
            .iter()
            .map(|(member, part)| ((*member).to_owned(), bytes(part)))
            .collect(),
    }
}

pub(super) fn commit(
    member_id: &str,
    generation: i32,
    offsets: &[(&str, i32, i64)],
) -> OffsetCommit {
    OffsetCommit {
        group_id: "g".into(),
        generation,
        member_id: member_id.to_owned(),
        group_instance_id: None,
        retention_time_ms: None,
        knows_group_id_not_found: true,
        offsets: offsets
            .iter()
            .map(|(topic, partition, offset)| CommitPartition {
                topic: (*topic).into(),
                topic_id: crate::ids::TopicId::ZERO,
                partition: *partition,
                offset: *offset,
                leader_epoch: 3,
                metadata: Some("note".to_owned()),
            })
            .collect(),
    }
}

impl World {
    pub(super) fn new(settings: Settings) -> World {
        let mut coordinator = Coordinator::new(settings);
        coordinator.handle_loaded(Instant::ZERO);
        World {
            coordinator,
            log: Vec::new(),
            now_ms: 0,
            tokens: 0,
            joined: BTreeMap::new(),
            synced: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    pub(super) fn wall_ms(&self) -> i64 {
        WALL_MS + self.now_ms as i64
    }

    pub(super) fn join(&mut self, request: &JoinGroup) -> u64 {
        self.tokens += 1;
        let token = RequestToken(self.tokens);
        let mut effects = Vec::new();
        // Each member gets an id that ends in the number of the request that asked for it.
        let request = JoinGroup {
            random: u128::from(self.tokens),
            ..request.clone()
        };
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let records =
            self.coordinator
                .handle_join_group(now, wall_ms, token, &request, &mut effects);
        self.finish(records, effects);
        self.tokens
    }

    pub(super) fn sync(&mut self, request: &SyncGroup) -> u64 {
        self.tokens += 1;
        let token = RequestToken(self.tokens);
        let mut effects = Vec::new();
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let records =
            self.coordinator
                .handle_sync_group(now, wall_ms, token, request, &mut effects);
        self.finish(records, effects);
        self.tokens
    }

    pub(super) fn heartbeat(&mut self, member_id: &str, generation: i32) -> Result<(), ErrorKind> {
        let request = Heartbeat {
            group_id: "g".to_owned(),
            generation,
            member_id: member_id.to_owned(),
            group_instance_id: None,
        };
        self.coordinator.handle_heartbeat(self.now(), &request)
    }

    pub(super) fn leave(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Option<ErrorKind> {
        let leaving = LeaveMember {
            member_id: member_id.to_owned(),
            group_instance_id: instance_id.map(str::to_owned),
        };
        let request = LeaveGroup {
            group_id: "g".to_owned(),
            members: vec![leaving],
        };
        let mut effects = Vec::new();
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let decision = self
            .coordinator
            .handle_leave_group(now, wall_ms, &request, &mut effects);
        self.finish(decision.records, effects);
        decision.reply.error.or(decision.reply.members[0].1)
    }

    pub(super) fn commit(&mut self, request: &OffsetCommit) -> OffsetCommitReply {
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let decision = self.coordinator.handle_offset_commit(now, wall_ms, request);
        self.finish(decision.records, Vec::new());
        decision.reply
    }

    /// Instance ids that leave together.
    pub(super) fn leave_all(&mut self, instance_ids: &[&str]) -> Vec<Option<ErrorKind>> {
        let members = instance_ids.iter().map(|instance_id| LeaveMember {
            member_id: String::new(),
            group_instance_id: Some((*instance_id).to_owned()),
        });
        let request = LeaveGroup {
            group_id: "g".to_owned(),
            members: members.collect(),
        };
        let mut effects = Vec::new();
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let decision = self
            .coordinator
            .handle_leave_group(now, wall_ms, &request, &mut effects);
        self.finish(decision.records, effects);
        let errors = decision.reply.members.into_iter().map(|(_, error)| error);
        errors.collect()
    }

    pub(super) fn delete_group(&mut self, group_id: &str) -> Option<ErrorKind> {
        let decision = self
            .coordinator
            .handle_delete_groups(&[group_id.to_owned()]);
        self.finish(decision.records, Vec::new());
        decision.reply[0]
    }

    pub(super) fn delete_offsets(
        &mut self,
        topics: &[(&str, &[i32])],
    ) -> Result<Vec<Option<ErrorKind>>, ErrorKind> {
        let request = OffsetDelete {
            group_id: "g".to_owned(),
            topics: topics
                .iter()
                .map(|(topic, partitions)| ((*topic).to_owned(), partitions.to_vec()))
                .collect(),
        };
        let decision = self.coordinator.handle_offset_delete(&request);
        self.finish(decision.records, Vec::new());
        decision.reply
    }

    pub(super) fn remove_topic(&mut self, topic_id: TopicId, name: &str) {
        let removed = BTreeMap::from([(topic_id, name.to_owned())]);
        let records = self.coordinator.handle_topics_removed(&removed);
        self.finish(records, Vec::new());
    }

    /// Lets time pass, with every deadline on the way.
    pub(super) fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        let mut calls = 0;
        while let Some(at) = self
            .coordinator
            .next_deadline()
            .filter(|at| *at <= Instant::from_millis(end_ms))
        {
            self.now_ms = self.now_ms.max(at.0.div_ceil(1_000_000));
            self.timeout();
            calls += 1;
            assert!(calls < 10_000, "deadlines come to rest");
        }
        self.now_ms = end_ms;
    }

    pub(super) fn timeout(&mut self) {
        let mut effects = Vec::new();
        let (now, wall_ms) = (self.now(), self.wall_ms());
        let records = self.coordinator.handle_timeout(now, wall_ms, &mut effects);
        self.finish(records, effects);
    }

    pub(super) fn finish(&mut self, records: Vec<Record>, effects: Vec<Effect>) {
        for record in records {
            self.coordinator.apply(&record);
            self.log.push(record);
        }
        for effect in effects {
            match effect {
                Effect::JoinAnswered { token, reply } => {
                    let earlier = self.joined.insert(token.0, reply);
                    assert_eq!(earlier, None, "a request is answered once");
                }
                Effect::SyncAnswered { token, reply } => {
                    let earlier = self.synced.insert(token.0, reply);
                    assert_eq!(earlier, None, "a request is answered once");
                }
            }
        }
    }

    /// The coordinator goes to another broker.
    pub(super) fn fail_over(&mut self) {
        self.fail_over_with(*self.settings());
    }

    /// And that one is configured otherwise.
    pub(super) fn fail_over_with(&mut self, settings: Settings) {
        let mut coordinator = Coordinator::new(settings);
        for record in &self.log {
            coordinator.apply(record);
        }
        coordinator.handle_loaded(self.now());
        self.coordinator = coordinator;
    }

    fn settings(&self) -> &Settings {
        self.coordinator.settings()
    }

    pub(super) fn joined(&self, token: u64) -> Option<&JoinReply> {
        self.joined.get(&token)
    }

    pub(super) fn synced(&self, token: u64) -> Option<&SyncReply> {
        self.synced.get(&token)
    }

    pub(super) fn classic(&self) -> &Classic {
        self.coordinator.group("g").unwrap().classic()
    }

    pub(super) fn state(&self) -> State {
        self.coordinator.state("g")
    }

    /// A stable group of so many dynamic members, with their ids; the first leads.
    pub(super) fn stable(members: usize) -> (World, Vec<String>) {
        let settings = Settings {
            group_size_max: 4,
            ..Settings::default()
        };
        let mut world = World::new(settings);
        let tokens: Vec<u64> = (0..members).map(|_| world.join(&join(""))).collect();
        world.pass(9_000);
        let ids: Vec<String> = tokens
            .iter()
            .map(|token| world.joined(*token).unwrap().member_id.clone())
            .collect();
        let parts: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "part")).collect();
        for id in ids.iter().rev() {
            world.sync(&sync(id, 1, &parts));
        }
        assert_eq!(world.state(), State::Stable);
        (world, ids)
    }
}
