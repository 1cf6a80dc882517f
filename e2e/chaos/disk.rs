//! A broker's disk: an ext4 file system in a file, so that it can lose its power, fill up and be slow without its neighbours.
//!
//! A power loss is EXT4_IOC_SHUTDOWN without a flush of the journal: what was not written through is gone, files, names and lengths.
//! The device is released with the mount, and the mount with the namespace that this process lives in.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use taffrail_e2e::wait::wait_for;

use crate::sandbox::must_succeed;

/// Bytes of a disk; the file behind it is sparse.
const BYTES: u64 = 2 << 30;
/// `_IOR('X', 125, u32)`, the same for ext4 and xfs.
const EXT4_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587D as libc::Ioctl;
/// EXT4_GOING_FLAGS_NOLOGFLUSH.
const WITHOUT_LOG_FLUSH: u32 = 2;
/// What makes the disk of that device slow, in the root of the block controller (cgroup v1), where most writeback is accounted.
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
/// For the last file of a killed process to be closed.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(20);
/// For a loop device: another run may take the one that was free a moment ago.
const MOUNT_LIMIT: Duration = Duration::from_secs(1);

/// A mounted disk; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    image: PathBuf,
    mount: PathBuf,
    /// Of the loop device that it is mounted from.
    device: u64,
    /// Bytes a second that writes take at most; 0 is no limit.
    limit: u64,
}

impl Disk {
    /// Makes a disk in the file `image` and mounts it.
    pub(crate) fn create(image: PathBuf, mount: PathBuf) -> Result<Self> {
        File::create(&image)?.set_len(BYTES)?;
        fs::create_dir_all(&mount)?;
        must_succeed(
            Command::new("mkfs.ext4")
                .args(["-q", "-F", "-m", "0"])
                .arg(&image),
        )?;
        let mut disk = Self {
            image,
            mount,
            device: 0,
            limit: 0,
        };
        disk.mount()?;
        disk.limit_writes()?;
        Ok(disk)
    }

    /// The power fails: from now on nothing reaches the disk. Who writes to it must be dead already.
    pub(crate) fn power_off(&self) -> Result<()> {
        let folder = File::open(&self.mount)?;
        let flags = WITHOUT_LOG_FLUSH;
        // SAFETY: the request reads one u32 through the pointer, which is valid during the call.
        match unsafe { libc::ioctl(folder.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).context("cannot cut the power of a disk"),
        }
    }

    /// The power is back: the journal is replayed. A slow disk stays slow, though it may come back on another loop device: the
    /// one before is left as it was found, since it may be another run's next.
    pub(crate) fn power_on(&mut self) -> Result<()> {
        let limit = std::mem::take(&mut self.limit);
        self.limit_writes()?;
        self.unmount()?;
        self.mount()?;
        self.limit = limit;
        self.limit_writes()
    }

    /// Takes all space that is left.
    pub(crate) fn fill(&self) -> Result<()> {
        let ballast = File::create(self.ballast())?;
        let mut size = 0;
        let mut step = BYTES.cast_signed();
        while step >= 4096 {
            // SAFETY: posix_fallocate(3) takes a descriptor that is open and two numbers.
            match unsafe { libc::posix_fallocate(ballast.as_raw_fd(), size, step) } {
                0 => size += step,
                libc::ENOSPC => step /= 2,
                error => {
                    return Err(io::Error::from_raw_os_error(error)).context("cannot fill a disk");
                }
            }
        }
        Ok(())
    }

    /// Gives the space back.
    pub(crate) fn empty(&self) -> Result<()> {
        match fs::remove_file(self.ballast()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context("cannot empty a disk")
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes take no more than this many bytes a second; 0 is no limit.
    pub(crate) fn throttle(&mut self, bytes: u64) -> Result<()> {
        self.limit = bytes;
        self.limit_writes()
    }

    /// Also where there is no limit: whoever had this device before may have left one.
    fn limit_writes(&self) -> Result<()> {
        if !slow_disks_work() {
            return Ok(());
        }
        let (major, minor) = (libc::major(self.device), libc::minor(self.device));
        fs::write(THROTTLE, format!("{major}:{minor} {}", self.limit))
            .with_context(|| format!("cannot write {THROTTLE}"))
    }

    fn ballast(&self) -> PathBuf {
        self.mount.join("ballast")
    }

    fn mount(&mut self) -> Result<()> {
        // A long commit interval leaves more to lose.
        wait_for("a disk to be mounted", MOUNT_LIMIT, || {
            must_succeed(
                Command::new("mount")
                    .args(["-t", "ext4", "-o", "loop,noatime,commit=60"])
                    .args([&self.image, &self.mount]),
            )
            .map(Some)
        })?;
        self.device = fs::metadata(&self.mount)?.dev();
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        wait_for("a disk to be free", UNMOUNT_LIMIT, || {
            must_succeed(Command::new("umount").arg(&self.mount)).map(Some)
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.limit > 0 {
            let _ = self.throttle(0);
        }
        let _ = self.unmount();
    }
}

/// Whether this machine can make a disk slow.
pub(crate) fn slow_disks_work() -> bool {
    Path::new(THROTTLE).exists()
}

/// Fails unless a file system on a loop device can be mounted.
pub(crate) fn try_out(folder: &Path) -> Result<()> {
    let (image, mount) = (folder.join("try.img"), folder.join("try"));
    let tried = Disk::create(image.clone(), mount.clone()).map(drop);
    fs::remove_file(image)?;
    fs::remove_dir(mount)?;
    tried
}
