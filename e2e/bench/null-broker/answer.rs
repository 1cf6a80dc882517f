//! The answers: ApiVersions, Metadata, Produce, Fetch, ListOffsets and DeleteTopics, each in few old versions.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::connection::Piece;
use crate::topic::Topics;
use crate::wire::{Reader, Writer};

/// Api key, lowest and highest version.
const APIS: [(i16, i16, i16); 6] = [
    (0, 3, 7),
    (1, 4, 4),
    (2, 1, 1),
    (3, 0, 4),
    (18, 0, 3),
    (20, 1, 1),
];
/// CORRUPT_MESSAGE.
const CORRUPT: i16 = 2;
/// The one broker's id.
const BROKER: i32 = 1;

/// How to go on after a frame.
pub(crate) enum Answer {
    /// Nothing is sent (acks=0, or an unknown request).
    None,
    /// The answer is in the buffer.
    Whole,
    /// The answer is in the buffer, with pieces of files at these positions.
    WithFiles(Vec<(usize, Piece)>),
}

/// Answers one frame (without its length) into `out`, which starts with four bytes for the length.
pub(crate) async fn answer(
    topics: &Topics,
    frame: &mut [u8],
    out: &mut Vec<u8>,
) -> io::Result<Answer> {
    let mut request = Reader::at(frame, 0);
    let (key, version, correlation) = (request.i16(), request.i16(), request.i32());
    request.string(); // client id
    let body = request.position();
    out.i32(0);
    out.i32(correlation);
    match key {
        0 => produce(topics, frame, body, out),
        1 => fetch(topics, frame, body, out).await,
        2 => list_offsets(topics, Reader::at(frame, body), out),
        3 => metadata(topics, Reader::at(frame, body), version, out),
        18 => Ok(api_versions(version, out)),
        20 => delete_topics(topics, Reader::at(frame, body), out),
        _ => Ok(Answer::None),
    }
}

fn api_versions(version: i16, out: &mut Vec<u8>) -> Answer {
    out.i16(0);
    let flexible = version >= 3;
    if flexible {
        out.push(APIS.len() as u8 + 1);
    } else {
        out.i32(APIS.len() as i32);
    }
    for (key, lowest, highest) in APIS {
        out.i16(key);
        out.i16(lowest);
        out.i16(highest);
        if flexible {
            out.push(0);
        }
    }
    if version >= 1 {
        out.i32(0); // throttle time
    }
    if flexible {
        out.push(0);
    }
    Answer::Whole
}

fn metadata(
    topics: &Topics,
    mut request: Reader<'_>,
    version: i16,
    out: &mut Vec<u8>,
) -> io::Result<Answer> {
    let count = request.i32();
    let mut names: Vec<String> = (0..count).map(|_| request.string().to_owned()).collect();
    if count < 0 || version == 0 && count == 0 {
        names = topics.names();
    }
    if version >= 3 {
        out.i32(0); // throttle time
    }
    out.i32(1);
    out.i32(BROKER);
    out.string("127.0.0.1");
    out.i32(i32::from(topics.port));
    if version >= 1 {
        out.i16(-1); // no rack
    }
    if version >= 2 {
        out.string("null");
    }
    if version >= 1 {
        out.i32(BROKER); // controller
    }
    out.i32(names.len() as i32);
    for name in names {
        topics.get(&name)?;
        out.i16(0);
        out.string(&name);
        if version >= 1 {
            out.push(0); // not internal
        }
        out.i32(1); // partitions
        out.i16(0);
        out.i32(0);
        out.i32(BROKER);
        for _replicas_then_isr in 0..2 {
            out.i32(1);
            out.i32(BROKER);
        }
    }
    Ok(Answer::Whole)
}

