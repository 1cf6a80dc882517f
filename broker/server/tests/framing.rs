//! Garbage, truncated frames, lying lengths, thousands of idle connections, slow readers: the broker goes on serving and
//! its memory stays bounded.

mod broker;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use broker::{Broker, api_versions, closes_after, eventually, read_answer, request};

const MIB: usize = 1024 * 1024;

/// Bytes that look like nothing, the same in every run.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes(), bytes].concat()
}

#[test]
fn what_is_no_request_closes_the_connection_and_nothing_else() {
    let broker = Broker::start("");
    let check = |what: &str, bytes: &[u8]| {
        assert!(closes_after(&broker, bytes, false), "{what}");
        broker.assert_serves();
    };
    check("a negative length", &(-1_i32).to_be_bytes());
    check("the smallest length", &i32::MIN.to_be_bytes());
    check("the largest length", &i32::MAX.to_be_bytes());
    check("a length above the limit", &104_857_601_i32.to_be_bytes());
    check("an empty frame", &framed(&[]));
    check("half a header", &framed(&[0, 18, 0]));
    check("an unknown API", &request(999, 0, 1, &[]));
    check("a negative API", &request(-1, 0, 1, &[]));
    check("a version of the future", &request(3, 999, 1, &[]));
    check(
        "a private API on a client listener",
        &request(20_001, 0, 1, &noise(3, 40)),
    );
    check(
        "an array of two thousand million topics",
        &request(3, 4, 1, &i32::MAX.to_be_bytes()),
    );
    check(
        "a negative array in Produce",
        &request(0, 7, 1, &[0xff; 40]),
    );
    check(
        "a client id longer than the frame",
        &framed(&[0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff]),
    );
    check("an HTTP request", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n");
    check(
        "a TLS hello",
        &[
            0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
        ],
    );
}

#[test]
fn noise_leaves_the_broker_serving() {
    let broker = Broker::start("");
    for seed in 0..200 {
        // Bare noise mostly dies at its length; framed noise reaches the header and the decoders.
        assert!(
            closes_after(&broker, &noise(seed, 1 + seed as usize * 17), true),
            "seed {seed}"
        );
        assert!(
            closes_after(&broker, &framed(&noise(seed, 8 + seed as usize)), true),
            "framed seed {seed}"
        );
        for api_key in [0, 1, 2, 3, 10, 11, 19] {
            let body = noise(seed ^ 0xabcd, 3 + seed as usize);
            assert!(
                closes_after(&broker, &request(api_key, 3, 1, &body), true),
                "API {api_key} seed {seed}"
            );
        }
    }
    broker.assert_serves();
}

#[test]
fn a_frame_cut_short_closes_its_connection() {
    let broker = Broker::start("");
    let whole = [api_versions(1), request(3, 4, 2, &[0, 0, 0, 0, 0])].concat();
    for length in 0..whole.len() {
        assert!(
            closes_after(&broker, &whole[..length], true),
            "cut after {length} bytes"
        );
    }
    broker.assert_serves();
}

#[test]
fn an_announced_length_costs_only_the_bytes_that_arrive() {
    let broker = Broker::start("");
    broker.assert_serves();
    let before = broker.resident();
    let mut open = Vec::new();
    for _ in 0..200 {
        let mut stream = broker.connect();
        stream.write_all(&100_000_000_i32.to_be_bytes()).unwrap();
        stream.write_all(&[0; 10_000]).unwrap();
        open.push(stream);
    }
    broker.assert_serves();
    std::thread::sleep(Duration::from_millis(300));
    let grown = broker.resident().saturating_sub(before);
    assert!(
        grown < 16 * MIB,
        "200 announced frames of 100 MB took {grown} bytes"
    );
}

#[test]
fn large_frames_together_stay_within_their_budget() {
    let mut broker = Broker::start("queued.max.request.bytes=8000000");
    broker.assert_serves();
    let before = broker.resident();
    let mut open = Vec::new();
    for _ in 0..30 {
        let mut stream = broker.connect();
        stream
            .set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        stream.write_all(&100_000_000_i32.to_be_bytes()).unwrap();
        // What the broker does not read stays in the sockets.
        let _ = stream.write_all(&vec![0; 5 * MIB]);
        open.push(stream);
    }
    // A buffer that grows is copied, so the allocator may hold a few times the budget; far less than what was sent.
    let grown = broker.resident().saturating_sub(before);
    assert!(
        grown < 48 * MIB,
        "30 frames of 5 MiB within a budget of 8 MB took {grown} bytes"
    );
    broker.assert_serves();
    broker.signal(libc::SIGKILL);
    broker.wait();
}

#[test]
fn five_thousand_idle_connections_are_cheap() {
    let count = 5_000.min(raise_open_files().saturating_sub(200));
    let broker = Broker::start("");
    broker.assert_serves();
    let before = broker.resident();
    let mut open: Vec<TcpStream> = (0..count).map(|_| broker.connect()).collect();
    for stream in &mut open {
        stream.write_all(&api_versions(1)).unwrap();
    }
    for stream in &mut open {
        read_answer(stream).expect("an answer");
    }
    broker.assert_serves();
    // A connection that has been quiet for a while holds no read buffer.
    eventually("the buffers' release", || {
        let grown = broker.resident().saturating_sub(before);
        (grown < count * 6 * 1024).then_some(())
    });
    broker.assert_serves();
}

#[test]
fn connections_above_the_limit_are_refused_with_a_logged_reason() {
    let mut broker = Broker::start("max.connections.per.ip=3");
    let mut open: Vec<TcpStream> = (0..3).map(|_| broker.connect()).collect();
    for stream in &mut open {
        stream.write_all(&api_versions(1)).unwrap();
        read_answer(stream).expect("an answer");
    }
    assert!(closes_after(&broker, &[], false));
    broker.wait_for_line("max.connections.per.ip");
    drop(open);
    eventually("a free place", || {
        let mut stream = broker.connect();
        stream.write_all(&api_versions(1)).ok()?;
        read_answer(&mut stream)
    });
}

#[test]
fn a_silent_connection_is_closed() {
    let broker = Broker::start("connections.max.idle.ms=1500");
    let mut stream = broker.connect();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_oversized_frame_is_logged_with_its_size_and_the_limit() {
    let mut broker = Broker::start("socket.request.max.bytes=1000");
    assert!(closes_after(&broker, &1001_i32.to_be_bytes(), false));
    let line = broker.wait_for_line("socket.request.max.bytes");
    assert!(
        line.contains("1001") && line.contains("allows 1000"),
        "{line}"
    );
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_arrive() {
    let broker = Broker::start("");
    for piece in [1, 7, 4096, usize::MAX] {
        let mut stream = broker.connect();
        let requests: Vec<u8> = (0..300).flat_map(api_versions).collect();
        for bytes in requests.chunks(piece.min(requests.len())) {
            stream.write_all(bytes).unwrap();
        }
        for expected in 0..300_i32 {
            let answer = read_answer(&mut stream).expect("an answer");
            assert_eq!(answer[..4], expected.to_be_bytes(), "in pieces of {piece}");
        }
    }
}

#[test]
fn a_reader_that_does_not_read_stops_only_itself() {
    // Small socket buffers fill soon.
    let broker = Broker::start("socket.send.buffer.bytes=65536\nsocket.receive.buffer.bytes=65536");
    broker.assert_serves();
    let before = broker.resident();
    let mut slow = broker.connect();
    limit_receive_buffer(&slow, 65_536);
    slow.set_write_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    // Answers are many times as long as requests, so both directions fill and the broker stops reading.
    let mut sent = 0;
    while sent < 2_000_000 && slow.write_all(&api_versions(sent)).is_ok() {
        sent += 1;
    }
    assert!(sent < 2_000_000, "the broker went on reading");
    let grown = broker.resident().saturating_sub(before);
    assert!(
        grown < 8 * MIB,
        "{grown} bytes for a reader that does not read"
    );
    broker.assert_serves();
    // Once it reads, it gets every answer in order.
    for expected in 0..sent {
        let answer = read_answer(&mut slow).expect("an answer");
        assert_eq!(answer[..4], expected.to_be_bytes());
    }
}

/// Keeps the system from buffering megabytes for a client that does not read.
fn limit_receive_buffer(stream: &TcpStream, bytes: libc::c_int) {
    // SAFETY: the descriptor is open, and the pointer and the size are those of `bytes`.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}

/// As many files as this test may open.
fn raise_open_files() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    usize::try_from(limit.rlim_cur).unwrap()
}
