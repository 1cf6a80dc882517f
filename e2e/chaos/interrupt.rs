//! Ctrl-C and SIGTERM end a run early and in order; a second one ends it at once, and the kernel cleans up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

static CAME: AtomicBool = AtomicBool::new(false);

/// From now on signals are noted.
pub(crate) fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler does nothing but store into an atomic and set the default action, both async-signal-safe.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

extern "C" fn note(signal: libc::c_int) {
    CAME.store(true, Ordering::Relaxed);
    // SAFETY: signal(2) may be called from a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Whether a signal came.
pub(crate) fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// Sleeps, but not on after a signal.
pub(crate) fn sleep(time: Duration) {
    let end = Instant::now() + time;
    while !came() && Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}
