//! Load before a JVM is measured, so that its figures are those of compiled code.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cell::{self, Cell};
use crate::peer::Peer;

/// For brokers to learn of a topic, and to get rid of it.
const PAUSE: Duration = Duration::from_secs(1);

/// Counts the topics.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Produces, consumes and sends single records until the time is over.
pub(crate) fn warm_up(peer: &Peer, seconds: u64) -> Result<()> {
    eprintln!("bench: {seconds} s of load to warm up {}", peer.kind());
    let start = Instant::now();
    let partitions = if peer.pids().len() > 1 { 12 } else { 1 };
    while start.elapsed() < Duration::from_secs(seconds) {
        // A new name each time, and a moment for every broker to know it: one that still knows the last topic of a name, or not yet
        // this one, refuses its id.
        let topic = format!("warm-up-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let topic = topic.as_str();
        peer.create_topic(topic, partitions)?;
        std::thread::sleep(PAUSE);
        let partitions = partitions.to_string();
        let produce = [
            "produce",
            "--topic",
            topic,
            "--acks",
            "all",
            "--partitions",
            &partitions,
        ];
        for load in [
            ["--size", "1024", "--count", "200000"],
            ["--size", "100", "--count", "1000000"],
        ] {
            run(peer, produce.iter().chain(&load))?;
        }
        run(
            peer,
            produce.iter().chain(&[
                "--size",
                "100",
                "--count",
                "200000",
                "-X",
                "batch.size=16384",
            ]),
        )?;
        run(
            peer,
            [
                "consume",
                "--topic",
                topic,
                "--count",
                "200000",
                "--partitions",
                &partitions,
            ]
            .iter(),
        )?;
        if peer.pids().len() == 1 {
            run(
                peer,
                [
                    "small",
                    "--topic",
                    topic,
                    "--connections",
                    "16",
                    "--seconds",
                    "3",
                ]
                .iter(),
            )?;
        }
        peer.delete_topic(topic)?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn run<'a>(peer: &Peer, arguments: impl Iterator<Item = &'a &'a str>) -> Result<()> {
    let arguments: Vec<String> = arguments.map(|a| (*a).to_owned()).collect();
    cell::run_client(peer, &arguments, |_, _| Ok(Cell::default()))?;
    Ok(())
}
