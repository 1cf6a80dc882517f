//! Several log directories: replicas that move between them, and directories that are added, missing or taken away.

mod broker;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use broker::{Broker, ask, eventually};
use taffrail_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use taffrail_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use taffrail_protocol::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use taffrail_protocol::{ErrorCode, Uuid};
use tempfile::TempDir;

/// Batches of eight records of 64 KiB.
const RECORD: usize = 64 << 10;
const RECORDS: u64 = 8;

/// A broker with the log directories `one` and `two`, the first of which has the metadata log.
struct Directories {
    folder: Arc<TempDir>,
}

/// Where a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    directory: String,
    is_copy: bool,
    size: i64,
    lag: i64,
}

impl Directories {
    fn new() -> Directories {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Directories { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, names: &[&str], extra: &str) -> Broker {
        let paths = names
            .iter()
            .map(|name| self.path(name).display().to_string());
        let paths = paths.collect::<Vec<_>>().join(",");
        let environment = [("TAFFRAIL_LOG_DIRS", paths.as_str())];
        let broker = Broker::start_with(Arc::clone(&self.folder), &environment, extra);
        eventually("readiness", || {
            (broker.get("/readyz").0 == 200).then_some(())
        });
        broker
    }

    /// Asks for a move; gives the error code.
    fn move_to(&self, broker: &Broker, topic: &str, partition: i32, name: &str) -> i16 {
        let request = AlterReplicaLogDirsRequest {
            dirs: vec![AlterReplicaLogDir {
                path: self.path(name).display().to_string(),
                topics: vec![AlterReplicaLogDirTopic {
                    name: topic.to_owned(),
                    partitions: vec![partition],
                }],
            }],
        };
        let answer = ask(broker.clients, &request);
        assert_eq!(answer.results[0].topic_name, topic);
        assert_eq!(answer.results[0].partitions[0].partition_index, partition);
        answer.results[0].partitions[0].error_code
    }

    fn wait_until_in(&self, broker: &Broker, topic: &str, name: &str) {
        eventually("the end of a move", || {
            let found = places(broker, topic, 0);
            let directory = self.path(name).display().to_string();
            let there = |place: &Place| place.directory == directory && !place.is_copy;
            (found.len() == 1 && there(&found[0])).then_some(())
        });
        self.check_folders(topic, name);
    }

    /// One of the directories has the replica, and nothing else is left of it in any. What is removed goes in the background.
    fn check_folders(&self, topic: &str, name: &str) {
        let replica = format!("{topic}-0");
        assert!(self.path(name).join(&replica).is_dir());
        eventually("nothing to be left elsewhere", || {
            let listed = |name: &str| folders(&self.path(name), &replica);
            let all = [listed("one"), listed("two")].concat();
            (all == [replica.clone()]).then_some(())
        });
    }
}

/// The folders of a directory whose names begin so.
fn folders(directory: &Path, prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(prefix)).collect()
}

fn places(broker: &Broker, topic: &str, partition: i32) -> Vec<Place> {
    let described = ask(broker.clients, &DescribeLogDirsRequest { topics: None });
    let mut places = Vec::new();
    for result in described.results {
        let found = result.topics.iter().filter(|found| found.name == topic);
        for found in found.flat_map(|found| &found.partitions) {
            if found.partition_index == partition {
                places.push(Place {
                    directory: result.log_dir.clone(),
                    is_copy: found.is_future_key,
                    size: found.partition_size,
                    lag: found.offset_lag,
                });
            }
        }
    }
    places
}

fn create(broker: &Broker, topic: &str, partitions: i32) -> Uuid {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic.to_owned(),
            num_partitions: partitions,
            replication_factor: 1,
            ..CreatableTopic::default()
        }],
        timeout_ms: 10_000,
        ..CreateTopicsRequest::default()
    };
    eventually("a topic", || {
        let answer = ask(broker.clients, &request);
        (answer.topics[0].error_code == 0).then(|| answer.topics[0].topic_id)
    })
}

fn produce(broker: &Broker, topic_id: Uuid, index: i32, batches: usize) {
    for _ in 0..batches {
        broker::produce(broker, topic_id, index, RECORDS as usize, RECORD);
    }
}

