//! A controller with the shell's part played at once: every decision is appended, applied and kept for a replay.

use std::time::Duration;

use crate::controller::{
    AlterPartition, AlterPartitions, AlteredPartition, Controller, ControllerConfig, CreateTopic,
    Decision, Heartbeat, HeartbeatReply, Impairment, Registration, Report,
};
use crate::error::{ApiError, ErrorKind};
use crate::ids::{
    BrokerEpoch, BrokerId, DirectoryId, Incarnation, LeaderEpoch, PartitionEpoch, TopicId,
    TopicPartition,
};
use crate::metadata::{Image, Listener, Partition, Record};
use crate::time::Instant;

pub(super) const CLUSTER_ID: &str = "cluster";

pub(super) struct Cluster {
    pub(super) controller: Controller,
    pub(super) now: Instant,
    pub(super) log: Vec<Record>,
    index: i64,
    incarnations: u8,
    topics: u8,
}

impl Cluster {
    pub(super) fn empty(config: ControllerConfig) -> Self {
        let now = Instant::from_millis(1000);
        let mut cluster = Self {
            controller: Controller::new(now, config, Image::default(), 0),
            now,
            log: Vec::new(),
            index: 0,
            incarnations: 0,
            topics: 0,
        };
        let bootstrap = cluster.controller.bootstrap(CLUSTER_ID);
        cluster.commit(bootstrap);
        cluster
    }

    /// Brokers 0 to `size - 1`, active, and `min.insync.replicas` of 2.
    pub(super) fn new(size: i32) -> Self {
        let mut cluster = Self::empty(ControllerConfig {
            min_insync_replicas: 2,
            leader_rebalance_interval: None,
            ..ControllerConfig::default()
        });
        for id in 0..size {
            cluster.start(id);
        }
        cluster
    }

    pub(super) fn commit<R>(&mut self, decision: Decision<R>) -> R {
        if !decision.records.is_empty() {
            self.index += 1;
            self.controller.apply(self.index, &decision.records);
            self.log.extend(decision.records);
        }
        decision.reply
    }

    pub(super) fn image(&self) -> &Image {
        self.controller.image()
    }

    pub(super) fn index(&self) -> i64 {
        self.index
    }

    pub(super) fn registration(
        &mut self,
        id: i32,
        previous_epoch: Option<BrokerEpoch>,
    ) -> Registration {
        self.incarnations += 1;
        Registration {
            cluster_id: CLUSTER_ID.to_owned(),
            broker: BrokerId(id),
            incarnation: Incarnation([self.incarnations; 16]),
            previous_epoch,
            directories: vec![DirectoryId([id as u8 + 1; 16])],
            listeners: vec![listener("INTERNAL", &format!("broker-{id}"), 9093)],
            rack: None,
        }
    }

    pub(super) fn register(
        &mut self,
        registration: &Registration,
    ) -> Result<BrokerEpoch, ApiError> {
        let decision = self.controller.handle_registration(self.now, registration);
        self.commit(decision)
    }

    pub(super) fn epoch(&self, id: i32) -> BrokerEpoch {
        self.image().broker(BrokerId(id)).unwrap().epoch
    }

    /// A heartbeat of a broker that has applied everything.
    pub(super) fn heartbeat(
        &mut self,
        id: i32,
        want_fence: bool,
        want_shutdown: bool,
    ) -> HeartbeatReply {
        let heartbeat = Heartbeat {
            broker: BrokerId(id),
            epoch: self.epoch(id),
            metadata_index: self.index,
            want_fence,
            want_shutdown,
            report: Report::default(),
        };
        let decision = self.controller.handle_heartbeat(self.now, &heartbeat);
        self.commit(decision).unwrap()
    }

    /// A heartbeat that reports these replicas; gives how many partitions it changed.
    pub(super) fn report(&mut self, id: i32, impaired: &[(TopicPartition, Impairment)]) -> usize {
        let index = self.index;
        self.report_late(id, 0, index, impaired)
    }

    /// The same in this version of the report, made with the metadata applied up to `index`.
    pub(super) fn report_late(
        &mut self,
        id: i32,
        version: i64,
        index: i64,
        impaired: &[(TopicPartition, Impairment)],
    ) -> usize {
        let decision = self.decide_report(id, version, index, impaired);
        let changed = decision.records.len();
        self.commit(decision).unwrap();
        changed
    }

