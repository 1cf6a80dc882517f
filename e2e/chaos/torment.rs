//! Carrying out faults, and undoing them.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use taffrail_e2e::wait::wait_for_every;

use crate::bed::Bed;
use crate::dice::Dice;
use crate::fault::FaultKind;
use crate::health::wait_whole;
use crate::network::Source;
use crate::wire;

/// Bytes a second that a slow disk takes.
const SLOW: u64 = 64 << 10;
/// How far a clock jumps, either way.
const CLOCK_SECONDS: usize = 7200;
/// Between two requests to move a partition.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Between two brokers of a rolling restart, and after everything else: until the cluster is whole.
pub(crate) const HEAL_LIMIT: Duration = Duration::from_secs(120);

/// What must be undone.
#[derive(Debug)]
pub(crate) enum Undo {
    /// Nothing.
    Nothing,
    /// These are started.
    Start(Vec<usize>),
    /// This one goes on.
    Continue(usize),
    /// These get their power back.
    PowerOn(Vec<usize>),
    /// Packets pass again.
    Reconnect(Vec<usize>),
    /// This disk is fast again.
    Unthrottle(usize),
    /// This disk has space again.
    Empty(usize),
    /// This clock is right again.
    SetClock(usize),
    /// This partition gets all its replicas back.
    AllReplicas(i32, Vec<i32>),
}

/// What was done.
#[derive(Debug)]
pub(crate) struct Begun {
    /// In words.
    pub(crate) words: String,
    pub(crate) undo: Undo,
    /// Whether it met somebody: of two faults at once, the second one may find its broker dead.
    pub(crate) took_effect: bool,
}

impl Begun {
    fn new(words: impl Into<String>, undo: Undo) -> Self {
        Self {
            words: words.into(),
            undo,
            took_effect: true,
        }
    }

    fn only_if(mut self, took_effect: bool) -> Self {
        self.took_effect = took_effect;
        if !took_effect {
            self.words += ", in vain";
        }
        self
    }
}

/// Does something of this kind to some broker.
pub(crate) fn begin(
    kind: FaultKind,
    topic: &str,
    partitions: i32,
    dice: &mut Dice,
    bed: &mut Bed,
) -> Result<Begun> {
    let brokers = bed.brokers();
    let order = dice.order(brokers);
    let (one, other) = (order[0], order[1]);
    let everybody: Vec<usize> = (0..brokers).collect();
    let name = kind.name();
    let done = match kind {
        FaultKind::Kill => {
            let killed = bed.kill(&[one])?;
            Begun::new(format!("{name} broker {one}"), Undo::Start(vec![one]))
                .only_if(!killed.is_empty())
        }
        FaultKind::KillAll => {
            bed.kill(&everybody)?;
            Begun::new(name, Undo::Start(order))
        }
        FaultKind::Pause => {
            let runs = bed.signal(one, libc::SIGSTOP)?;
            Begun::new(format!("{name} broker {one}"), Undo::Continue(one)).only_if(runs)
        }
        FaultKind::PowerLoss => {
            bed.power_off(&[one])?;
            Begun::new(format!("{name} broker {one}"), Undo::PowerOn(vec![one]))
        }
        FaultKind::PowerLossAll => {
            bed.power_off(&everybody)?;
            Begun::new(name, Undo::PowerOn(order))
        }
        FaultKind::OneWay => {
            bed.network()?.drop_from(one, Source::Broker(other))?;
            let words = format!("{name} broker {one} does not hear {other}");
            Begun::new(words, Undo::Reconnect(vec![one]))
        }
        FaultKind::Ring => Begun::new(ring(&order, bed)?, Undo::Reconnect(everybody)),
        FaultKind::Isolate => isolate(one, brokers, dice, bed)?,
        FaultKind::Reset => {
            bed.network()?.reset(one)?;
            Begun::new(format!("{name} broker {one}"), Undo::Reconnect(vec![one]))
        }
        FaultKind::SlowDisk => {
            bed.disk(one)?.throttle(SLOW)?;
            Begun::new(format!("{name} broker {one}"), Undo::Unthrottle(one))
        }
        FaultKind::FullDisk => {
            bed.disk(one)?.fill()?;
            Begun::new(format!("{name} broker {one}"), Undo::Empty(one))
        }
        FaultKind::Clock => {
            let seconds =
                i64::try_from(dice.below(2 * CLOCK_SECONDS))? - i64::try_from(CLOCK_SECONDS)?;
            bed.clock(one)?.jump(seconds)?;
            let words = format!("{name} broker {one} by {seconds} s");
            Begun::new(words, Undo::SetClock(one))
        }
        FaultKind::Restart => {
            for &id in &order {
                if bed.terminate(id)? {
                    bed.run(id)?;
                }
                wait_whole(bed, HEAL_LIMIT)?;
            }
            Begun::new(name, Undo::Nothing)
        }
        FaultKind::Reassign => {
            let partition = i32::try_from(dice.below(usize::try_from(partitions)?))?;
            reassign(topic, partition, &order, bed)?
        }
        FaultKind::Elect => {
            // Whoever cannot be asked now was tormented by another fault.
            let asked = bed
                .addresses()
                .iter()
                .any(|address| wire::elect_preferred(address).is_ok());
            Begun::new(name, Undo::Nothing).only_if(asked)
        }
        FaultKind::Topics => Begun::new(name, Undo::Nothing),
    };
    Ok(done)
}

