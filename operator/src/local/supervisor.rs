//! Keeps broker processes running: starts them, notices that one died and starts it again with growing pauses, and
//! stops them within a time limit. Brokers do not outlive the supervisor, however it ends.
//!
//! Must be used from the main thread: the kernel ends a child when the thread that started it ends.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// First pause before a broker that died is started again.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Longest pause. A broker that cannot run is tried 360 times an hour.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A broker that ran this long was well; its next death starts from the shortest pause again.
const WELL_AFTER: Duration = Duration::from_secs(30);
/// How long brokers get to hand over and flush after SIGTERM, before SIGKILL.
pub(super) const STOP_WAIT_MAX: Duration = Duration::from_secs(30);
/// A log larger than this is set aside in place of the one that was set aside before, so that a broker's take about 32 MiB.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// How often the size of a log is looked at.
const LOG_LOOK: Duration = Duration::from_secs(1);
/// How much of a log's end is read for the last line.
const LOG_TAIL_BYTES: u64 = 4 << 10;

/// The state of a broker whose process runs and was not asked to stop.
pub(super) const RUNNING: &str = "running";

/// How a broker is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrokerCommand {
    /// The program.
    pub(super) program: PathBuf,
    /// Its arguments.
    pub(super) arguments: Vec<String>,
    /// Where it prints to.
    pub(super) log: PathBuf,
}

/// What happened since the last look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A broker died by itself.
    Died {
        /// Which.
        broker: i32,
        /// How, and the last line it printed.
        how: String,
        /// After which pause it is started again.
        pause: Duration,
    },
    /// It was started again.
    Restarted {
        /// Which.
        broker: i32,
        /// Its process.
        pid: u32,
        /// Whether it had died, as opposed to a wanted restart.
        died: bool,
    },
    /// It could not be started.
    NotStarted {
        /// Which.
        broker: i32,
        /// Why.
        error: String,
    },
}

/// All broker processes.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    brokers: BTreeMap<i32, Supervised>,
}

#[derive(Debug)]
struct Supervised {
    command: BrokerCommand,
    state: State,
    restarts: u32,
    pause: Duration,
    log_look_at: Instant,
}

#[derive(Debug)]
enum State {
    Running {
        child: Child,
        since: Instant,
    },
    /// Not running; started again when it is time. `died` tells a death from a wanted restart.
    Waiting {
        until: Instant,
        died: bool,
    },
    /// Stopping; when it is gone it is started again with this command, or forgotten.
    Stopping {
        child: Child,
        kill_at: Instant,
        then: Option<BrokerCommand>,
    },
}

impl Supervisor {
    /// Starts a broker that is to run from now on: one that is stopping still, once it has stopped. One that cannot be started
    /// is tried again, as one that died is.
    pub(super) fn start(
        &mut self,
        broker: i32,
        command: BrokerCommand,
        now: Instant,
    ) -> io::Result<()> {
        if self.brokers.contains_key(&broker) {
            self.restart(broker, command, now);
            return Ok(());
        }
        let mut supervised = Supervised {
            command,
            state: State::Waiting {
                until: now + PAUSE_MIN,
                died: false,
            },
            restarts: 0,
            pause: PAUSE_MIN * 2,
            log_look_at: now + LOG_LOOK,
        };
        let result = spawn(&supervised.command).map(|child| {
            supervised.pause = PAUSE_MIN;
            supervised.state = State::Running { child, since: now };
        });
        self.brokers.insert(broker, supervised);
        result
    }

    /// Stops a broker cleanly and starts it with another command.
    pub(super) fn restart(&mut self, broker: i32, command: BrokerCommand, now: Instant) {
        self.stop(broker, Some(command), now);
    }

    /// Stops a broker for good.
    pub(super) fn remove(&mut self, broker: i32, now: Instant) {
        self.stop(broker, None, now);
    }

