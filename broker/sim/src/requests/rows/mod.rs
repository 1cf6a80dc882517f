//! The requests: for each API what its frame can repeat.

mod administration;
mod data;
mod groups;

use taffrail_protocol::Request;

use super::memory::{GROUP, Row, row};
use super::{PARTITIONS, TOPIC};

/// About the size of each frame.
const SIZE: usize = 128 << 10;
/// A name so long that a copy for each partition of it cannot be overlooked.
const LONG: usize = 8 << 10;

/// Topics with partitions, as most requests name them.
type Topics = Vec<(String, Vec<i32>)>;

/// What can be repeated where topics have partitions that take so many bytes each.
fn topics(partition_bytes: usize) -> Vec<(&'static str, Topics)> {
    let many = (SIZE / partition_bytes) as i32;
    let distinct: Vec<i32> = (0..many).collect();
    let fewer = SIZE / (partition_bytes + 8);
    vec![
        (
            "a partition again and again",
            vec![(TOPIC.to_owned(), vec![0; many as usize])],
        ),
        (
            "many partitions that do not exist",
            vec![(TOPIC.to_owned(), distinct.clone())],
        ),
        (
            "many partitions under a long name",
            vec![("t".repeat(LONG), distinct)],
        ),
        (
            "many names",
            names(fewer).map(|name| (name, vec![0])).collect(),
        ),
        (
            "a name again and again",
            vec![(TOPIC.to_owned(), vec![0]); fewer],
        ),
    ]
}

/// So many names, each another and short.
fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("{number:x}"))
}

/// One name again and again, many names, long names.
fn lists(element_bytes: usize) -> Vec<(&'static str, Vec<String>)> {
    let many = SIZE / (element_bytes + 5);
    let long = names(SIZE / (element_bytes + 250)).map(|name| format!("{name:_>240}"));
    vec![
        ("a name again and again", vec![TOPIC.to_owned(); many]),
        (
            "a short name again and again",
            vec!["n".to_owned(); SIZE / (element_bytes + 3)],
        ),
        ("many names", names(many).collect()),
        ("many long names", long.collect()),
        ("one very long name", vec!["n".repeat(SIZE)]),
    ]
}

/// Rows of an API that names topics with partitions.
fn by_partition<R: Request>(
    partition_bytes: usize,
    version: i16,
    request: impl Fn(Topics) -> R,
) -> Vec<Row> {
    let shapes = topics(partition_bytes).into_iter();
    shapes
        .map(|(what, topics)| row(what, version, request(topics)))
        .collect()
}

/// Rows of an API that has a list of names.
fn by_name<R: Request>(
    element_bytes: usize,
    version: i16,
    request: impl Fn(Vec<String>) -> R,
) -> Vec<Row> {
    let shapes = lists(element_bytes).into_iter();
    shapes
        .map(|(what, names)| row(what, version, request(names)))
        .collect()
}

/// All of them. The group has a member of this id.
pub(super) fn all(member_id: &str) -> Vec<Row> {
    [
        data::data(),
        data::metadata(),
        administration::cluster(),
        administration::configs(),
        administration::topics(),
        groups::members(member_id),
        groups::offsets(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn each<T>(topics: Topics, entry: impl Fn(String, Vec<i32>) -> T) -> Vec<T> {
    let topics = topics.into_iter();
    topics
        .map(|(name, partitions)| entry(name, partitions))
        .collect()
}
