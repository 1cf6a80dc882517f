//! Notices that a file changed, by looking: works on every file system and for editors that replace the file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What is looked at before the content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

/// What a look found that was not so before.
#[derive(Debug)]
pub(super) enum Look {
    /// Nothing.
    Same,
    /// The file has new content.
    Changed,
    /// The file is gone, or cannot be read any more. Told once.
    Lost(io::Error),
    /// The file that was lost is there, with the content that it had.
    Back,
}

/// A file and what it was when it was last used.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    used: Option<Vec<u8>>,
    seen: Option<Stamp>,
    settled: bool,
    lost: bool,
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
            lost: false,
        }
    }

    /// Looks at the file. A change is reported when two looks in a row saw the same file, so that one that is still being
    /// written is not read half, and one that an editor replaces is not taken for lost.
    pub(super) fn look(&mut self) -> Look {
        let now = stamp(&self.path);
        if now != self.seen {
            self.seen = now;
            self.settled = false;
            return Look::Same;
        }
        if self.settled {
            return Look::Same;
        }
        match fs::read(&self.path) {
            // Looked at again: a file that may be read again need not look otherwise.
            Err(error) if !self.lost => {
                self.lost = true;
                Look::Lost(error)
            }
            Err(_) => Look::Same,
            Ok(content) => {
                self.settled = true;
                let lost = std::mem::take(&mut self.lost);
                if self.used.as_ref() != Some(&content) {
                    self.used = Some(content);
                    Look::Changed
                } else if lost {
                    Look::Back
                } else {
                    Look::Same
                }
            }
        }
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

    /// The words for what looks find, one after the other.
    fn looks<const N: usize>(watch: &mut Watch) -> [&'static str; N] {
        std::array::from_fn(|_| match watch.look() {
            Look::Same => "same",
            Look::Changed => "changed",
            Look::Lost(_) => "lost",
            Look::Back => "back",
        })
    }

    #[test]
    fn change_is_reported_once_and_only_when_settled() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.yaml");
        fs::write(&path, "one").expect("written");
        let mut watch = Watch::new(&path);
        assert_eq!(looks(&mut watch), ["same", "same"]);
        fs::write(&path, "one and two").expect("written");
        assert_eq!(looks(&mut watch), ["same", "changed", "same"]);
    }

    #[test]
    fn lost_file_is_told_once_and_so_is_that_it_is_back() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.yaml");
        fs::write(&path, "one").expect("written");
        let mut watch = Watch::new(&path);
        assert_eq!(looks(&mut watch), ["same", "same"]);
        fs::remove_file(&path).expect("removed");
        assert_eq!(looks(&mut watch), ["same", "lost", "same", "same"]);
        fs::write(&path, "one").expect("written");
        assert_eq!(looks(&mut watch), ["same", "back", "same"]);
        fs::remove_file(&path).expect("removed");
        assert_eq!(looks(&mut watch), ["same", "lost", "same"]);
        fs::write(&path, "two").expect("written");
        assert_eq!(looks(&mut watch), ["same", "changed", "same"]);
        // What cannot be read is as good as lost.
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("made");
        assert_eq!(looks(&mut watch), ["same", "lost", "same"]);
    }

    #[test]
    fn file_that_is_replaced_between_two_looks_was_never_lost() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.yaml");
        fs::write(&path, "one").expect("written");
        let mut watch = Watch::new(&path);
        assert_eq!(looks(&mut watch), ["same"]);
        fs::remove_file(&path).expect("removed");
        assert_eq!(looks(&mut watch), ["same"]);
        fs::write(&path, "one").expect("written");
        assert_eq!(looks(&mut watch), ["same", "same"]);
    }
}
