//! One measurement: a row's load against one peer, with what it cost the peer.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use taffrail_e2e::tools::sibling;
use taffrail_e2e::wait::wait_until;

use crate::machine::{self, Moment, Span};
use crate::peer::{Peer, PeerKind};
use crate::row::{CPU_PER_GB, CPU_PER_REQUEST, E2E_P99, Kind, RESIDENT, Row, START};

/// More of the machine taken by its host than this, and the run is repeated.
const STEAL_PERCENT_MAX: f64 = 2.0;
/// After that many repeats the last run counts, and the table says so.
const REPEATS_MAX: usize = 3;
/// Between two runs: files go, buffers are written, JVMs collect.
const PAUSE: Duration = Duration::from_millis(1500);
/// How often a topic is read for one cell: the kernel tells CPU time in hundredths of a second, and one pass takes a dozen of them.
const PASSES: u64 = 5;

/// Figures by name, in the order in which they are printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// The figures.
    pub(crate) figures: BTreeMap<&'static str, f64>,
    /// Percent of the machine that its host took meanwhile.
    pub(crate) steal_percent: f64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.figures {
            write!(f, "{name} {value:.2}, ")?;
        }
        write!(f, "steal {:.1} %", self.steal_percent)
    }
}

/// Measures one row on one peer, again if the host took too much of the machine.
pub(crate) fn measure(row: &Row, peer: &mut Peer) -> Result<Cell> {
    let mut cell = measure_once(row, peer)?;
    for _ in 0..REPEATS_MAX {
        if cell.steal_percent <= STEAL_PERCENT_MAX {
            break;
        }
        cell = measure_once(row, peer)?;
    }
    Ok(cell)
}

fn measure_once(row: &Row, peer: &mut Peer) -> Result<Cell> {
    match row.kind {
        Kind::Memory => {
            thread::sleep(PAUSE);
            Ok(Cell {
                figures: BTreeMap::from([(RESIDENT, peer.resident_mb()?)]),
                steal_percent: 0.0,
            })
        }
        Kind::Start { partitions } => start(peer, partitions),
        Kind::Produce {
            size, count, warm, ..
        } => {
            if warm {
                // The records, their copies on other brokers, and as much again as the client's queue.
                machine::warm_memory(
                    size * count * 6 / 5 * peer.pids().len() as u64 + (500 << 20),
                )?;
            }
            with_topic(row, peer, |topic| {
                run_client(peer, &produce(row, topic)?, per_gb)
            })
        }
        Kind::Consume { size, count } => with_topic(row, peer, |topic| {
            // What was produced a moment ago is in the page cache.
            let fill = Row {
                kind: Kind::Produce {
                    size,
                    count,
                    batch_bytes: None,
                    warm: true,
                },
                ..*row
            };
            run_client(peer, &produce(&fill, topic)?, |_, _| Ok(Cell::default()))?;
            thread::sleep(PAUSE);
            let arguments = client_arguments(
                "consume",
                topic,
                &[
                    ("--count", count),
                    ("--partitions", partitions(row)?),
                    ("--passes", PASSES),
                ],
            );
            run_client(peer, &arguments, per_gb)
        }),
        Kind::Small {
            size,
            connections,
            seconds,
        } => with_topic(row, peer, |topic| {
            let arguments = client_arguments(
                "small",
                topic,
                &[
                    ("--size", size),
                    ("--connections", connections),
                    ("--seconds", seconds),
                ],
            );
            run_client(peer, &arguments, |span, answer| {
                let requests = number(answer, "requests")?;
                Ok(Cell {
                    figures: BTreeMap::from([
                        (CPU_PER_REQUEST, (span.user + span.system) * 1e6 / requests),
                        ("requests/s", requests / number(answer, "seconds")?),
                        ("p50 us", number(answer, "p50")?),
                        ("p99 us", number(answer, "p99")?),
                    ]),
                    steal_percent: span.steal_percent,
                })
            })
        }),
        Kind::Latency { rate, seconds } => with_topic(row, peer, |topic| {
            let mut arguments = client_arguments(
                "latency",
                topic,
                &[
                    ("--rate", rate),
                    ("--seconds", seconds),
                    ("--size", 1024),
                    ("--partitions", partitions(row)?),
                ],
            );
            arguments.extend(["--acks".to_owned(), row.acks().to_owned()]);
            run_client(peer, &arguments, |span, answer| {
                let of = |what: &str, which: &str| {
                    number(
                        answer.get(what).context("no such part of the answer")?,
                        which,
                    )
                };
                Ok(Cell {
                    figures: BTreeMap::from([
                        (E2E_P99, of("e2e", "p99")?),
                        ("e2e p50 us", of("e2e", "p50")?),
                        ("ack p50 us", of("ack", "p50")?),
                        ("ack p99 us", of("ack", "p99")?),
                        (
                            "CPU us/message",
                            (span.user + span.system) * 1e6 / number(answer, "messages")?,
                        ),
                    ]),
                    steal_percent: span.steal_percent,
                })
            })
        }),
    }
}

