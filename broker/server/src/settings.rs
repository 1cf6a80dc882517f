//! Where a broker's configuration comes from: one properties file, and the environment above it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use taffrail_core::config::{BROKER_CONFIGS, BrokerConfig, ConfigMap};

use crate::properties;

/// The prefix of environment variables that stand above the file.
const PREFIX: &str = "TAFFRAIL_";

/// A checked configuration, with what is odd about its origin.
pub(crate) struct Settings {
    /// The values.
    pub(crate) config: BrokerConfig,
    /// The names and values as written, the environment's merged over the file's.
    pub(crate) written: ConfigMap,
    /// Things to warn about that are no reason not to start.
    pub(crate) warnings: Vec<String>,
}

/// Reads `file`, merges the environment over it and checks everything.
pub(crate) fn load(
    file: &Path,
    environment: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<Settings> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut written = properties::parse(&text).with_context(|| format!("in {}", file.display()))?;
    let mut warnings = merge_environment(&mut written, environment);
    let config = match BrokerConfig::from_file(&written) {
        Ok(config) => config,
        Err(errors) => bail!("{} is refused:\n{errors}", file.display()),
    };
    if config.cluster_id.is_none() {
        bail!(
            "{} is refused:\ncluster.id: must be set to the identity of the cluster, the same in all brokers",
            file.display()
        );
    }
    for listener in &config.listeners {
        let mut advertised = config.advertised().into_iter();
        if !advertised.any(|advertised| advertised.name == listener.name) {
            warnings.push(format!(
                "listener {} has no address that clients can be told until the operator supplies one or \
                 advertised.listeners names it",
                listener.name
            ));
        }
    }
    Ok(Settings {
        config,
        written,
        warnings,
    })
}

/// Where a broker listens, for whom, and who keeps the metadata, in sentences.
pub(crate) fn places(config: &BrokerConfig) -> Vec<String> {
    let advertised = config.advertised();
    let mut lines: Vec<String> = config
        .listeners
        .iter()
        .map(|listener| {
            let whom = if listener.name == config.inter_broker_listener_name {
                "brokers and the operator"
            } else {
                "clients"
            };
            let told = advertised
                .iter()
                .find(|advertised| advertised.name == listener.name);
            match told {
                Some(told) => format!("{listener} is for {whom}, who are told {told}"),
                None => format!("{listener} is for {whom}"),
            }
        })
        .collect();
    lines.push(format!(
        "http://{} serves /metrics, the probes and the page",
        config.metrics_listener
    ));
    let voters: Vec<String> = config
        .controller_quorum_voters
        .iter()
        .map(|voter| voter.id.to_string())
        .collect();
    lines.push(if voters.is_empty() {
        "the metadata is kept by this broker alone".to_owned()
    } else {
        format!("the metadata is kept by brokers {}", voters.join(", "))
    });
    lines
}

/// The variable that overrides a config: `TAFFRAIL_` and the name in capitals with underscores. The prefix of our own
/// names is not repeated: `taffrail.flush` is `TAFFRAIL_FLUSH`.
pub(crate) fn variable(name: &str) -> String {
    let name = name.strip_prefix("taffrail.").unwrap_or(name);
    format!(
        "{PREFIX}{}",
        name.replace(['.', '-'], "_").to_ascii_uppercase()
    )
}

/// A variable that names no config is no reason to stop: Kubernetes makes variables from the names of Services.
fn merge_environment(
    written: &mut ConfigMap,
    environment: impl Iterator<Item = (String, String)>,
) -> Vec<String> {
    let names: BTreeMap<String, &str> = BROKER_CONFIGS
        .iter()
        .map(|definition| (variable(definition.name), definition.name))
        .collect();
    let mut warnings = Vec::new();
    for (variable, value) in environment.filter(|(variable, _)| variable.starts_with(PREFIX)) {
        match names.get(&variable) {
            Some(name) => {
                written.insert((*name).to_string(), value);
            }
            None => warnings.push(format!(
                "{variable} in the environment names no config and is ignored"
            )),
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_config_has_a_variable_of_its_own() {
        let variables: std::collections::BTreeSet<String> = BROKER_CONFIGS
            .iter()
            .map(|definition| variable(definition.name))
            .collect();
        assert_eq!(variables.len(), BROKER_CONFIGS.len());
    }

    #[test]
    fn environment_stands_above_the_file() {
        fn check(environment: &[(&str, &str)], expected: &[(&str, &str)], warnings: usize) {
            let mut written: ConfigMap = [("node.id".to_string(), "1".to_string())].into();
            let pairs = environment
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()));
            assert_eq!(merge_environment(&mut written, pairs).len(), warnings);
            let shown: Vec<(&str, &str)> = written
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            assert_eq!(shown, expected);
        }
        check(&[], &[("node.id", "1")], 0);
        check(
            &[("TAFFRAIL_NODE_ID", "2"), ("PATH", "/bin")],
            &[("node.id", "2")],
            0,
        );
        check(
            &[("TAFFRAIL_FLUSH", "ack")],
            &[("node.id", "1"), ("taffrail.flush", "ack")],
            0,
        );
        check(
            &[("TAFFRAIL_BROKER_SERVICE_HOST", "10.0.0.1")],
            &[("node.id", "1")],
            1,
        );
    }
}
