//! `taffrail-operator local`: sets a run up, and turns what happens (time, answers, signals, a changed file) into calls
//! of the session until it is told to stop.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::binary;
use super::folder::{DataFolder, is_in_use};
use super::intent::only_cluster;
use super::memory::Memory;
use super::ports::{Ports, check_free};
use super::probe::{Answer, Job, work};
use super::report::Report;
use super::session::{Next, Session, Setup, other_cluster};
use super::supervisor::{Event, STOP_WAIT_MAX};
use super::watch::{Look, Watch};
use super::{LocalError, table};
use crate::cli::Local;
use crate::http;
use crate::manifest;
use crate::metrics::Metrics;
use crate::object::derived_cluster_id;
use crate::properties::voters;

/// How often processes, the file and the clock are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often the file is looked at; a change is taken when two looks agree.
const FILE_LOOK: Duration = Duration::from_millis(250);

/// Runs a local cluster until Ctrl-C or SIGTERM.
pub fn run(arguments: &Local) -> Result<(), LocalError> {
    // One thread: the kernel ends a broker when the thread that started it ends, so it must be the main one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| setup_failed("the runtime", error))?;
    runtime.block_on(run_until_told(arguments))
}

async fn run_until_told(arguments: &Local) -> Result<(), LocalError> {
    let began = Instant::now();
    let mut session = prepare(arguments)?;
    let mut interrupted = listen(SignalKind::interrupt())?;
    let mut terminated = listen(SignalKind::terminate())?;
    let mut hung_up = listen(SignalKind::hangup())?;
    serve_metrics(&session).await?;
    session.session.start_surplus()?;

    let (jobs, jobs_for_worker) = mpsc::channel(1);
    let (answers_of_worker, mut answers) = mpsc::channel(1);
    tokio::spawn(work(jobs_for_worker, answers_of_worker));

    let mut ticker = interval(TICK);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut running = Running {
        jobs,
        began,
        busy: false,
        look_at: began,
        file_look_at: began,
        said_ready: BTreeSet::new(),
        complained: BTreeSet::new(),
        announced: None,
    };
    loop {
        tokio::select! {
            _ = ticker.tick() => running.tick(&mut session)?,
            Some(answer) = answers.recv() => running.answered(&mut session.session, answer)?,
            _ = interrupted.recv() => break,
            _ = terminated.recv() => break,
            _ = hung_up.recv() => break,
        }
    }
    stop(&mut session.session, &mut interrupted, &mut terminated).await;
    Ok(())
}

struct Prepared {
    session: Session,
    watch: Watch,
    metrics: Metrics,
    ports: Ports,
}

/// Everything that can be refused before a broker is started.
fn prepare(arguments: &Local) -> Result<Prepared, LocalError> {
    // clap asks for the file unless there is a subcommand.
    let file = arguments.file.clone().unwrap_or_default();
    let watch = Watch::new(&file);
    let objects = manifest::objects(&manifest::read(&file)?)?;
    let (key, cluster, _) = only_cluster(&file, &objects)?;
    let brokers = cluster.spec.brokers;
    let ports = Ports::new(arguments.base_port, brokers)?;
    let binary = binary::find(arguments.broker_binary.as_deref())?;
    let folder = DataFolder::open(&arguments.data_dir)?;
    let memory = match Memory::load(folder.path())? {
        Some(memory) if memory.cluster != *key => {
            return Err(other_cluster(folder.path(), &memory, key));
        }
        Some(memory) => {
            if let Some(id) = &cluster.spec.cluster_id
                && *id != memory.cluster_id
            {
                return Err(LocalError::OtherCluster {
                    folder: folder.path().to_owned(),
                    found: format!("the cluster with id {}", memory.cluster_id),
                    wanted: format!("the one with id {id}"),
                });
            }
            memory
        }
        None => {
            let mut memory = Memory::new(key.clone(), String::new(), voters(brokers));
            memory.cluster_id = cluster
                .spec
                .cluster_id
                .clone()
                .unwrap_or_else(|| derived_cluster_id(&memory.cluster_uid));
            memory
        }
    };
    wait_for_earlier_brokers(folder.path());
    for broker in (0..brokers).chain(memory.brokers.iter().copied()) {
        ports.check_free(broker)?;
    }
    check_free(
        ports.operator_metrics(),
        "the operator's metrics".to_owned(),
    )?;
    let metrics = Metrics::new().map_err(|error| setup_failed("metrics", error))?;
    let setup = Setup {
        file: absolute(&file),
        binary,
        ports,
        base_port: arguments.base_port,
        metrics: metrics.clone(),
    };
    let data = folder.path().to_owned();
    let session = Session::new(setup, folder, memory, &objects)?;
    crate::say!(
        "Cluster {key}: {brokers} broker{} on this machine, data in {}",
        if brokers == 1 { "" } else { "s" },
        data.display()
    );
    Ok(Prepared {
        session,
        watch,
        metrics,
        ports,
    })
}

