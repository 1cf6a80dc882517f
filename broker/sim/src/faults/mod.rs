//! What happens to a cluster besides time passing. A seed decides which kinds of fault there are, so that what may be
//! lost is known: nothing, ever, in any of them.

use std::collections::BTreeMap;
use std::time::Duration;

use taffrail_core::time::Instant;

use crate::cluster::{Cluster, Ending};
use crate::history::PartitionName;
use crate::observation::Observation;
use crate::random::Random;

mod disks;
mod kind;
mod leaving;

pub use disks::Troubles;
pub(crate) use disks::{Disks, RESERVE_BYTES, rotten_file};
pub use kind::{Kind, Kinds};
pub(crate) use leaving::Leaving;

/// How far a wall clock is ahead at most: less than what anything is kept for.
const WALL_AHEAD_MS_MAX: i64 = 2 * 24 * 3600 * 1000;
/// How far it is behind at most: less than what producers may be ahead (`message.timestamp.after.max.ms`).
const WALL_BEHIND_MS_MAX: i64 = 40 * 60 * 1000;
/// How long a process stands still at most.
const PAUSE_MS_MAX: u64 = 8_000;
/// How long after its stop a broker counts as gone: what was decided before is seen by then.
const GONE_AFTER: Duration = Duration::from_secs(2);

/// Which kinds of fault a seed has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Processes are killed, any number of them; disks keep everything. Nothing may be lost.
    Kills,
    /// Machines also lose their power, but never the last one in some ISR that still has all that it ever had.
    PowerLoss,
    /// Everything is fsynced before it is acknowledged, and machines lose their power as they like.
    FlushedPowerLoss,
    /// Nothing goes down; the network alone is bad.
    Network,
    /// As `Kills`, and disks fail, fill up and rot, each on one broker at a time; brokers leave, and batches arrive twice.
    Disks,
}

impl Profile {
    /// The profile of a seed.
    pub fn of_seed(seed: u64) -> Profile {
        match seed % 8 {
            0 | 4 => Profile::PowerLoss,
            1 | 5 => Profile::Kills,
            2 | 6 => Profile::FlushedPowerLoss,
            3 => Profile::Network,
            _ => Profile::Disks,
        }
    }
}

/// Draws faults and remembers what they may have cost.
pub(crate) struct Faults {
    profile: Profile,
    /// Kinds that are drawn and not done.
    without: Kinds,
    random: Random,
    /// By partition: replicas and ISR by the newest metadata.
    partitions: BTreeMap<PartitionName, Assigned>,
    newest_index: i64,
    /// Brokers that went without a proof of what they have, until they are in every ISR under a later broker epoch.
    unproven: BTreeMap<i32, Unproven>,
    /// Brokers that stand still, and until when.
    paused: BTreeMap<usize, Instant>,
    /// What is wrong with disks.
    pub(crate) disks: Disks,
    /// Who is to go for good.
    pub(crate) leaving: Leaving,
}

#[derive(Debug)]
struct Assigned {
    replicas: Vec<i32>,
    isr: Vec<i32>,
}

#[derive(Clone, Copy, Debug)]
struct Unproven {
    lost_power: bool,
    /// Its broker epoch when it went, once known.
    epoch: Option<i64>,
}

impl Faults {
    /// No faults yet.
    pub(crate) fn new(profile: Profile, without: Kinds, random: Random) -> Faults {
        Faults {
            profile,
            without,
            random,
            partitions: BTreeMap::new(),
            newest_index: -1,
            unproven: BTreeMap::new(),
            paused: BTreeMap::new(),
            disks: Disks::default(),
            leaving: Leaving::default(),
        }
    }

