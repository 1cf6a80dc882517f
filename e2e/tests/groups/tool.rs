//! Kafka's `kafka-consumer-groups` and librdkafka's admin see groups, move their offsets, and delete them once nobody is there.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use taffrail_e2e::admin::Admin;
use taffrail_e2e::cluster::{Cluster, ClusterSpec};
use taffrail_e2e::java::consumer_groups;
use taffrail_e2e::text::Text;
use taffrail_e2e::wait::wait_until;

const GROUP: &str = "readers";
const LINES: usize = 100;
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_group_is_shown_while_it_reads_and_reset_and_deleted_when_it_has_gone() -> Result<()> {
    let cluster =
        Cluster::start(ClusterSpec::new(1)?.with("group.initial.rebalance.delay.ms", "0"))?;
    let bootstrap = cluster.bootstrap();
    let admin = cluster.admin()?;
    admin.create_topic("orders", 2, 1, &[])?;
    admin.create_topic("left", 1, 1, &[])?;
    Text::of(LINES)?.produce(&bootstrap, "orders", 0, LINES, &[])?;
    let reader = consumer(&bootstrap)?;
    read_all(&reader)?;
    // A topic that the group once read.
    let mut left = TopicPartitionList::new();
    left.add_partition_offset("left", 0, Offset::Offset(0))?;
    reader.commit(&left, CommitMode::Sync)?;
    check_while_it_reads(&bootstrap, &admin)?;

    drop(reader);
    let reset = [
        "--reset-offsets",
        "--to-earliest",
        "--execute",
        "--group",
        GROUP,
        "--topic",
        "orders",
    ];
    let told = consumer_groups(&bootstrap, &reset)?;
    ensure!(!told.contains("Error"), "{told}");
    let reader = consumer(&bootstrap)?;
    let mut wanted = TopicPartitionList::new();
    for (topic, partition) in [("orders", 0), ("orders", 1), ("left", 0)] {
        wanted.add_partition(topic, partition);
    }
    let committed = reader.committed_offsets(wanted, LIMIT)?;
    let offset = |topic, partition| {
        committed
            .find_partition(topic, partition)
            .map(|found| found.offset())
    };
    ensure!(
        offset("orders", 0) == Some(Offset::Offset(0)),
        "{committed:?}"
    );
    ensure!(
        offset("orders", 1) == Some(Offset::Offset(0)),
        "{committed:?}"
    );
    ensure!(offset("left", 0) == Some(Offset::Invalid), "{committed:?}");

    let told = consumer_groups(&bootstrap, &["--delete", "--group", GROUP])?;
    ensure!(told.contains("was successful"), "{told}");
    let listed = reader.fetch_group_list(None, LIMIT)?;
    ensure!(listed.groups().is_empty(), "a deleted group is listed");
    cluster.finish();
    Ok(())
}

/// What tools may see and must not do while somebody reads, each in a process of its own at the same time.
fn check_while_it_reads(bootstrap: &str, admin: &Admin) -> Result<()> {
    let run = |arguments: &'static [&'static str]| move || consumer_groups(bootstrap, arguments);
    let (described, offsets) = thread::scope(|scope| {
        let described = scope.spawn(run(&["--describe", "--group", GROUP]));
        let offsets = scope.spawn(run(&[
            "--delete-offsets",
            "--group",
            GROUP,
            "--topic",
            "orders",
            "--topic",
            "left",
        ]));
        (described.join(), offsets.join())
    });
    let said = |output: thread::Result<Result<String>>| output.ok().context("a panic")?;

    let described = said(described)?;
    let rows: Vec<Vec<&str>> = described
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|row: &Vec<&str>| row.first() == Some(&GROUP) && row.get(1) == Some(&"orders"))
        .collect();
    // Group, topic, partition, current offset, log end offset, lag, consumer id, host, client id.
    let sum = rows
        .iter()
        .filter_map(|row| row.get(3)?.parse::<usize>().ok())
        .sum::<usize>();
    let all_read = rows
        .iter()
        .all(|row| row.get(5) == Some(&"0") && row.get(8) == Some(&"reader"));
    ensure!(rows.len() == 2 && sum == LINES && all_read, "{described}");

    let offsets = said(offsets)?;
    let line_of = |topic: &str| offsets.lines().find(|line| line.starts_with(topic));
    ensure!(
        line_of("left").is_some_and(|line| line.contains("Successful")),
        "{offsets}"
    );
    ensure!(
        line_of("orders").is_some_and(|line| line.contains("Error")),
        "{offsets}"
    );

    let deleted = admin.delete_group(GROUP)?;
    ensure!(
        deleted == Err(RDKafkaErrorCode::NonEmptyGroup),
        "{deleted:?}"
    );
    let watcher: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .create()?;
    let listed = watcher.fetch_group_list(None, LIMIT)?;
    let group = listed.groups().first().context("no group is listed")?;
    ensure!(
        (group.name(), group.state(), group.members().len()) == (GROUP, "Stable", 1),
        "{} is {}",
        group.name(),
        group.state()
    );
    Ok(())
}

fn consumer(bootstrap: &str) -> Result<BaseConsumer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", GROUP)
        .set("client.id", "reader")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()?)
}

fn read_all(reader: &BaseConsumer) -> Result<()> {
    reader.subscribe(&["orders"])?;
    let mut read = 0;
    wait_until("the group to read everything", LIMIT, || {
        while let Some(message) = reader.poll(Duration::from_millis(100)) {
            message?;
            read += 1;
        }
        Ok(read == LINES)
    })?;
    reader.commit_consumer_state(CommitMode::Sync)?;
    Ok(())
}