/// Leader and log end of each partition, as the broker tells them.
fn partitions(broker: &Broker, topic: &str) -> Vec<(Option<i64>, Option<u64>)> {
    let state: serde_json::Value = serde_json::from_str(&broker.get("/admin/state").1).unwrap();
    let topics = state["topics"].as_array().unwrap();
    let found = topics.iter().find(|found| found["name"] == topic).unwrap();
    let partitions = found["partitions"].as_array().unwrap().iter();
    let numbers = partitions.map(|partition| {
        let leader = partition["leader"].as_i64();
        (leader, partition["local"]["log_end_offset"].as_u64())
    });
    numbers.collect()
}

fn stop(mut broker: Broker, signal: i32) {
    broker.signal(signal);
    broker.wait();
}

#[test]
fn a_replica_moves_to_another_directory_and_back_while_it_is_written_to() {
    let two = Directories::new();
    let broker = two.start(&["one", "two"], "");
    let id = create(&broker, "t", 1);
    produce(&broker, id, 0, 4);
    let not_found = ErrorCode::LogDirNotFound.code();
    let not_here = ErrorCode::ReplicaNotAvailable.code();
    assert_eq!(two.move_to(&broker, "t", 0, "three"), not_found);
    assert_eq!(two.move_to(&broker, "t", 1, "two"), not_here);
    assert_eq!(two.move_to(&broker, "t", 0, "one"), 0, "it is there");

    assert_eq!(two.move_to(&broker, "t", 0, "two"), 0);
    produce(&broker, id, 0, 4);
    two.wait_until_in(&broker, "t", "two");
    produce(&broker, id, 0, 1);
    assert_eq!(partitions(&broker, "t"), [(Some(0), Some(9 * RECORDS))]);
    assert_eq!(two.move_to(&broker, "t", 0, "one"), 0);
    two.wait_until_in(&broker, "t", "one");
    stop(broker, libc::SIGTERM);

    let broker = two.start(&["one", "two"], "");
    two.check_folders("t", "one");
    assert_eq!(partitions(&broker, "t"), [(Some(0), Some(9 * RECORDS))]);
}

#[test]
fn a_move_under_a_rate_goes_on_after_a_kill() {
    // Two windows: at most a batch, or two seconds' worth, at once.
    let slow = "replica.alter.log.dirs.io.max.bytes.per.second=200000\n\
                alter.log.dirs.replication.quota.window.num=2";
    let two = Directories::new();
    let mut broker = two.start(&["one", "two"], slow);
    let id = create(&broker, "t", 1);
    produce(&broker, id, 0, 16);
    assert_eq!(two.move_to(&broker, "t", 0, "two"), 0);
    let is_copied = |place: &Place| place.is_copy && place.size > 0;
    eventually("a part to be copied", || {
        places(&broker, "t", 0).iter().any(is_copied).then_some(())
    });
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        produce(&broker, id, 0, 1);
        stop(broker, signal);
        broker = two.start(&["one", "two"], slow);
        let found = places(&broker, "t", 0);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(!found[0].is_copy && found[0].lag == 0, "{found:?}");
        assert!(is_copied(&found[1]) && found[1].lag > 0, "{found:?}");
        assert!(found[1].size < found[0].size, "{found:?}");
    }
    stop(broker, libc::SIGKILL);
    let broker = two.start(&["one", "two"], "");
    two.wait_until_in(&broker, "t", "two");
    assert_eq!(partitions(&broker, "t"), [(Some(0), Some(18 * RECORDS))]);
}