    /// Takes note of the newest metadata.
    pub(crate) fn note(&mut self, seen: &Observation) {
        let Some(newest) = seen.newest() else { return };
        if newest.metadata_index < self.newest_index {
            return;
        }
        self.newest_index = newest.metadata_index;
        self.partitions = Observation::partitions(newest)
            .map(|(name, entry)| {
                let (replicas, isr) = (entry.replicas.clone(), entry.isr.clone());
                (name, Assigned { replicas, isr })
            })
            .collect();
        let epochs: BTreeMap<i32, i64> = (newest.brokers.iter())
            .map(|broker| (broker.id, broker.epoch))
            .collect();
        let partitions = &self.partitions;
        self.unproven.retain(|broker, unproven| {
            let before = unproven.epoch;
            let registered_again = before.is_some_and(|before| epochs.get(broker) > Some(&before));
            let mut own = (partitions.values()).filter(|of| of.replicas.contains(broker));
            !registered_again || !own.all(|of| of.isr.contains(broker))
        });
        for (broker, unproven) in &mut self.unproven {
            unproven.epoch = unproven.epoch.or_else(|| epochs.get(broker).copied());
        }
    }

    /// Does something to the cluster, or nothing.
    pub(crate) fn disturb(&mut self, cluster: &mut Cluster) {
        self.wake(cluster);
        let joined = cluster.joined();
        let Some(broker) = self.random.pick(&joined).copied() else {
            return;
        };
        let of_disks = self.profile == Profile::Disks && self.random.chance(35);
        let kind = match self.random.below(100) {
            0..80 if of_disks => Kind::Disk,
            _ if of_disks => Kind::Leave,
            0..18 => Kind::Down,
            18..23 => Kind::Reboot,
            23..28 => Kind::Pause,
            28..52 => return self.bring_up(cluster),
            52..63 => Kind::Cut,
            63..76 => return cluster.network.heal(),
            76..81 => Kind::Reset,
            81..88 => Kind::Slow,
            88..91 => return cluster.network.set_delay(Duration::from_millis(1), 1),
            91..97 => Kind::Clock,
            97..99 => Kind::Join,
            _ => return,
        };
        // What is left out is drawn all the same, so that the rest stays as it is.
        let mut random = self.random.fork();
        if !self.without.contains(kind) {
            self.act(cluster, kind, broker, &mut random);
        }
    }

    fn act(&mut self, cluster: &mut Cluster, kind: Kind, broker: usize, random: &mut Random) {
        match kind {
            Kind::Down => {
                let ending = self.draw_ending(random);
                self.take_down(cluster, broker, ending);
            }
            Kind::Reboot => self.reboot(cluster, broker, random),
            Kind::Pause => self.pause(cluster, broker, random),
            Kind::Cut => cut(cluster, broker, random),
            Kind::Reset => {
                if let Some(other) = other_than(broker, &cluster.joined(), random) {
                    cluster
                        .network
                        .reset(cluster.machine(broker), cluster.machine(other));
                }
            }
            Kind::Slow => slow_down(cluster, broker, random),
            Kind::Clock => cluster.set_wall_offset(broker, draw_wall_offset(random)),
            Kind::Join => cluster.join_next(),
            Kind::Disk => {
                let mended = self.disks.act(cluster, broker, random);
                if let Some(mended) = mended
                    && self.take_down(cluster, mended, Ending::Kill)
                {
                    cluster.start(mended);
                }
            }
            Kind::Leave => self.leaving.begin(cluster, random),
            // It is the producers who do it.
            Kind::Repeat => {}
        }
    }

    /// All faults end.
    pub(crate) fn make_peace(&mut self, cluster: &mut Cluster) {
        cluster.network.heal();
        cluster.network.set_delay(Duration::from_millis(1), 0);
        for broker in std::mem::take(&mut self.paused).into_keys() {
            cluster.resume(broker);
        }
        self.leaving.give_up(cluster);
        if let Some(mended) = self.disks.make_peace(cluster)
            && let Some(ended) = cluster.end(mended, Ending::Kill)
        {
            self.note_end(mended, ended);
        }
        for broker in cluster.joined() {
            cluster.start(broker);
        }
    }

