//! Which logs are being opened at start, for whoever asks how far it is.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

/// The logs that are being opened. As many as there are threads that do it.
#[derive(Debug, Default)]
pub(crate) struct Recovering(Mutex<BTreeSet<String>>);

/// One of them, until dropped.
pub(super) struct Recovery<'a> {
    all: &'a Recovering,
    log: String,
}

impl Recovering {
    /// Notes that a log is being opened.
    pub(super) fn begin(&self, log: &str) -> Recovery<'_> {
        self.lock().insert(log.to_owned());
        Recovery {
            all: self,
            log: log.to_owned(),
        }
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().expect("no panic while locked")
    }
}

impl Drop for Recovery<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.log);
    }
}
