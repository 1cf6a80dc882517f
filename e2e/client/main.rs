//! A librdkafka client as a program of its own: what the bench measures with, and what tests kill.

mod consume;
mod follow;
mod latency;
mod load;
mod member;
mod produce;
mod small;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Drives a broker through librdkafka and prints one line of JSON.
#[derive(Parser)]
#[command(name = "taffrail-e2e-client", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Produce as fast as the broker takes it.
    Produce(produce::Produce),
    /// Consume what is there, by assign.
    Consume(consume::Consume),
    /// Produce at a steady rate and measure acknowledgement and end-to-end latency.
    Latency(latency::Latency),
    /// One record a request over several connections, without librdkafka's batching.
    Small(small::Small),
    /// Produce steadily until told to stop, read everything back and judge it.
    Load(load::Load),
    /// A member of a group that prints and commits until it is killed.
    Member(member::Member),
    /// A member of a group that tells when it gets partitions, reads and commits, until it is killed.
    Follow(follow::Follow),
}

/// Where to and what: shared by all commands.
#[derive(clap::Args)]
struct Target {
    /// Brokers to start from, `host:port,…`.
    #[arg(long)]
    bootstrap: String,
    /// The topic; it must exist.
    #[arg(long)]
    topic: String,
    /// More librdkafka properties.
    #[arg(short = 'X', value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
}

impl Target {
    /// A configuration with these brokers and properties.
    fn config(&self) -> rdkafka::ClientConfig {
        let mut config = rdkafka::ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("log_level", "0");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
    }
}

fn property(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "NAME=VALUE".to_owned())
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Produce(command) => command.run(),
        Command::Consume(command) => command.run(),
        Command::Latency(command) => command.run(),
        Command::Small(command) => command.run(),
        Command::Load(command) => command.run(),
        Command::Member(command) => command.run(),
        Command::Follow(command) => command.run(),
    }
}
