//! Kafka's own command-line tools: the console clients, the log dumper and others, run from the jars of `make tools`.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::tools;

/// Heap of a console client: the tools' own default.
const CLIENT_HEAP: &[&str] = &["-Xmx512M", "-XX:TieredStopAtLevel=4"];

/// A command that asks one thing ends before optimized code or a collector with threads pays.
const ADMIN_JVM: &[&str] = &["-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// Sends a file of `key TAB value` lines with acks=all through the console producer.
pub fn console_produce(bootstrap: &str, topic: &str, file: &Path, codec: &str) -> Result<()> {
    let mut command = tools::java(CLIENT_HEAP)?;
    command
        .arg("org.apache.kafka.tools.ConsoleProducer")
        .args(["--bootstrap-server", bootstrap, "--topic", topic])
        .args(["--compression-codec", codec])
        .args(["--command-property", "acks=all"])
        .args(["--reader-property", "parse.key=true"])
        .stdin(File::open(file)?);
    run(command, "the console producer")?;
    Ok(())
}

/// The console consumer, printing `partition TAB offset TAB key TAB value`. The caller adds `--group` or `--partition`.
pub fn console_consumer(bootstrap: &str, topic: &str) -> Result<Command> {
    let mut command = tools::java(CLIENT_HEAP)?;
    command
        .arg("org.apache.kafka.tools.consumer.ConsoleConsumer")
        .args(["--bootstrap-server", bootstrap, "--topic", topic]);
    for property in [
        "print.partition=true",
        "print.offset=true",
        "print.key=true",
    ] {
        command.args(["--formatter-property", property]);
    }
    Ok(command)
}

/// Reads that many records of a topic as a group of its own and gives what the console consumer printed.
pub fn console_read(bootstrap: &str, topic: &str, records: usize) -> Result<Vec<u8>> {
    let mut command = console_consumer(bootstrap, topic)?;
    command.args([
        "--from-beginning",
        "--max-messages",
        &records.to_string(),
        "--timeout-ms",
        "30000",
    ]);
    run(command, "the console consumer")
}

/// Reads one partition by `assign` through the console consumer and gives what it printed.
pub fn console_read_partition(
    bootstrap: &str,
    topic: &str,
    partition: i32,
    records: usize,
) -> Result<Vec<u8>> {
    let mut command = console_consumer(bootstrap, topic)?;
    command
        .args([
            "--partition",
            &partition.to_string(),
            "--offset",
            "earliest",
        ])
        .args([
            "--max-messages",
            &records.to_string(),
            "--timeout-ms",
            "30000",
        ]);
    run(command, "the console consumer")
}

/// What `kafka-dump-log` says of log files, each batch and record included.
pub fn dump_log(files: &[&Path], extra: &[&str]) -> Result<String> {
    let mut command = tools::java(CLIENT_HEAP)?;
    let list: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    command
        .arg("org.apache.kafka.tools.DumpLogSegments")
        .args(["--files", &list.join(",")])
        .args(extra);
    Ok(String::from_utf8_lossy(&run(command, "kafka-dump-log")?).into_owned())
}

/// Runs `kafka-configs.sh` with these arguments and gives what it printed.
pub fn configs(bootstrap: &str, arguments: &[&str]) -> Result<String> {
    let mut command = tools::java(CLIENT_HEAP)?;
    command
        .arg("org.apache.kafka.tools.ConfigCommand")
        .args(["--bootstrap-server", bootstrap])
        .args(arguments);
    Ok(String::from_utf8_lossy(&run(command, "kafka-configs")?).into_owned())
}

/// Runs `kafka-consumer-groups.sh` with these arguments and gives what it printed; it ends with success also when it says `Error:`.
pub fn consumer_groups(bootstrap: &str, arguments: &[&str]) -> Result<String> {
    let mut command = tools::java(ADMIN_JVM)?;
    command
        .arg("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")
        .args(["--bootstrap-server", bootstrap])
        .args(arguments);
    let printed = run(command, "kafka-consumer-groups")?;
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// Runs `kafka-metadata-quorum.sh`, for a controller of this file if there is one, and gives what it printed.
pub fn metadata_quorum(
    bootstrap: &str,
    controller: Option<&Path>,
    arguments: &[&str],
) -> Result<String> {
    let mut command = tools::java(ADMIN_JVM)?;
    command
        .arg("org.apache.kafka.tools.MetadataQuorumCommand")
        .args(["--bootstrap-server", bootstrap]);
    if let Some(file) = controller {
        command.arg("--command-config").arg(file);
    }
    command.args(arguments);
    Ok(String::from_utf8_lossy(&run(command, "kafka-metadata-quorum")?).into_owned())
}

fn run(mut command: Command, name: &str) -> Result<Vec<u8>> {
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // The console producer ends with success although a record was refused, and only says so.
    if !output.status.success() || errors.contains("ERROR") {
        bail!("{name} failed ({}): {errors}", output.status);
    }
    Ok(output.stdout)
}

/// One line of a console consumer (or of this crate's other clients): partition, offset, key and value.
pub fn parse_line(line: &[u8]) -> Result<(i32, i64, &[u8], &[u8])> {
    let mut fields = line.splitn(4, |byte| *byte == b'\t');
    let mut field = || {
        fields
            .next()
            .with_context(|| format!("not a record: {:?}", String::from_utf8_lossy(line)))
    };
    let (partition, offset) = (field()?, field()?);
    let (key, value) = (field()?, field()?);
    let number = |text: &[u8]| -> Result<i64> {
        let text = std::str::from_utf8(text)?;
        // The console consumer writes `Partition:0` and `Offset:12`.
        text.rsplit(':')
            .next()
            .unwrap_or(text)
            .parse()
            .with_context(|| format!("not a number: {text}"))
    };
    Ok((
        i32::try_from(number(partition)?)?,
        number(offset)?,
        key,
        value,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_a_record_are_read() {
        let expected = (2, 17, b"key".as_slice(), b"a\tvalue".as_slice());
        assert_eq!(
            parse_line(b"Partition:2\tOffset:17\tkey\ta\tvalue").ok(),
            Some(expected)
        );
        assert_eq!(parse_line(b"2\t17\tkey\ta\tvalue").ok(), Some(expected));
        assert!(parse_line(b"2\t17\tkey").is_err(), "no value");
        assert!(parse_line(b"two\t17\tkey\tvalue").is_err(), "no number");
    }
}