#[test]
fn a_move_ends_when_the_replica_shall_stay_or_is_deleted() {
    let slow = "replica.alter.log.dirs.io.max.bytes.per.second=1";
    let two = Directories::new();
    let broker = two.start(&["one", "two"], slow);
    let id = create(&broker, "t", 1);
    produce(&broker, id, 0, 4);
    for _ in 0..2 {
        assert_eq!(two.move_to(&broker, "t", 0, "two"), 0);
        assert_eq!(folders(&two.path("two"), "t-0").len(), 1);
    }
    assert_eq!(two.move_to(&broker, "t", 0, "one"), 0);
    two.check_folders("t", "one");
    assert_eq!(places(&broker, "t", 0).len(), 1);

    assert_eq!(two.move_to(&broker, "t", 0, "two"), 0);
    let request = taffrail_protocol::messages::delete_topics_request::DeleteTopicsRequest {
        topics: vec![
            taffrail_protocol::messages::delete_topics_request::DeleteTopicState {
                topic_id: id,
                ..Default::default()
            },
        ],
        timeout_ms: 10_000,
        ..Default::default()
    };
    assert_eq!(ask(broker.clients, &request).responses[0].error_code, 0);
    eventually("nothing to be left", || {
        let listed = |name: &str| folders(&two.path(name), "t-0");
        (listed("one").is_empty() && listed("two").is_empty()).then_some(())
    });
}

#[test]
fn a_replica_that_comes_later_is_made_where_it_was_asked_for() {
    let two = Directories::new();
    let broker = two.start(&["one", "two"], "");
    create(&broker, "other", 1);
    eventually("the replica", || {
        two.path("one").join("other-0").is_dir().then_some(())
    });
    let not_here = ErrorCode::ReplicaNotAvailable.code();
    assert_eq!(two.move_to(&broker, "t", 0, "one"), not_here);
    create(&broker, "t", 2);
    for partition in ["t-0", "t-1"] {
        eventually("the replica", || {
            let directory = if partition == "t-0" { "one" } else { "two" };
            two.path(directory).join(partition).is_dir().then_some(())
        });
    }
}

#[test]
fn an_added_directory_gets_new_replicas_until_it_has_as_many() {
    let two = Directories::new();
    let broker = two.start(&["one"], "");
    create(&broker, "before", 2);
    stop(broker, libc::SIGTERM);
    let broker = two.start(&["one", "two"], "");
    create(&broker, "after", 4);
    eventually("all replicas", || {
        let in_one = folders(&two.path("one"), "after-").len();
        let in_two = folders(&two.path("two"), "after-").len();
        (in_one + in_two == 4).then(|| assert_eq!((in_one, in_two), (1, 3)))
    });
    assert_eq!(folders(&two.path("one"), "before-").len(), 2);
}

#[test]
fn replicas_of_a_missing_directory_stay_offline_until_it_is_back_or_taken_out() {
    let two = Directories::new();
    let broker = two.start(&["one", "two"], "");
    let id = create(&broker, "t", 2);
    for index in 0..2 {
        produce(&broker, id, index, 1);
    }
    assert!(two.path("two").join("t-1").is_dir());
    stop(broker, libc::SIGTERM);

    // A file is there instead: as good as a disk that does not come up.
    let aside = two.path("aside");
    std::fs::rename(two.path("two"), &aside).unwrap();
    std::fs::write(two.path("two"), "").unwrap();
    let broker = two.start(&["one", "two"], "");
    let (_, metrics) = broker.get("/metrics");
    assert!(metrics.contains("kafka_log_logmanager_offlinelogdirectorycount 1"));
    let offline = [(Some(0), Some(RECORDS)), (None, None)];
    eventually("one of the two to be led", || {
        (partitions(&broker, "t") == offline).then_some(())
    });
    let storage_error = ErrorCode::KafkaStorageError.code();
    assert_eq!(two.move_to(&broker, "t", 0, "two"), storage_error);
    assert!(folders(&two.path("one"), "t-1").is_empty(), "not made anew");
    stop(broker, libc::SIGTERM);

    std::fs::remove_file(two.path("two")).unwrap();
    std::fs::rename(&aside, two.path("two")).unwrap();
    let broker = two.start(&["one", "two"], "");
    eventually("both to be led, with what they had", || {
        (partitions(&broker, "t") == [(Some(0), Some(RECORDS)); 2]).then_some(())
    });
    stop(broker, libc::SIGTERM);

    let broker = two.start(&["one"], "");
    let anew = [(Some(0), Some(RECORDS)), (Some(0), Some(0))];
    eventually("the other one to be made anew", || {
        (partitions(&broker, "t") == anew).then_some(())
    });
    assert!(two.path("one").join("t-1").is_dir());
}