    fn stop(&mut self, broker: i32, then: Option<BrokerCommand>, now: Instant) {
        let Some(supervised) = self.brokers.remove(&broker) else {
            return;
        };
        let state = match supervised.state {
            State::Running { child, .. } => {
                signal(&child, libc::SIGTERM);
                State::Stopping {
                    child,
                    kill_at: now + STOP_WAIT_MAX,
                    then,
                }
            }
            State::Stopping { child, kill_at, .. } => State::Stopping {
                child,
                kill_at,
                then,
            },
            State::Waiting { .. } => match then {
                None => return,
                Some(command) => {
                    let waiting = Supervised {
                        command,
                        state: State::Waiting {
                            until: now,
                            died: false,
                        },
                        ..supervised
                    };
                    self.brokers.insert(broker, waiting);
                    return;
                }
            },
        };
        self.brokers.insert(
            broker,
            Supervised {
                state,
                ..supervised
            },
        );
    }

    /// Looks at every process and does what is due.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        let brokers: Vec<i32> = self.brokers.keys().copied().collect();
        for broker in brokers {
            if let Some(supervised) = self.brokers.remove(&broker)
                && let Some(supervised) = poll_one(broker, supervised, now, &mut events)
            {
                self.brokers.insert(broker, supervised);
            }
        }
        events
    }

    /// The process of a broker, if it runs at this moment.
    pub(super) fn pid(&self, broker: i32) -> Option<u32> {
        match &self.brokers.get(&broker)?.state {
            State::Running { child, .. } | State::Stopping { child, .. } => Some(child.id()),
            State::Waiting { .. } => None,
        }
    }

    /// The process of a broker that runs and was not asked to stop.
    pub(super) fn serving_pid(&self, broker: i32) -> Option<u32> {
        match &self.brokers.get(&broker)?.state {
            State::Running { child, .. } => Some(child.id()),
            State::Waiting { .. } | State::Stopping { .. } => None,
        }
    }

    /// How a broker is, in one word.
    pub(super) fn state(&self, broker: i32) -> &'static str {
        match self
            .brokers
            .get(&broker)
            .map(|supervised| &supervised.state)
        {
            Some(State::Running { .. }) => RUNNING,
            Some(State::Waiting { .. }) => "restarting",
            Some(State::Stopping { .. }) => "stopping",
            None => "stopped",
        }
    }

    /// All brokers that have a process or are to have one.
    pub(super) fn brokers(&self) -> impl Iterator<Item = i32> {
        self.brokers.keys().copied()
    }

    /// How often a broker died and was started again.
    pub(super) fn restarts(&self, broker: i32) -> u32 {
        self.brokers
            .get(&broker)
            .map_or(0, |supervised| supervised.restarts)
    }

    /// Asks all brokers to stop, and starts none again.
    pub(super) fn begin_stop_all(&mut self, now: Instant) {
        let brokers: Vec<i32> = self.brokers.keys().copied().collect();
        for broker in brokers {
            self.remove(broker, now);
        }
    }

    /// Whether no process is left.
    pub(super) fn is_empty(&self) -> bool {
        self.brokers.is_empty()
    }

    /// Ends all processes at once.
    pub(super) fn kill_all(&mut self) {
        for supervised in std::mem::take(&mut self.brokers).into_values() {
            if let State::Running { mut child, .. } | State::Stopping { mut child, .. } =
                supervised.state
            {
                // It may be gone already, which is what is wanted.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn poll_one(
    broker: i32,
    mut supervised: Supervised,
    now: Instant,
    events: &mut Vec<Event>,
) -> Option<Supervised> {
    if now >= supervised.log_look_at {
        supervised.log_look_at = now + LOG_LOOK;
        if let Err(error) = limit_log(&supervised.command.log, LOG_BYTES_MAX) {
            tracing::warn!(broker, %error, log = %supervised.command.log.display(), "the log cannot be set aside");
        }
    }
    match supervised.state {
        State::Running { mut child, since } => match child.try_wait() {
            Ok(None) | Err(_) => supervised.state = State::Running { child, since },
            Ok(Some(status)) => {
                if now.saturating_duration_since(since) >= WELL_AFTER {
                    supervised.pause = PAUSE_MIN;
                }
                events.push(Event::Died {
                    broker,
                    how: how_it_ended(status, &supervised.command.log),
                    pause: supervised.pause,
                });
                supervised.state = State::Waiting {
                    until: now + supervised.pause,
                    died: true,
                };
                supervised.pause = (supervised.pause * 2).min(PAUSE_MAX);
            }
        },
        State::Waiting { until, died } if now < until => {
            supervised.state = State::Waiting { until, died };
        }
        State::Waiting { died, .. } => match spawn(&supervised.command) {
            Ok(child) => {
                supervised.restarts += u32::from(died);
                events.push(Event::Restarted {
                    broker,
                    pid: child.id(),
                    died,
                });
                supervised.state = State::Running { child, since: now };
            }
            Err(error) => {
                events.push(Event::NotStarted {
                    broker,
                    error: error.to_string(),
                });
                supervised.state = State::Waiting {
                    until: now + supervised.pause,
                    died,
                };
                supervised.pause = (supervised.pause * 2).min(PAUSE_MAX);
            }
        },
        State::Stopping {
            mut child,
            kill_at,
            then,
        } => match child.try_wait() {
            Ok(Some(_)) => {
                let command = then?;
                supervised.command = command;
                supervised.pause = PAUSE_MIN;
                supervised.state = State::Waiting {
                    until: now,
                    died: false,
                };
                return poll_one(broker, supervised, now, events);
            }
            Ok(None) | Err(_) => {
                if now >= kill_at {
                    signal(&child, libc::SIGKILL);
                }
                supervised.state = State::Stopping {
                    child,
                    kill_at,
                    then,
                };
            }
        },
    }
    Some(supervised)
}

fn spawn(command: &BrokerCommand) -> io::Result<Child> {
    if let Some(folder) = command.log.parent() {
        fs::create_dir_all(folder)?;
    }
    limit_log(&command.log, LOG_BYTES_MAX)?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&command.log)?;
    let supervisor = std::process::id();
    let mut process = Command::new(&command.program);
    process
        .args(&command.arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // A group of its own: Ctrl-C in the terminal reaches the supervisor alone, which then stops the brokers.
        .process_group(0);
    // SAFETY: between fork and exec only async-signal-safe calls are made (prctl, getppid, _exit), and nothing is
    // allocated.
    unsafe {
        process.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The supervisor may have died before the call above.
            if u32::try_from(libc::getppid()) != Ok(supervisor) {
                libc::_exit(1);
            }
            Ok(())
        });
    }
    process.spawn()
}

