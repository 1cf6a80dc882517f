//! Real text, in through one client and out through another: byte for byte, in order in each partition, each line once.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use taffrail_e2e::cluster::Cluster;
use taffrail_e2e::java;
use taffrail_e2e::python;
use taffrail_e2e::read::read_all;
use taffrail_e2e::text::Text;
use taffrail_e2e::tools::number;

const PARTITIONS: i32 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Client {
    Librdkafka,
    Java,
    Python,
}

/// One topic, written by one client and read by all.
struct Case {
    topic: &'static str,
    producer: Client,
    codec: &'static str,
    lines: usize,
}

#[test]
fn text_comes_back_through_every_pair_of_clients() -> Result<()> {
    let cluster = Cluster::of(3)?;
    let admin = cluster.admin()?;
    let many = number("E2E_LINES", 1_000_000);
    let few = many.min(30_000);
    let cases = [
        Case {
            topic: "by-librdkafka",
            producer: Client::Librdkafka,
            codec: "none",
            lines: many,
        },
        Case {
            topic: "by-java",
            producer: Client::Java,
            codec: "none",
            lines: many,
        },
        Case {
            topic: "gzip-by-python",
            producer: Client::Python,
            codec: "gzip",
            lines: few,
        },
        Case {
            topic: "snappy-by-java",
            producer: Client::Java,
            codec: "snappy",
            lines: few,
        },
        Case {
            topic: "lz4-by-librdkafka",
            producer: Client::Librdkafka,
            codec: "lz4",
            lines: few,
        },
        Case {
            topic: "zstd-by-java",
            producer: Client::Java,
            codec: "zstd",
            lines: few,
        },
    ];
    for case in &cases {
        let text = Text::of(case.lines)?;
        admin.create_topic(case.topic, PARTITIONS, 3, &[("min.insync.replicas", "2")])?;
        timed(
            &format!("{} written by {:?}", case.topic, case.producer),
            || write(&cluster, case, &text),
        )?;
        for reader in [Client::Librdkafka, Client::Java, Client::Python] {
            // The Python client decompresses only what its standard library can, and reads long texts for longer than `make test`
            // has time; whoever says how long they shall be has it.
            let is_too_long = case.lines > 200_000 && std::env::var_os("E2E_LINES").is_none();
            if reader == Client::Python && (!["none", "gzip"].contains(&case.codec) || is_too_long)
            {
                continue;
            }
            timed(&format!("{} read by {reader:?}", case.topic), || {
                read(&cluster, case, reader, &text)
            })?;
        }
    }
    cluster.finish();
    Ok(())
}

fn write(cluster: &Cluster, case: &Case, text: &Text) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("text");
    match case.producer {
        Client::Librdkafka => text.produce(
            &cluster.bootstrap(),
            case.topic,
            0,
            text.count(),
            &[("compression.type", case.codec)],
        ),
        Client::Java => {
            text.write_keyed(&file, 0, text.count())?;
            java::console_produce(&cluster.bootstrap(), case.topic, &file, case.codec)
        }
        Client::Python => {
            text.write_keyed(&file, 0, text.count())?;
            python::produce(
                &cluster.bootstrap(),
                case.topic,
                Path::new(&file),
                case.codec,
            )
        }
    }
}

/// The Java client reads as a group of one as well; groups of three have their own tests.
fn read(cluster: &Cluster, case: &Case, reader: Client, text: &Text) -> Result<()> {
    let mut checker = text.checker();
    match reader {
        Client::Librdkafka => {
            let mut first_fault = None;
            read_all(&cluster.bootstrap(), case.topic, |record| {
                if let Err(fault) = checker.in_order(record.partition, record.key, record.value) {
                    first_fault.get_or_insert(fault);
                }
            })?;
            if let Some(fault) = first_fault {
                return Err(fault);
            }
        }
        Client::Java => {
            let printed = java::console_read(&cluster.bootstrap(), case.topic, text.count())?;
            check_printed(&printed, &mut checker)?;
            if case.codec == "none" {
                read_assigned(cluster, case, text)?;
            }
        }
        Client::Python => {
            let command = python::consumer(&cluster.bootstrap(), case.topic, None, text.count())?;
            check_printed(
                &python::output(command, "the Python consumer")?,
                &mut checker,
            )?;
        }
    }
    ensure!(
        checker.records() == text.count(),
        "{} records instead of {}",
        checker.records(),
        text.count()
    );
    checker.complete()
}

/// The console consumer assigns one partition at a time.
fn read_assigned(cluster: &Cluster, case: &Case, text: &Text) -> Result<()> {
    let mut sizes = vec![0; usize::try_from(PARTITIONS)?];
    read_all(&cluster.bootstrap(), case.topic, |record| {
        sizes[record.partition as usize] += 1
    })?;
    let mut checker = text.checker();
    for (partition, size) in (0..).zip(sizes) {
        let printed =
            java::console_read_partition(&cluster.bootstrap(), case.topic, partition, size)?;
        check_printed(&printed, &mut checker)?;
    }
    checker.complete()
}

fn check_printed(printed: &[u8], checker: &mut taffrail_e2e::text::Checker<'_>) -> Result<()> {
    for line in printed
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let (partition, _, key, value) = java::parse_line(line)?;
        checker.in_order(partition, key, value)?;
    }
    Ok(())
}

/// Test output shows where the time goes.
fn timed(what: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    let result = step();
    println!("{what}: {:.1} s", start.elapsed().as_secs_f64());
    result.map_err(|error| error.context(what.to_owned()))
}
