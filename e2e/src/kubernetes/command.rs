//! kubectl, Helm and the test bed as child processes.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::kubernetes::environment::environment;

/// Runs to the end with `input` on standard input, whatever comes out.
pub fn attempt(command: &mut Command, input: &[u8]) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let mut stdin = child.stdin.take().context("standard input is piped")?;
    // Written beside the reading: a child that prints while it reads would wait for us, and we for it.
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            // A child that ends early tells why itself.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output()
    })?;
    Ok(output)
}

/// Runs to the end and gives the standard output, or fails with the standard error.
pub fn run(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let output = attempt(command, input)?;
    if !output.status.success() {
        bail!(
            "{} failed ({}): {}",
            line(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output.stdout)
}

/// [`run`] for text.
pub fn text(command: &mut Command, input: &str) -> Result<String> {
    Ok(String::from_utf8_lossy(&run(command, input.as_bytes())?).into_owned())
}

/// A kubectl command.
pub fn kubectl<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new("kubectl");
    command.args(arguments);
    command
}

/// A Helm command.
pub fn helm<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new("helm");
    command.args(arguments);
    command
}

/// A command of the test bed; fails on a cluster that is not one of its own.
pub fn bed<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Command> {
    let program = environment()?.bed.as_ref().context(
        "this test reaches into machines, and TAFFRAIL_BED names no test bed: run it by `make e2e` without a KUBECONFIG",
    )?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// The command as one would type it, without what is too long to read.
fn line(command: &Command) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
