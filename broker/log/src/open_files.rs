//! All open segment files of a process: opened on use, closed when too many are open, the least used first.
//! A reader that still holds a file keeps it open; the same file is never open twice.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::disk::DiskFile;

/// The bound on open segment files, shared by all logs of a process.
pub struct OpenFiles<F> {
    limit: usize,
    /// Open handles in the order of the clock's hand: the front is looked at first.
    clock: Mutex<VecDeque<Weak<Handle<F>>>>,
}

/// A place for one file that may or may not be open. The segment that owns it knows its path.
pub(crate) struct Handle<F> {
    file: Mutex<Slot<F>>,
    /// Set by every use, cleared by the clock's hand: a handle survives as long as it is used once per round.
    used: AtomicBool,
}

enum Slot<F> {
    Open(Arc<F>),
    /// Closed by us, but perhaps still held by a reader.
    Closed(Weak<F>),
}

impl<F: DiskFile> OpenFiles<F> {
    /// At most `limit` files stay open, readers' aside. A broker whose descriptor limit is 20,000 may take 8,000
    /// and leaves the rest to connections.
    pub fn new(limit: usize) -> Arc<OpenFiles<F>> {
        Arc::new(OpenFiles {
            limit: limit.max(1),
            clock: Mutex::new(VecDeque::new()),
        })
    }

    /// How many files are open now, readers' aside.
    pub fn open_count(&self) -> usize {
        lock(&self.clock).len()
    }

    /// The handle's file, opened by `open` if it is not.
    pub(crate) fn get(
        &self,
        handle: &Arc<Handle<F>>,
        open: impl FnOnce() -> io::Result<F>,
    ) -> io::Result<Arc<F>> {
        let file = {
            let mut slot = lock(&handle.file);
            handle.used.store(true, Ordering::Relaxed);
            let file = match &*slot {
                Slot::Open(file) => return Ok(Arc::clone(file)),
                Slot::Closed(weak) => match weak.upgrade() {
                    Some(file) => file,
                    None => Arc::new(open()?),
                },
            };
            *slot = Slot::Open(Arc::clone(&file));
            file
        };
        self.admit(handle);
        Ok(file)
    }

    /// Takes in a handle that was just opened and closes others until the limit holds. Never called with a
    /// handle locked, so that the two locks are only ever taken in the order clock, handle.
    fn admit(&self, handle: &Arc<Handle<F>>) {
        let mut clock = lock(&self.clock);
        clock.push_back(Arc::downgrade(handle));
        // Two rounds clear every mark, so this ends even if all are in use all the time.
        let mut looks = 2 * clock.len();
        while clock.len() > self.limit && looks > 0 {
            looks -= 1;
            let Some(candidate) = clock.pop_front() else {
                break;
            };
            let Some(handle) = candidate.upgrade() else {
                continue;
            };
            if handle.used.swap(false, Ordering::Relaxed) {
                clock.push_back(candidate);
            } else {
                handle.close();
            }
        }
    }
}

impl<F> Handle<F> {
    pub(crate) fn closed() -> Arc<Handle<F>> {
        Arc::new(Handle {
            file: Mutex::new(Slot::Closed(Weak::new())),
            used: AtomicBool::new(false),
        })
    }

    fn close(&self) {
        let mut slot = lock(&self.file);
        if let Slot::Open(file) = &*slot {
            *slot = Slot::Closed(Arc::downgrade(file));
        }
    }

    /// Whether somebody besides the handle holds the file.
    pub(crate) fn has_readers(&self) -> bool {
        match &*lock(&self.file) {
            Slot::Open(file) => Arc::strong_count(file) > 1,
            Slot::Closed(file) => file.strong_count() > 0,
        }
    }
}

impl<F> fmt::Debug for OpenFiles<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OpenFiles")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Nothing here can panic while a lock is held, and a file is as good after another thread's panic as before.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
