//! `local status` and `plan`: what is and what would be done, printed.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use taffrail_crds::DeletionPolicy;

use super::intent::{only_cluster, take};
use super::memory::Memory;
use super::ports::Ports;
use super::probe::observe_once;
use super::report::Report;
use super::run::report_of;
use super::{LocalError, table};
use crate::cli::{Output, PlanArguments, StatusArguments};
use crate::health::Addresses;
use crate::manifest;
use crate::object::{ObjectKey, derived_cluster_id};
use crate::observed::{Observed, ObservedBroker, ObservedKafka};
use crate::plan::{plan, show};
use crate::validate::{Valid, validate};

/// Prints what runs in a data folder.
pub fn show_status(arguments: &StatusArguments) -> Result<(), LocalError> {
    let report = report_of(&arguments.data_dir)?;
    match arguments.output {
        Output::Text => crate::cli::print_out(format_args!("{}", table::status(&report))),
        Output::Json => crate::say!("{}", pretty(&serde_json::to_value(&report))),
    }
    Ok(())
}

/// Prints what would be done for a file: against the local cluster in the data folder, else from nothing. Of one that is
/// stopped only what the folder remembers is known. An error if the file asks for what is not done.
pub fn show_plan(arguments: &PlanArguments) -> Result<(), LocalError> {
    let objects = manifest::objects(&manifest::read(&arguments.file)?)?;
    let cluster = only_cluster(&arguments.file, &objects)?;
    let (here, mut memory) = cluster_here(&arguments.data_dir, &cluster.0)?;
    let intent = take(cluster, &objects, &mut memory);
    let known: Vec<ObjectKey> = objects
        .clusters
        .iter()
        .map(|(key, ..)| key.clone())
        .collect();
    let valid = validate(&intent, &known);
    let observed = match &here {
        Some(report) => observe(report, &memory, &valid)?,
        None => Observed::default(),
    };
    let plan = plan(&valid, &observed);
    match arguments.output {
        Output::Text => {
            match &here {
                Some(report) if report.running => crate::say!(
                    "Compared with the cluster that runs in {}.",
                    report.data_dir.display()
                ),
                Some(report) => crate::say!(
                    "Compared with what {} remembers of the cluster, which is stopped: what has to be done for topics that \
                     are there is seen when it runs.",
                    report.data_dir.display()
                ),
                None => crate::say!("Compared with nothing, since no such cluster is here."),
            }
            crate::cli::print_out(format_args!("{}", show(&valid, &plan)));
            if here.as_ref().is_some_and(|report| !report.running) {
                show_removed(&valid, &memory);
            }
        }
        Output::Json => crate::say!("{}", pretty(&serde_json::to_value(&plan))),
    }
    // What passes by itself is no fault of the file.
    let lasting = plan
        .refusals()
        .filter(|refusal| !refusal.reason.is_transient());
    match lasting.count() {
        0 => Ok(()),
        number => Err(LocalError::NotDone {
            path: arguments.file.clone(),
            number,
        }),
    }
}

/// Topics whose object is in the file no more: the next start deletes them, or lets go of them.
fn show_removed(valid: &Valid, memory: &Memory) {
    for (name, managed) in &memory.managed {
        if valid.topics.iter().any(|topic| topic.name == *name) {
            continue;
        }
        let becomes = match managed.deletion_policy {
            DeletionPolicy::Delete => "is deleted with its records",
            DeletionPolicy::Retain => "stays, and is looked after no more",
        };
        crate::say!(
            "Topic {} is not in the file: at the next start topic {name} {becomes} (deletionPolicy {:?}).",
            managed.object,
            managed.deletion_policy
        );
    }
}

/// The cluster of the data folder, if it is the one that is asked for.
fn cluster_here(
    folder: &Path,
    cluster: &ObjectKey,
) -> Result<(Option<Report>, Memory), LocalError> {
    let nothing = || {
        let mut memory = Memory::new(cluster.clone(), String::new(), Vec::new());
        memory.cluster_id = derived_cluster_id(&memory.cluster_uid);
        (None, memory)
    };
    let Some(memory) = Memory::load(folder)? else {
        return Ok(nothing());
    };
    match report_of(folder) {
        Ok(report) if memory.cluster == *cluster => Ok((Some(report), memory)),
        Ok(_) | Err(LocalError::NothingHere(_)) => Ok(nothing()),
        Err(error) => Err(error),
    }
}

fn observe(report: &Report, memory: &Memory, valid: &Valid) -> Result<Observed, LocalError> {
    let ports = Ports::new(report.base_port, valid.cluster.brokers)?;
    let addresses: BTreeMap<i32, Addresses> = memory
        .brokers
        .iter()
        .map(|&broker| {
            let addresses = Addresses {
                client: ports.client(broker),
                http: ports.metrics(broker),
            };
            (broker, addresses)
        })
        .collect();
    let configured: Vec<String> = valid
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LocalError::Setup {
            what: "the runtime",
            error: error.to_string(),
        })?;
    let (health, kafka) = if report.running {
        runtime.block_on(observe_once(addresses, &configured))
    } else {
        let why = "the cluster is stopped".to_owned();
        (BTreeMap::new(), ObservedKafka::Unreachable { why })
    };
    let brokers = memory.brokers.iter().map(|&broker| {
        let health = health.get(&broker).copied().unwrap_or_default();
        let with = report.brokers.iter().find(|report| report.id == broker);
        let observed = ObservedBroker {
            config: with
                .map(|with| with.spec_config.clone())
                .unwrap_or_default(),
            volumes: with.map(|with| with.volumes.clone()).unwrap_or_default(),
            outdated: Vec::new(),
            ready: health.ready,
            down: !health.ready,
            safe_to_stop: health.safe_to_stop,
        };
        (broker, observed)
    });
    Ok(Observed {
        brokers: brokers.collect(),
        kafka,
        managed: memory.managed.clone(),
        recorded: BTreeMap::new(),
        voters: memory.voters.clone(),
    })
}

fn pretty(value: &serde_json::Result<Value>) -> String {
    match value {
        Ok(value) => format!("{value:#}"),
        Err(error) => json!({ "error": error.to_string() }).to_string(),
    }
}
