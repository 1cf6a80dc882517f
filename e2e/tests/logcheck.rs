//! The log checker finds each planted anomaly, and nothing in histories that are right.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use taffrail_e2e::history::anomaly::AnomalyKind;
use taffrail_e2e::history::check::{VALUES_MAX, check};
use taffrail_e2e::tools::repository;

fn folder() -> PathBuf {
    repository().join("e2e/tests/histories")
}

/// The verdict on a history as its first line gives it: `none`, the anomalies and how many of each, or the error.
fn verdict(history: &Path) -> String {
    match check(history, VALUES_MAX) {
        Err(error) => format!("error {error}"),
        Ok(report) if report.anomalies() == 0 => "none".to_owned(),
        Ok(report) => {
            let counts = report.counts.iter();
            let words: Vec<String> = counts
                .map(|(kind, count)| format!("{} {count}", kind.name()))
                .collect();
            words.join(", ")
        }
    }
}

#[test]
fn each_history_has_the_verdict_that_its_first_line_expects() -> Result<()> {
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let expected = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("# expect: "))
            .with_context(|| format!("{} does not begin with # expect:", path.display()))?;
        let found = verdict(&path);
        if found != expected {
            wrong.push(format!(
                "{}: expected {expected}, found {found}",
                path.display()
            ));
        }
        count += 1;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(count > 30, "only {count} histories");
    Ok(())
}

#[test]
fn each_kind_of_anomaly_has_a_history_that_shows_it() -> Result<()> {
    let mut expected = String::new();
    for entry in fs::read_dir(folder())? {
        let text = fs::read_to_string(entry?.path())?;
        expected += text.lines().next().unwrap_or_default();
        expected += ",";
    }
    for kind in AnomalyKind::ALL {
        ensure!(
            expected.contains(&format!(" {} ", kind.name())),
            "no history expects {}",
            kind.name()
        );
    }
    Ok(())
}

#[test]
fn a_history_larger_than_allowed_is_refused() -> Result<()> {
    let history = folder().join("good-two-readers.jsonl");
    let error = check(&history, 1).err().context("no limit")?;
    ensure!(error.to_string().contains("more than 1 values"), "{error}");
    Ok(())
}