/// Makes a topic for one run and removes it afterwards.
fn with_topic(row: &Row, peer: &Peer, run: impl FnOnce(&str) -> Result<Cell>) -> Result<Cell> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let topic = format!("bench-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    peer.create_topic(&topic, row.partitions)?;
    thread::sleep(PAUSE);
    let cell = run(&topic)?;
    peer.delete_topic(&topic)?;
    thread::sleep(PAUSE);
    Ok(cell)
}

fn start(peer: &mut Peer, partitions: i32) -> Result<Cell> {
    const TOPIC: &str = "many-partitions";
    if partitions > 0 {
        peer.create_topic(TOPIC, partitions)?;
    }
    let before = Moment::now(&[])?;
    let seconds = peer.restart()?;
    let steal_percent = before.until(&Moment::now(&[])?).steal_percent;
    if partitions > 0 {
        peer.delete_topic(TOPIC)?;
    }
    Ok(Cell {
        figures: BTreeMap::from([(START, seconds)]),
        steal_percent,
    })
}

/// The client's command line for a row of producing.
fn produce(row: &Row, topic: &str) -> Result<Vec<String>> {
    let Kind::Produce {
        size,
        count,
        batch_bytes,
        ..
    } = row.kind
    else {
        bail!("not a row of producing")
    };
    let mut arguments = client_arguments(
        "produce",
        topic,
        &[
            ("--size", size),
            ("--count", count),
            ("--partitions", partitions(row)?),
        ],
    );
    arguments.extend(["--acks".to_owned(), row.acks().to_owned()]);
    if let Some(bytes) = batch_bytes {
        arguments.extend(["-X".to_owned(), format!("batch.size={bytes}")]);
    }
    Ok(arguments)
}

fn client_arguments(command: &str, topic: &str, numbers: &[(&str, u64)]) -> Vec<String> {
    let mut arguments = vec![command.to_owned(), "--topic".to_owned(), topic.to_owned()];
    for (name, value) in numbers {
        arguments.extend([(*name).to_owned(), value.to_string()]);
    }
    arguments
}

fn partitions(row: &Row) -> Result<u64> {
    Ok(u64::try_from(row.partitions)?)
}

/// Runs the client and hands what it printed, with what the peer used meanwhile, to `read`.
pub(crate) fn run_client(
    peer: &Peer,
    arguments: &[String],
    read: impl FnOnce(Span, &Value) -> Result<Cell>,
) -> Result<Cell> {
    let mut command = Command::new(sibling("taffrail-e2e-client")?);
    command
        .args(arguments)
        .args(["--bootstrap", &peer.bootstrap()]);
    if peer.kind() == PeerKind::NullBroker {
        // It has no consumer groups to ask for; librdkafka need not look for the coordinator of a reader that assigns.
        command.args(["-X", "broker.version.fallback=0.11.0"]);
    }
    let before = Moment::now(&peer.pids())?;
    let output = command.output()?;
    let span = before.until(&Moment::now(&peer.pids())?);
    if !output.status.success() {
        bail!(
            "the client failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let answer: Value = serde_json::from_slice(&output.stdout).context("the client's answer")?;
    read(span, &answer)
}

fn per_gb(span: Span, answer: &Value) -> Result<Cell> {
    let bytes = number(answer, "bytes")?;
    let messages = number(answer, "messages")?;
    // A producer tells its rate at 99 %; a consumer's clock runs from its first record on.
    let rate =
        number(answer, "rate").or_else(|_| anyhow::Ok(messages / number(answer, "seconds")?))?;
    Ok(Cell {
        figures: BTreeMap::from([
            (CPU_PER_GB, (span.user + span.system) * 1e9 / bytes),
            ("user s/GB", span.user * 1e9 / bytes),
            ("MB/s", rate * bytes / messages / 1e6),
        ]),
        steal_percent: span.steal_percent,
    })
}

fn number(answer: &Value, name: &str) -> Result<f64> {
    answer
        .get(name)
        .and_then(Value::as_f64)
        .with_context(|| format!("no number {name} in the answer"))
}

/// Asks for Metadata, version 4 and no topics, until an answer names a broker.
pub(crate) fn wait_for_metadata(address: &str, limit: Duration) -> Result<()> {
    const REQUEST: &[u8] = &[
        0, 0, 0, 20, // frame length
        0, 3, 0, 4, 0, 0, 0, 1, // Metadata, version 4, correlation id
        0, 5, b'b', b'e', b'n', b'c', b'h', // client id
        0, 0, 0, 0, // no topics
        0, // no automatic creation
    ];
    wait_until(&format!("Metadata from {address}"), limit, || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(REQUEST)?;
        // Length, correlation id, throttle time, number of brokers.
        let mut start = [0; 16];
        stream.read_exact(&mut start)?;
        Ok(start[12..16] != [0; 4])
    })
}
