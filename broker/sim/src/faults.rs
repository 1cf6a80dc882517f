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
pub struct Faults {
    profile: Profile,
    random: Random,
    /// By partition: the brokers in the ISR of the newest metadata.
    isrs: BTreeMap<PartitionName, Vec<i32>>,
    newest_index: i64,
    /// Brokers whose machine lost power, until they are in every ISR under the broker epoch of a later start.
    tainted: BTreeMap<i32, Option<i64>>,
}

impl Faults {
    /// No faults yet.
    pub fn new(profile: Profile, random: Random) -> Faults {
        Faults {
            profile,
            random,
            isrs: BTreeMap::new(),
            newest_index: -1,
            tainted: BTreeMap::new(),
        }
    }

    /// Which kinds there are.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Takes note of the newest metadata.
    pub fn note(&mut self, seen: &Observation) {
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
        self.tainted.retain(|broker, before| {
            let registered_again = match before {
                Some(epoch) => epochs.get(broker).is_some_and(|now| now > epoch),
                None => false,
            };
            !registered_again || !isrs.values().all(|isr| isr.contains(broker))
        });
        for (broker, before) in &mut self.tainted {
            if before.is_none() {
                *before = epochs.get(broker).copied();
            }
        }
    }

    /// Does something to the cluster, or nothing.
    pub fn disturb(&mut self, cluster: &mut Cluster) {
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
        let ending = self.ending(broker as i32);
        if ending == Ending::PowerLoss {
            self.tainted.insert(broker as i32, None);
        }
        cluster.end(broker, ending);
    }

    fn ending(&mut self, broker: i32) -> Ending {
        let stop = self.random.chance(25);
        let power = self.random.chance(60);
        match (self.profile, stop) {
            (Profile::Kills | Profile::Network, true) => Ending::Stop,
            (Profile::Kills | Profile::Network, false) => Ending::Kill,
            (Profile::PowerLoss | Profile::FlushedPowerLoss, true) if power => {
                Ending::StopAndPowerLoss
            }
            (Profile::PowerLoss | Profile::FlushedPowerLoss, true) => Ending::Stop,
            (Profile::FlushedPowerLoss, false) if power => Ending::PowerLoss,
            (Profile::PowerLoss, false) if power && self.may_lose_power(broker) => {
                Ending::PowerLoss
            }
            (Profile::PowerLoss | Profile::FlushedPowerLoss, false) => Ending::Kill,
        }
    }

    /// Whether every ISR has somebody else who still has all that was acknowledged.
    fn may_lose_power(&self, broker: i32) -> bool {
        let whole = |id: &i32| *id != broker && !self.tainted.contains_key(id);
        self.isrs.values().all(|isr| isr.iter().any(whole))
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
        let others: Vec<usize> = (0..cluster.size()).filter(|other| *other != broker).collect();
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
