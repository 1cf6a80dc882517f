//! A real Prometheus scrapes operator and brokers, and answers what README asks.

use std::fs;

use anyhow::{Context, Result, ensure};
use taffrail_e2e::kubernetes::kafka::Kafka;
use taffrail_e2e::kubernetes::kinds::{cluster, topic};
use taffrail_e2e::kubernetes::operator;
use taffrail_e2e::kubernetes::prometheus::Prometheus;
use taffrail_e2e::kubernetes::turn::together;
use taffrail_e2e::text::Text;
use taffrail_e2e::tools::repository;

use crate::{READY_LIMIT, client};

const LINES: usize = 5000;

#[test]
fn prometheus_answers_the_queries_of_the_readme() -> Result<()> {
    together("metrics", |namespace| {
        namespace.apply(&cluster(3))?;
        namespace.apply(&topic("orders", 6))?;
        namespace.wait_ready("cluster/demo", READY_LIMIT)?;
        namespace.wait_ready("topic/orders", READY_LIMIT)?;
        let (kafka, text) = (Kafka::of(namespace, client()?), Text::of(LINES)?);
        let mut prometheus = Prometheus::start(&[
            ("demo-brokers", namespace.name()),
            ("taffrail-metrics", operator::NAMESPACE),
        ])?;
        let up = |namespace: &str| format!("up{{namespace=\"{namespace}\"}} == 1");
        prometheus.wait_for(&up(namespace.name()), 3)?;
        prometheus.wait_for(&up(operator::NAMESPACE), 1)?;
        // Something happens, so that rates and lags have something to say; a group reads half of it.
        kafka.produce("orders", &text, 0, LINES)?;
        kafka.kcat(
            &[
                "-G",
                "readers",
                "-q",
                "-e",
                "-c",
                "100",
                "-X",
                "auto.offset.reset=earliest",
                "orders",
            ],
            &[],
        )?;
        for query in queries()? {
            let series = prometheus.wait_for(&query, 1)?;
            println!("{query}: {} series", series.len());
        }
        Ok(())
    })
}

/// The lines of README's blocks of PromQL.
fn queries() -> Result<Vec<String>> {
    let blocks = blocks("promql")?;
    let lines = blocks.iter().flat_map(|block| block.lines());
    let queries: Vec<String> = lines
        .map(|line| {
            let query = line.split_once('#').map_or(line, |(query, _)| query);
            query.trim().to_owned()
        })
        .filter(|query| !query.is_empty())
        .collect();
    ensure!(!queries.is_empty(), "README shows no query in PromQL");
    Ok(queries)
}

/// The fenced blocks of README in that language.
fn blocks(language: &str) -> Result<Vec<String>> {
    let readme = fs::read_to_string(repository().join("README.md"))?;
    let opening = format!("```{language}\n");
    let parts = readme.split(opening.as_str()).skip(1);
    parts
        .map(|part| {
            let (block, _) = part.split_once("```").context("a block has an end")?;
            Ok(block.to_owned())
        })
        .collect()
}
