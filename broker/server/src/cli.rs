//! The command line and its help, which says all there is to know about running a broker.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use taffrail_core::config::BROKER_CONFIGS;

use crate::settings::variable;

const ABOUT: &str = "One Taffrail broker: a replicated log that speaks the Kafka protocol.";

const LONG_ABOUT: &str = "\
One Taffrail broker: a replicated log that speaks the Kafka protocol.

It reads one properties file, in Kafka's syntax and with Kafka's names; unknown names are refused. Environment
variables stand above the file: TAFFRAIL_ and the name in capitals with underscores (log.dirs: TAFFRAIL_LOG_DIRS,
taffrail.flush: TAFFRAIL_FLUSH).

The smallest file:

    cluster.id=example
    node.id=0
    log.dirs=/var/lib/taffrail
    advertised.listeners=INTERNAL://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092";

const OPERATING: &str = "\
HTTP, on taffrail.metrics.listener (read only):
    /metrics              Prometheus text
    /livez                200 while the event loop turns
    /startupz             200 once recovery has finished, else its progress
    /readyz               200 once registered, unfenced and caught up with the metadata
    /admin/state          everything this broker knows, as JSON
    /admin/safe-to-stop   200 if no partition would fall below min.insync.replicas, else 409; JSON says which
    /                     a page drawn from /admin/state

Signals:
    SIGTERM, SIGINT       hand leadership over, flush, mark the logs clean, leave; within taffrail.shutdown.timeout.ms
    a second one          stop at once; the next start recovers

Exit codes:
    0   stopped as asked
    1   could not start: configuration, a port, a log directory
    2   wrong command line
    3   stopped itself because it could no longer vouch for its state; the log says why
    4   stopped by a second signal or by the deadline, before everything was handed over and flushed
";

/// What was asked for on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "taffrail-broker",
    version,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Arguments {
    /// The broker's properties file
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,

    /// The broker's properties file
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What else the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a properties file together with the environment, and print what would hold
    CheckConfig {
        /// The broker's properties file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print files of the log as kafka-dump-log does: segments, indexes, snapshots, checkpoints, the metadata log
    DumpLog {
        /// The files; exit code 1 if one of them is damaged
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Also print each record with key and value
        #[arg(long)]
        print_records: bool,
    },
    /// Read a log directory, or the folder of one replica, through and list what is wrong with it and what to do
    Verify {
        /// The folder; exit code 1 if anything in it is wrong. Nothing is written
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Reads the command line; prints help or a usage error and ends the process if that is what it leads to.
pub(crate) fn parse() -> Arguments {
    let command = Arguments::command()
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_long_help(after_help());
    match Arguments::from_arg_matches(&command.get_matches()) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    }
}

/// Everything below the options: how to operate the program, then every config.
fn after_help() -> String {
    let mut text = format!("{OPERATING}\nConfigs:\n");
    for definition in BROKER_CONFIGS {
        let default = match definition.default {
            Some("") => "empty".to_string(),
            Some(default) => default.to_string(),
            None if definition.required => "none, must be set".to_string(),
            None => "not set".to_string(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "    {} ({})\n        {}\n        Must be {}. Default: {default}.",
            definition.name,
            variable(definition.name),
            definition.doc,
            definition.allowed_text(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn help_names_every_config() {
        let help = after_help();
        for definition in BROKER_CONFIGS {
            assert!(
                help.contains(&format!("    {} (", definition.name)),
                "{}",
                definition.name
            );
        }
    }

    #[test]
    fn the_file_is_given_by_option_by_position_or_to_check() {
        fn check(words: &[&str], expected: Option<&str>) {
            let arguments = Arguments::try_parse_from([&["taffrail-broker"], words].concat()).ok();
            let file = arguments.and_then(|arguments| match arguments.command {
                Some(Command::CheckConfig { file }) => Some(file),
                Some(Command::DumpLog { mut files, .. }) => files.pop(),
                Some(Command::Verify { directory }) => Some(directory),
                None => arguments.config.or(arguments.file),
            });
            assert_eq!(
                file.as_deref(),
                expected.map(std::path::Path::new),
                "{words:?}"
            );
        }
        check(&["--config", "f"], Some("f"));
        check(&["f"], Some("f"));
        check(&["check-config", "f"], Some("f"));
        check(&["dump-log", "e", "f", "--print-records"], Some("f"));
        check(&["verify", "f"], Some("f"));
        check(&["dump-log"], None);
        check(&["--config", "f", "g"], None);
        check(&[], None);
    }
}
