//! What an operator meets: the command line, refusals at start, probes, metrics, signals and exit codes.

mod broker;

use std::sync::Arc;

use broker::{Broker, eventually, program};

/// The exit code and everything printed by a run with these arguments and this file.
fn run(arguments: &[&str], text: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.properties");
    std::fs::write(
        &file,
        text.replace("DIR", &folder.path().join("data").display().to_string()),
    )
    .unwrap();
    let output = program().args(arguments).arg(&file).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).replace(&file.display().to_string(), "FILE");
    (output.status.code(), printed)
}

#[test]
fn a_file_is_checked_as_a_whole() {
    fn check(text: &str, code: i32, expected: &[&str]) {
        let (found, printed) = run(&["check-config"], text);
        assert_eq!(found, Some(code), "{printed}");
        for expected in expected {
            assert!(
                printed.contains(expected),
                "{expected:?} is missing in:\n{printed}"
            );
        }
    }
    check(
        "cluster.id=c\nnode.id=1\nlog.dirs=/a",
        0,
        &[
            "node.id=1",
            "# INTERNAL://:9093 is for brokers and the operator",
            "# PLAINTEXT://:9092 is for clients",
            "# http://0.0.0.0:9404 serves /metrics",
            "# the metadata is kept by this broker alone",
            "FILE is fine: broker 1",
            "warning: listener PLAINTEXT has no address that clients can be told",
        ],
    );
    check(
        "cluster.id=c\nnode.id=1\nlog.dirs=/a\nadvertised.listeners=PLAINTEXT://a:1\ncontroller.quorum.voters=0@b:1,1@c:1,2@d:1",
        0,
        &[
            "# PLAINTEXT://:9092 is for clients, who are told PLAINTEXT://a:1",
            "# the metadata is kept by brokers 0, 1, 2",
        ],
    );
    check(
        "node.id=one\nbroker.id=1",
        1,
        &[
            "FILE is refused",
            "node.id: invalid value \"one\": must be an integer",
            "broker.id: unknown config; write node.id",
            "log.dirs: must be set",
        ],
    );
    check("node.id=1\nlog.dirs=/a", 1, &["cluster.id: must be set"]);
    check(
        "node.id=1\nnode.id=2",
        1,
        &["node.id: set twice, on lines 1 and 2"],
    );
}

#[test]
fn the_environment_stands_above_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.properties");
    std::fs::write(&file, "cluster.id=c\nnode.id=1\nlog.dirs=/a").unwrap();
    let check = |value: &str, code: i32, expected: &str| {
        let mut program = program();
        program.arg("check-config").arg(&file);
        let output = program.env("TAFFRAIL_NODE_ID", value).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).to_string();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(expected), "{printed}");
    };
    check("7", 0, "node.id=7\n");
    check("x", 1, "node.id: invalid value \"x\"");
}

#[test]
fn help_says_all_there_is_to_know() {
    let output = program().arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "TAFFRAIL_LOG_DIRS",
        "check-config",
        "/readyz",
        "SIGTERM",
        "Exit codes",
        "replica.lag.time.max.ms",
    ] {
        assert!(help.contains(expected), "{expected}");
    }
}

#[test]
fn a_taken_port_is_told_in_one_sentence() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = format!(
        "cluster.id=c\nnode.id=0\nlog.dirs=DIR\nlisteners=INTERNAL://127.0.0.1:{port}\ntaffrail.metrics.listener=127.0.0.1:0"
    );
    let (code, printed) = run(&["--config"], &text);
    assert_eq!(code, Some(1));
    let expected = format!("listener INTERNAL cannot use 127.0.0.1:{port}: Address already in use");
    assert!(printed.contains(&expected), "{printed}");
}

#[test]
fn a_missing_file_is_told_in_one_sentence() {
    let output = program()
        .args(["--config", "/no/such/file"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(
        printed,
        "taffrail-broker: cannot read /no/such/file: No such file or directory (os error 2)\n"
    );
}

/// A disk that is full, or a collector that has gone, costs log lines and not the broker.
#[test]
fn a_broker_lives_without_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.properties");
    let text = format!(
        "cluster.id=c\nnode.id=0\nlog.dirs={}\nlisteners=INTERNAL://127.0.0.1:0\ntaffrail.metrics.listener=127.0.0.1:0\n\
         taffrail.log.level=trace",
        folder.path().join("data").display()
    );
    std::fs::write(&file, text).unwrap();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut child = program().arg(&file).stderr(full).spawn().unwrap();
    // It writes lines from its first moment on.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(child.try_wait().unwrap(), None, "it has ended");
    // SAFETY: the process is our own child and has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn probes_and_admin_paths_answer() {
    let broker = Broker::start("");
    eventually("readiness", || {
        (broker.get("/readyz").0 == 200).then_some(())
    });
    let check = |method: &str, path: &str, status: u16, expected: &str| {
        let (found, body) = broker.http_request(method, path);
        assert_eq!(found, status, "{method} {path}: {body}");
        assert!(body.contains(expected), "{method} {path}: {body}");
    };
    check("GET", "/livez", 200, "the event loop turns");
    check("GET", "/startupz", 200, "recovery has finished");
    check("GET", "/admin/state", 200, "\"broker_id\":0");
    check("GET", "/admin/safe-to-stop", 200, "\"safe\":true");
    check("GET", "/", 200, "/admin/state");
    check("GET", "/nothing", 404, "/metrics");
    check("POST", "/metrics", 405, "GET");
    check("DELETE", "/admin/state", 405, "GET");
}

/// Each line of the text format is a comment or `name{labels} value`.
#[test]
fn metrics_are_prometheus_text() {
    let broker = Broker::start("");
    broker.assert_serves();
    let (status, text) = broker.get("/metrics");
    assert_eq!(status, 200);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = series.split('{').next().unwrap();
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
            "{line}"
        );
    }
    for name in [
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_server_socketservermetrics_connection_count",
        "process_resident_memory_bytes",
    ] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}");
    }
}

#[test]
fn sigterm_leaves_cleanly_and_the_data_is_found_again() {
    let mut broker = Broker::start("");
    eventually("readiness", || {
        (broker.get("/readyz").0 == 200).then_some(())
    });
    broker.signal(libc::SIGTERM);
    assert_eq!(broker.wait().code(), Some(0), "{}", broker.log());
    let folder = broker.folder();
    drop(broker);
    let again = Broker::start_in(Arc::clone(&folder), "");
    eventually("readiness", || {
        (again.get("/readyz").0 == 200).then_some(())
    });
}

#[test]
fn a_second_broker_on_the_same_folder_is_refused() {
    let broker = Broker::start("");
    broker.assert_serves();
    let text = format!(
        "cluster.id=test\nnode.id=0\nlog.dirs={}\nlisteners=INTERNAL://127.0.0.1:0\ntaffrail.metrics.listener=127.0.0.1:0",
        broker.folder().path().join("data").display()
    );
    let (code, printed) = run(&["--config"], &text);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("cannot start"), "{printed}");
}
