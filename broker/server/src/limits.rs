//! What the operating system lets the process have.

use std::io;

/// Raises the soft limit of open files to the hard one and returns it: every connection and every open segment needs one.
pub(crate) fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// How many client connections fit: at most half of the descriptors, the other half is for logs and peers.
pub(crate) fn connections_within(open_files: u64, configured: i32) -> usize {
    let half = usize::try_from(open_files / 2).unwrap_or(usize::MAX);
    usize::try_from(configured).unwrap_or(0).min(half)
}
