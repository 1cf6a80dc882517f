//! `local status` and `plan`: what is and what would be done, printed.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use taffrail_crds::DeletionPolicy;

use super::broker_file::Told;
use super::intent::{only_cluster, take};
use super::memory::Memory;
use super::ports::Ports;
use super::probe::observe_once;
use super::report::Report;
use super::run::report_of;
use super::supervisor::RUNNING;
use super::{LocalError, table};
use crate::cli::{Output, PlanArguments, StatusArguments};
use crate::health::{Addresses, Health};
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
    let mut plan = plan(&valid, &observed);
    match &here {
        Some(report) if report.running => {
            for broker in &report.leaving {
                plan.goes_on(None, format!("broker {broker} is being stopped for good"));
            }
        }
        // Where nothing runs, nothing goes on.
        Some(_) | None => plan.under_way.clear(),
    }
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
    Ok(world(report, memory, valid, &health, kafka))
}

/// The world from what the run wrote down and from what its brokers answered. The run writes down first what it is about to
/// start, and the brokers' own word may be that of a process which is being replaced: neither says alone that a change is done.
fn world(
    report: &Report,
    memory: &Memory,
    valid: &Valid,
    health: &BTreeMap<i32, Health>,
    kafka: ObservedKafka,
) -> Observed {
    let started = report
        .brokers
        .iter()
        .filter(|with| memory.brokers.contains(&with.id));
    let brokers = started.map(|with| {
        let health = health.get(&with.id).copied().unwrap_or_default();
        let ready = health.ready && with.state == RUNNING;
        let now = Told::now(&valid.cluster, &memory.voters, with.id);
        let told = with.told.as_ref();
        let observed = ObservedBroker {
            config: with.spec_config.clone(),
            volumes: with.volumes.clone(),
            outdated: told.map(|told| told.outdated(&now)).unwrap_or_default(),
            ready,
            down: !ready,
            safe_to_stop: health.safe_to_stop.filter(|_| ready),
        };
        (with.id, observed)
    });
    Observed {
        brokers: brokers.collect(),
        kafka: if memory.brokers.is_empty() {
            ObservedKafka::Absent
        } else {
            kafka
        },
        managed: memory.managed.clone(),
        recorded: BTreeMap::new(),
        voters: memory.voters.clone(),
    }
}

fn pretty(value: &serde_json::Result<Value>) -> String {
    match value {
        Ok(value) => format!("{value:#}"),
        Err(error) => json!({ "error": error.to_string() }).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::KafkaWorld;
    use crate::world;

    /// What a run has written down in the middle of a change, brokers that were told of one voter, and how brokers answer.
    fn world_during(
        valid: &Valid,
        written: &[(i32, &str)],
        remembered: &[i32],
        voters: &[i32],
        ready: &[i32],
        registered: &[i32],
    ) -> Observed {
        let brokers = written.iter().map(|(id, state)| {
            json!({
                "id": id, "pid": 1, "state": state, "ready": true, "restarts": 0, "client": "", "metrics": "", "config": "",
                "specConfig": {"min.insync.replicas": "2"}, "volumes": ["data-0"], "told": {"voters": [0], "rack": null}, "log": "",
            })
        });
        let report: Report = serde_json::from_value(json!({
            "running": true, "pid": 1, "file": "", "dataDir": "", "basePort": 9092, "bootstrapServers": "", "metrics": "",
            "cluster": {"object": "default/demo", "status": taffrail_crds::ClusterStatus::default()},
            "brokers": brokers.collect::<Vec<_>>(), "topics": [], "kept": [], "fileError": null,
        }))
        .expect("a report");
        let mut memory = Memory::new(
            ObjectKey::new(None, Some("demo")),
            String::new(),
            voters.to_vec(),
        );
        memory.brokers = remembered.to_vec();
        let health = ready.iter().map(|&id| {
            let health = Health {
                ready: true,
                safe_to_stop: Some(true),
                started: true,
            };
            (id, health)
        });
        let kafka = KafkaWorld {
            authoritative: true,
            brokers: registered
                .iter()
                .map(|&id| (id, world::registered(id)))
                .collect(),
            ..KafkaWorld::default()
        };
        super::world(
            &report,
            &memory,
            valid,
            &health.collect(),
            ObservedKafka::Answered(kafka),
        )
    }

    #[test]
    fn a_change_is_told_until_it_has_ended() {
        let four = world::valid(&world::cluster(
            &world::THREE.replace("brokers: 3", "brokers: 4"),
        ));
        let running = |ids: &[i32]| ids.iter().map(|&id| (id, "running")).collect::<Vec<_>>();
        let three = [0, 1, 2];
        let all = [0, 1, 2, 3];
        let check = |observed: &Observed, expected: &str| {
            let shown = show(&four, &plan(&four, observed));
            assert_eq!(shown, format!("Cluster demo\n{expected}"));
        };
        let starts = "  start broker 3: spec.brokers is 4 and 3 are there\n1 step.\n";
        check(
            &world_during(&four, &running(&three), &three, &[0], &three, &three),
            starts,
        );
        // Remembered before it is started.
        check(
            &world_during(&four, &running(&three), &all, &[0], &three, &three),
            starts,
        );
        check(
            &world_during(&four, &running(&all), &all, &[0], &three, &three),
            "  under way: broker 3 is there and has not registered yet\nNothing else to do, 1 under way.\n",
        );
        check(
            &world_during(&four, &running(&all), &all, &[0], &three, &all),
            "  under way: broker 3 does not serve clients yet\nNothing else to do, 1 under way.\n",
        );
        check(
            &world_during(&four, &running(&all), &all, &[0], &all, &all),
            "Nothing to do.\n",
        );
        // It answers still, but is being replaced.
        let mut restarting = running(&all);
        restarting[1].1 = "stopping";
        check(
            &world_during(&four, &restarting, &all, &[0], &all, &all),
            "  under way: broker 1 does not serve clients yet\nNothing else to do, 1 under way.\n",
        );
    }

    #[test]
    fn a_broker_that_was_told_of_other_voters_is_to_be_restarted() {
        let three = world::valid(&world::cluster(world::THREE));
        let all = [0, 1, 2];
        let running = all.map(|id| (id, "running"));
        for (voters, expected) in [
            (&[0][..], "Cluster demo\nNothing to do.\n"),
            (
                &all[..],
                "Cluster demo\n  restart broker 0: the voters on metadata change from [0] to [0, 1, 2]\n1 step.\n",
            ),
        ] {
            let observed = world_during(&three, &running, &all, voters, &all, &all);
            assert_eq!(show(&three, &plan(&three, &observed)), expected);
        }
    }
}
