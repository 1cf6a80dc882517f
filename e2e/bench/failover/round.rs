//! One repetition: a topic, a steady producer, the event, and afterwards the reckoning.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use taffrail_e2e::admin::Admin;
use taffrail_e2e::cluster::Cluster;
use taffrail_e2e::read::read_all;
use taffrail_e2e::wait::wait_until;

use super::event::Event;
use super::quorum;
use crate::account::{self, Account, Steady};
use crate::series::phase;

/// Of steady acknowledgements before the event, and after the producer goes on.
const STEADY: Duration = Duration::from_secs(2);
/// Clients have timers of a second.
const CLIENT_TIMER: Duration = Duration::from_secs(1);
/// A gap that ends this long before the event is the machine's.
const BEFORE: Duration = Duration::from_millis(500);
/// For produce to go on.
const GO_ON_LIMIT: Duration = Duration::from_secs(120);
/// For all replicas to be in sync once the broker runs again.
const HEAL_LIMIT: Duration = Duration::from_secs(120);
/// How long a paused broker stays paused after others have taken over.
const PAUSED_ON: Duration = Duration::from_secs(2);
/// How long one client that asks anew may try.
const ASKS_FOR: Duration = Duration::from_secs(2);
/// Records that clients of their own send have numbers from here on.
const ASKS_ANEW: u64 = 1 << 40;

/// What one repetition found.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Seconds; see the module above.
    pub(crate) gap: f64,
    /// Seconds from the event to the first record that a client which asked anew got acknowledged.
    pub(crate) anew: f64,
    /// Seconds from giving a record to the client to its acknowledgement, the longest.
    pub(crate) slowest: f64,
    /// Seconds that a stop took.
    pub(crate) stop_took: Option<f64>,
    pub(crate) acknowledged: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gap {:.3} s, asked anew {:.3} s, slowest {:.3} s, {} acknowledged, {} failed, {} lost, {} duplicated",
            self.gap,
            self.anew,
            self.slowest,
            self.acknowledged,
            self.failed,
            self.lost,
            self.duplicated
        )?;
        if let Some(took) = self.stop_took {
            write!(f, ", stopped in {took:.2} s")?;
        }
        Ok(())
    }
}

/// Who is who in a repetition.
struct Cast {
    victim: usize,
    /// The replicas of every partition, the leader first.
    replicas: Vec<i32>,
}

fn cast(event: Event, rep: usize, controller: usize, brokers: usize) -> Result<Cast> {
    let others: Vec<usize> = (0..brokers).filter(|id| *id != controller).collect();
    let victim = if event.meets_controller() {
        controller
    } else {
        others[rep % others.len()]
    };
    let leads = |id: &usize| match event {
        Event::KillFollower => *id != victim,
        _ => *id == victim,
    };
    let leader = (0..brokers).find(leads).context("somebody leads")?;
    let rest = (0..brokers).filter(|id| *id != leader);
    let replicas: Result<Vec<i32>, _> = std::iter::once(leader)
        .chain(rest)
        .map(i32::try_from)
        .collect();
    Ok(Cast {
        victim,
        replicas: replicas?,
    })
}