/// Undoes it.
pub(crate) fn end(undo: Undo, topic: &str, bed: &mut Bed) -> Result<()> {
    match undo {
        Undo::Nothing => Ok(()),
        Undo::Start(ids) => ids.into_iter().try_for_each(|id| bed.run(id)),
        Undo::Continue(id) => bed.signal(id, libc::SIGCONT).map(drop),
        Undo::PowerOn(ids) => bed.power_on(&ids),
        Undo::Reconnect(ids) => ids.into_iter().try_for_each(|id| bed.network()?.heal(id)),
        Undo::Unthrottle(id) => bed.disk(id)?.throttle(0),
        Undo::Empty(id) => bed.disk(id)?.empty(),
        Undo::SetClock(id) => bed.clock(id)?.jump(0),
        Undo::AllReplicas(partition, replicas) => {
            must_reassign(topic, partition, &replicas, &bed.addresses())
        }
    }
}

/// Cuts every pair of brokers that are not neighbours on a ring; among three, one pair.
fn ring(order: &[usize], bed: &Bed) -> Result<String> {
    let (network, count) = (bed.network()?, order.len());
    for (at, &one) in order.iter().enumerate() {
        for (there, &other) in order.iter().enumerate() {
            let distance = at.abs_diff(there).min(count - at.abs_diff(there));
            let cut = if count == 3 {
                at.min(there) == 0 && at.max(there) == 1
            } else {
                distance > 1
            };
            if cut {
                network.drop_from(one, Source::Broker(other))?;
            }
        }
    }
    Ok(format!("ring {order:?}"))
}

fn isolate(one: usize, brokers: usize, dice: &mut Dice, bed: &Bed) -> Result<Begun> {
    let network = bed.network()?;
    let from_brokers = dice.percent(80);
    let from_clients = !from_brokers || dice.percent(40);
    if from_brokers {
        for other in (0..brokers).filter(|other| *other != one) {
            network.drop_from(one, Source::Broker(other))?;
            network.drop_from(other, Source::Broker(one))?;
        }
    }
    if from_clients {
        network.drop_from(one, Source::Clients)?;
    }
    let from = match (from_brokers, from_clients) {
        (true, true) => "everybody",
        (true, false) => "brokers",
        (false, _) => "clients",
    };
    let words = format!("isolate broker {one} from {from}");
    Ok(Begun::new(words, Undo::Reconnect((0..brokers).collect())))
}

/// Takes one replica away, or with more than three brokers moves the partition; to be undone by three replicas in another order.
fn reassign(topic: &str, partition: i32, order: &[usize], bed: &Bed) -> Result<Begun> {
    let ids: Vec<i32> = order
        .iter()
        .map(|id| i32::try_from(*id))
        .collect::<Result<_, _>>()?;
    let count = if ids.len() > 3 { 3 } else { ids.len() - 1 };
    let replicas = ids[..count].to_vec();
    let back: Vec<i32> = ids.iter().rev().take(3).copied().collect();
    let accepted = bed
        .addresses()
        .iter()
        .any(|address| wire::reassign(address, topic, partition, replicas.clone()).is_ok());
    let words = format!("reassign {topic}/{partition} to {replicas:?}");
    Ok(Begun::new(words, Undo::AllReplicas(partition, back)).only_if(accepted))
}

fn must_reassign(
    topic: &str,
    partition: i32,
    replicas: &[i32],
    addresses: &[String],
) -> Result<()> {
    let what = format!("{topic}/{partition} to have the replicas {replicas:?}");
    // Asked for again and again: an earlier request, of which nobody heard any more, may still be carried out after this one.
    wait_for_every(ASK_EVERY, &what, HEAL_LIMIT, || {
        let found: Vec<Vec<i32>> = addresses
            .iter()
            .map(|address| replicas_of(address, topic, partition))
            .collect::<Result<_>>()?;
        if found.iter().all(|found| found == replicas) {
            return Ok(Some(()));
        }
        let mut last = anyhow!("brokers tell {found:?}");
        for address in addresses {
            match wire::reassign(address, topic, partition, replicas.to_vec()) {
                Ok(()) => break,
                Err(error) => last = error,
            }
        }
        Err(last)
    })
}

/// The replicas of a partition as a broker tells.
fn replicas_of(address: &str, topic: &str, partition: i32) -> Result<Vec<i32>> {
    let metadata = wire::metadata(address)?;
    metadata
        .topics
        .iter()
        .filter(|known| known.name.as_deref() == Some(topic))
        .flat_map(|topic| &topic.partitions)
        .find(|known| known.partition_index == partition)
        .map(|known| known.replica_nodes.clone())
        .with_context(|| format!("{address} does not know {topic}/{partition}"))
}
