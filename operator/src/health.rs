//! Asks brokers how they are: probes over HTTP, and what they know over one Kafka connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::timeout;

use crate::http;
use crate::kafka::{self, Admin};
use crate::observed::ObservedKafka;

/// Brokers that are asked at a time; each takes at most three requests of 2 s.
const PROBES_MAX: usize = 16;

/// How long everything that brokers are asked over Kafka's protocol may take together.
const OBSERVATION_WAIT_MAX: Duration = Duration::from_secs(30);

/// Where one broker is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// A listener for clients.
    pub client: SocketAddr,
    /// Probes and metrics.
    pub http: SocketAddr,
}

/// What one broker's HTTP port says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether it serves clients.
    pub ready: bool,
    /// Whether it may be stopped; none if it did not say.
    pub safe_to_stop: Option<bool>,
    /// Whether it answers requests, be it fenced, because it waits for something that only the operator can tell it.
    pub started: bool,
}

/// Asks all brokers.
pub(crate) async fn health_of(brokers: &BTreeMap<i32, Addresses>) -> BTreeMap<i32, Health> {
    let mut probes = Vec::new();
    for (&id, addresses) in brokers {
        probes.push(probe(id, addresses.http));
    }
    futures::stream::iter(probes)
        .buffer_unordered(PROBES_MAX)
        .collect()
        .await
}

async fn probe(id: i32, http: SocketAddr) -> (i32, Health) {
    let ready = http::get(http, "/readyz").await;
    let mut health = Health {
        ready: ready.is_ok_and(|answer| answer.status == 200),
        ..Health::default()
    };
    if !health.ready {
        let started = http::get(http, "/startupz").await;
        health.started = started.is_ok_and(|answer| answer.status == 200);
        return (id, health);
    }
    health.started = true;
    if let Ok(answer) = http::get(http, "/admin/safe-to-stop").await {
        health.safe_to_stop = match answer.status {
            200 => Some(true),
            409 => Some(false),
            _ => None,
        };
    }
    (id, health)
}

/// Whether no broker serves yet, but one answers that can be told what it waits for.
pub(crate) fn waits_to_be_told(health: &BTreeMap<i32, Health>) -> bool {
    health.values().all(|health| !health.ready) && health.values().any(|health| health.started)
}

/// Observes topics and brokers over a connection to a broker that says it serves. One that does not may know nothing
/// yet; it is left to `admin` for what it has to be told.
pub(crate) async fn kafka_of(
    admin: &mut Admin,
    brokers: &BTreeMap<i32, Addresses>,
    health: &BTreeMap<i32, Health>,
    configured: &[String],
) -> ObservedKafka {
    let unreachable = |why: String| ObservedKafka::Unreachable { why };
    // Only brokers that answer their probe: one that hangs would take the whole time limit.
    let that = |answers: fn(&Health) -> bool| -> BTreeMap<i32, SocketAddr> {
        let those = brokers
            .iter()
            .filter(|(id, _)| health.get(id).is_some_and(answers));
        those
            .map(|(&id, addresses)| (id, addresses.client))
            .collect()
    };
    let started = that(|health| health.started);
    let serving = that(|health| health.ready);
    if serving.is_empty() {
        admin.set_addresses(started.into_values().collect());
        return unreachable("no broker is ready yet".to_owned());
    }
    admin.set_addresses(serving.into_values().collect());
    // The controller knows what is committed before it serves clients.
    let observation = kafka::observe(admin, &started, configured);
    match timeout(OBSERVATION_WAIT_MAX, observation).await {
        Ok(Ok(world)) => ObservedKafka::Answered(world),
        Ok(Err(error)) => unreachable(error.to_string()),
        Err(_) => unreachable(format!(
            "brokers did not answer within {} s",
            OBSERVATION_WAIT_MAX.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_that_only_started_are_told_but_not_believed() {
        let check = |ready: &[bool], started: &[bool], told: bool| {
            let health = (0..)
                .zip(ready.iter().zip(started))
                .map(|(id, (&ready, &started))| {
                    let health = Health {
                        ready,
                        started,
                        safe_to_stop: None,
                    };
                    (id, health)
                })
                .collect();
            assert_eq!(waits_to_be_told(&health), told, "{health:?}");
            health
        };
        check(&[], &[], false);
        check(&[false, false], &[false, false], false);
        check(&[true, false], &[true, true], false);
        let health = check(&[false, false], &[false, true], true);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let addresses = Addresses {
            client: address,
            http: address,
        };
        let brokers = BTreeMap::from([(0, addresses), (1, addresses)]);
        let mut admin = Admin::new(Vec::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("runtime");
        let observed = runtime.block_on(kafka_of(&mut admin, &brokers, &health, &[]));
        assert!(matches!(observed, ObservedKafka::Unreachable { .. }));
    }
}
