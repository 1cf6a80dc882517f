//! The cluster under torment: broker processes, each with its network namespace and disk where the machine allows them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use taffrail_e2e::kafka::random_id;
use taffrail_e2e::port::Port;
use taffrail_e2e::process::{Process, tail};
use taffrail_e2e::taffrail::{Addresses, Identity, VOTERS_MAX, command, properties};

use crate::clock::Clock;
use crate::disk::Disk;
use crate::network::{Network, address};
use crate::sandbox::Means;

/// How long a broker may take over SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Lines of a broker's output that are shown when it ended by itself.
const LAST_WORDS: usize = 15;

/// One broker's place.
#[derive(Debug)]
pub(crate) struct Seat {
    addresses: Addresses,
    folder: PathBuf,
    disk: Option<Disk>,
    process: Option<Process>,
    clock: Option<Clock>,
    _ports: Vec<Port>,
}

impl Seat {
    /// Its process has ended, and leaves nothing behind.
    fn bury(&self, process: &Process) -> Result<()> {
        match &self.clock {
            Some(_) => Clock::forget(process.pid()),
            None => Ok(()),
        }
    }
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct Bed {
    seats: Vec<Seat>,
    network: Option<Network>,
}

/// What a cluster is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BedSpec<'a> {
    pub(crate) brokers: usize,
    pub(crate) means: Means,
    /// Whether the brokers' clocks can be moved.
    pub(crate) clocks: bool,
    pub(crate) config: &'a [(&'a str, &'a str)],
}

impl Bed {
    /// Lays everything out below `folder` and starts all brokers.
    pub(crate) fn start(folder: &Path, spec: BedSpec<'_>) -> Result<Self> {
        let network = spec
            .means
            .network
            .then(|| Network::create(spec.brokers))
            .transpose()?;
        let seats = (0..spec.brokers)
            .map(|id| seat(id, folder, spec))
            .collect::<Result<Vec<_>>>()?;
        let mut bed = Self { seats, network };
        bed.configure(spec.config)?;
        for id in 0..spec.brokers {
            bed.run(id)?;
        }
        Ok(bed)
    }

    /// How many brokers there are.
    pub(crate) fn brokers(&self) -> usize {
        self.seats.len()
    }

