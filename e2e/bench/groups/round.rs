//! One repetition: a topic with a steady producer, a group, the event, and how long it takes until the group is whole again.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use taffrail_e2e::cluster::Cluster;
use taffrail_e2e::wait::{wait_for, wait_for_every};
use taffrail_e2e::wire;
use taffrail_protocol::messages::find_coordinator_request::FindCoordinatorRequest;

use super::event::Event;
use super::follower::Follower;
use super::told::{Told, all_committed, whole_again};
use crate::account::Steady;
use crate::series::phase;

const PARTITIONS: usize = 12;
/// Of quiet before the event.
const STEADY: Duration = Duration::from_secs(2);
/// Members' heartbeats, which all follow the last rebalance, come this far apart.
const HEARTBEATS: Duration = Duration::from_secs(3);
/// For a group to become whole.
const LIMIT: Duration = Duration::from_secs(120);
/// How often members' outputs are looked at; times are the members' own.
const LOOK: Duration = Duration::from_millis(200);

/// What one repetition found.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// From the event until the group is whole again.
    pub(crate) seconds: f64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.seconds)
    }
}

/// Runs one repetition; afterwards the cluster is as before.
pub(crate) fn run(cluster: &mut Cluster, event: Event, rep: usize) -> Result<Outcome> {
    // The topic has the group's name.
    let group = format!("groups-{event:?}-{rep}");
    let admin = cluster.admin()?;
    let config = [("min.insync.replicas", "2")];
    admin.create_topic(&group, PARTITIONS as i32, 3, &config)?;
    admin.wait_in_sync(&group, PARTITIONS, 3, LIMIT)?;
    let folder = tempfile::Builder::new()
        .prefix("taffrail-bench-")
        .tempdir()?;
    let steady = Steady::start(&cluster.bootstrap(), &group, PARTITIONS, "")?;
    let mut members = Vec::new();
    for _ in 0..event.members_before() {
        join(cluster, &group, &mut members, folder.path())?;
    }
    wait_whole(&mut members, now())?;
    thread::sleep(STEADY + phase(HEARTBEATS, rep));

    let coordinator = coordinator(cluster, &group)?;
    let at = now();
    let end = match event {
        Event::Join => {
            join(cluster, &group, &mut members, folder.path())?;
            wait_whole(&mut members, at)?
        }
        Event::KillMember => {
            members.remove(rep % members.len()).kill()?;
            wait_whole(&mut members, at)?
        }
        Event::KillCoordinator => {
            cluster.kill(coordinator)?;
            let gone = now();
            let committed = wait_told("every member to commit again", &mut members, |told| {
                all_committed(told, gone)
            })?;
            let whole = wait_whole(&mut members, gone)?;
            cluster.start_broker(coordinator)?;
            committed.max(whole)
        }
    };
    drop(members);
    steady.end()?;
    admin.wait_in_sync(&group, PARTITIONS, 3, LIMIT)?;
    admin.delete_topic(&group)?;
    let took = end.saturating_sub(at);
    Ok(Outcome {
        seconds: Duration::from_micros(u64::try_from(took)?).as_secs_f64(),
    })
}

fn join(cluster: &Cluster, group: &str, members: &mut Vec<Follower>, folder: &Path) -> Result<()> {
    let index = members.len();
    members.push(Follower::start(&cluster.bootstrap(), group, index, folder)?);
    Ok(())
}

fn wait_whole(members: &mut [Follower], since: u128) -> Result<u128> {
    wait_told("all partitions to be read", members, |told| {
        whole_again(told, PARTITIONS, since)
    })
}

fn wait_told(
    what: &str,
    members: &mut [Follower],
    done: impl Fn(&[Told]) -> Option<u128>,
) -> Result<u128> {
    wait_for_every(LOOK, what, LIMIT, || {
        let told = members.iter_mut().map(Follower::told);
        Ok(done(&told.collect::<Result<Vec<_>>>()?))
    })
}

/// The id of the broker that coordinates a group.
fn coordinator(cluster: &Cluster, group: &str) -> Result<usize> {
    let request = FindCoordinatorRequest {
        coordinator_keys: vec![group.to_owned()],
        ..FindCoordinatorRequest::default()
    };
    let asked = cluster.members().first().context("there are brokers")?;
    let address = asked.client.address();
    wait_for("a coordinator", LIMIT, || {
        let answer = wire::ask(&address, &request)?;
        let found = answer.coordinators.first().context("one was asked for")?;
        if found.error_code != 0 {
            bail!("error {}", found.error_code);
        }
        Ok(Some(usize::try_from(found.node_id)?))
    })
}

/// Microseconds since 1970, as members tell them.
fn now() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_micros()
}
