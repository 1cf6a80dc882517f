//! Brokers that are killed under load: nothing acknowledged is lost, produce goes on, and everything heals without a hand.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::{BrokerKind, Cluster};
use taffrail_e2e::http;
use taffrail_e2e::load::{Load, LoadSpec, Outcomes, read_back};
use taffrail_e2e::logcheck;
use taffrail_e2e::tools::number;
use taffrail_e2e::wait::{patient, wait_until};

const TOPIC: &str = "load";
const PARTITIONS: i32 = 6;
/// Records per second: well below what two cores can do, so that a gap is a fault and not a queue.
const RATE: u64 = 2000;
/// Of steady load before something is done to the cluster.
const BEFORE: Duration = Duration::from_secs(3);
/// For a broker that was started again to be in every ISR, and for a cluster to lead all its partitions.
const HEAL_LIMIT: Duration = Duration::from_secs(60);

/// How long a partition may go without an acknowledgement after a kill.
fn silence_limit(kind: BrokerKind) -> Duration {
    match kind {
        // A closed connection, a look, an election of the quorum at most; the rest is for a busy machine.
        BrokerKind::Taffrail => Duration::from_secs(5),
        // Its session timeout of 9 s, an election, and clients that find out.
        BrokerKind::Kafka => Duration::from_secs(30),
    }
}

#[test]
fn kill_of_each_broker_in_turn_loses_nothing_acknowledged() -> Result<()> {
    let mut cluster = Cluster::of(3)?;
    let admin = cluster.admin()?;
    admin.create_topic(TOPIC, PARTITIONS, 3, &[("min.insync.replicas", "2")])?;
    let load = start_load(&cluster)?;
    thread::sleep(BEFORE);
    let mut kills = Vec::new();
    // One of them is the active controller: all three are killed, so that it is among them.
    for _ in 0..number("E2E_ROUNDS", 1) {
        for id in 0..3 {
            kills.push((id, Instant::now()));
            cluster.kill(id)?;
            let before = load.acknowledged();
            wait_until(
                &format!("produce to go on without broker {id}"),
                HEAL_LIMIT,
                || Ok(load.acknowledged() > before + 2 * RATE),
            )?;
            cluster.start_broker(id)?;
            admin.wait_in_sync(TOPIC, PARTITIONS as usize, 3, HEAL_LIMIT)?;
            thread::sleep(BEFORE);
        }
    }
    let outcomes = load.stop()?;
    must_be_whole(&cluster, &outcomes)?;
    for (id, at) in kills {
        let silence = outcomes.longest_silence_between(at, at + HEAL_LIMIT);
        println!(
            "broker {id} killed: some partition without an acknowledgement for {:.2} s",
            silence.as_secs_f64()
        );
        ensure!(
            silence < patient(silence_limit(cluster.kind())),
            "broker {id} killed: no acknowledgement for {silence:?}"
        );
    }
    cluster.finish();
    Ok(())
}

#[test]
fn kill_of_all_brokers_at_once_heals_without_a_hand() -> Result<()> {
    let mut cluster = Cluster::of(3)?;
    cluster
        .admin()?
        .create_topic(TOPIC, PARTITIONS, 3, &[("min.insync.replicas", "2")])?;
    let load = start_load(&cluster)?;
    thread::sleep(BEFORE);
    for id in 0..3 {
        cluster.kill(id)?;
    }
    let before = load.acknowledged();
    for id in 0..3 {
        cluster.start_broker(id)?;
    }
    cluster
        .admin()?
        .wait_in_sync(TOPIC, PARTITIONS as usize, 3, HEAL_LIMIT)?;
    wait_until("produce to go on", HEAL_LIMIT, || {
        Ok(load.acknowledged() > before + RATE)
    })?;
    must_be_whole(&cluster, &load.stop()?)?;
    cluster.finish();
    Ok(())
}

