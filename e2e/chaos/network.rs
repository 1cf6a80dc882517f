//! A network namespace for each broker, joined by a bridge: what passes between them is decided by iptables.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::sandbox::{lock_file, must_succeed};

/// The clients' address, on the bridge.
const CLIENTS: &str = "10.77.0.254";

/// The brokers' namespaces.
#[derive(Debug)]
pub(crate) struct Network {
    namespaces: Vec<File>,
}

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Another broker.
    Broker(usize),
    /// All clients.
    Clients,
}

impl Source {
    fn address(self) -> String {
        match self {
            Self::Broker(id) => address(id),
            Self::Clients => CLIENTS.to_owned(),
        }
    }
}

/// A broker's address.
pub(crate) fn address(broker: usize) -> String {
    format!("10.77.0.{}", broker + 1)
}

impl Network {
    /// Makes the bridge and as many namespaces; this process must be in a network namespace of its own.
    pub(crate) fn create(brokers: usize) -> Result<Self> {
        ip(&["link", "add", "bridge", "type", "bridge"])?;
        ip(&["addr", "add", &format!("{CLIENTS}/24"), "dev", "bridge"])?;
        ip(&["link", "set", "bridge", "up"])?;
        let namespaces = (0..brokers)
            .map(|_| new_namespace())
            .collect::<Result<Vec<_>>>()?;
        let network = Self { namespaces };
        for broker in 0..brokers {
            network.join(broker)?;
        }
        Ok(network)
    }

    /// Lets a command run in a broker's namespace.
    pub(crate) fn place<'a>(&self, broker: usize, command: &'a mut Command) -> &'a mut Command {
        let namespace = self.namespaces[broker].as_raw_fd();
        // SAFETY: between fork and exec only setns(2) is called, which is async-signal-safe; the descriptor is open as long as `self`,
        // which outlives the spawn.
        unsafe {
            command.pre_exec(move || match libc::setns(namespace, libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        }
    }

    /// `broker` no longer hears from `source`; nobody is told.
    pub(crate) fn drop_from(&self, broker: usize, source: Source) -> Result<()> {
        self.iptables(
            broker,
            &["-A", "INPUT", "-s", &source.address(), "-j", "DROP"],
        )
    }

    /// Whatever is sent to `broker` is answered with a reset.
    pub(crate) fn reset(&self, broker: usize) -> Result<()> {
        let reject = ["-j", "REJECT", "--reject-with", "tcp-reset"];
        self.iptables(
            broker,
            &[&["-A", "INPUT", "-i", "eth0", "-p", "tcp"][..], &reject[..]].concat(),
        )
    }

    /// Everything reaches `broker` again.
    pub(crate) fn heal(&self, broker: usize) -> Result<()> {
        self.iptables(broker, &["-F", "INPUT"])
    }

    fn join(&self, broker: usize) -> Result<()> {
        let (outside, inside) = (format!("out{broker}"), format!("in{broker}"));
        ip(&[
            "link", "add", &outside, "type", "veth", "peer", "name", &inside,
        ])?;
        let namespace = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.namespaces[broker].as_raw_fd()
        );
        ip(&["link", "set", &inside, "netns", &namespace])?;
        ip(&["link", "set", &outside, "master", "bridge", "up"])?;
        self.ip_inside(broker, &["link", "set", "lo", "up"])?;
        self.ip_inside(broker, &["link", "set", &inside, "name", "eth0"])?;
        let address = format!("{}/24", address(broker));
        self.ip_inside(broker, &["addr", "add", &address, "dev", "eth0"])?;
        self.ip_inside(broker, &["link", "set", "eth0", "up"])
    }

    fn ip_inside(&self, broker: usize, arguments: &[&str]) -> Result<()> {
        must_succeed(self.place(broker, Command::new("ip").args(arguments)))
    }

    fn iptables(&self, broker: usize, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("iptables");
        lock_file(command.arg("-w").args(arguments));
        must_succeed(self.place(broker, &mut command))
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    must_succeed(Command::new("ip").args(arguments))
}

/// A namespace that lives as long as the file: a thread of its own makes it, so that this one stays where it is.
fn new_namespace() -> Result<File> {
    let made = thread::spawn(|| -> Result<File> {
        // SAFETY: unshare(2) takes flags; with CLONE_NEWNET it concerns the calling thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot make a network namespace");
        }
        File::open("/proc/thread-self/ns/net").context("cannot open a network namespace")
    });
    made.join().map_err(|_| anyhow!("a thread panicked"))?
}
