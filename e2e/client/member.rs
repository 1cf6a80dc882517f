//! One member of a consumer group: prints `partition TAB offset TAB key TAB value` and commits only what it has written out, so that
//! a kill never loses a record that counts as read.

use std::io::{BufWriter, Write, stdout};
use std::time::Duration;

use anyhow::Result;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;

use crate::Target;

/// Records between two commits, while records flow.
const COMMIT_EVERY: usize = 2000;

/// The `member` command.
#[derive(clap::Args)]
pub(crate) struct Member {
    #[command(flatten)]
    target: Target,
    /// The group.
    #[arg(long)]
    group: String,
}

impl Member {
    /// Runs until it is killed.
    pub(crate) fn run(&self) -> Result<()> {
        let consumer: BaseConsumer = self
            .target
            .config()
            .set("group.id", &self.group)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "1000")
            .create()?;
        consumer.subscribe(&[&self.target.topic])?;
        let mut out = BufWriter::new(stdout().lock());
        let mut uncommitted = 0;
        loop {
            let message = consumer.poll(Duration::from_millis(200));
            let idle = message.is_none();
            if let Some(message) = message {
                let message = message?;
                write!(out, "{}\t{}\t", message.partition(), message.offset())?;
                out.write_all(message.key().unwrap_or_default())?;
                out.write_all(b"\t")?;
                out.write_all(message.payload().unwrap_or_default())?;
                out.write_all(b"\n")?;
                uncommitted += 1;
            }
            if uncommitted >= COMMIT_EVERY || idle && uncommitted > 0 {
                out.flush()?;
                // A refusal means that a rebalance is under way: the next owner reads these records again.
                if let Err(error) = consumer.commit_consumer_state(CommitMode::Sync) {
                    eprintln!("commit: {error}");
                }
                uncommitted = 0;
            }
        }
    }
}