#[test]
fn kill_of_the_only_replica_of_a_topic_keeps_what_was_acknowledged() -> Result<()> {
    let mut cluster = Cluster::of(3)?;
    let admin = cluster.admin()?;
    admin.create_assigned(TOPIC, &[1], &[])?;
    let load = Load::start(
        &cluster.bootstrap(),
        LoadSpec {
            topic: TOPIC.to_owned(),
            partitions: 1,
            rate: RATE,
        },
    )?;
    thread::sleep(BEFORE);
    cluster.kill(1)?;
    let before = load.acknowledged();
    thread::sleep(Duration::from_secs(1));
    cluster.start_broker(1)?;
    admin.wait_in_sync(TOPIC, 1, 1, HEAL_LIMIT)?;
    wait_until("produce to go on", HEAL_LIMIT, || {
        Ok(load.acknowledged() > before + RATE)
    })?;
    must_be_whole(&cluster, &load.stop()?)?;
    if BrokerKind::from_environment()? == BrokerKind::Taffrail {
        let counted = elections_without_proof(&cluster)?;
        ensure!(counted == 1.0, "one election was counted {counted} times");
    }
    cluster.finish();
    Ok(())
}

#[test]
fn paused_broker_that_wakes_up_does_no_harm() -> Result<()> {
    let mut cluster = Cluster::of(3)?;
    let admin = cluster.admin()?;
    admin.create_topic(TOPIC, PARTITIONS, 3, &[("min.insync.replicas", "2")])?;
    let load = start_load(&cluster)?;
    thread::sleep(BEFORE);
    // Longer than any session: the others have elected new leaders when it wakes up and still believes that it leads.
    cluster.signal(0, libc::SIGSTOP)?;
    let before = load.acknowledged();
    wait_until(
        "produce to go on without the paused broker",
        HEAL_LIMIT,
        || Ok(load.acknowledged() > before + 4 * RATE),
    )?;
    cluster.signal(0, libc::SIGCONT)?;
    admin.wait_in_sync(TOPIC, PARTITIONS as usize, 3, HEAL_LIMIT)?;
    thread::sleep(BEFORE);
    must_be_whole(&cluster, &load.stop()?)?;
    cluster.finish();
    Ok(())
}

#[test]
fn clean_stop_of_a_broker_hands_leadership_over() -> Result<()> {
    let mut cluster = Cluster::of(3)?;
    let admin = cluster.admin()?;
    admin.create_topic(TOPIC, PARTITIONS, 3, &[("min.insync.replicas", "2")])?;
    let load = start_load(&cluster)?;
    thread::sleep(BEFORE);
    let at = Instant::now();
    let took = cluster.stop(1)?;
    println!("broker 1 stopped in {:.2} s", took.as_secs_f64());
    thread::sleep(BEFORE);
    cluster.start_broker(1)?;
    admin.wait_in_sync(TOPIC, PARTITIONS as usize, 3, HEAL_LIMIT)?;
    let outcomes = load.stop()?;
    must_be_whole(&cluster, &outcomes)?;
    let silence = outcomes.longest_silence_between(at, at + took + BEFORE);
    println!(
        "some partition without an acknowledgement for {:.2} s",
        silence.as_secs_f64()
    );
    ensure!(
        silence < patient(Duration::from_secs(5)),
        "a clean stop interrupted produce for {silence:?}"
    );
    cluster.finish();
    Ok(())
}

fn start_load(cluster: &Cluster) -> Result<Load> {
    Load::start(
        &cluster.bootstrap(),
        LoadSpec {
            topic: TOPIC.to_owned(),
            partitions: PARTITIONS,
            rate: RATE,
        },
    )
}

/// As a dashboard adds it up over all brokers.
fn elections_without_proof(cluster: &Cluster) -> Result<f64> {
    let name = "kafka_controller_controllerstats_uncleanleaderelections_total";
    let mut sum = 0.0;
    for member in cluster.members() {
        let found = http::metric(&member.http("/metrics"), name)?;
        sum += found.with_context(|| format!("broker {} has no {name}", member.id))?;
    }
    Ok(sum)
}

/// Reads everything back twice and compares it with what was acknowledged.
fn must_be_whole(cluster: &Cluster, outcomes: &Outcomes) -> Result<()> {
    let readers = vec![
        read_back(&cluster.bootstrap(), TOPIC)?,
        read_back(&cluster.bootstrap(), TOPIC)?,
    ];
    let verdict = logcheck::check(&outcomes.sent, &readers);
    let unknown = outcomes.sent.len() - verdict.acknowledged;
    println!(
        "{} records acknowledged, {unknown} of unknown fate ({:?})",
        verdict.acknowledged, outcomes.first_error
    );
    verdict.must_hold()?;
    ensure!(verdict.acknowledged > 0, "nothing was acknowledged");
    Ok(())
}
