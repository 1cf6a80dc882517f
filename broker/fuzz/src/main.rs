//! `taffrail-fuzz`: runs the fuzz targets for a while, or one of them on one file.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use taffrail_allocation::Counting;
use taffrail_fuzz::search::{Numbers, check, search};
use taffrail_fuzz::targets::{self, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Searches for inputs on which a decoder panics or takes too much memory.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long each target runs: 30s, 10m, 1h
    #[arg(long, default_value = "30s", value_parser = duration)]
    duration: Duration,
    /// The number that the mutations come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run one target on this file instead
    #[arg(long)]
    input: Option<PathBuf>,
    /// Where inputs that fail are written
    #[arg(long, default_value = "target/fuzz")]
    found: PathBuf,
    /// The targets; none for all
    targets: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let chosen = chosen(&arguments.targets)?;
    if let Some(file) = &arguments.input {
        let [target] = chosen[..] else {
            bail!("--input needs the name of one target");
        };
        let input = fs::read(file).with_context(|| file.display().to_string())?;
        check(&target, &input)?;
        println!("{}: passed", target.name);
        return Ok(ExitCode::SUCCESS);
    }
    let mut numbers = Numbers::new(arguments.seed);
    let mut code = ExitCode::SUCCESS;
    for target in chosen {
        match search(&target, arguments.duration, &mut numbers) {
            Ok(runs) => println!("{}: {runs} inputs", target.name),
            Err(failure) => {
                fs::create_dir_all(&arguments.found)?;
                let file = arguments
                    .found
                    .join(format!("{}-{}", target.name, arguments.seed));
                fs::write(&file, &failure.input)?;
                println!("{failure}");
                println!(
                    "again: taffrail-fuzz --input {} {}",
                    file.display(),
                    target.name
                );
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is no duration: write 30s, 10m or 1h");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(number.saturating_mul(unit)))
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<Target>> {
    let all = targets::all();
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all.iter().find(|target| target.name == name).copied();
        found.with_context(|| {
            let known: Vec<_> = all.iter().map(|target| target.name).collect();
            format!("there is no target {name}, but {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}