fn produce(
    topics: &Topics,
    frame: &mut [u8],
    body: usize,
    out: &mut Vec<u8>,
) -> io::Result<Answer> {
    let mut request = Reader::at(frame, body);
    request.string(); // transactional id
    let acks = request.i16();
    request.i32(); // timeout
    let count = request.i32();
    let mut at = request.position();
    out.i32(count);
    for _ in 0..count {
        let mut request = Reader::at(frame, at);
        let name = request.string();
        let topic = topics.get(name)?;
        out.string(name);
        let partitions = request.i32();
        out.i32(partitions);
        at = request.position();
        for _ in 0..partitions {
            let mut request = Reader::at(frame, at);
            let (partition, length) = (request.i32(), request.length());
            let start = request.position();
            at = start + length;
            let base = topic.append(&mut frame[start..at])?;
            out.i32(partition);
            out.i16(if base.is_some() { 0 } else { CORRUPT });
            out.i64(base.unwrap_or(-1));
            out.i64(-1); // log append time
            out.i64(0); // log start
        }
    }
    out.i32(0); // throttle time
    Ok(if acks == 0 {
        Answer::None
    } else {
        Answer::Whole
    })
}

async fn fetch(
    topics: &Topics,
    frame: &[u8],
    body: usize,
    out: &mut Vec<u8>,
) -> io::Result<Answer> {
    let mut request = Reader::at(frame, body);
    request.i32(); // replica
    let wait = Duration::from_millis(request.length() as u64);
    let (bytes_min, bytes_max) = (request.length(), request.length());
    request.i8(); // isolation level
    let mut wanted = Vec::new();
    for _ in 0..request.i32() {
        let name = request.string();
        for _ in 0..request.i32() {
            let (partition, offset, limit) = (request.i32(), request.i64(), request.length());
            wanted.push((name, topics.get(name)?, partition, offset, limit));
        }
    }
    let deadline = Instant::now() + wait;
    let found = loop {
        // One topic at a time is all that the bench waits for. It is registered first, so that no append is missed.
        let first = wanted.first().map(|(_, topic, ..)| Arc::clone(topic));
        let appended = first.as_ref().map(|topic| topic.appended.notified());
        let mut total = 0;
        let found: Vec<_> = wanted
            .iter()
            .map(|(_, topic, _, offset, limit)| {
                let available = topic.available(*offset, (*limit).min(bytes_max - total));
                total += available.length;
                available
            })
            .collect();
        if total >= bytes_min || Instant::now() >= deadline {
            break found;
        }
        match appended {
            Some(appended) => drop(timeout_at(deadline, appended).await),
            None => tokio::time::sleep_until(deadline).await,
        }
    };
    out.i32(0); // throttle time
    out.i32(wanted.len() as i32);
    let mut pieces = Vec::new();
    for ((name, topic, partition, ..), available) in wanted.into_iter().zip(found) {
        out.string(name);
        out.i32(1);
        out.i32(partition);
        out.i16(0);
        out.i64(available.next_offset); // high watermark
        out.i64(available.next_offset); // last stable offset
        out.i32(-1); // aborted transactions
        out.i32(available.length as i32);
        pieces.push((
            out.len(),
            Piece {
                topic,
                position: available.position,
                length: available.length,
            },
        ));
    }
    Ok(Answer::WithFiles(pieces))
}

fn list_offsets(topics: &Topics, mut request: Reader<'_>, out: &mut Vec<u8>) -> io::Result<Answer> {
    /// The timestamp that asks for the first offset.
    const EARLIEST: i64 = -2;
    request.i32(); // replica
    let count = request.i32();
    out.i32(count);
    for _ in 0..count {
        let name = request.string();
        let topic = topics.get(name)?;
        out.string(name);
        let partitions = request.i32();
        out.i32(partitions);
        for _ in 0..partitions {
            let (partition, timestamp) = (request.i32(), request.i64());
            out.i32(partition);
            out.i16(0);
            out.i64(-1);
            out.i64(if timestamp == EARLIEST {
                0
            } else {
                topic.next_offset()
            });
        }
    }
    Ok(Answer::Whole)
}

fn delete_topics(
    topics: &Topics,
    mut request: Reader<'_>,
    out: &mut Vec<u8>,
) -> io::Result<Answer> {
    let names: Vec<&str> = (0..request.i32()).map(|_| request.string()).collect();
    out.i32(0); // throttle time
    out.i32(names.len() as i32);
    for name in names {
        topics.remove(name)?;
        out.string(name);
        out.i16(0);
    }
    Ok(Answer::Whole)
}
