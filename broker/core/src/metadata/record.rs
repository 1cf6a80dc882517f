//! The records of the metadata log. Their bytes are made elsewhere; here is what they mean.

use crate::ids::{
    BrokerEpoch, BrokerId, DirectoryId, Incarnation, LeaderEpoch, PartitionEpoch, TopicId,
};

/// One change of the cluster's metadata. Records of one decision are one entry of the metadata log: all or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// The cluster's id, written once by the first controller.
    ClusterId {
        /// As in `meta.properties` of every broker.
        cluster_id: String,
    },
    /// A broker process registered; replaces what an earlier process of this broker registered.
    RegisterBroker {
        /// Which broker.
        broker: BrokerId,
        /// This registration; higher than that of any earlier one.
        epoch: BrokerEpoch,
        /// The process that registered.
        incarnation: Incarnation,
        /// Its log directories, sorted.
        directories: Vec<DirectoryId>,
        /// The addresses its own configuration gives.
        listeners: Vec<Listener>,
        /// The rack its own configuration gives.
        rack: Option<String>,
        /// Whether it may not yet lead or be in an ISR.
        fenced: bool,
    },
    /// A broker that will not come back.
    UnregisterBroker {
        /// Which broker.
        broker: BrokerId,
    },
    /// A registered broker was fenced, unfenced or began to shut down.
    BrokerState {
        /// Which broker.
        broker: BrokerId,
        /// The registration that this is about; a record about an older one changes nothing.
        epoch: BrokerEpoch,
        /// Fenced: leads nothing, in no ISR, not told to clients.
        fenced: bool,
        /// Asked to leave: leads nothing new.
        in_controlled_shutdown: bool,
    },
    /// What the operator knows of a broker from outside: where clients reach it, and its rack.
    BrokerEndpoints {
        /// Which broker, registered or not yet.
        broker: BrokerId,
        /// Overrides the rack of the registration.
        rack: Option<String>,
        /// Override the registration's listeners of the same names.
        listeners: Vec<Listener>,
    },
    /// A topic exists; its `Partition` records follow, in order.
    Topic {
        /// Never used again.
        topic_id: TopicId,
        /// Unique among the topics that exist.
        name: String,
    },
    /// A topic, its partitions and its configs are gone.
    RemoveTopic {
        /// Which topic.
        topic_id: TopicId,
    },
    /// The whole state of a partition, new or changed.
    Partition {
        /// Which topic.
        topic_id: TopicId,
        /// Which partition, from zero.
        partition: i32,
        /// Its state from now on.
        state: Partition,
    },
    /// A config was set, or removed.
    Config {
        /// Of what.
        resource: ConfigResource,
        /// Kafka's name of the config.
        name: String,
        /// `None` removes it, so that the next layer's value holds.
        value: Option<String>,
    },
    /// Every producer id below `next` has been given out.
    ProducerIds {
        /// The first id not given out.
        next: i64,
    },
    /// A broker votes on the metadata.
    Voter {
        /// Which broker.
        broker: BrokerId,
        /// The log directory that holds its metadata log: with another one it is not this voter. `None` until it tells.
        directory: Option<DirectoryId>,
        /// The index of the entry that says so: of two records the later one holds.
        since: i64,
    },
    /// The metadata log of a voter has had all indexes up to this one on its disk: one that ends before it is an old copy.
    VoterLog {
        /// Which broker.
        broker: BrokerId,
        /// The index.
        end: i64,
    },
    /// A broker does not vote on the metadata any more, and is not taken in again unless somebody asks for it.
    RemoveVoter {
        /// Which broker.
        broker: BrokerId,
        /// The index of the entry that says so.
        since: i64,
    },
    /// A broker that does not vote shall, once it has the log.
    InviteVoter {
        /// Which broker.
        broker: BrokerId,
        /// The log directory that holds its metadata log.
        directory: Option<DirectoryId>,
        /// The index of the entry that says so.
        since: i64,
        /// The index at which it was taken out of the voters before; -1 if it was not.
        removed: i64,
    },
    /// Nothing.
    NoOp,
}

