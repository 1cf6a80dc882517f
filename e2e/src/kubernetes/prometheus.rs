//! A real Prometheus that finds its targets through Services, as one in the cluster would.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kubernetes::outside::{outside, run_outside};
use crate::process::{Process, tail};
use crate::wait::wait_for_every;

/// Where it listens, in the machine that it runs in.
const ADDRESS: &str = "127.0.0.1:19090";
/// The longest that it may live, also when nobody is left to stop it.
const LIFE_SECONDS: &str = "300";
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
    /// Starts one that scrapes the port `metrics` of these Services, each a name and a namespace, twice a second.
    ///
    /// Debian's Prometheus is built without Kubernetes' discovery, so it finds them by their DNS records: a headless Service has one
    /// for each pod. What README's relabeling takes from discovery, the labels `namespace` and `pod`, it takes from the names.
    pub fn start(services: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("taffrail-prometheus-")
            .tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let records: Vec<String> = services
            .iter()
            .map(|(service, namespace)| {
                format!("_metrics._tcp.{service}.{namespace}.svc.cluster.local")
            })
            .collect();
        let from_name = |regex: &str, label: &str| {
            json!({
                "source_labels": ["__address__"],
                "regex": regex,
                "target_label": label,
                "replacement": "$1",
            })
        };
        let config = json!({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": [{
                "job_name": "taffrail",
                "dns_sd_configs": [{"names": records, "type": "SRV", "refresh_interval": "1s"}],
                "relabel_configs": [
                    from_name(r"(?:[^.]+\.){1,2}([^.]+)\.svc\..*", "namespace"),
                    from_name(r"([^.]+)\.[^.]+\.[^.]+\.svc\..*", "pod"),
                ],
            }],
        });
        // JSON is YAML as well.
        fs::write(path("prometheus.yml"), config.to_string())?;
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
