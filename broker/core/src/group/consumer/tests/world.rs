//! A group with the clients that it has, the topics that there are, and the log of its records.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{ApiError, ErrorKind};
use crate::group::consumer::{
    ConsumerGroup, ConsumerHeartbeat, ConsumerRecord, ConsumerReply, ConsumerSettings, Partitions,
};
use crate::ids::TopicId;
use crate::time::Instant;

/// A client as it sees itself.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    pub(super) epoch: i32,
    pub(super) topics: Vec<String>,
    pub(super) owned: Partitions,
    /// Whether it must say everything, for an answer was lost.
    pub(super) unsure: bool,
}

impl Client {
    pub(super) fn new(id: &str, topics: &[&str]) -> Self {
        Self {
            id: id.to_owned(),
            instance_id: None,
            epoch: 0,
            topics: topics.iter().map(|name| (*name).to_owned()).collect(),
            owned: Partitions::new(),
            unsure: true,
        }
    }

    pub(super) fn heartbeat(&self) -> ConsumerHeartbeat {
        let all = self.epoch == 0 || self.unsure;
        ConsumerHeartbeat {
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            instance_id: self.instance_id.clone(),
            rebalance_timeout_ms: all.then_some(10_000),
            subscribed_topic_names: all.then(|| self.topics.clone()),
            owned: Some(self.owned.clone()),
            ..ConsumerHeartbeat::default()
        }
    }

    pub(super) fn take(&mut self, answer: &Result<ConsumerReply, ApiError>) {
        match answer {
            Ok(reply) => {
                self.epoch = reply.member_epoch;
                self.unsure = false;
                if let Some(assignment) = &reply.assignment {
                    self.owned = assignment.clone();
                }
            }
            Err(error) => {
                let fenced = [ErrorKind::UnknownMemberId, ErrorKind::FencedMemberEpoch];
                assert!(fenced.contains(&error.kind), "{error}");
                self.epoch = 0;
                self.owned.clear();
            }
        }
    }
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) settings: ConsumerSettings,
    pub(super) topics: BTreeMap<String, (TopicId, i32)>,
    pub(super) group: ConsumerGroup,
    pub(super) log: Vec<ConsumerRecord>,
}

impl World {
    /// Topics `a`, `b`, … of these sizes.
    pub(super) fn new(sizes: &[i32]) -> Self {
        let names = ('a'..='z').zip(sizes).zip(1..);
        Self {
            now: Instant::ZERO,
            settings: ConsumerSettings::default(),
            topics: names
                .map(|((name, size), number)| (name.to_string(), (TopicId([number; 16]), *size)))
                .collect(),
            group: ConsumerGroup::default(),
            log: Vec::new(),
        }
    }

    pub(super) fn append(&mut self, records: Vec<ConsumerRecord>) {
        for record in &records {
            self.group.apply(record);
        }
        self.log.extend(records);
    }

    pub(super) fn ask(&mut self, request: &ConsumerHeartbeat) -> Result<ConsumerReply, ApiError> {
        request.check()?;
        let topics = |name: &str| self.topics.get(name).copied();
        let decision = self
            .group
            .handle_heartbeat(self.now, &self.settings, &topics, request)?;
        self.append(decision.records);
        Ok(decision.reply)
    }

    /// A heartbeat whose answer arrives.
    pub(super) fn beat(&mut self, client: &mut Client) -> Result<ConsumerReply, ApiError> {
        let answer = self.ask(&client.heartbeat());
        client.take(&answer);
        answer
    }

    /// Until everybody is where it should be.
    pub(super) fn settle(&mut self, clients: &mut [Client]) {
        for _ in 0..8 {
            for client in clients.iter_mut() {
                let _ = self.beat(client);
            }
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        let records = self.group.handle_time(self.now);
        self.append(records);
    }

    /// What the log says, without what only this process knows.
    pub(super) fn replicated(group: &ConsumerGroup) -> ConsumerGroup {
        let mut group = group.clone();
        group.topics_checked = false;
        group.sessions.clear();
        group.revocations.clear();
        group
    }
}

pub(super) fn told(partitions: &Partitions) -> String {
    let all = partitions
        .iter()
        .flat_map(|(topic, some)| some.iter().map(|one| format!("{}.{one}", topic.0[0])));
    all.collect::<Vec<_>>().join(" ")
}
