//! A broker process of a test: started on free ports over a temporary folder, ended with the test.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use taffrail_protocol::frame::{decode_response, encode_request};
use taffrail_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use taffrail_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use taffrail_protocol::records::RecordBatchBuilder;
use taffrail_protocol::{Records, Request, Uuid};

/// Longer than any healthy step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The binary under test.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taffrail-broker"));
    command.env_clear();
    command
}

/// A running broker.
pub(crate) struct Broker {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    /// The client listener.
    pub(crate) clients: SocketAddr,
    /// The internal listener.
    pub(crate) internal: SocketAddr,
    /// The metrics port.
    pub(crate) http: SocketAddr,
    folder: Arc<tempfile::TempDir>,
}

impl Broker {
    /// Starts a broker on a new folder; `extra` lines go into its file.
    pub(crate) fn start(extra: &str) -> Broker {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), extra)
    }

    /// Starts a broker on a folder that another one may have left.
    pub(crate) fn start_in(folder: Arc<tempfile::TempDir>, extra: &str) -> Broker {
        Self::start_with(folder, &[], extra)
    }

    /// Starts a broker with variables above its file.
    pub(crate) fn start_with(
        folder: Arc<tempfile::TempDir>,
        environment: &[(&str, &str)],
        extra: &str,
    ) -> Broker {
        let file = folder.path().join("broker.properties");
        let text = format!(
            "cluster.id=test\nnode.id=0\nlog.dirs={}\nlisteners=INTERNAL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0\n\
             taffrail.metrics.listener=127.0.0.1:0\ntaffrail.log.format=json\n{extra}\n",
            folder.path().join("data").display()
        );
        std::fs::write(&file, text).unwrap();
        let mut child = program()
            .arg("--config")
            .arg(&file)
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (collected, stderr) = (
            Arc::clone(&lines),
            BufReader::new(child.stderr.take().unwrap()),
        );
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                collected.lock().unwrap().push(line);
            }
        });
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut broker = Broker {
            child,
            lines,
            clients: unknown,
            internal: unknown,
            http: unknown,
            folder,
        };
        broker.clients = broker.bound("\"listener\":\"PLAINTEXT\"");
        broker.internal = broker.bound("\"listener\":\"INTERNAL\"");
        broker.http = broker.bound("metrics, probes and admin page");
        broker
    }

    /// The address in the line about a port that was bound.
    fn bound(&mut self, mark: &str) -> SocketAddr {
        let line = self.wait_for_line(mark);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        line["address"].as_str().unwrap().parse().unwrap()
    }

    /// Waits for a log line with this text in it.
    pub(crate) fn wait_for_line(&mut self, mark: &str) -> String {
        eventually(mark, || {
            assert!(
                self.child.try_wait().unwrap().is_none(),
                "the broker ended:\n{}",
                self.log()
            );
            self.lines
                .lock()
                .unwrap()
                .iter()
                .find(|line| line.contains(mark))
                .cloned()
        })
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// A connection to the client listener.
    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.clients)
    }

    /// Fails unless a new client is answered.
    pub(crate) fn assert_serves(&self) {
        let mut stream = self.connect();
        stream.write_all(&api_versions(7)).unwrap();
        let answer = read_answer(&mut stream).expect("an answer");
        assert_eq!(
            &answer[..6],
            &[0, 0, 0, 7, 0, 0],
            "correlation id, then no error"
        );
    }

    /// Resident memory, in bytes.
    pub(crate) fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.split_whitespace()
            .next()
            .unwrap()
            .parse::<usize>()
            .unwrap()
            * 1024
    }

    /// The status and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.http_request("GET", path)
    }

    /// The status and body of an HTTP request without a body.
    pub(crate) fn http_request(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = connect(self.http);
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: broker\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer
            .split_once("\r\n\r\n")
            .map_or("", |(_, body)| body)
            .to_string();
        (status, body)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the process is our child and has not been waited for.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(sent, 0);
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the broker's end", || self.child.try_wait().unwrap())
    }

    /// The folder, for another broker.
    pub(crate) fn folder(&self) -> Arc<tempfile::TempDir> {
        Arc::clone(&self.folder)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until there is an answer; fails when patience ends.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A connection that does not wait for ever.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends a request in its newest version to an address and gives the answer.
pub(crate) fn ask<R: Request>(address: SocketAddr, request: &R) -> R::Response {
    let frame = encode_request(1, Some("test"), request, R::MAX_VERSION).unwrap();
    let mut stream = connect(address);
    stream.write_all(&frame).unwrap();
    let answer = read_answer(&mut stream).expect("an answer");
    decode_response::<R>(&answer, R::MAX_VERSION).unwrap().1
}

/// Creates a topic of one replica per partition.
pub(crate) fn create_topic(broker: &Broker, name: &str, partitions: i32) -> Uuid {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.to_owned(),
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

/// Produces a batch of records of this size, once there is a leader.
pub(crate) fn produce(broker: &Broker, topic_id: Uuid, index: i32, records: usize, size: usize) {
    let mut batch = RecordBatchBuilder::new(0, 1_700_000_000_000);
    for _ in 0..records {
        batch.push(None, Some(&vec![b'x'; size]), &[]);
    }
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            topic_id,
            partition_data: vec![PartitionProduceData {
                index,
                records: Records::Inline(batch.build()),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    eventually("a leader", || {
        let answer = ask(broker.clients, &request);
        (answer.responses[0].partition_responses[0].error_code == 0).then_some(())
    });
}

/// A frame around a request: API key, version, correlation id, no client id, body.
pub(crate) fn request(api_key: i16, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = ((10 + body.len()) as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(&api_key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&correlation_id.to_be_bytes());
    frame.extend_from_slice(&(-1_i16).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// The smallest request that is always answered: ApiVersions 0.
pub(crate) fn api_versions(correlation_id: i32) -> Vec<u8> {
    request(18, 0, correlation_id, &[])
}

/// The next answer without its length, or none if the broker has closed the connection.
pub(crate) fn read_answer(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).ok()?;
    let mut answer = vec![0; usize::try_from(i32::from_be_bytes(prefix)).ok()?];
    stream.read_exact(&mut answer).ok()?;
    Some(answer)
}

/// Whether the broker closes the connection after these bytes and the end of the client's side.
pub(crate) fn closes_after(broker: &Broker, bytes: &[u8], finish: bool) -> bool {
    let mut stream = broker.connect();
    // The broker may close before everything is written.
    let _ = stream.write_all(bytes);
    if finish {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
