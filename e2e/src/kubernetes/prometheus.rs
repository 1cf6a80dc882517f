//! A real Prometheus that finds its targets through Services, as one in the cluster would.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kubernetes::command::{kubectl, text};
use crate::kubernetes::outside::{outside, run_outside};
use crate::process::{Process, tail};
use crate::wait::wait_for_every;

/// Where it listens, in the machine that it runs in.
const ADDRESS: &str = "127.0.0.1:19090";
/// The longest that it may live, also when nobody is left to stop it.
const LIFE_SECONDS: &str = "300";
/// How README's configuration finds its targets.
const DISCOVERY: &str = "[{role: endpoints}]";
/// For its first scrapes.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// A running Prometheus; it ends with this.
#[derive(Debug)]
pub struct Prometheus {
    folder: TempDir,
    process: Process,
}

impl Prometheus {
    /// Starts one with a configuration as README shows it, which then looks into these namespaces only, and twice a second.
    pub fn start(scrape_configs: &str, namespaces: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("taffrail-prometheus-")
            .tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("kubeconfig"), kubeconfig()?.to_string())?;
        // It runs outside, so it is told where the API server is; in the cluster it knows.
        let where_to_look = format!(
            "[{{role: endpoints, kubeconfig_file: {}, namespaces: {{names: [{}]}}}}]",
            path("kubeconfig"),
            namespaces.join(", ")
        );
        ensure!(
            scrape_configs.contains(DISCOVERY),
            "this configuration does not look for targets by {DISCOVERY}:\n{scrape_configs}"
        );
        let config = scrape_configs.replace(DISCOVERY, &where_to_look);
        fs::write(
            path("prometheus.yml"),
            format!("global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\n{config}"),
        )?;
        let mut command = outside(&[
            "sh",
            "-c",
            r#"echo $$ > "$0"; exec "$@""#,
            &path("pid"),
            "timeout",
            LIFE_SECONDS,
            "prometheus",
            &format!("--config.file={}", path("prometheus.yml")),
            &format!("--storage.tsdb.path={}", path("data")),
            &format!("--web.listen-address={ADDRESS}"),
        ])?;
        let log = folder.path().join("log");
        let process = Process::spawn("prometheus", &mut command, &log)?;
        Ok(Self { folder, process })
    }

    /// Waits until a query has at least `series` series, and gives them.
    pub fn wait_for(&mut self, query: &str, series: usize) -> Result<Vec<Value>> {
        let waited = wait_for_every(
            ASK_EVERY,
            &format!("{series} series of {query}"),
            START_LIMIT,
            || {
                self.process.must_run()?;
                let found = ask(query)?;
                if found.len() >= series {
                    return Ok(Some(found));
                }
                Err(anyhow!("{found:?}"))
            },
        );
        waited.with_context(|| tail(&self.folder.path().join("log"), 10))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process in the other machine is not a child of ours: it is asked to stop.
        if let Ok(pid) = fs::read_to_string(self.folder.path().join("pid")) {
            let _ = run_outside(&["kill", pid.trim()], &[]);
        }
    }
}

/// The answer to one query now.
fn ask(query: &str) -> Result<Vec<Value>> {
    let server = format!("http://{ADDRESS}");
    let answer = run_outside(
        &["promtool", "query", "instant", "-o", "json", &server, query],
        &[],
    )?;
    let answer: Value = serde_json::from_slice(&answer)
        .with_context(|| String::from_utf8_lossy(&answer).into_owned())?;
    match answer {
        Value::Array(series) => Ok(series),
        other => Err(anyhow!("{query} gives {other}")),
    }
}

/// The kubeconfig in use, with the API server's own address: 127.0.0.1 means another machine where Prometheus runs.
fn kubeconfig() -> Result<Value> {
    let view = text(
        &mut kubectl(&[
            "config",
            "view",
            "--raw",
            "--flatten",
            "--minify",
            "-o",
            "json",
        ]),
        "",
    )?;
    let mut config: Value = serde_json::from_str(&view)?;
    let slice = text(
        &mut kubectl(&[
            "-n",
            "default",
            "get",
            "endpointslices",
            "-l",
            "kubernetes.io/service-name=kubernetes",
            "-o",
            "json",
        ]),
        "",
    )?;
    let slice: Value = serde_json::from_str(&slice)?;
    let slice = &slice["items"][0];
    let address = slice["endpoints"][0]["addresses"][0]
        .as_str()
        .context("the API server has no address")?;
    let port = &slice["ports"][0]["port"];
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://{address}:{port}"));
    Ok(config)
}
