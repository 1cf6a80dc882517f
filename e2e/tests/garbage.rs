//! Bytes that no client sends, and clients that behave badly: the broker serves on, the same process, in bounded memory.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use taffrail_e2e::cluster::{BrokerKind, Cluster, ClusterSpec};
use taffrail_e2e::process::resident_mb;
use taffrail_e2e::serving::must_serve;
use taffrail_e2e::text::Text;
use taffrail_e2e::tools::number;

/// Idle connections.
const IDLE: usize = 5000;
/// How much a Taffrail broker may grow over all of this, in MB: 5,000 connections and what a slow reader's answers may hold.
const GROWTH_MB: f64 = 150.0;
/// Api keys up to beyond the highest one that is known.
const KEYS: i16 = 100;

#[test]
fn garbage_leaves_the_broker_serving_in_bounded_memory() -> Result<()> {
    let cluster = Cluster::start(ClusterSpec::new(1)?)?;
    cluster.admin()?.create_topic("text", 1, 1, &[])?;
    let address = cluster.members()[0].client.address();
    let pid = cluster.members()[0].pid().context("the broker runs")?;
    must_serve(&cluster)?;
    let before = resident_mb(pid)?;

    for (name, attack) in ATTACKS {
        attack(&address).with_context(|| (*name).to_owned())?;
        must_serve(&cluster).with_context(|| format!("after {name}"))?;
        println!("{name}: resident {:.0} MB", resident_mb(pid)?);
    }
    let growth = resident_mb(pid)? - before;
    println!("grown by {growth:.0} MB");
    // A JVM takes the heap it is given.
    ensure!(
        cluster.kind() == BrokerKind::Kafka || growth < GROWTH_MB,
        "the broker has grown by {growth:.0} MB"
    );
    ensure!(
        cluster.members()[0].pid() == Some(pid) && fs::exists(format!("/proc/{pid}"))?,
        "the broker is another process"
    );
    cluster.finish();
    Ok(())
}

type Attack = fn(&str) -> Result<()>;

const ATTACKS: &[(&str, Attack)] = &[
    ("random bytes", random_bytes),
    ("truncated frames", truncated_frames),
    ("huge and negative lengths", wrong_lengths),
    ("huge counts in small requests", huge_counts),
    ("idle connections", idle_connections),
    ("a slow reader", slow_reader),
];

fn random_bytes(address: &str) -> Result<()> {
    let mut random = Random(1);
    for size in (0..300).map(|n| n * 7 + 1) {
        let bytes: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        send(address, &bytes)?;
        // And the same behind a length and a header that are right.
        let key = (random.next() % 60) as i16;
        send(address, &frame(key, (random.next() % 16) as i16, &bytes))?;
    }
    Ok(())
}

fn truncated_frames(address: &str) -> Result<()> {
    for key in 0..KEYS {
        let whole = frame(key, 0, &[0; 64]);
        for end in [3, 5, 11, whole.len() - 1] {
            send(address, &whole[..end])?;
        }
    }
    Ok(())
}

fn wrong_lengths(address: &str) -> Result<()> {
    for length in [i32::MAX, i32::MIN, -1, 0, 1, 7, 104_857_601] {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend([0; 32]);
        send(address, &bytes)?;
    }
    Ok(())
}

/// Every api in every version, with a body of bytes that read as the largest counts and lengths there are.
fn huge_counts(address: &str) -> Result<()> {
    let largest: Vec<u8> = [0x7f, 0xff, 0xff, 0xff].repeat(8);
    let varint: Vec<u8> = [0xff, 0xff, 0xff, 0xff, 0x0f].repeat(8);
    for key in 0..KEYS {
        for version in 0..18 {
            for body in [&largest, &varint] {
                send(address, &frame(key, version, body))?;
            }
        }
    }
    Ok(())
}

fn idle_connections(address: &str) -> Result<()> {
    let idle = number("E2E_IDLE_CONNECTIONS", IDLE);
    raise_descriptor_limit(idle as u64 + 1000)?;
    let connections: Vec<TcpStream> = (0..idle)
        .map(|_| TcpStream::connect(address))
        .collect::<std::io::Result<_>>()?;
    // While all of them are open, another one is served.
    let mut another = TcpStream::connect(address)?;
    another.set_read_timeout(Some(Duration::from_secs(10)))?;
    another.write_all(&frame(18, 0, &[]))?;
    another.read_exact(&mut [0; 8])?;
    drop(connections);
    Ok(())
}

/// Fills a topic with 64 MB, asks for it a hundred times over and reads none of the answers.
fn slow_reader(address: &str) -> Result<()> {
    let topic = "slow";
    taffrail_e2e::admin::Admin::connect(address)?.create_topic(topic, 1, 1, &[])?;
    let text = Text::of(1_000_000)?;
    text.produce(
        address,
        topic,
        0,
        number("E2E_LINES", 1_000_000).min(1_000_000),
        &[],
    )?;
    let mut slow = TcpStream::connect(address)?;
    slow.set_write_timeout(Some(Duration::from_secs(2)))?;
    let request = frame(1, 4, &fetch_everything(topic));
    for _ in 0..100 {
        // The broker may stop reading: that is its right.
        if slow.write_all(&request).is_err() {
            break;
        }
    }
    thread::sleep(Duration::from_secs(2));
    Ok(())
}

/// The body of a Fetch, version 4, of all that a topic's first partition holds.
fn fetch_everything(topic: &str) -> Vec<u8> {
    const MAX: i32 = 100 << 20;
    let mut body = Vec::new();
    body.extend((-1i32).to_be_bytes()); // replica
    body.extend(0i32.to_be_bytes()); // wait, ms
    body.extend(1i32.to_be_bytes()); // bytes at least
    body.extend(MAX.to_be_bytes());
    body.push(0); // isolation level
    body.extend(1i32.to_be_bytes()); // topics
    body.extend((topic.len() as i16).to_be_bytes());
    body.extend(topic.as_bytes());
    body.extend(1i32.to_be_bytes()); // partitions
    body.extend(0i32.to_be_bytes());
    body.extend(0i64.to_be_bytes()); // from the start
    body.extend(MAX.to_be_bytes());
    body
}

/// A whole request frame with a version 1 header.
fn frame(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(key.to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes.extend(7i32.to_be_bytes()); // correlation id
    bytes.extend(4i16.to_be_bytes());
    bytes.extend(b"junk"); // client id
    bytes.extend(body);
    let length = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Sends bytes on a connection of their own and looks at no answer. That the broker closes it is one of the right ones.
fn send(address: &str, bytes: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address).context("the broker takes no connections")?;
    let _ = stream.write_all(bytes);
    Ok(())
}

fn raise_descriptor_limit(wanted: u64) -> Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a valid pointer to a structure of the right type.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        if limit.rlim_cur < wanted {
            limit.rlim_cur = wanted;
            ensure!(
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0,
                "cannot open {wanted} descriptors here"
            );
        }
    }
    Ok(())
}

/// A small generator of numbers that are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