/// Brokers of a run that was killed stop by themselves, which takes a moment.
fn wait_for_earlier_brokers(folder: &Path) {
    let Ok(report) = Report::load(folder) else {
        return;
    };
    let alive = |broker: &super::report::BrokerReport| {
        let Some(pid) = broker.pid else {
            return false;
        };
        // The number may belong to another program by now; ours names its properties file.
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let config = broker.config.display().to_string();
        command
            .split(|byte| *byte == 0)
            .any(|argument| argument == config.as_bytes())
    };
    let deadline = Instant::now() + STOP_WAIT_MAX;
    let mut said = false;
    while let Some(broker) = report.brokers.iter().find(|broker| alive(broker)) {
        if Instant::now() >= deadline {
            // What is left shows up as a taken port.
            return;
        }
        if !said {
            let pid = broker.pid.unwrap_or_default();
            crate::say!(
                "  waiting for broker {} of an earlier run (pid {pid}) to stop",
                broker.id
            );
            said = true;
        }
        thread::sleep(TICK);
    }
}

async fn serve_metrics(prepared: &Prepared) -> Result<(), LocalError> {
    let listener = TcpListener::bind(prepared.ports.operator_metrics())
        .await
        .map_err(|error| setup_failed("metrics", error))?;
    let metrics = prepared.metrics.clone();
    tokio::spawn(http::serve(listener, move |path| metrics.page(path)));
    Ok(())
}

struct Running {
    jobs: mpsc::Sender<Job>,
    began: Instant,
    /// Whether a pass is under way.
    busy: bool,
    look_at: Instant,
    file_look_at: Instant,
    said_ready: BTreeSet<i32>,
    complained: BTreeSet<String>,
    /// The partition table as it was last printed.
    announced: Option<String>,
}

impl Running {
    fn tick(&mut self, prepared: &mut Prepared) -> Result<(), LocalError> {
        let now = Instant::now();
        let session = &mut prepared.session;
        let events = session.supervisor.poll(now);
        for event in &events {
            self.tell(event, &prepared.metrics);
        }
        if !events.is_empty() {
            session.publish();
            self.look_at = now;
        }
        // Not in the middle of a pass, which was planned for what the file said before.
        if !self.busy && now >= self.file_look_at {
            self.file_look_at = now + FILE_LOOK;
            let told = match prepared.watch.look() {
                Look::Same => None,
                Look::Changed => Some("The manifest changed"),
                Look::Back => Some("The manifest is back"),
                Look::Lost(error) => {
                    crate::say!("{}", session.lost_file(&error));
                    session.publish();
                    None
                }
            };
            if let Some(told) = told {
                match session.reload() {
                    Ok(()) => crate::say!("{told}."),
                    Err(error) => {
                        crate::say!(
                            "{told} and cannot be used; what it said before stays in force.\n{error}"
                        );
                    }
                }
                session.publish();
                self.look_at = now;
            }
        }
        if !self.busy && now >= self.look_at {
            let job = session.begin_pass(now);
            self.send(job)?;
        }
        Ok(())
    }

    fn answered(&mut self, session: &mut Session, answer: Answer) -> Result<(), LocalError> {
        let now = Instant::now();
        match answer {
            Answer::Observed { health, kafka } => {
                if let Next::Apply(steps) = session.observed(health, kafka, now) {
                    self.tell_news(session);
                    return self.send(Job::Apply(steps));
                }
            }
            Answer::Applied(results) => session.applied(results, now),
        }
        self.busy = false;
        self.look_at = now + session.next_look();
        self.tell_progress(session);
        Ok(())
    }