    /// What the controller makes of it, neither proposed nor applied.
    pub(super) fn decide_report(
        &mut self,
        id: i32,
        version: i64,
        index: i64,
        impaired: &[(TopicPartition, Impairment)],
    ) -> Decision<Result<HeartbeatReply, ApiError>> {
        let heartbeat = Heartbeat {
            broker: BrokerId(id),
            epoch: self.epoch(id),
            metadata_index: index,
            want_fence: false,
            want_shutdown: false,
            report: Report {
                version,
                impaired: impaired.iter().copied().collect(),
            },
        };
        self.controller.handle_heartbeat(self.now, &heartbeat)
    }

    /// A new controller on what was decided until now.
    pub(super) fn fail_over(&mut self) {
        let image = self.image().clone();
        let config = self.controller.config.clone();
        self.controller = Controller::new(self.now, config, image, self.index);
    }

    /// A first start, or one after a kill.
    pub(super) fn start(&mut self, id: i32) {
        self.register_unclean(id);
        self.heartbeat(id, false, false);
    }

    pub(super) fn register_unclean(&mut self, id: i32) {
        let registration = self.registration(id, None);
        self.register(&registration).unwrap();
    }

    /// A start after a clean stop.
    pub(super) fn start_clean(&mut self, id: i32) {
        let registration = self.registration(id, Some(self.epoch(id)));
        self.register(&registration).unwrap();
        self.heartbeat(id, false, false);
    }

    pub(super) fn fence(&mut self, id: i32) {
        assert!(self.heartbeat(id, true, false).fenced);
    }

    pub(super) fn unfence(&mut self, id: i32) {
        assert!(!self.heartbeat(id, false, false).fenced);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        let decision = self.controller.handle_timeout(self.now);
        self.commit(decision);
    }

    /// A topic of one partition on these brokers.
    pub(super) fn topic(&mut self, name: &str, replicas: &[i32]) -> TopicPartition {
        self.topics += 1;
        let topic_id = TopicId([self.topics; 16]);
        let topic = CreateTopic {
            name: name.to_owned(),
            topic_id,
            partitions: -1,
            replication_factor: -1,
            assignments: vec![(0, ids(replicas))],
            ..CreateTopic::default()
        };
        let decision = self.controller.create_topics(&[topic], false);
        self.commit(decision).pop().unwrap().unwrap();
        TopicPartition::new(topic_id, 0)
    }

    pub(super) fn state(&self, partition: TopicPartition) -> &Partition {
        self.image().partition(partition).unwrap()
    }

    /// `leader/ISR/ELR`, then what else is set: `last=` the last known leader, `recovering`.
    pub(super) fn show(&self, partition: TopicPartition) -> String {
        let state = self.state(partition);
        let mut text = format!(
            "{}/{}/{}",
            show(&state.leader.into_iter().collect::<Vec<_>>()),
            show(&state.isr),
            show(&state.elr)
        );
        if let Some(last) = state.last_known_leader {
            text += &format!(" last={last}");
        }
        if state.recovering {
            text += " recovering";
        }
        text
    }

    /// The leader proposes this ISR, with everything else as it should be.
    pub(super) fn propose_isr(
        &mut self,
        partition: TopicPartition,
        isr: &[i32],
    ) -> Result<Partition, ErrorKind> {
        let state = self.state(partition).clone();
        let leader = state.leader.unwrap();
        let epochs = isr.iter().map(|id| (BrokerId(*id), self.epoch(*id)));
        let proposal = AlterPartition {
            partition,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            new_isr: epochs.collect(),
        };
        self.alter(leader.0, proposal)
    }

    pub(super) fn alter(
        &mut self,
        sender: i32,
        proposal: AlterPartition,
    ) -> Result<Partition, ErrorKind> {
        let request = AlterPartitions {
            broker: BrokerId(sender),
            broker_epoch: self.epoch(sender),
            partitions: vec![proposal],
        };
        let decision = self.controller.alter_partitions(&request);
        let AlteredPartition { result, .. } = self.commit(decision).unwrap().pop().unwrap();
        result
    }

    pub(super) fn epochs(&self, partition: TopicPartition) -> (LeaderEpoch, PartitionEpoch) {
        let state = self.state(partition);
        (state.leader_epoch, state.partition_epoch)
    }
}

pub(super) fn ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

pub(super) fn show(ids: &[BrokerId]) -> String {
    ids.iter()
        .map(BrokerId::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

pub(super) fn listener(name: &str, host: &str, port: u16) -> Listener {
    Listener {
        name: name.to_owned(),
        host: host.to_owned(),
        port,
    }
}

pub(super) fn kind<T>(result: Result<T, ApiError>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}
