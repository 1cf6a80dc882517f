//! Namespaces of our own for network and mounts: whatever happens to this process, the kernel takes back what was made inside.
//!
//! Several runs cannot meet, since each has its own addresses and mounts. Root gets both; somebody else gets a network where the kernel
//! lets users make namespaces; and where it does not, there are plain processes on loopback.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::process::Command;

use anyhow::{Result, ensure};

/// What this machine allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Means {
    /// Network namespaces and iptables: partitions and resets.
    pub(crate) network: bool,
    /// File systems on loop devices: power losses, full and slow disks.
    pub(crate) disks: bool,
}

/// Moves this process, which must not have threads yet, into namespaces of its own as far as it may.
pub(crate) fn enter() -> Means {
    find_system_programs();
    // SAFETY: geteuid(2) and getegid(2) cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if user == 0 {
        let all = unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS).and_then(|()| keep_mounts());
        let network = all.is_ok() && has_network_tools();
        return Means {
            network,
            disks: all.is_ok() && has_loop_devices(),
        };
    }
    let network = unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
        .and_then(|()| become_root_inside(user, group))
        .is_ok();
    Means {
        network: network && has_network_tools(),
        disks: false,
    }
}

/// Debian has ip, iptables and mkfs.ext4 in folders that are on root's path alone.
fn find_system_programs() {
    let path = std::env::var("PATH").unwrap_or_default();
    // SAFETY: this process has no other thread yet.
    unsafe { std::env::set_var("PATH", format!("{path}:/usr/sbin:/sbin")) };
}

fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: unshare(2) takes flags and changes this process alone.
    match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Nothing that is mounted from now on is seen outside. Among it is the memory that libfaketime shares by process id, of which
/// killed processes leave some behind.
fn keep_mounts() -> io::Result<()> {
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    match fs::exists("/dev/shm")? {
        true => mount(c"tmpfs", c"/dev/shm", Some(c"tmpfs"), 0),
        false => Ok(()),
    }
}

fn mount(
    source: &CStr,
    target: &CStr,
    file_system: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let file_system = file_system.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the strings end with a zero and outlive the call; no data is passed.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            file_system,
            flags,
            std::ptr::null(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn become_root_inside(user: u32, group: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

fn has_network_tools() -> bool {
    let works = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        lock_file(command.args(arguments));
        command.output().is_ok_and(|output| output.status.success())
    };
    works("ip", &["link", "set", "lo", "up"]) && works("iptables", &["-w", "-n", "-L", "INPUT"])
}

fn has_loop_devices() -> bool {
    fs::metadata("/dev/loop-control").is_ok()
        && Command::new("mkfs.ext4").arg("-V").output().is_ok()
}

/// iptables locks a file that belongs to root; within a namespace of our own there is nobody to lock out.
pub(crate) fn lock_file(command: &mut Command) -> &mut Command {
    let file = format!("taffrail-chaos-{}.xtables.lock", std::process::id());
    command.env("XTABLES_LOCKFILE", std::env::temp_dir().join(file))
}

/// Removes what [`lock_file`] let iptables make.
pub(crate) fn remove_lock_file() {
    let file = format!("taffrail-chaos-{}.xtables.lock", std::process::id());
    // It is not there if iptables never ran, or where iptables is too old to know the variable.
    let _ = fs::remove_file(std::env::temp_dir().join(file));
}

/// Runs a program to its end, and fails with what it said.
pub(crate) fn must_succeed(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