    fn send(&mut self, job: Job) -> Result<(), LocalError> {
        self.busy = true;
        self.jobs
            .try_send(job)
            .map_err(|error| setup_failed("the task that talks to brokers has ended", error))
    }

    fn tell(&mut self, event: &Event, metrics: &Metrics) {
        match event {
            Event::Died { broker, how, pause } => {
                self.said_ready.remove(broker);
                crate::say!(
                    "  broker {broker} died ({how}); it is started again in {:.1} s",
                    pause.as_secs_f64()
                );
            }
            Event::Restarted { broker, pid, died } => {
                self.said_ready.remove(broker);
                if *died {
                    metrics.broker_restarted(*broker);
                }
                crate::say!("  broker {broker} started again (pid {pid})");
            }
            Event::NotStarted { broker, error } => {
                crate::say!("  broker {broker} cannot be started: {error}");
            }
        }
    }

    fn tell_news(&mut self, session: &mut Session) {
        for broker in session.brokers() {
            let ready = session.is_broker_ready(broker);
            if ready && self.said_ready.insert(broker) {
                crate::say!("  broker {broker} ready");
            }
        }
        for news in session.take_news() {
            crate::say!("  {news}");
        }
    }

    fn tell_progress(&mut self, session: &mut Session) {
        self.tell_news(session);
        let complaints = session.complaints();
        for complaint in complaints.difference(&self.complained) {
            crate::say!("  {complaint}");
        }
        self.complained = complaints;
        if !session.is_settled() {
            return;
        }
        let report = session.report();
        let shape = shape(&report);
        if self.announced.as_ref() == Some(&shape) {
            return;
        }
        let first = self.announced.is_none();
        self.announced = Some(shape);
        if first {
            crate::say!("Ready after {:.1} s.", self.began.elapsed().as_secs_f64());
        }
        crate::say!("\n{}", table::partitions(&report));
        if first {
            crate::say!("{}", commands(&report));
        }
    }
}

/// What makes the table worth printing again: topics and their replicas, but not elections, which come and go.
fn shape(report: &Report) -> String {
    let mut shape = String::new();
    for topic in &report.topics {
        for partition in &topic.partitions {
            shape += &format!(
                "{} {} {:?}\n",
                topic.object, partition.partition, partition.replicas
            );
        }
    }
    shape
}

/// Commands to paste.
fn commands(report: &Report) -> String {
    let topic = report
        .topics
        .iter()
        .find(|topic| !topic.partitions.is_empty())
        .and_then(|topic| topic.status.topic_name.clone())
        .unwrap_or_else(|| "my-topic".to_owned());
    let first = report.brokers.first();
    let server = first.map_or("", |broker| broker.client.as_str());
    let metrics = first.map_or("", |broker| broker.metrics.as_str());
    format!(
        "Bootstrap servers: {}\n\n  \
         produce   echo 'hello' | kcat -P -b {server} -t {topic}\n  \
         consume   kcat -C -b {server} -t {topic} -o beginning -e\n  \
         metrics   curl -s http://{metrics}/metrics\n\n\
         Edit {} to change the cluster while it runs. Ctrl-C stops it; its data stays.",
        report.bootstrap_servers,
        report.file.display(),
    )
}

async fn stop(session: &mut Session, interrupted: &mut Signal, terminated: &mut Signal) {
    crate::say!("\nStopping; once more stops at once.");
    session.supervisor.begin_stop_all(Instant::now());
    let mut ticker = interval(TICK);
    while !session.supervisor.is_empty() {
        tokio::select! {
            _ = ticker.tick() => {
                session.supervisor.poll(Instant::now());
            }
            _ = interrupted.recv() => session.supervisor.kill_all(),
            _ = terminated.recv() => session.supervisor.kill_all(),
        }
    }
    session.publish();
    crate::say!("Stopped.");
}

fn listen(kind: SignalKind) -> Result<Signal, LocalError> {
    signal(kind).map_err(|error| setup_failed("signals", error))
}

