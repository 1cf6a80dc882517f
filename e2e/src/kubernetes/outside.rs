//! Clients outside of Kubernetes: on a machine that reaches the nodes, and neither pods nor Services.

use anyhow::Result;

use crate::kubernetes::command::{bed, run};
use crate::kubernetes::environment::environment;
use std::process::Command;

/// Runs a program of this machine where node addresses can be reached: in the test bed's control machine, or here.
pub fn run_outside(words: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    run(&mut outside(words)?, input)
}

/// The command of [`run_outside`].
pub fn outside(words: &[&str]) -> Result<Command> {
    if environment()?.bed.is_some() {
        let mut command = bed(&["exec", "cp"])?;
        command.args(words);
        return Ok(command);
    }
    let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}
