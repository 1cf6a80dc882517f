//! Where the things that tests drive are: this build's binaries, and what `make tools` installed under `.tools/`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default()
}

/// A binary of this workspace: from `E2E_BIN_DIR`, else the release build, else what lies beside the running program.
///
/// The release build comes first, since deadlines and rates of the tests are those that users get.
pub fn binary(name: &str) -> Result<PathBuf> {
    let own = env::current_exe()?;
    // A test runs from <target>/<profile>/deps, a binary from <target>/<profile>.
    let profile = own
        .ancestors()
        .skip(1)
        .find(|folder| folder.file_name().is_some_and(|n| n != "deps"));
    let target = profile.and_then(Path::parent);
    let places = [
        env::var_os("E2E_BIN_DIR").map(PathBuf::from),
        target.map(|t| t.join("release")),
        profile.map(Path::to_path_buf),
    ];
    for place in places.into_iter().flatten() {
        let path = place.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    bail!("there is no binary {name}: run `make build`")
}

/// A binary of this crate, which lies beside the running one.
pub fn sibling(name: &str) -> Result<PathBuf> {
    let path = env::current_exe()?.with_file_name(name);
    ensure!(
        path.is_file(),
        "there is no {}: build the whole crate",
        path.display()
    );
    Ok(path)
}

/// A Java command with Kafka's jars on its class path; `heap` as in `-Xmx256M`.
pub fn java(heap: &[&str]) -> Result<Command> {
    let libs = repository().join(".tools/kafka/libs");
    if !libs.is_dir() {
        bail!("Kafka's jars are not there: run `make tools`");
    }
    let program = env::var_os("JAVA_HOME").map_or_else(
        || PathBuf::from("java"),
        |home| PathBuf::from(home).join("bin/java"),
    );
    let mut command = Command::new(program);
    command
        .args(heap)
        .arg(format!(
            "-Dlog4j2.configurationFile={}",
            repository().join("e2e/kafka/log4j2.yaml").display()
        ))
        .arg("-cp")
        .arg(format!("{}/*", libs.display()));
    Ok(command)
}

/// A Python script of `e2e/clients`, run by the environment of `make tools`.
pub fn python(script: &str) -> Result<Command> {
    let python = repository().join(".tools/python/bin/python");
    if !python.is_file() {
        bail!("the Python environment is not there: run `make tools`");
    }
    let mut command = Command::new(python);
    command.arg(repository().join("e2e/clients").join(script));
    Ok(command)
}

/// A whole number from the environment, or its default.
pub fn number(name: &str, default: usize) -> usize {
    env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}