/// Sets a log that has grown large aside. Its broker goes on writing to the end of the same file, which is therefore copied and
/// emptied: what is printed between the two is lost. It is emptied also where there is no room for the copy.
fn limit_log(log: &Path, bytes_max: u64) -> io::Result<()> {
    match fs::metadata(log) {
        Ok(found) if found.len() > bytes_max => {}
        Ok(_) => return Ok(()),
        // Nothing was printed yet, or somebody removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let copied = fs::copy(log, log.with_extension("log.1"));
    OpenOptions::new().write(true).open(log)?.set_len(0)?;
    copied.map(drop)
}

fn signal(child: &Child, number: libc::c_int) {
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: kill has no memory effects, and the child has not been waited for, so its id is not used again.
        unsafe {
            libc::kill(pid, number);
        }
    }
}

fn how_it_ended(status: ExitStatus, log: &Path) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown reason".to_owned(),
    };
    match last_line(log) {
        Some(line) if status.code().is_some() => format!("{how}; its last words: {line}"),
        _ => how,
    }
}

fn last_line(log: &Path) -> Option<String> {
    let mut file = fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))
        .ok()?;
    let mut tail = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut tail).ok()?;
    String::from_utf8_lossy(&tail)
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    /// A child that is no broker: a shell script.
    fn script(folder: &Path, text: &str) -> BrokerCommand {
        BrokerCommand {
            program: PathBuf::from("/bin/sh"),
            arguments: vec!["-c".to_owned(), text.to_owned()],
            log: folder.join("broker-0/broker.log"),
        }
    }

    fn poll_until(
        supervisor: &mut Supervisor,
        done: impl Fn(&Supervisor, &[Event]) -> bool,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done(supervisor, &events) {
            assert!(Instant::now() < deadline, "{events:?}");
            events.extend(supervisor.poll(Instant::now()));
            sleep(Duration::from_millis(10));
        }
        events
    }

    fn is_alive(pid: u32) -> bool {
        // A process that ended but was not waited for still has a folder; it is not ours to wait for.
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
            !stat
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .trim_start()
                .starts_with('Z')
        })
    }

    #[test]
    fn dead_broker_is_started_again_with_growing_pauses() {
        let folder = tempfile::tempdir().expect("folder");
        let mut supervisor = Supervisor::default();
        supervisor
            .start(
                0,
                script(folder.path(), "echo no disk; exit 3"),
                Instant::now(),
            )
            .expect("starts");
        let died = |events: &[Event]| {
            let pauses = events.iter().filter_map(|event| match event {
                Event::Died { how, pause, .. } => Some((how.clone(), *pause)),
                Event::Restarted { .. } | Event::NotStarted { .. } => None,
            });
            pauses.collect::<Vec<_>>()
        };
        let events = poll_until(&mut supervisor, |_, events| died(events).len() == 2);
        let how = "exit code 3; its last words: no disk".to_owned();
        assert_eq!(
            died(&events),
            [(how.clone(), PAUSE_MIN), (how, PAUSE_MIN * 2)]
        );
        assert_eq!(supervisor.restarts(0), 1);
        assert_eq!(supervisor.state(0), "restarting");
        assert_eq!(supervisor.pid(0), None);
    }

    #[test]
    fn killed_broker_comes_back_as_another_process() {
        let folder = tempfile::tempdir().expect("folder");
        let mut supervisor = Supervisor::default();
        supervisor
            .start(0, script(folder.path(), "exec sleep 600"), Instant::now())
            .expect("starts");
        let first = supervisor.pid(0).expect("runs");
        // SAFETY: the process is our child and was not waited for.
        unsafe { libc::kill(first as libc::pid_t, libc::SIGKILL) };
        let events = poll_until(&mut supervisor, |supervisor, _| supervisor.restarts(0) == 1);
        assert!(
            matches!(&events[0], Event::Died { how, .. } if how == "signal 9"),
            "{events:?}"
        );
        let second = supervisor.pid(0).expect("runs");
        assert_ne!(first, second);
        drop(supervisor);
        assert!(!is_alive(second));
    }

    #[test]
    fn brokers_are_asked_to_stop_and_then_gone() {
        let folder = tempfile::tempdir().expect("folder");
        let mut supervisor = Supervisor::default();
        let clean = folder.path().join("clean");
        let text = format!(
            "trap 'touch {}; exit 0' TERM; echo up; while :; do sleep 0.05; done",
            clean.display()
        );
        supervisor
            .start(0, script(folder.path(), &text), Instant::now())
            .expect("starts");
        let log = folder.path().join("broker-0/broker.log");
        poll_until(&mut supervisor, |_, _| last_line(&log).is_some());
        supervisor.begin_stop_all(Instant::now());
        assert_eq!(supervisor.state(0), "stopping");
        let events = poll_until(&mut supervisor, |supervisor, _| supervisor.is_empty());
        assert!(events.is_empty(), "{events:?}");
        assert!(clean.exists());
    }

    #[test]
    fn broker_that_does_not_stop_is_killed() {
        let folder = tempfile::tempdir().expect("folder");
        let mut supervisor = Supervisor::default();
        let text = "trap '' TERM; echo up; while :; do sleep 0.05; done";
        supervisor
            .start(0, script(folder.path(), text), Instant::now())
            .expect("starts");
        let pid = supervisor.pid(0).expect("runs");
        let log = folder.path().join("broker-0/broker.log");
        poll_until(&mut supervisor, |_, _| last_line(&log).is_some());
        let long_ago = Instant::now() - STOP_WAIT_MAX;
        supervisor.begin_stop_all(long_ago);
        poll_until(&mut supervisor, |supervisor, _| supervisor.is_empty());
        assert!(!is_alive(pid));
    }

    #[test]
    fn restart_uses_the_new_command() {
        let folder = tempfile::tempdir().expect("folder");
        let mut supervisor = Supervisor::default();
        supervisor
            .start(0, script(folder.path(), "exec sleep 600"), Instant::now())
            .expect("starts");
        supervisor.restart(
            0,
            script(folder.path(), "echo second; exec sleep 600"),
            Instant::now(),
        );
        let events = poll_until(&mut supervisor, |supervisor, _| {
            supervisor.state(0) == "running"
        });
        assert!(
            matches!(
                events[..],
                [Event::Restarted {
                    broker: 0,
                    died: false,
                    ..
                }]
            ),
            "{events:?}"
        );
        let log = folder.path().join("broker-0/broker.log");
        poll_until(&mut supervisor, |_, _| {
            last_line(&log).as_deref() == Some("second")
        });
    }

    #[test]
    fn large_log_is_set_aside_while_its_broker_goes_on_printing() {
        let folder = tempfile::tempdir().expect("folder");
        let mut supervisor = Supervisor::default();
        let text =
            "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second; exec sleep 600";
        let text = format!("cd {}; {text}", folder.path().display());
        supervisor
            .start(0, script(folder.path(), &text), Instant::now())
            .expect("starts");
        let log = folder.path().join("broker-0/broker.log");
        let old = folder.path().join("broker-0/broker.log.1");
        let printed = |line: &str| last_line(&log).as_deref() == Some(line);
        poll_until(&mut supervisor, |_, _| printed("first"));
        limit_log(&log, 6).expect("small enough");
        assert!(!old.exists());
        limit_log(&log, 5).expect("set aside");
        assert_eq!(fs::read_to_string(&old).expect("old"), "first\n");
        fs::write(folder.path().join("go"), "").expect("writable");
        poll_until(&mut supervisor, |_, _| printed("second"));
        assert_eq!(fs::read_to_string(&log).expect("new"), "second\n");
        limit_log(&log, 5).expect("set aside in place of the first");
        assert_eq!(fs::read_to_string(&old).expect("old"), "second\n");
        assert_eq!(supervisor.restarts(0), 0);
        fs::remove_file(&log).expect("there");
        limit_log(&log, 5).expect("nothing is there");
    }

    #[test]
    fn a_log_is_looked_at_while_its_broker_runs() {
        let folder = tempfile::tempdir().expect("folder");
        let mut supervisor = Supervisor::default();
        let command = script(folder.path(), "exec sleep 600");
        let log = command.log.clone();
        supervisor
            .start(0, command, Instant::now())
            .expect("starts");
        let file = fs::File::options().write(true).open(&log).expect("there");
        file.set_len(LOG_BYTES_MAX + 1).expect("sparse");
        poll_until(&mut supervisor, |_, _| {
            fs::metadata(&log).is_ok_and(|log| log.len() == 0)
        });
    }

    #[test]
    fn broker_that_cannot_be_started_is_tried_again_with_growing_pauses() {
        let folder = tempfile::tempdir().expect("folder");
        let command = BrokerCommand {
            program: folder.path().join("broker"),
            ..script(folder.path(), "exec sleep 600")
        };
        let program = command.program.clone();
        let mut supervisor = Supervisor::default();
        let began = Instant::now();
        assert!(supervisor.start(0, command, began).is_err());
        assert_eq!(supervisor.state(0), "restarting");
        let mut failed = Vec::new();
        let mut now = began;
        while failed.len() < 8 {
            assert!(now < began + Duration::from_secs(60), "{failed:?}");
            now += Duration::from_millis(50);
            if !supervisor.poll(now).is_empty() {
                failed.push(now);
            }
        }
        let pauses: Vec<u128> = std::iter::once(&began)
            .chain(&failed)
            .zip(&failed)
            .map(|(before, after)| (*after - *before).as_millis())
            .collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        std::os::unix::fs::symlink("/bin/sh", &program).expect("made");
        assert!(matches!(
            supervisor.poll(now + PAUSE_MAX)[..],
            [Event::Restarted { died: false, .. }]
        ));
        assert_eq!((supervisor.state(0), supervisor.restarts(0)), (RUNNING, 0));
    }

    #[test]
    fn broker_that_is_wanted_again_is_started_once_it_has_stopped() {
        let folder = tempfile::tempdir().expect("folder");
        let log = folder.path().join("broker-0/broker.log");
        let mut supervisor = Supervisor::default();
        let slow = "trap 'sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        supervisor
            .start(0, script(folder.path(), slow), Instant::now())
            .expect("starts");
        poll_until(&mut supervisor, |_, _| last_line(&log).is_some());
        let first = supervisor.pid(0).expect("runs");
        supervisor.remove(0, Instant::now());
        supervisor
            .start(0, script(folder.path(), "exec sleep 600"), Instant::now())
            .expect("starts later");
        assert_eq!(supervisor.pid(0), Some(first));
        poll_until(&mut supervisor, |supervisor, _| {
            supervisor.state(0) == RUNNING
        });
        assert!(!is_alive(first));
        assert_ne!(supervisor.pid(0), Some(first));
    }
}