/// A name under which a broker is reached, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// The listener's name, unique in a broker.
    pub name: String,
    /// What clients are told to connect to.
    pub host: String,
    /// The port that goes with `host`.
    pub port: u16,
}

/// What a config belongs to. Topic configs go by name, as in Kafka, and go with their topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigResource {
    /// A topic.
    Topic(String),
    /// A broker, or the default of all.
    Broker(Option<BrokerId>),
}

/// The state of a partition that the controller decides. Replica lists keep the order of the assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Partition {
    /// AR: all assigned replicas; the first is the preferred leader. During a reassignment old and new.
    pub replicas: Vec<BrokerId>,
    /// The replicas in step with the leader; empty only when there is no leader.
    pub isr: Vec<BrokerId>,
    /// Replicas that left an ISR below `min.insync.replicas` and still hold all that was acknowledged (KIP-966).
    pub elr: Vec<BrokerId>,
    /// Who led last, kept while nobody leads; elected when it returns and ISR and ELR are empty.
    pub last_known_leader: Option<BrokerId>,
    /// Who leads.
    pub leader: Option<BrokerId>,
    /// The leader was elected without proof that it has all that was acknowledged; cleared by the first change of
    /// ISR that it asks for, or by the next proper election.
    pub recovering: bool,
    /// Grows with each change of leader, and when a reassignment removes replicas.
    pub leader_epoch: LeaderEpoch,
    /// Grows with each change of this state.
    pub partition_epoch: PartitionEpoch,
    /// Replicas that a reassignment in progress adds.
    pub adding: Vec<BrokerId>,
    /// Replicas that it removes when it completes.
    pub removing: Vec<BrokerId>,
}

impl Partition {
    /// Whether a reassignment is in progress.
    pub fn is_reassigning(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// The replicas that the partition has once the reassignment in progress is complete.
    pub fn target_replicas(&self) -> Vec<BrokerId> {
        self.replicas
            .iter()
            .copied()
            .filter(|replica| !self.removing.contains(replica))
            .collect()
    }

    /// Whether somebody leads of whom nobody can prove that he has every acknowledged record, and did not lead in `before`,
    /// the state until now: an election that may have lost records (Kafka's unclean ones, and those of a last known leader).
    pub fn elects_without_proof(&self, before: Option<&Partition>) -> bool {
        let led_before = before.and_then(|before| before.leader);
        self.leader.is_some() && self.recovering && led_before != self.leader
    }

    /// What must hold of every partition, broken by `Err` with what does not.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        let in_replicas = |list: &[BrokerId]| list.iter().all(|id| self.replicas.contains(id));
        let distinct =
            |list: &[BrokerId]| (1..list.len()).all(|index| !list[..index].contains(&list[index]));
        let rules = [
            (!self.replicas.is_empty(), "a partition has replicas"),
            (distinct(&self.replicas), "replicas are distinct"),
            (distinct(&self.isr), "members of the ISR are distinct"),
            (in_replicas(&self.isr), "ISR is part of the replicas"),
            (in_replicas(&self.elr), "ELR is part of the replicas"),
            (
                !self.elr.iter().any(|id| self.isr.contains(id)),
                "no replica is in ISR and ELR",
            ),
            (
                self.leader.is_none_or(|leader| self.isr.contains(&leader)),
                "the leader is in the ISR",
            ),
            (in_replicas(&self.adding), "adding is part of the replicas"),
            (
                in_replicas(&self.removing),
                "removing is part of the replicas",
            ),
            (
                !self.adding.iter().any(|id| self.removing.contains(id)),
                "no replica is added and removed",
            ),
            (
                self.leader.is_none() || self.last_known_leader.is_none(),
                "a last known leader is kept only while nobody leads",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(rule),
            None => Ok(()),
        }
    }
}
