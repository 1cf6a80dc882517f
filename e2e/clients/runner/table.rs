//! The table of a run, as Markdown.

use std::fmt::Write as _;

use taffrail_e2e::cluster::BrokerKind;
use taffrail_e2e::tools::repository;

use crate::client::Row;
use crate::step::{LATER, Outcome, STEPS, TOOLS};

/// What one cell says; failures of steps that must pass stand out.
fn cell(step: &str, outcome: &Outcome) -> &'static str {
    let later = LATER.contains(&step);
    match outcome {
        Outcome::Passed(_) => "yes",
        Outcome::Absent(_) => "–",
        Outcome::Refused(_) if later => "not yet",
        Outcome::Failed(_) if later => "not yet, and not told so",
        Outcome::Refused(_) | Outcome::Failed(_) => "**no**",
    }
}

/// The whole page.
pub(crate) fn markdown(rows: &[Row], kind: BrokerKind) -> String {
    let mut text = format!(
        "# Clients\n\nWritten by `make clients`: real clients against three brokers ({}), what each left read back by a client that shares no\n\
         code with it. [README.md](README.md) says what each step does. `–`: the client has no call for it.\n\n",
        match kind {
            BrokerKind::Taffrail => "Taffrail",
            BrokerKind::Kafka => "Apache Kafka",
        }
    );
    let _ = writeln!(text, "| client | {} |", STEPS.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(STEPS.len()));
    for row in rows {
        let cells: Vec<&str> = STEPS
            .iter()
            .filter_map(|step| Some(cell(step, row.outcomes.get(step)?)))
            .collect();
        let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
    }
    for row in rows {
        let more: Vec<String> = TOOLS
            .iter()
            .filter_map(|step| Some(format!("{step} {}", cell(step, row.outcomes.get(step)?))))
            .collect();
        if !more.is_empty() {
            let _ = writeln!(
                text,
                "\n{}, beyond the table: {}.",
                row.name,
                more.join(", ")
            );
        }
    }
    let _ = writeln!(text, "\n## What they said\n");
    for row in rows {
        let _ = writeln!(text, "**{}**\n", row.name);
        for step in STEPS.into_iter().chain(TOOLS) {
            let Some(outcome) = row.outcomes.get(step) else {
                continue;
            };
            let (Outcome::Passed(detail)
            | Outcome::Absent(detail)
            | Outcome::Refused(detail)
            | Outcome::Failed(detail)) = outcome;
            if !detail.is_empty() {
                let _ = writeln!(text, "- {step}: {}", plain(detail));
            }
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// One line, without this machine's paths and what could be read as Markdown.
fn plain(detail: &str) -> String {
    let here = repository().display().to_string();
    let detail = detail.replace(&here, ".");
    let one_line = detail.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = one_line.chars().take(240).collect();
    if short.len() < one_line.len() {
        short.push('…');
    }
    format!("`{}`", short.replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_step_and_says_what_failed() {
        let mut outcomes: BTreeMap<&'static str, Outcome> = STEPS
            .into_iter()
            .map(|step| (step, Outcome::Passed(String::new())))
            .collect();
        outcomes.insert("configs", Outcome::Failed("no `such`\ncall".into()));
        outcomes.insert("transactions", Outcome::Refused("not here".into()));
        outcomes.insert("kip848", Outcome::Failed("silence".into()));
        let row = Row {
            name: "a client",
            outcomes,
            took: Duration::ZERO,
        };
        let text = markdown(&[row], BrokerKind::Taffrail);
        let line = text.lines().find(|line| line.starts_with("| a client"));
        assert_eq!(
            line,
            Some(
                "| a client | yes | yes | yes | yes | yes | yes | **no** | yes | yes | yes | yes | not yet | not yet, and not told so |"
            )
        );
        assert!(text.contains("- configs: `no 'such' call`\n"), "{text}");
    }
}
