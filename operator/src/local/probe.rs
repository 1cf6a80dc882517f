//! Talks to brokers for the session, in a task of its own, so that a broker that does not answer never keeps the
//! supervisor from looking after the others.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::http;
use crate::kafka::{self, Admin};
use crate::observed::ObservedKafka;
use crate::plan::PlannedStep;

/// Something to ask or tell the brokers.
#[derive(Debug)]
pub(super) enum Job {
    /// Look at everything.
    Observe {
        /// Brokers that should run.
        brokers: BTreeMap<i32, Addresses>,
        /// Topics whose configs are wanted.
        configured: Vec<String>,
    },
    /// Carry out steps that concern topics, in order.
    Apply(Vec<PlannedStep>),
}

/// Where one broker is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) client: SocketAddr,
    pub(super) http: SocketAddr,
}

/// What came of a job.
#[derive(Debug)]
pub(super) enum Answer {
    /// What the brokers say.
    Observed {
        health: BTreeMap<i32, Health>,
        kafka: ObservedKafka,
    },
    /// Each step with the error it ended in, if it did.
    Applied(Vec<(PlannedStep, Option<String>)>),
}

/// What one broker's HTTP port says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) ready: bool,
    pub(super) safe_to_stop: Option<bool>,
}

/// Does jobs one by one until nobody asks any more.
pub(super) async fn work(mut jobs: mpsc::Receiver<Job>, answers: mpsc::Sender<Answer>) {
    let mut admin = Admin::new(Vec::new());
    while let Some(job) = jobs.recv().await {
        let answer = match job {
            Job::Observe {
                brokers,
                configured,
            } => observe(&mut admin, brokers, &configured).await,
            Job::Apply(steps) => apply(&mut admin, steps).await,
        };
        if answers.send(answer).await.is_err() {
            return;
        }
    }
}

/// Observes brokers and topics once, for a caller that does not keep a connection.
pub(super) async fn observe_once(
    brokers: BTreeMap<i32, Addresses>,
    configured: &[String],
) -> (BTreeMap<i32, Health>, ObservedKafka) {
    let mut admin = Admin::new(Vec::new());
    let health = health_of(&brokers).await;
    let kafka = kafka_of(&mut admin, &brokers, &health, configured).await;
    (health, kafka)
}

async fn observe(
    admin: &mut Admin,
    brokers: BTreeMap<i32, Addresses>,
    configured: &[String],
) -> Answer {
    let health = health_of(&brokers).await;
    let kafka = kafka_of(admin, &brokers, &health, configured).await;
    Answer::Observed { health, kafka }
}

async fn kafka_of(
    admin: &mut Admin,
    brokers: &BTreeMap<i32, Addresses>,
    health: &BTreeMap<i32, Health>,
    configured: &[String],
) -> ObservedKafka {
    // Only brokers that answer their probe: one that hangs would take the whole time limit.
    let ready = brokers
        .iter()
        .filter(|(id, _)| health.get(id).is_some_and(|health| health.ready))
        .map(|(_, addresses)| addresses.client);
    let addresses: Vec<SocketAddr> = ready.collect();
    if addresses.is_empty() {
        return ObservedKafka::Unreachable {
            why: "no broker is ready yet".to_owned(),
        };
    }
    admin.set_addresses(addresses);
    match kafka::observe(admin, configured).await {
        Ok(world) => ObservedKafka::Answered(world),
        Err(error) => ObservedKafka::Unreachable {
            why: error.to_string(),
        },
    }
}

async fn health_of(brokers: &BTreeMap<i32, Addresses>) -> BTreeMap<i32, Health> {
    let mut probes = JoinSet::new();
    for (&id, addresses) in brokers {
        let http = addresses.http;
        probes.spawn(async move {
            let ready = http::get(http, "/readyz").await;
            let mut health = Health {
                ready: ready.is_ok_and(|answer| answer.status == 200),
                safe_to_stop: None,
            };
            if health.ready
                && let Ok(answer) = http::get(http, "/admin/safe-to-stop").await
            {
                health.safe_to_stop = match answer.status {
                    200 => Some(true),
                    409 => Some(false),
                    _ => None,
                };
            }
            (id, health)
        });
    }
    probes.join_all().await.into_iter().collect()
}

async fn apply(admin: &mut Admin, steps: Vec<PlannedStep>) -> Answer {
    let mut results = Vec::new();
    for planned in steps {
        let error = kafka::apply_step(admin, &planned.step).await.err();
        results.push((planned, error.map(|error| error.to_string())));
    }
    Answer::Applied(results)
}
