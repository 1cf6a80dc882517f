//! What happens to a cluster besides time passing. A seed decides which kinds of fault there are, so that what may be
//! lost is known: nothing, ever, in any of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::{Cluster, Ending};
use crate::observation::{Observation, PartitionName};
use crate::random::Random;

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
}

impl Profile {
    /// The profile of a seed.
    pub fn of_seed(seed: u64) -> Profile {
        match seed % 8 {
            0 | 4 => Profile::PowerLoss,
            1 | 5 => Profile::Kills,
            2 | 6 => Profile::FlushedPowerLoss,
            3 => Profile::Network,
            _ => Profile::Kills,
        }
    }
}

/// Draws faults and remembers what they may have cost.
pub(crate) struct Faults {
    profile: Profile,
    random: Random,
    /// By partition: the brokers in the ISR of the newest metadata.
    isrs: BTreeMap<PartitionName, Vec<i32>>,
    newest_index: i64,
    /// Brokers that went without a proof of what they have, until they are in every ISR under a later broker epoch.
    unproven: BTreeMap<i32, Unproven>,
}

#[derive(Clone, Copy)]
struct Unproven {
    lost_power: bool,
    /// Its broker epoch when it went, once known.
    epoch: Option<i64>,
}

impl Faults {
    /// No faults yet.
    pub(crate) fn new(profile: Profile, random: Random) -> Faults {
        Faults {
            profile,
            random,
            isrs: BTreeMap::new(),
            newest_index: -1,
            unproven: BTreeMap::new(),
        }
    }

    /// Which kinds there are.
    pub(crate) fn profile(&self) -> Profile {
        self.profile
    }

    /// Takes note of the newest metadata.
    pub(crate) fn note(&mut self, seen: &Observation) {
        let Some(newest) = seen.newest() else { return };
        if newest.metadata_index < self.newest_index {
            return;
        }
        self.newest_index = newest.metadata_index;
        self.isrs = Observation::partitions(newest)
            .map(|(name, entry)| (name, entry.isr.clone()))
            .collect();
        let epochs: BTreeMap<i32, i64> = (newest.brokers.iter())
            .map(|broker| (broker.id, broker.epoch))
            .collect();
        let isrs = &self.isrs;
        self.unproven.retain(|broker, unproven| {
            let before = unproven.epoch;
            let registered_again = before.is_some_and(|before| epochs.get(broker) > Some(&before));
            !registered_again || !isrs.values().all(|isr| isr.contains(broker))
        });
        for (broker, unproven) in &mut self.unproven {
            unproven.epoch = unproven.epoch.or_else(|| epochs.get(broker).copied());
        }
    }

    /// Does something to the cluster, or nothing.
    pub(crate) fn disturb(&mut self, cluster: &mut Cluster) {
        let broker = self.random.below(cluster.size() as u64) as usize;
        let draw = self.random.below(100);
        match draw {
            0..25 if self.profile != Profile::Network => self.take_down(cluster, broker),
            0..55 => self.bring_up(cluster),
            55..65 => self.cut(cluster, broker),
            65..80 => cluster.network.heal(),
            80..86 => {
                let other = (broker + 1) % cluster.size();
                cluster
                    .network
                    .reset(cluster.machine(broker), cluster.machine(other));
            }
            86..90 => {
                let slow = Duration::from_millis(self.random.between(1, 60));
                let percent = self.random.below(10);
                cluster.network.set_delay(slow, percent);
            }
            90..95 => cluster.network.set_delay(Duration::from_millis(1), 1),
            _ => {}
        }
    }

    fn take_down(&mut self, cluster: &mut Cluster, broker: usize) {
        if !cluster.is_up(broker) {
            return;
        }
        let ending = self.draw_ending();
        let loses_power = ending == Ending::PowerLoss;
        if self.profile == Profile::PowerLoss && !self.may_go(cluster, broker, loses_power) {
            return;
        }
        if matches!(ending, Ending::PowerLoss | Ending::Kill) {
            let before = self.unproven.get(&(broker as i32));
            let lost_power = loses_power || before.is_some_and(|before| before.lost_power);
            let epoch = None;
            self.unproven
                .insert(broker as i32, Unproven { lost_power, epoch });
        }
        cluster.end(broker, ending);
    }

    fn draw_ending(&mut self) -> Ending {
        let power = self.profile != Profile::Kills && self.random.chance(60);
        match (self.random.chance(25), power) {
            (true, true) => Ending::StopAndPowerLoss,
            (true, false) => Ending::Stop,
            (false, true) => Ending::PowerLoss,
            (false, false) => Ending::Kill,
        }
    }

    /// Whether somebody stays in every ISR who has all that was acknowledged, and whom the controller can know to have
    /// it. A broker that was killed has it too, but cannot prove that: with all of an ISR gone without a proof, the last
    /// leader leads again, even if it is the one that lost its power. So killing is as bad as long as such a broker is
    /// in the ISR. (A stop that comes to no end is a kill.)
    fn may_go(&self, cluster: &Cluster, broker: usize, loses_power: bool) -> bool {
        let own = broker as i32;
        let lost_power = |id: &i32| self.unproven.get(id).is_some_and(|gone| gone.lost_power);
        self.isrs.values().all(|isr| {
            let stays = |id: &i32| {
                *id != own && !self.unproven.contains_key(id) && cluster.is_up(*id as usize)
            };
            (!loses_power && !isr.iter().any(lost_power)) || isr.iter().any(stays)
        })
    }

    fn bring_up(&mut self, cluster: &mut Cluster) {
        let down: BTreeSet<usize> = (0..cluster.size())
            .filter(|broker| !cluster.is_up(*broker))
            .collect();
        let down: Vec<usize> = down.into_iter().collect();
        if let Some(broker) = self.random.pick(&down) {
            cluster.start(*broker);
        }
    }

    /// Cuts a broker off from all others, or from one, or in one direction.
    fn cut(&mut self, cluster: &Cluster, broker: usize) {
        let own = cluster.machine(broker);
        let others: Vec<usize> = (0..cluster.size())
            .filter(|other| *other != broker)
            .collect();
        let kind = self.random.below(4);
        let one = self.random.pick(&others).copied();
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
}
