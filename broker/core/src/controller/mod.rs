//! The active controller: decides every change of the metadata, on the leader of the quorum only.
//!
//! A request returns a `Decision`. The shell proposes its records as one entry of the metadata log, calls `apply` with
//! the entry's index at once, and releases the reply when the entry is committed. The image here is therefore ahead of the
//! committed one. When leadership is lost the controller is dropped with all that was not committed; there is no roll-back.
//! A decision without records changes nothing and its reply may be released at once.

mod alter_partition;
mod brokers;
mod configs;
mod elect_leaders;
mod election;
mod impaired;
mod partitions;
mod producer_ids;
mod reassignment;
mod rebalance;
mod session;
mod suspects;
#[cfg(test)]
mod tests;
mod topics;
mod voters;

use std::time::Duration;

pub use alter_partition::{AlterPartition, AlterPartitions, AlteredPartition};
pub use brokers::{BrokerEndpoints, Heartbeat, HeartbeatReply, Registration};
pub use configs::{AlterConfigs, ConfigChange, ConfigCheck, ConfigOperation, ConfigRules};
pub use elect_leaders::{ElectionType, LeaderElections};
pub use impaired::{Impaired, Impairment};
pub use partitions::CreatePartitions;
pub use producer_ids::ProducerIdBlock;
pub use reassignment::{OngoingReassignment, Reassignment};
pub use session::Report;
use session::Sessions;
use suspects::Suspects;
pub use suspects::{Search, Sighting, Suspect};
pub use topics::{CreateTopic, CreatedTopic, TopicSelector, is_internal_topic};
pub use voters::{QuorumMembers, VoterKey, VoterStep};

use crate::metadata::{Image, Record};
use crate::time::Instant;

/// What the controller's own broker is configured with; dynamic configs in the metadata go first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// `broker.session.timeout.ms`: a broker that is not heard from for this long is fenced.
    pub session_timeout: Duration,
    /// `num.partitions`: of topics created with -1.
    pub default_partitions: i32,
    /// `default.replication.factor`: of topics created with -1.
    pub default_replication_factor: i16,
    /// `min.insync.replicas`.
    pub min_insync_replicas: usize,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
    /// `leader.imbalance.check.interval.seconds`, if `auto.leader.rebalance.enable`: leadership goes back to preferred
    /// replicas this often.
    pub leader_rebalance_interval: Option<Duration>,
    /// `leader.imbalance.per.broker.percentage`: a broker that lacks no more of the partitions it should lead is left alone.
    pub leader_imbalance_percentage: usize,
    /// Brokers without these listeners get no replicas of topics that the controller places; for clusters whose
    /// operator sets endpoints from outside.
    pub placement_listeners: Vec<String>,
    /// Likewise brokers without a rack.
    pub placement_needs_rack: bool,
}

impl Default for ControllerConfig {
    /// Kafka's defaults, except that sessions time out after 3 s instead of 9 s.
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(3),
            default_partitions: 1,
            default_replication_factor: 1,
            min_insync_replicas: 1,
            unclean_leader_election: false,
            leader_rebalance_interval: Some(Duration::from_secs(300)),
            leader_imbalance_percentage: 10,
            placement_listeners: Vec::new(),
            placement_needs_rack: false,
        }
    }
}

/// What a request led to. The reply holds once the records are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<R> {
    /// To be committed together, as one entry.
    pub records: Vec<Record>,
    /// To be released when they are.
    pub reply: R,
}

impl<R> Decision<R> {
    /// Nothing is to be committed for this reply.
    fn reply(reply: R) -> Self {
        Self {
            records: Vec::new(),
            reply,
        }
    }
}

/// The controller of one term. Besides the image it holds only what it heard from brokers, which is not replicated: a new
/// controller gives every broker a new session, and has every active one looked for.
#[derive(Debug)]
pub struct Controller {
    config: ControllerConfig,
    image: Image,
    /// The index of the newest entry that is in `image`.
    last_index: i64,
    /// The index of the newest entry when this controller began.
    first_index: i64,
    sessions: Sessions,
    suspects: Suspects,
    next_rebalance: Option<Instant>,
    /// When this controller began, until the states that it took over are what its configuration makes of them.
    takes_over: Option<Instant>,
}