    /// A broker gave up. Gives whether it may, for its disk is what it cannot do without; then it is down.
    pub(crate) fn accept_end(&mut self, cluster: &mut Cluster, broker: usize) -> bool {
        let accepted = self.disks.ends(broker);
        if accepted && let Some(ended) = cluster.end(broker, Ending::Kill) {
            self.disks.seen.gave_up += 1;
            self.note_end(broker, ended);
        }
        accepted
    }

    /// Whoever was to go and holds nothing any more stops, in order, and has gone for good if it still holds nothing a while
    /// later; a replica that was placed on it meanwhile brings it back.
    pub(crate) fn let_go(&mut self, cluster: &mut Cluster) {
        let Some(broker) = self.leaving.broker() else {
            return;
        };
        let holds = |of: &Assigned| of.replicas.contains(&(broker as i32));
        let needed = self.partitions.values().any(holds);
        let now = cluster.executor.now();
        if cluster.has_left(broker) {
            return;
        }
        let mut others = cluster.joined();
        others.retain(|other| *other != broker);
        if !others.iter().all(|other| cluster.is_up(*other)) {
            // What they know of its replicas is not known here; without a quorum nobody is told of any.
            self.leaving.stopped_at = self.leaving.stopped_at.map(|_| now);
            return;
        }
        match self.leaving.stopped_at {
            None if needed => {}
            None => {
                let stopped = self.take_down(cluster, broker, Ending::Stop);
                self.leaving.stopped_at = stopped.then_some(now);
            }
            Some(_) if needed => {
                self.leaving.stopped_at = None;
                cluster.start(broker);
            }
            Some(at) if now - at >= GONE_AFTER && !cluster.is_up(broker) => {
                self.disks.seen.left += 1;
                cluster.leave(broker);
            }
            Some(_) => {}
        }
    }

    /// A broker has come to this end.
    pub(crate) fn note_end(&mut self, broker: usize, ending: Ending) {
        if matches!(ending, Ending::PowerLoss | Ending::Kill) {
            let before = self.unproven.get(&(broker as i32));
            let lost_before = before.is_some_and(|before| before.lost_power);
            let lost_power = ending == Ending::PowerLoss || lost_before;
            let epoch = None;
            self.unproven
                .insert(broker as i32, Unproven { lost_power, epoch });
        }
    }

    /// Gives whether it went.
    fn take_down(&mut self, cluster: &mut Cluster, broker: usize, ending: Ending) -> bool {
        if self.profile == Profile::Network || !cluster.is_up(broker) {
            return false;
        }
        let loses_power = ending == Ending::PowerLoss;
        if self.profile == Profile::PowerLoss && !self.may_go(cluster, broker, loses_power) {
            return false;
        }
        tracing::debug!(broker, ?ending, partitions = ?self.partitions, unproven = ?self.unproven, "goes down");
        self.paused.remove(&broker);
        if let Some(ended) = cluster.end(broker, ending) {
            self.note_end(broker, ended);
        }
        true
    }

    fn draw_ending(&self, random: &mut Random) -> Ending {
        let power = !matches!(self.profile, Profile::Kills | Profile::Disks) && random.chance(60);
        match (random.chance(25), power) {
            (true, true) => Ending::StopAndPowerLoss,
            (true, false) => Ending::Stop,
            (false, true) => Ending::PowerLoss,
            (false, false) => Ending::Kill,
        }
    }

    /// Back before anybody has missed it, and for a while one of the others hears nothing from it.
    fn reboot(&mut self, cluster: &mut Cluster, broker: usize, random: &mut Random) {
        let ending = match self.profile {
            Profile::PowerLoss | Profile::FlushedPowerLoss => Ending::PowerLoss,
            Profile::Kills | Profile::Network | Profile::Disks => Ending::Kill,
        };
        if !self.take_down(cluster, broker, ending) {
            return;
        }
        if let Some(other) = other_than(broker, &cluster.joined(), random)
            && random.chance(70)
        {
            cluster
                .network
                .cut(cluster.machine(broker), cluster.machine(other));
        }
        cluster.start(broker);
    }

