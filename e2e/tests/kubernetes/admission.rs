//! What the API server itself refuses: every manifest of `crds/tests/manifests`, and with them every rule of the two kinds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use taffrail_e2e::kubernetes::command::{attempt, kubectl};
use taffrail_e2e::kubernetes::namespace::Namespace;
use taffrail_e2e::kubernetes::turn::together;
use taffrail_e2e::tools::repository;

/// Of these kubectl knows no kind, no name or no object, so that they never come to where a field could be named.
const NO_FIELD: &[&str] = &[
    "no-kind",
    "not-an-object",
    "other-kind",
    "other-version",
    "topic-no-name",
];

#[test]
fn valid_manifests_are_admitted() -> Result<()> {
    together("valid", |namespace| {
        for path in manifests("valid")? {
            if let Err(refusal) = admit(namespace, &path)? {
                bail!("{} is refused: {refusal}", path.display());
            }
        }
        Ok(())
    })
}

#[test]
fn invalid_manifests_are_refused_with_the_field_named_and_every_rule_refuses_one() -> Result<()> {
    together("invalid", |namespace| {
        let mut rules = rules()?;
        for path in manifests("invalid")? {
            let Err(refusal) = admit(namespace, &path)? else {
                bail!("{} is admitted", path.display());
            };
            rules.retain(|rule| !refusal.contains(rule.as_str()));
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            if NO_FIELD.contains(&&*stem) {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let fields: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("# expect: "))
                .filter_map(|line| line.split([':', ' ']).next())
                .collect();
            ensure!(
                fields.iter().any(|field| names(&refusal, field)),
                "{}: none of {fields:?} is named in: {refusal}",
                path.display()
            );
        }
        ensure!(rules.is_empty(), "no manifest met these rules: {rules:#?}");
        Ok(())
    })
}

/// The API server writes an index or a map's key in brackets as we do, but leaves list items' fields to the list in some messages.
fn names(refusal: &str, field: &str) -> bool {
    let parent = field.rsplit_once('.').map_or(field, |(parent, _)| parent);
    let last = field.rsplit('.').next().unwrap_or(field);
    refusal.contains(field) || refusal.contains(parent) && refusal.contains(last)
}

fn manifests(folder: &str) -> Result<Vec<PathBuf>> {
    let folder = repository().join("crds/tests/manifests").join(folder);
    let mut paths = fs::read_dir(&folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

/// Applies the documents of a file one after the other, the last one only for show; gives the API server's refusal of that one.
fn admit(namespace: &Namespace, path: &Path) -> Result<Result<(), String>> {
    // The Clusters of updates are real objects, of which nothing shall be made.
    let text = fs::read_to_string(path)?
        .replace(
            "kind: Cluster\nmetadata: {name: demo}\nspec:\n",
            "kind: Cluster\nmetadata: {name: demo}\nspec:\n  paused: true\n",
        )
        .replace(
            "namespace: streaming",
            &format!("namespace: {}", namespace.name()),
        );
    let documents: Vec<&str> = text.split("\n---\n").collect();
    let (last, before) = documents.split_last().context("a document")?;
    let paused = if before.is_empty() {
        // Alone it is never made, and a field may not be there twice.
        last.replace("  paused: true\n", "")
    } else {
        (*last).to_owned()
    };
    for document in before {
        namespace.kubectl_with(&["apply", "-f", "-"], document)?;
    }
    let output = attempt(
        kubectl(&["-n", namespace.name()]).args(["apply", "--dry-run=server", "-f", "-"]),
        paused.as_bytes(),
    )?;
    for document in before {
        namespace.kubectl_with(&["delete", "-f", "-"], document)?;
    }
    if output.status.success() {
        return Ok(Ok(()));
    }
    Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// The messages of all CEL rules, as the generated files have them.
fn rules() -> Result<Vec<String>> {
    let mut rules = Vec::new();
    for name in ["clusters", "topics"] {
        let path = repository().join(format!("crds/taffrail.io_{name}.yaml"));
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for pair in lines.windows(4) {
            let Some(message) = pair[0].trim_start_matches("- ").strip_prefix("message: ") else {
                continue;
            };
            // A rule follows within two lines; a condition's `message` is a property and has no text.
            if pair[1..].iter().any(|line| line.starts_with("rule: ")) {
                let quoted = message
                    .strip_prefix('\'')
                    .and_then(|quoted| quoted.strip_suffix('\''));
                rules.push(
                    quoted.map_or_else(|| message.to_owned(), |quoted| quoted.replace("''", "'")),
                );
            }
        }
    }
    ensure!(rules.len() >= 10, "only {} rules were found", rules.len());
    Ok(rules)
}