impl Controller {
    /// Starts on the committed image, with all entries up to `last_index` applied.
    pub fn new(now: Instant, config: ControllerConfig, image: Image, last_index: i64) -> Self {
        let mut sessions = Sessions::default();
        let mut suspects = Suspects::default();
        for broker in image.brokers() {
            sessions.start(broker.id, now);
            if !broker.fenced {
                suspects.suspect(now, broker.id);
            }
            if broker.in_controlled_shutdown {
                sessions.note_shutdown(broker.id, last_index);
            }
        }
        let next_rebalance = config
            .leader_rebalance_interval
            .map(|interval| now + interval);
        let mut controller = Self {
            config,
            image,
            last_index,
            first_index: last_index,
            sessions,
            suspects,
            next_rebalance,
            takes_over: None,
        };
        let settled = controller.reconsider_all().is_empty();
        controller.takes_over = (!settled).then_some(now);
        controller
    }

    /// Applies the records of an entry that was appended at `index`. Called for every entry, right after its decision.
    ///
    /// # Panics
    /// When `index` is not a later one, or an invariant of the metadata breaks.
    pub fn apply(&mut self, index: i64, records: &[Record]) {
        assert!(
            index > self.last_index,
            "entry {index} is not after {}",
            self.last_index
        );
        self.last_index = index;
        self.image.apply_all(records);
        for record in records {
            match record {
                Record::UnregisterBroker { broker } => {
                    self.sessions.remove(*broker);
                    self.suspects.forget(*broker);
                }
                Record::RegisterBroker { broker, .. }
                | Record::BrokerState {
                    broker,
                    fenced: true,
                    ..
                } => self.suspects.forget(*broker),
                Record::BrokerState {
                    broker,
                    in_controlled_shutdown: true,
                    fenced: false,
                    ..
                } => self.sessions.note_shutdown(*broker, index),
                _ => {}
            }
        }
    }

    /// The metadata with everything that was decided, committed or not.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The index of the newest entry in the image.
    pub fn last_index(&self) -> i64 {
        self.last_index
    }

    /// When `handle_timeout` or `take_searches` has something to do: the next session to expire, the next suspect to look
    /// for or to fence, the next leader rebalance, or at once, if the controller before went by another configuration.
    pub fn next_deadline(&self) -> Option<Instant> {
        let unfenced = self.image.brokers().filter(|broker| !broker.fenced);
        let contacts = unfenced.filter_map(|broker| self.sessions.last_contact(broker.id));
        let expiry = contacts
            .min()
            .map(|contact| contact + self.config.session_timeout);
        let suspects = self.suspects.next_deadline();
        let deadlines = [expiry, suspects, self.next_rebalance, self.takes_over];
        deadlines.into_iter().flatten().min()
    }

    /// Fences brokers whose sessions expired or that were found gone, electing new leaders in the same decision, and
    /// rebalances leaders when that is due. Called at `next_deadline`; does nothing before. Whatever it decides stays due
    /// until it is applied, since a proposal may be refused.
    pub fn handle_timeout(&mut self, now: Instant) -> Decision<()> {
        let fencing = self.fence_missing(now);
        if !fencing.records.is_empty() {
            return fencing;
        }
        if self.takes_over.is_some() {
            let records = self.reconsider_all();
            if !records.is_empty() {
                return Decision { records, reply: () };
            }
            self.takes_over = None;
        }
        if self.next_rebalance.is_some_and(|due| due <= now) {
            return self.rebalance_leaders(now);
        }
        Decision::reply(())
    }

    /// Gives the cluster its id, once.
    pub fn bootstrap(&self, cluster_id: &str) -> Decision<()> {
        let mut records = Vec::new();
        if self.image.cluster_id().is_none() {
            let cluster_id = cluster_id.to_owned();
            records.push(Record::ClusterId { cluster_id });
        }
        Decision { records, reply: () }
    }
}
