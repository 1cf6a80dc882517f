//! Finds the broker program.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::LocalError;

const NAME: &str = "taffrail-broker";

/// The program named on the command line, else the one beside this program, else the one in PATH.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, LocalError> {
    if let Some(path) = named {
        return if is_program(path) {
            Ok(path.to_owned())
        } else {
            Err(LocalError::NoBinary {
                tried: path.display().to_string(),
            })
        };
    }
    let beside = env::current_exe()
        .ok()
        .and_then(|program| Some(program.parent()?.join(NAME)));
    let in_path = env::var_os("PATH").unwrap_or_default();
    beside
        .iter()
        .cloned()
        .chain(env::split_paths(&in_path).map(|folder| folder.join(NAME)))
        .find(|path| is_program(path))
        .ok_or_else(|| LocalError::NoBinary {
            tried: beside.map_or(NAME.to_owned(), |path| path.display().to_string()),
        })
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
