//! Load before a JVM is measured, so that its figures are those of compiled code.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cell::{self, Cell};
use crate::peer::Peer;

/// Produces, consumes and sends single records until the time is over.
pub(crate) fn warm_up(peer: &Peer, seconds: u64) -> Result<()> {
    const TOPIC: &str = "warm-up";
    eprintln!("bench: {seconds} s of load to warm up {}", peer.kind());
    let start = Instant::now();
    let partitions = if peer.pids().len() > 1 { 12 } else { 1 };
    while start.elapsed() < Duration::from_secs(seconds) {
        peer.create_topic(TOPIC, partitions)?;
        let partitions = partitions.to_string();
        let produce = [
            "produce",
            "--topic",
            TOPIC,
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
                TOPIC,
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
                    TOPIC,
                    "--connections",
                    "16",
                    "--seconds",
                    "3",
                ]
                .iter(),
            )?;
        }
        peer.delete_topic(TOPIC)?;
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

fn run<'a>(peer: &Peer, arguments: impl Iterator<Item = &'a &'a str>) -> Result<()> {
    let arguments: Vec<String> = arguments.map(|a| (*a).to_owned()).collect();
    cell::run_client(peer, &arguments, |_, _| Ok(Cell::default()))?;
    Ok(())
}
