//! Asks brokers how they are: probes over HTTP, and what they know over one Kafka connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio::task::JoinSet;

use crate::http;
use crate::kafka::{self, Admin};
use crate::observed::ObservedKafka;

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

/// Asks all brokers at the same time.
pub(crate) async fn health_of(brokers: &BTreeMap<i32, Addresses>) -> BTreeMap<i32, Health> {
    let mut probes = JoinSet::new();
    for (&id, addresses) in brokers {
        let http = addresses.http;
        probes.spawn(async move {
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
        });
    }
    probes.join_all().await.into_iter().collect()
}

/// Observes topics and brokers over a connection to any broker that says it serves.
pub(crate) async fn kafka_of(
    admin: &mut Admin,
    brokers: &BTreeMap<i32, Addresses>,
    health: &BTreeMap<i32, Health>,
    configured: &[String],
) -> ObservedKafka {
    // Only brokers that answer their probe: one that hangs would take the whole time limit.
    let that = |answers: fn(&Health) -> bool| -> Vec<SocketAddr> {
        let those = brokers
            .iter()
            .filter(|(id, _)| health.get(id).is_some_and(answers));
        those.map(|(_, addresses)| addresses.client).collect()
    };
    let mut addresses = that(|health| health.ready);
    if addresses.is_empty() {
        addresses = that(|health| health.started);
    }
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
