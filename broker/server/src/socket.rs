//! Connections between brokers end soon after the other side can no longer be reached. The kernel would go on sending for a quarter
//! of an hour, at ever longer intervals: one that outlived a partition would stay silent long after it has healed.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use tokio::net::TcpStream;

/// How long sent bytes may go without being acknowledged, and how long a silent connection goes without being probed. Longer than a
/// pause that a loaded machine makes, shorter than what a request between brokers is given.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(5);
/// A second between probes of a connection that is silent.
const PROBE_EVERY_SECONDS: libc::c_int = 1;

/// Has the kernel give the connection up when nothing is acknowledged for a while.
pub(crate) fn give_up_when_unreachable(stream: &TcpStream) -> io::Result<()> {
    let socket = stream.as_raw_fd();
    let (millis, seconds) = (
        UNREACHABLE_AFTER.as_millis() as libc::c_int,
        UNREACHABLE_AFTER.as_secs() as libc::c_int,
    );
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis)?;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds)?;
    set(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_KEEPINTVL,
        PROBE_EVERY_SECONDS,
    )
}

fn set(socket: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is an int, as all of these options take, and lives for the call.
    let failed = unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), size) };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(socket: RawFd, level: libc::c_int, name: libc::c_int) -> libc::c_int {
        let (mut value, mut size): (libc::c_int, _) =
            (0, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: both are valid for writing and of the size that is told.
        let failed = unsafe {
            libc::getsockopt(socket, level, name, (&raw mut value).cast(), &raw mut size)
        };
        assert_eq!(failed, 0);
        value
    }

    #[test]
    fn connections_between_brokers_do_not_outlive_a_partition() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let stream = TcpStream::connect(address).await.unwrap();
            give_up_when_unreachable(&stream).unwrap();
            let socket = stream.as_raw_fd();
            assert_eq!(get(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 5000);
            assert_eq!(get(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
            assert_eq!(get(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 5);
        });
    }
}
