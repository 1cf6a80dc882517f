//! Notices that a file changed, by looking: works on every file system and for editors that replace the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What is looked at before the content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

/// A file and what it was when it was last used.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    used: Option<Vec<u8>>,
    seen: Option<Stamp>,
    settled: bool,
}

impl Watch {
    /// Watches from now on; the content at this moment counts as used.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            used: fs::read(path).ok(),
            seen: stamp(path),
            // Looked at once more: it may have changed between the two lines above.
            settled: false,
        }
    }

    /// Whether the file has new content. A change is reported when two looks in a row saw the same file, so that one
    /// that is still being written is not read half.
    pub(super) fn changed(&mut self) -> bool {
        let now = stamp(&self.path);
        if now != self.seen {
            self.seen = now;
            self.settled = false;
            return false;
        }
        if self.settled || now.is_none() {
            return false;
        }
        self.settled = true;
        let Ok(content) = fs::read(&self.path) else {
            return false;
        };
        if self.used.as_ref() == Some(&content) {
            return false;
        }
        self.used = Some(content);
        true
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        modified: metadata.modified().ok(),
        length: metadata.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_reported_once_and_only_when_settled() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.yaml");
        fs::write(&path, "one").expect("written");
        let mut watch = Watch::new(&path);
        assert!(!watch.changed() && !watch.changed());

        fs::write(&path, "one and two").expect("written");
        assert!(!watch.changed(), "not settled yet");
        assert!(watch.changed());
        assert!(!watch.changed());
    }

    #[test]
    fn same_content_and_missing_file_are_no_change() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.yaml");
        fs::write(&path, "one").expect("written");
        let mut watch = Watch::new(&path);
        fs::remove_file(&path).expect("removed");
        assert!(!watch.changed() && !watch.changed());
        fs::write(&path, "one").expect("written");
        assert!(!watch.changed() && !watch.changed());
    }
}
