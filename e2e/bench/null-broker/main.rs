//! The null broker: the least that a program can do for librdkafka and still store and return every byte.
//!
//! It is the machine's limit, against which the bench holds Taffrail: one task a connection, everything inline, CRC and record walk
//! on produce, plain writes to one file a topic, `sendfile` on fetch. It has no replication, no index on disk, no recovery and no
//! bounds, trusts its client, and shares no code with the broker, so that it does not move when the broker does.

mod answer;
mod connection;
mod topic;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use tokio::net::TcpListener;

use crate::topic::Topics;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Stores and returns records, and nothing else.
#[derive(Parser)]
#[command(name = "null-broker", version)]
struct Arguments {
    /// The port of 127.0.0.1 to listen on.
    #[arg(long)]
    port: u16,
    /// The folder for the topics' files.
    #[arg(long)]
    folder: PathBuf,
}

/// As many as the broker has on this machine.
const WORKERS: usize = 2;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.folder)
        .with_context(|| format!("cannot create {}", arguments.folder.display()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind(("127.0.0.1", arguments.port)).await?;
        let topics = Arc::new(Topics::new(arguments.folder, arguments.port));
        loop {
            let (stream, _) = listener.accept().await?;
            let topics = Arc::clone(&topics);
            tokio::spawn(async move {
                // A client that went away is no event here.
                let _ = connection::serve(&topics, stream).await;
            });
        }
    })
}
