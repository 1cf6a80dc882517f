//! What the documents name exists: every path of the tree in README, ARCHITECTURE and docs/, every chore of the Makefile, every API.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use taffrail_e2e::tools::repository;
use taffrail_protocol::api::advertised;

/// Folders whose paths are checked; what is built or installed (`target/`, `.tools/`) comes and goes.
const FOLDERS: [&str; 8] = [
    "broker/",
    "charts/",
    "crds/",
    "docs/",
    "e2e/",
    "examples/",
    "operator/",
    ".ci/",
];

fn documents() -> Result<Vec<PathBuf>> {
    let root = repository();
    let mut found = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    for folder in ["docs", "e2e", "e2e/kubernetes", "charts/taffrail"] {
        let Ok(entries) = fs::read_dir(root.join(folder)) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The words of a text, without the punctuation around them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || "`()[]{}|\"',;<>".contains(c))
        .map(|word| word.trim_end_matches(['.', ':']))
}

fn is_pattern(word: &str) -> bool {
    word.contains(['*', '$', '…', '=', '\\'])
}

#[test]
fn every_path_that_a_document_names_exists() -> Result<()> {
    let root = repository();
    let mut missing = BTreeSet::new();
    let mut seen = 0;
    for document in documents()? {
        let text = fs::read_to_string(&document)?;
        for word in words(&text).filter(|word| !is_pattern(word)) {
            let word = word.trim_start_matches("./");
            if !FOLDERS.iter().any(|folder| word.starts_with(folder)) {
                continue;
            }
            seen += 1;
            let here = document.parent().unwrap_or(Path::new(".")).join(word);
            if !root.join(word).exists() && !here.exists() {
                missing.insert(format!("{}: {word}", document.display()));
            }
        }
    }
    ensure!(
        seen > 20,
        "only {seen} paths found: the search itself is broken"
    );
    ensure!(missing.is_empty(), "named but not there: {missing:#?}");
    Ok(())
}

#[test]
fn every_chore_that_a_document_names_exists() -> Result<()> {
    let makefile = fs::read_to_string(repository().join("Makefile"))?;
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(target, _)| target)
        .collect();
    let mut missing = BTreeSet::new();
    let mut seen = 0;
    for document in documents()? {
        let text = fs::read_to_string(&document)?;
        for (_, after) in text
            .match_indices("`make ")
            .map(|(at, found)| text.split_at(at + found.len()))
        {
            let target = after
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
                .next()
                .unwrap_or_default();
            seen += 1;
            if !targets.contains(target) {
                missing.insert(format!("{}: make {target}", document.display()));
            }
        }
    }
    ensure!(
        seen > 5,
        "only {seen} chores found: the search itself is broken"
    );
    ensure!(missing.is_empty(), "named but not there: {missing:#?}");
    Ok(())
}

#[test]
fn the_readme_lists_the_apis_that_clients_are_told_of() -> Result<()> {
    let readme = fs::read_to_string(repository().join("README.md"))?;
    let rows = readme
        .lines()
        .skip_while(|line| !line.starts_with("| APIs |"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let listed: BTreeSet<String> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|apis| apis.split(','))
        .map(|api| api.trim().to_owned())
        .collect();
    // As served: the first version of Produce that is told is one that nobody may use.
    let served = advertised().iter().map(|told| told.api_key.served());
    let served: BTreeSet<String> = served
        .map(|range| match (range.min_version, range.max_version) {
            (first, last) if first == last => format!("{:?} {first}", range.api_key),
            (first, last) => format!("{:?} {first}–{last}", range.api_key),
        })
        .collect();
    let differing: Vec<_> = listed.symmetric_difference(&served).collect();
    ensure!(
        differing.is_empty(),
        "only in the README or only served: {differing:#?}"
    );
    Ok(())
}
