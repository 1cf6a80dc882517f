//! What a leader knows of each replica of its partition, and the committed state it learns it from.

use std::time::Duration;

use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition};
use crate::metadata::Image;
use crate::time::Instant;

/// What the committed metadata says of a broker that holds a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerStanding {
    /// No such broker is registered.
    Unregistered,
    /// Registered, and fenced: it may not be in an in-sync set.
    Fenced(BrokerEpoch),
    /// On its way out: it may stay in an in-sync set but not join one (KIP-841).
    ShuttingDown(BrokerEpoch),
    /// Registered and live.
    Active(BrokerEpoch),
}

impl BrokerStanding {
    /// The epoch of its registration, if it has one.
    pub fn epoch(self) -> Option<BrokerEpoch> {
        match self {
            BrokerStanding::Unregistered => None,
            BrokerStanding::Fenced(epoch)
            | BrokerStanding::ShuttingDown(epoch)
            | BrokerStanding::Active(epoch) => Some(epoch),
        }
    }

    fn alive(self) -> bool {
        match self {
            BrokerStanding::Unregistered | BrokerStanding::Fenced(_) => false,
            BrokerStanding::ShuttingDown(_) | BrokerStanding::Active(_) => true,
        }
    }
}

/// The committed state of one partition, as its leader needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// The epoch in which this broker leads.
    pub leader_epoch: LeaderEpoch,
    /// Grows with every committed change of the partition; the compare-and-set key of AlterPartition.
    pub partition_epoch: PartitionEpoch,
    /// All assigned replicas in order, the leader among them, with the standing of their brokers.
    pub replicas: Vec<(BrokerId, BrokerStanding)>,
    /// The committed in-sync replicas.
    pub isr: Vec<BrokerId>,
    /// Whether replicas outside of the ISR are eligible to lead (the committed ELR): nothing more may be committed without them.
    pub has_eligible: bool,
}

impl PartitionState {
    /// What the image says of a partition; `None` if there is no such partition.
    pub fn from_image(image: &Image, partition: TopicPartition) -> Option<PartitionState> {
        let committed = image.partition(partition)?;
        let standing = |broker: BrokerId| match image.broker(broker) {
            None => BrokerStanding::Unregistered,
            Some(broker) if broker.fenced => BrokerStanding::Fenced(broker.epoch),
            Some(broker) if broker.in_controlled_shutdown => {
                BrokerStanding::ShuttingDown(broker.epoch)
            }
            Some(broker) => BrokerStanding::Active(broker.epoch),
        };
        Some(PartitionState {
            leader_epoch: committed.leader_epoch,
            partition_epoch: committed.partition_epoch,
            replicas: committed
                .replicas
                .iter()
                .map(|broker| (*broker, standing(*broker)))
                .collect(),
            isr: committed.isr.clone(),
            has_eligible: !committed.elr.is_empty(),
        })
    }
}

/// One replica as its leader sees it; also what `/admin/state` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The broker that holds it.
    pub broker: BrokerId,
    /// Whether the committed ISR has it.
    pub in_isr: bool,
    /// Whether an ISR expansion that is in flight would add it.
    pub joining: bool,
    /// Offset of the next record it will have (exclusive end); `None` until it fetched in this leader epoch.
    pub log_end_offset: Option<i64>,
    /// Its first kept offset; `None` until it fetched in this leader epoch.
    pub log_start_offset: Option<i64>,
    /// When it last held all that the leader held at some fetch; `None` = never in this leader epoch.
    pub last_caught_up: Option<Instant>,
    /// The broker epoch its last fetch carried.
    pub fetched_epoch: Option<BrokerEpoch>,
    /// What the committed metadata says of its broker.
    pub standing: BrokerStanding,
    pub(super) last_fetch: Option<LastFetch>,
    /// It followed at some time after this moment; `None` = not known in this leader epoch.
    pub(super) followed_after: Option<Instant>,
}

/// The previous fetch: reaching *its* log end later means having been caught up *then*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastFetch {
    pub(super) at: Instant,
    pub(super) leader_log_end_offset: i64,
}

impl Replica {
    pub(super) fn new(broker: BrokerId, standing: BrokerStanding) -> Replica {
        Replica {
            broker,
            in_isr: false,
            joining: false,
            log_end_offset: None,
            log_start_offset: None,
            last_caught_up: None,
            fetched_epoch: None,
            standing,
            last_fetch: None,
            followed_after: None,
        }
    }

    /// Forgets what it fetched: progress counts only in the leader epoch that it was made in.
    pub(super) fn reset(&mut self) {
        self.log_end_offset = None;
        self.log_start_offset = None;
        self.last_caught_up = None;
        self.fetched_epoch = None;
        self.last_fetch = None;
        self.followed_after = None;
    }

    /// Notes a fetch. A follower is caught up now if it asks for the leader's log end, and was caught up at its
    /// previous fetch if it now asks for the log end of then (Kafka's `Replica.updateFetchState`).
    pub(super) fn record_fetch(
        &mut self,
        now: Instant,
        fetch_offset: i64,
        log_start_offset: i64,
        leader_log_end_offset: i64,
        epoch: Option<BrokerEpoch>,
    ) {
        let caught_up = if fetch_offset >= leader_log_end_offset {
            Some(now)
        } else {
            self.last_fetch
                .filter(|last| fetch_offset >= last.leader_log_end_offset)
                .map(|last| last.at)
        };
        self.last_caught_up = self.last_caught_up.max(caught_up);
        self.log_end_offset = Some(fetch_offset);
        self.log_start_offset = Some(log_start_offset);
        self.fetched_epoch = epoch.or(self.fetched_epoch);
        self.last_fetch = Some(LastFetch {
            at: now,
            leader_log_end_offset,
        });
    }

    /// In step: it has all of the leader's log, or had at most `lag_time_max` ago.
    pub(super) fn caught_up(
        &self,
        now: Instant,
        leader_log_end_offset: i64,
        lag_time_max: Duration,
    ) -> bool {
        self.log_end_offset == Some(leader_log_end_offset)
            || self
                .last_caught_up
                .is_some_and(|at| now.saturating_since(at) <= lag_time_max)
    }

    /// Whether the controller would let it join: live, not leaving, and the incarnation that fetched is the one
    /// that is registered (KIP-841, KIP-903). A fetch without a broker epoch is not checked for it.
    pub(super) fn eligible(&self) -> bool {
        #[cfg(feature = "mutants")]
        if taffrail_mutants::is_planted(taffrail_mutants::Mutant::JoinWithoutBrokerEpoch) {
            return matches!(self.standing, BrokerStanding::Active(_));
        }
        match self.standing {
            BrokerStanding::Active(epoch) => {
                self.fetched_epoch.is_none_or(|fetched| fetched == epoch)
            }
            BrokerStanding::Unregistered
            | BrokerStanding::Fenced(_)
            | BrokerStanding::ShuttingDown(_) => false,
        }
    }

    pub(super) fn alive(&self) -> bool {
        self.standing.alive()
    }
}