    /// Where clients reach each broker.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.seats
            .iter()
            .map(|s| s.addresses.client.clone())
            .collect()
    }

    /// Where each broker serves metrics and probes.
    pub(crate) fn metrics(&self) -> Vec<String> {
        self.seats
            .iter()
            .map(|s| s.addresses.metrics.clone())
            .collect()
    }

    /// The network between the brokers; faults that need it are not chosen without.
    pub(crate) fn network(&self) -> Result<&Network> {
        self.network
            .as_ref()
            .context("this needs network namespaces")
    }

    /// The disk of a broker; faults that need it are not chosen without.
    pub(crate) fn disk(&mut self, id: usize) -> Result<&mut Disk> {
        self.seats[id]
            .disk
            .as_mut()
            .context("this needs file systems on loop devices")
    }

    /// The clock of a broker; faults that need it are not chosen without.
    pub(crate) fn clock(&self, id: usize) -> Result<&Clock> {
        self.seats[id]
            .clock
            .as_ref()
            .context("this needs libfaketime")
    }

    /// Starts a broker that does not run; one that does is left alone.
    pub(crate) fn run(&mut self, id: usize) -> Result<()> {
        let seat = &mut self.seats[id];
        if seat.process.is_some() {
            return Ok(());
        }
        let mut command = command(&seat.folder)?;
        // A Ctrl-C is for this program, which then stops its brokers; and they die with it, whatever it died of.
        command.process_group(0);
        die_with_parent(&mut command);
        if let Some(clock) = &seat.clock {
            clock.govern(&mut command);
        }
        if let Some(network) = &self.network {
            network.place(id, &mut command);
        }
        let log = seat.folder.join("broker.log");
        seat.process = Some(Process::spawn(&format!("broker {id}"), &mut command, &log)?);
        Ok(())
    }

    /// SIGKILL to all of these at once; gives those that ran.
    pub(crate) fn kill(&mut self, ids: &[usize]) -> Result<Vec<usize>> {
        let mut killed = Vec::new();
        for &id in ids {
            if let Some(process) = &self.seats[id].process {
                process.signal(libc::SIGKILL)?;
                killed.push(id);
            }
        }
        for &id in &killed {
            if let Some(mut process) = self.seats[id].process.take() {
                process.kill()?;
                self.seats[id].bury(&process)?;
            }
        }
        Ok(killed)
    }

    /// SIGTERM; gives false if the broker did not run.
    pub(crate) fn terminate(&mut self, id: usize) -> Result<bool> {
        match self.seats[id].process.take() {
            Some(mut process) => {
                process.terminate(STOP_LIMIT)?;
                self.seats[id].bury(&process)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Sends a signal to a broker; gives false if it does not run.
    pub(crate) fn signal(&self, id: usize, signal: i32) -> Result<bool> {
        match &self.seats[id].process {
            Some(process) => process.signal(signal).map(|()| true),
            None => Ok(false),
        }
    }

    /// The power of these fails at one moment, and their processes with it.
    pub(crate) fn power_off(&mut self, ids: &[usize]) -> Result<()> {
        self.kill(ids)?;
        ids.iter().try_for_each(|&id| self.disk(id)?.power_off())
    }

    /// The power is back: each disk recovers and its broker starts.
    pub(crate) fn power_on(&mut self, ids: &[usize]) -> Result<()> {
        for &id in ids {
            self.disk(id)?.power_on()?;
        }
        ids.iter().try_for_each(|&id| self.run(id))
    }

    /// Starts brokers that ended by themselves, and tells which and why.
    pub(crate) fn revive(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for id in 0..self.seats.len() {
            let seat = &mut self.seats[id];
            let Some(process) = &mut seat.process else {
                continue;
            };
            if let Some(status) = process.ended()? {
                let words = tail(process.log(), LAST_WORDS);
                ended.push(format!(
                    "broker {id} ended by itself ({status}); its last words:\n{words}"
                ));
                if let Some(process) = seat.process.take() {
                    seat.bury(&process)?;
                }
                self.run(id)?;
            }
        }
        Ok(ended)
    }

    /// The log directory of a broker.
    pub(crate) fn log_dir(&self, id: usize) -> PathBuf {
        log_dir(&self.seats[id].folder)
    }

    /// Copies what each broker said into `folder`.
    pub(crate) fn keep_logs(&self, folder: &Path) -> Result<()> {
        for (id, seat) in self.seats.iter().enumerate() {
            for (file, kept) in [("broker.log", "log"), ("broker.properties", "properties")] {
                let from = seat.folder.join(file);
                fs::copy(&from, folder.join(format!("broker-{id}.{kept}")))
                    .with_context(|| format!("cannot copy {}", from.display()))?;
            }
        }
        Ok(())
    }

    fn configure(&self, config: &[(&str, &str)]) -> Result<()> {
        let voting = if self.seats.len() >= VOTERS_MAX {
            VOTERS_MAX
        } else {
            1
        };
        let voters: Vec<(usize, &str)> = self
            .seats
            .iter()
            .enumerate()
            .take(voting)
            .map(|(id, seat)| (id, seat.addresses.internal.as_str()))
            .collect();
        let cluster_id = random_id()?;
        for (id, seat) in self.seats.iter().enumerate() {
            let identity = Identity {
                id,
                cluster_id: &cluster_id,
                data: &log_dir(&seat.folder),
            };
            let mut text = properties(identity, &seat.addresses, &voters)?;
            for (name, value) in config {
                text += &format!("{name}={value}\n");
            }
            fs::write(seat.folder.join("broker.properties"), text)?;
        }
        Ok(())
    }
}

fn seat(id: usize, folder: &Path, spec: BedSpec<'_>) -> Result<Seat> {
    let own = folder.join(format!("broker-{id}"));
    let mount = own.join("disk");
    fs::create_dir_all(&mount)?;
    let disk = spec
        .means
        .disks
        .then(|| Disk::create(own.join("disk.img"), mount))
        .transpose()?;
    let dir = log_dir(&own);
    fs::create_dir_all(&dir)?;
    // The folder that the configuration names is older than any power loss.
    fs::File::open(own.join("disk"))?.sync_all()?;
    let (addresses, ports) = if spec.means.network {
        let of = |port: u16| format!("{}:{port}", address(id));
        (
            Addresses {
                client: of(9092),
                internal: of(9093),
                metrics: of(9404),
            },
            Vec::new(),
        )
    } else {
        let ports = [Port::claim()?, Port::claim()?, Port::claim()?];
        (
            Addresses {
                client: ports[0].address(),
                internal: ports[1].address(),
                metrics: ports[2].address(),
            },
            Vec::from(ports),
        )
    };
    Ok(Seat {
        addresses,
        disk,
        process: None,
        clock: spec
            .clocks
            .then(|| Clock::create(own.join("clock")))
            .transpose()?,
        folder: own,
        _ports: ports,
    })
}

fn log_dir(folder: &Path) -> PathBuf {
    folder.join("disk/log")
}

/// The kernel kills the child when the thread that starts it, the program's first one, is gone.
fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only prctl(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Processes before disks: a disk in use cannot be unmounted.
        let everybody: Vec<usize> = (0..self.brokers()).collect();
        if let Err(error) = self.kill(&everybody) {
            eprintln!("brokers were not ended in order: {error:#}");
        }
        for seat in &mut self.seats {
            seat.process = None;
        }
    }
}

/// Fails unless there is a libfaketime; used to choose faults.
pub(crate) fn clocks_work() -> Result<()> {
    if !Clock::library().is_file() {
        bail!(
            "{} is not there: run `make tools`",
            Clock::library().display()
        );
    }
    Ok(())
}