/// Runs one repetition; afterwards the cluster is as before.
pub(crate) fn run(
    cluster: &mut Cluster,
    event: Event,
    rep: usize,
    client_debug: &str,
) -> Result<Outcome> {
    let controller = quorum::controller(cluster)?;
    let cast = cast(event, rep, controller, cluster.members().len())?;
    let topic = format!("failover-{event:?}-{rep}");
    let admin = cluster.admin()?;
    let partitions = event.partitions();
    let config = [("min.insync.replicas", "2")];
    admin.create_all_assigned(&topic, partitions, &cast.replicas, &config)?;
    thread::sleep(Duration::from_secs(1));

    let steady = Steady::start(&cluster.bootstrap(), &topic, partitions, client_debug)?;
    wait_until("the producer to run", GO_ON_LIMIT, || {
        Ok(steady.look(|account| account.acknowledged.len() > 10))
    })?;
    thread::sleep(STEADY + phase(CLIENT_TIMER, rep));
    let bystander = Bystander::new(cluster, cast.victim, &topic)?;
    let mut stop_took = None;
    if !client_debug.is_empty() {
        eprintln!(
            "bench: {} {event} of broker {}",
            account::clock(),
            cast.victim
        );
    }
    let at = Instant::now();
    let asking = thread::spawn(move || bystander.ask());
    match event {
        Event::KillLeader
        | Event::KillLeaderOfMany
        | Event::KillLeaderAndController
        | Event::KillFollower => cluster.kill(cast.victim)?,
        Event::StopLeader | Event::StopLeaderAndController => {
            stop_took = Some(cluster.stop(cast.victim)?.as_secs_f64());
        }
        Event::PauseLeader => cluster.signal(cast.victim, libc::SIGSTOP)?,
    }
    let gone = Instant::now();
    let (first, number) = asking
        .join()
        .map_err(|_| anyhow!("the thread that asks anew panicked"))??;
    if event == Event::PauseLeader {
        thread::sleep(PAUSED_ON);
        cluster.signal(cast.victim, libc::SIGCONT)?;
    }
    wait_until("produce to go on", GO_ON_LIMIT, || {
        Ok(steady.look(|account| account.goes_on_after(gone)))
    })?;
    thread::sleep(STEADY);
    let account = steady.end()?;

    if event != Event::PauseLeader {
        cluster.start_broker(cast.victim)?;
    }
    admin.wait_in_sync(&topic, partitions, cast.replicas.len(), HEAL_LIMIT)?;
    let mut outcome = reckon(cluster, &topic, &account, number, at - BEFORE)?;
    outcome.stop_took = stop_took;
    outcome.anew = first.saturating_duration_since(at).as_secs_f64();
    if event == Event::PauseLeader {
        outcome.gap = outcome.anew;
    }
    admin.delete_topic(&topic)?;
    Ok(outcome)
}

/// Somebody who knows the other brokers and asks anew, again and again, until a record is acknowledged.
struct Bystander {
    bootstrap: String,
    admin: Admin,
    topic: String,
    victim: i32,
}

impl Bystander {
    fn new(cluster: &Cluster, victim: usize, topic: &str) -> Result<Self> {
        let others: Vec<String> = cluster
            .members()
            .iter()
            .filter(|member| member.id != victim)
            .map(|member| member.client.address())
            .collect();
        let bootstrap = others.join(",");
        Ok(Self {
            admin: Admin::connect(&bootstrap)?,
            bootstrap,
            topic: topic.to_owned(),
            victim: i32::try_from(victim)?,
        })
    }

    /// Gives when the record was acknowledged, and its number.
    fn ask(self) -> Result<(Instant, u64)> {
        let deadline = Instant::now() + GO_ON_LIMIT;
        let mut number = ASKS_ANEW;
        loop {
            ensure!(
                Instant::now() < deadline,
                "nobody took over from the broker"
            );
            let moved = self.admin.partitions(&self.topic).is_ok_and(|found| {
                found
                    .iter()
                    .all(|p| p.leader >= 0 && p.leader != self.victim)
            });
            if moved {
                number += 1;
                let sent = account::send_one(&self.bootstrap, &self.topic, number, ASKS_FOR)?;
                if let Some(at) = sent {
                    return Ok((at, number));
                }
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// How often each number is in the topic.
fn copies(cluster: &Cluster, topic: &str) -> Result<BTreeMap<u64, u64>> {
    let mut copies = BTreeMap::new();
    read_all(&cluster.bootstrap(), topic, |record| {
        if let Some(number) = account::number_of(record.value) {
            *copies.entry(number).or_insert(0) += 1;
        }
    })?;
    Ok(copies)
}

fn reckon(
    cluster: &Cluster,
    topic: &str,
    account: &Account,
    anew: u64,
    from: Instant,
) -> Result<Outcome> {
    let copies = copies(cluster, topic)?;
    let lost = account
        .numbers
        .iter()
        .chain(std::iter::once(&anew))
        .filter(|number| !copies.contains_key(number));
    Ok(Outcome {
        gap: account.longest_gap(from).as_secs_f64(),
        anew: 0.0,
        slowest: account.slowest(from).as_secs_f64(),
        stop_took: None,
        acknowledged: account.acknowledged.len() as u64,
        failed: account.failed,
        lost: lost.count() as u64,
        duplicated: copies.values().map(|count| count - 1).sum(),
    })
}
