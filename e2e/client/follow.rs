//! One member of a consumer group that tells when it gets partitions, reads and commits: what `make bench-groups` measures with.
//!
//! It prints lines with times in microseconds since 1970:
//! `TIME assigned PARTITION,…` after each rebalance, `TIME read PARTITION` for each record, and `TIME committed SENT` for each commit that
//! was acknowledged, with the time at which it was sent.

use std::io::{Write, stdout};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::message::Message;

use crate::Target;

/// Between two commits.
const COMMIT_EVERY: Duration = Duration::from_millis(200);
/// How long a poll waits.
const POLL: Duration = Duration::from_millis(20);

/// The `follow` command.
#[derive(clap::Args)]
pub(crate) struct Follow {
    #[command(flatten)]
    target: Target,
    /// The group.
    #[arg(long)]
    group: String,
}

impl Follow {
    /// Runs until it is killed.
    pub(crate) fn run(&self) -> Result<()> {
        let consumer: BaseConsumer<Teller> = self
            .target
            .config()
            .set("group.id", &self.group)
            .set("auto.offset.reset", "latest")
            .set("enable.auto.commit", "false")
            .set("session.timeout.ms", "6000")
            .create_with_context(Teller)?;
        consumer.subscribe(&[&self.target.topic])?;
        let mut commit_due = Instant::now();
        let mut uncommitted = false;
        loop {
            if let Some(message) = consumer.poll(POLL) {
                // A broker that goes away is told as an error, too; the client finds the next one by itself.
                match message {
                    Ok(message) => {
                        tell(format_args!("read {}", message.partition()))?;
                        uncommitted = true;
                    }
                    Err(error) => eprintln!("poll: {error}"),
                }
            }
            if uncommitted && Instant::now() >= commit_due {
                let sent = micros();
                match consumer.commit_consumer_state(CommitMode::Sync) {
                    Ok(()) => {
                        tell(format_args!("committed {sent}"))?;
                        uncommitted = false;
                    }
                    // During a rebalance or without a coordinator; it is tried again.
                    Err(error) => eprintln!("commit: {error}"),
                }
                commit_due = Instant::now() + COMMIT_EVERY;
            }
        }
    }
}

/// Tells of rebalances.
struct Teller;

impl ClientContext for Teller {}

impl ConsumerContext for Teller {
    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        let assigned = consumer.assignment().map(|list| {
            let elements = list.elements();
            let partitions = elements.iter().map(|one| one.partition().to_string());
            partitions.collect::<Vec<_>>().join(",")
        });
        let told = match assigned {
            Ok(partitions) => tell(format_args!("assigned {partitions}")),
            Err(error) => tell(format_args!("failed {error}")),
        };
        if let Err(error) = told {
            eprintln!("the output is closed: {error}");
        }
    }
}

fn tell(what: std::fmt::Arguments<'_>) -> std::io::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{} {what}", micros())?;
    out.flush()
}

fn micros() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_micros()
}
