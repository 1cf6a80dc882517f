//! `broker/core/RULES.md` names places that exist and tests that exist, and leaves no rule out.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use taffrail_e2e::tools::repository;

const PAGE: &str = "broker/core/RULES.md";
/// The known failures are numbered from 1 to this.
const RULES: usize = 89;

/// The cells of every row of the page's tables.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let lines = page.lines().filter(|line| line.starts_with("| "));
    lines
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// What a cell names: `path::item`.
fn named(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether a file defines an item.
fn defines(text: &str, item: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "const", "type"];
    kinds.iter().any(|kind| {
        let definition = format!("{kind} {item}");
        text.match_indices(&definition).any(|(at, found)| {
            let after = text[at + found.len()..].chars().next();
            !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    })
}

#[test]
fn every_place_and_test_of_the_rules_exists() -> Result<()> {
    let root = repository();
    let page = fs::read_to_string(root.join(PAGE))?;
    let mut missing = BTreeSet::new();
    let mut seen = 0;
    for row in rows(&page) {
        for name in row.iter().flat_map(|cell| named(cell)) {
            let (path, item) = name
                .split_once("::")
                .with_context(|| format!("{name} is not path::item"))?;
            seen += 1;
            let found = fs::read_to_string(root.join(path)).is_ok_and(|text| defines(&text, item));
            if !found {
                missing.insert(name.to_owned());
            }
        }
    }
    ensure!(
        seen > 150,
        "only {seen} names found: the search itself is broken"
    );
    ensure!(missing.is_empty(), "named but not there: {missing:#?}");
    Ok(())
}

#[test]
fn every_rule_is_there_once_with_its_place_and_its_test() -> Result<()> {
    let page = fs::read_to_string(repository().join(PAGE))?;
    let mut numbers = Vec::new();
    for row in rows(&page) {
        let Ok(number) = row[0].parse::<usize>() else {
            continue;
        };
        numbers.push(number);
        let [_, _, place, test] = row[..] else {
            anyhow::bail!("rule {number} has {} cells", row.len());
        };
        let built = !place.starts_with("not built: ");
        ensure!(
            !built || named(place).count() > 0,
            "rule {number} names no place"
        );
        ensure!(
            !built || named(test).count() > 0 || test.starts_with("no test: "),
            "rule {number} names no test and does not say so"
        );
    }
    ensure!(numbers == (1..=RULES).collect::<Vec<_>>(), "{numbers:?}");
    Ok(())
}
