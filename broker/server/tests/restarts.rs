//! What a broker keeps over stops and kills, and by which files it knows it.

mod broker;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use broker::{Broker, ask, create_topic, eventually, produce};
use taffrail_protocol::messages::describe_configs_request::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use taffrail_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use taffrail_protocol::messages::metadata_request::MetadataRequest;
use taffrail_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

/// The mark of a clean stop.
const MARK: &str = ".kafka_cleanshutdown";
/// A topic, in requests about configs, and the operation that sets one.
const TOPIC_RESOURCE: i8 = 2;
const SET: i8 = 0;

/// The leader epoch of partition 0, once somebody leads it in a later one than `after`.
fn leader_epoch(broker: &Broker, topic: &str, after: i32) -> i32 {
    let request = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    eventually("a leader", || {
        let topics = ask(broker.clients, &request).topics;
        let mut named = topics.iter();
        let found = named.find(|found| found.name.as_deref() == Some(topic))?;
        let partition = &found.partitions[0];
        let leads = partition.leader_id == 0 && partition.leader_epoch > after;
        leads.then_some(partition.leader_epoch)
    })
}

/// The largest epoch up to this one that the leader knows, and where it ended; asked until it leads.
fn end_of_epoch(broker: &Broker, topic: &str, epoch: i32) -> (i32, i64) {
    let request = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: topic.to_owned(),
            partitions: vec![OffsetForLeaderPartition {
                partition: 0,
                current_leader_epoch: -1,
                leader_epoch: epoch,
            }],
        }],
    };
    eventually("the leader's answer", || {
        let answer = ask(broker.clients, &request);
        let found = &answer.topics[0].partitions[0];
        (found.error_code == 0).then_some((found.leader_epoch, found.end_offset))
    })
}

fn stop(mut broker: Broker, signal: i32) -> Arc<tempfile::TempDir> {
    broker.signal(signal);
    broker.wait();
    broker.folder()
}

/// Otherwise a follower that has records of the epoch before could not find out where they end (KAFKA-7415).
#[test]
fn a_new_leader_answers_for_its_epoch_before_the_first_record_of_it() {
    let broker = Broker::start("");
    let topic_id = create_topic(&broker, "orders", 1);
    let first = leader_epoch(&broker, "orders", -1);
    assert_eq!(end_of_epoch(&broker, "orders", first), (first, 0));
    produce(&broker, topic_id, 0, 3, 10);
    assert_eq!(end_of_epoch(&broker, "orders", first), (first, 3));

    let broker = Broker::start_in(stop(broker, libc::SIGTERM), "");
    let second = leader_epoch(&broker, "orders", first);
    assert_eq!(end_of_epoch(&broker, "orders", second), (second, 3));
    assert_eq!(end_of_epoch(&broker, "orders", first), (first, 3));
}

/// Everything that the broker keeps in its log directory but its own identity and the metadata log.
fn lose_all_but_the_metadata(data: &Path) {
    for entry in fs::read_dir(data).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match name.as_str() {
            "meta.properties" | "__cluster_metadata" => {}
            _ if entry.path().is_dir() => fs::remove_dir_all(entry.path()).unwrap(),
            _ => fs::remove_file(entry.path()).unwrap(),
        }
    }
}

/// Makes a copy of a replica that is one of a topic that nobody created.
fn copy_as_of_another_topic(replica: &Path, copy: &Path) {
    fs::create_dir(copy).unwrap();
    for entry in fs::read_dir(replica).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let id = "version: 0\ntopic_id: CQkJCQkJCQkJCQkJCQkJCQ\n";
    fs::write(copy.join("partition.metadata"), id).unwrap();
}

fn set_retention(broker: &Broker, topic: &str, value: &str) {
    let change = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: topic.to_owned(),
            configs: vec![AlterableConfig {
                name: "retention.ms".to_owned(),
                config_operation: SET,
                value: Some(value.to_owned()),
            }],
        }],
        validate_only: false,
    };
    assert_eq!(ask(broker.clients, &change).responses[0].error_code, 0);
}

fn retention(broker: &Broker, topic: &str) -> Option<String> {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: topic.to_owned(),
            configuration_keys: Some(vec!["retention.ms".to_owned()]),
        }],
        ..DescribeConfigsRequest::default()
    };
    let described = ask(broker.clients, &request).results;
    described[0].configs[0].value.clone()
}

#[test]
fn topics_and_configs_are_what_the_metadata_log_says_and_nothing_else() {
    let broker = Broker::start("");
    let topic_id = create_topic(&broker, "orders", 2);
    produce(&broker, topic_id, 0, 3, 10);
    set_retention(&broker, "orders", "123456789");
    let folder = stop(broker, libc::SIGKILL);
    let data = folder.path().join("data");
    let copy = folder.path().join("copy");
    copy_as_of_another_topic(&data.join("orders-0"), &copy);
    lose_all_but_the_metadata(&data);
    let planted = data.join("planted-0");
    fs::rename(&copy, &planted).unwrap();

    let broker = Broker::start_in(Arc::clone(&folder), "");
    leader_epoch(&broker, "orders", -1);
    let request = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    let topics = ask(broker.clients, &request).topics;
    let found: Vec<_> = topics
        .iter()
        .map(|topic| {
            (
                topic.name.as_deref(),
                topic.topic_id,
                topic.partitions.len(),
            )
        })
        .collect();
    assert_eq!(found, [(Some("orders"), topic_id, 2)]);
    assert_eq!(retention(&broker, "orders").as_deref(), Some("123456789"));
    eventually("the planted replica to be set aside", || {
        let entries = fs::read_dir(&data).unwrap();
        let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_stray = |name: &String| name.starts_with("planted-0.") && name.ends_with("-stray");
        (!planted.exists() && names.any(|name| is_stray(&name))).then_some(())
    });
}

#[test]
fn a_log_that_cannot_be_closed_leaves_only_its_own_directory_unmarked() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let [good, bad] = ["good", "bad"].map(|name| folder.path().join(name));
    let directories = format!("{},{}", good.display(), bad.display());
    let environment = [("TAFFRAIL_LOG_DIRS", directories.as_str())];
    let broker = Broker::start_with(Arc::clone(&folder), &environment, "");
    let topic_id = create_topic(&broker, "orders", 4);
    for index in 0..4 {
        produce(&broker, topic_id, index, 3, 10);
    }
    let mut replicas = (0..4).map(|index| bad.join(format!("orders-{index}")));
    let lost = replicas.find(|replica| replica.exists());
    fs::remove_dir_all(lost.expect("a replica in each directory")).unwrap();
    stop(broker, libc::SIGTERM);
    assert!(good.join(MARK).exists(), "all of its logs were closed");
    assert!(!bad.join(MARK).exists(), "one of its logs was not closed");
    for replica in (0..4).map(|index| good.join(format!("orders-{index}"))) {
        let index = replica.join("00000000000000000000.timeindex");
        let closed = !replica.exists() || fs::metadata(index).unwrap().len() > 0;
        assert!(closed, "{} is marked, and not closed", replica.display());
    }
}