    /// Whether somebody stays in every ISR who has all that was acknowledged, and whom the controller can know to have
    /// it. A broker that was killed has it too, but cannot prove that: with all of an ISR gone without a proof, the last
    /// leader leads again, even if it is the one that lost its power. So killing is as bad as long as such a broker is
    /// in the ISR. (A stop that comes to no end is a kill.)
    ///
    /// The ISR that is known may be about to shrink, by a proposal that only a voter that is down has in its log. It keeps two
    /// members then, counting eligible leader replicas, so only one may be without a proof if one lost its power.
    fn may_go(&self, cluster: &Cluster, broker: usize, loses_power: bool) -> bool {
        let own = broker as i32;
        let lost_power = |id: &i32| self.unproven.get(id).is_some_and(|gone| gone.lost_power);
        let mut others = self.unproven.keys().filter(|id| **id != own);
        if others.any(|id| loses_power || lost_power(id)) {
            return false;
        }
        self.partitions.values().all(|Assigned { isr, .. }| {
            let stays = |id: &i32| {
                *id != own && !self.unproven.contains_key(id) && cluster.is_up(*id as usize)
            };
            (!loses_power && !isr.iter().any(lost_power)) || isr.iter().any(stays)
        })
    }

    fn bring_up(&mut self, cluster: &mut Cluster) {
        let mut down = cluster.joined();
        down.retain(|broker| !cluster.is_up(*broker));
        if let Some(broker) = self.random.pick(&down) {
            cluster.start(*broker);
        }
    }

    fn pause(&mut self, cluster: &mut Cluster, broker: usize, random: &mut Random) {
        if cluster.is_up(broker) && !cluster.is_paused(broker) {
            let length = Duration::from_millis(random.between(200, PAUSE_MS_MAX));
            self.paused.insert(broker, cluster.executor.now() + length);
            cluster.pause(broker);
        }
    }

    /// Those that have stood still for long enough go on.
    fn wake(&mut self, cluster: &mut Cluster) {
        let now = cluster.executor.now();
        self.paused.retain(|broker, until| {
            let stays = *until > now;
            if !stays {
                cluster.resume(*broker);
            }
            stays
        });
    }
}

/// Cuts a broker off from all others, or from one, or in one direction.
fn cut(cluster: &Cluster, broker: usize, random: &mut Random) {
    let own = cluster.machine(broker);
    let mut others = cluster.joined();
    others.retain(|other| *other != broker);
    let kind = random.below(4);
    let one = random.pick(&others).copied();
    for other in others {
        if kind >= 2 && Some(other) != one {
            continue;
        }
        let other = cluster.machine(other);
        cluster.network.cut(own, other);
        if kind != 3 {
            cluster.network.cut(other, own);
        }
    }
}

/// All ways, or those between two in one direction or in both.
fn slow_down(cluster: &Cluster, broker: usize, random: &mut Random) {
    let other = other_than(broker, &cluster.joined(), random);
    let delay = Duration::from_millis(random.between(1, 60));
    let percent = random.below(10);
    let (one_way, everywhere) = (random.chance(50), random.chance(50));
    match other {
        Some(other) if !everywhere => {
            let (own, other) = (cluster.machine(broker), cluster.machine(other));
            cluster.network.slow_down(own, other, 4 * delay);
            if !one_way {
                cluster.network.slow_down(other, own, 4 * delay);
            }
        }
        Some(_) | None => cluster.network.set_delay(delay, percent),
    }
}

fn other_than(broker: usize, joined: &[usize], random: &mut Random) -> Option<usize> {
    let others: Vec<usize> = (joined.iter().copied())
        .filter(|other| *other != broker)
        .collect();
    random.pick(&others).copied()
}

/// Some minutes or hours ahead, right again, or behind.
fn draw_wall_offset(random: &mut Random) -> i64 {
    let minute = 60 * 1000;
    match random.below(4) {
        0 => random.below(2000) as i64,
        1 => -(random.below(WALL_BEHIND_MS_MAX as u64) as i64),
        2 => (random.between(11, 120) * minute) as i64,
        _ => random.below(WALL_AHEAD_MS_MAX as u64) as i64,
    }
}