fn setup_failed(what: &'static str, error: impl ToString) -> LocalError {
    LocalError::Setup {
        what,
        error: error.to_string(),
    }
}

/// The same file from any folder. Links stay: one that is turned to another file changes the manifest.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The last report of a folder, with whether it runs.
pub(super) fn report_of(folder: &Path) -> Result<Report, LocalError> {
    let mut report = Report::load(folder)?;
    report.running = is_in_use(folder);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::object::ObjectKey;

    const MANIFEST: &str = "
apiVersion: taffrail.io/v1alpha1
kind: Cluster
metadata: {name: second}
spec:
  brokers: 1
  storage:
    volumes:
      - {name: data-0, size: 1Gi}
";

    /// What a run says that cannot begin; folders are called HERE.
    fn refusal(manifest: &str, spoil: impl FnOnce(&mut Local)) -> String {
        let folder = tempfile::tempdir().expect("folder");
        let here = folder.path().canonicalize().expect("folder");
        let file = here.join("manifest.yaml");
        fs::write(&file, manifest).expect("file");
        let mut arguments = Local {
            command: None,
            file: Some(file),
            data_dir: here.join("data"),
            broker_binary: std::env::current_exe().ok(),
            base_port: super::super::ports::DEFAULT_BASE,
        };
        spoil(&mut arguments);
        let error = prepare(&arguments).err().expect("it cannot begin");
        error
            .to_string()
            .replace(&here.display().to_string(), "HERE")
    }

    #[test]
    fn bad_manifest_is_told_with_its_field() {
        let told = refusal(&MANIFEST.replace("brokers: 1", "brokers: few"), |_| ());
        assert!(
            told.starts_with("HERE/manifest.yaml") && told.contains("spec.brokers: "),
            "{told}"
        );
        assert_eq!(
            refusal("", |_| ()),
            "HERE/manifest.yaml: holds no Cluster; one is needed"
        );
    }

    #[test]
    fn missing_binary_is_told_with_what_to_do() {
        let told = refusal(MANIFEST, |arguments| {
            arguments.broker_binary = Some("/no/such/program".into());
        });
        assert_eq!(
            told,
            "the broker program is missing: /no/such/program is no executable file; build it with `cargo build --release`, or \
             name it with --broker-binary"
        );
    }

    #[test]
    fn taken_port_is_told_before_anything_is_started() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let told = refusal(MANIFEST, |arguments| arguments.base_port = port);
        assert_eq!(
            told,
            format!(
                "port {port} (broker 0, clients) is taken by another program; stop it, or choose other ports with --base-port"
            )
        );
    }

    #[test]
    fn folder_of_another_cluster_is_told_with_both() {
        let remember = |name: &'static str| {
            move |arguments: &mut Local| {
                drop(DataFolder::open(&arguments.data_dir).expect("free"));
                let key = ObjectKey::new(None, Some(name));
                let memory = Memory::new(key, "AAAAAAAAAAAAAAAAAAAAAA".to_owned(), vec![0]);
                memory.save(&arguments.data_dir).expect("writable");
            }
        };
        assert_eq!(
            refusal(MANIFEST, remember("first")),
            "HERE/data: holds the data of Cluster first, not of Cluster second; choose another --data-dir"
        );
        let other_id = MANIFEST.replace("spec:", "spec:\n  clusterId: BBBBBBBBBBBBBBBBBBBBBA");
        assert_eq!(
            refusal(&other_id, remember("second")),
            "HERE/data: holds the data of the cluster with id AAAAAAAAAAAAAAAAAAAAAA, not of the one with id \
             BBBBBBBBBBBBBBBBBBBBBA; choose another --data-dir"
        );
    }

    #[test]
    fn links_to_the_manifest_are_followed_anew() {
        let folder = tempfile::tempdir().expect("folder");
        let link = folder.path().join("manifest.yaml");
        symlink(folder.path().join("first.yaml"), &link).expect("made");
        fs::write(&link, "").expect("written through it");
        assert_eq!(absolute(&link), link);
        assert!(absolute(Path::new("manifest.yaml")).is_absolute());
    }
}
