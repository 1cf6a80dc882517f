//! What a start after a kill reads: what was appended lately, whatever the size of the logs. And what it keeps.

mod broker;

use std::sync::Arc;

use broker::{Broker, create_topic, eventually, produce};

/// What may wait for its fsync.
const UNFLUSHED_MAX: u64 = 2 << 20;
/// Records of 64 KiB in batches of almost 1 MiB, 24 MiB in all.
const RECORD: usize = 64 << 10;
const RECORDS: usize = 15;
const BATCHES: i32 = 26;
const PARTITIONS: i32 = 2;

#[test]
fn a_start_after_a_kill_reads_what_was_appended_lately_and_not_the_log() {
    let settings = format!("taffrail.unflushed.bytes.max={UNFLUSHED_MAX}");
    let mut broker = Broker::start(&settings);
    let topic_id = create_topic(&broker, "big", PARTITIONS);
    for number in 0..BATCHES {
        produce(&broker, topic_id, number % PARTITIONS, RECORDS, RECORD);
    }
    let folder = broker.folder();
    let checkpoint = folder.path().join("data/recovery-point-offset-checkpoint");
    eventually("recovery points that leave little to read", || {
        let text = std::fs::read_to_string(&checkpoint).ok()?;
        let points = text.lines().filter_map(|line| line.strip_prefix("big "));
        let offsets = points.filter_map(|line| line.split(' ').nth(1)?.parse::<usize>().ok());
        let left = RECORDS * BATCHES as usize - offsets.sum::<usize>();
        (left * RECORD <= UNFLUSHED_MAX as usize).then_some(())
    });
    broker.signal(libc::SIGKILL);
    broker.wait();
    drop(broker);

    let again = Broker::start_in(Arc::clone(&folder), &settings);
    eventually("readiness", || {
        (again.get("/readyz").0 == 200).then_some(())
    });
    let state: serde_json::Value = serde_json::from_str(&again.get("/admin/state").1).unwrap();
    let scanned = state["recovery"]["bytes_scanned"].as_u64().unwrap();
    // The scan of each log goes on from the last batch below its recovery point.
    let batch = (RECORDS * RECORD + 4096) as u64;
    let bound = UNFLUSHED_MAX + PARTITIONS as u64 * batch;
    assert!(scanned > 0 && scanned <= bound, "{scanned} of {bound}");
    let partitions = state["topics"][0]["partitions"].as_array().unwrap();
    let ends = partitions
        .iter()
        .map(|partition| partition["local"]["log_end_offset"].as_u64().unwrap());
    assert_eq!(ends.sum::<u64>(), RECORDS as u64 * BATCHES as u64);
}

#[test]
fn a_start_removes_an_empty_folder_and_keeps_one_with_a_byte_in_it() {
    let mut broker = Broker::start("");
    let topic_id = create_topic(&broker, "big", PARTITIONS);
    produce(&broker, topic_id, 1, RECORDS, RECORD);
    let folder = broker.folder();
    broker.signal(libc::SIGKILL);
    broker.wait();
    drop(broker);
    let data = folder.path().join("data");
    std::fs::write(data.join("big-1/partition.metadata"), "").unwrap();
    for entry in std::fs::read_dir(data.join("big-0")).unwrap() {
        std::fs::write(entry.unwrap().path(), "").unwrap();
    }

    let _again = Broker::start_in(Arc::clone(&folder), "");
    eventually("both replicas made anew", || {
        let is_whole = |name: &str| {
            let metadata = std::fs::read(data.join(name).join("partition.metadata"));
            metadata.is_ok_and(|content| !content.is_empty())
        };
        (is_whole("big-0") && is_whole("big-1")).then_some(())
    });
    let entries = std::fs::read_dir(&data).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let strays: Vec<String> = names.filter(|name| name.ends_with("-stray")).collect();
    assert_eq!(strays, [format!("big-1.{}-stray", "0".repeat(32))]);
    let log = data.join(&strays[0]).join("00000000000000000000.log");
    assert!(std::fs::metadata(log).unwrap().len() > RECORD as u64);
}
