//! Talks to brokers for the session, in a task of its own, so that a broker that does not answer never keeps the
//! supervisor from looking after the others.

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use crate::health::{Addresses, Health, health_of, kafka_of};
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

async fn apply(admin: &mut Admin, steps: Vec<PlannedStep>) -> Answer {
    let mut results = Vec::new();
    for planned in steps {
        let error = kafka::apply_step(admin, &planned.step).await.err();
        results.push((planned, error.map(|error| error.to_string())));
    }
    Answer::Applied(results)
}
