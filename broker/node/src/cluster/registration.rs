//! This broker's membership: it registers with the active controller, sends heartbeats, registers again when told to,
//! and asks to leave. What the controller answered last is what the rest of the broker knows about its standing.

use std::sync::Arc;
use std::time::Duration;

use taffrail_core::ids::BrokerEpoch;
use taffrail_core::time::Instant;
use taffrail_protocol::messages::register_broker_request::Listener;
use taffrail_protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, RegisterBrokerRequest,
};
use taffrail_protocol::{ErrorCode, Uuid};
use tokio::sync::watch;

use super::endpoints::lacks_rack;
use super::impaired;
use crate::broker::Broker;
use crate::env::Env;

/// The pause after a refused registration. A predecessor's registration may have to time out first.
const REGISTER_PAUSE: Duration = Duration::from_millis(200);
/// How soon a broker that waits for the controller (to be unfenced, to be let go) asks again.
const IMPATIENT_PAUSE: Duration = Duration::from_millis(50);

/// Where this broker stands with the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The epoch of its registration, once it has one.
    pub(super) epoch: Option<BrokerEpoch>,
    /// Whether the controller lets it lead and be in ISRs.
    pub(super) unfenced: bool,
    /// Whether it has once caught up with the metadata. Never goes back.
    pub(super) caught_up: bool,
    /// Whether it may stop: it leads nothing any more.
    pub(super) should_shut_down: bool,
}

/// The membership of this broker.
pub(super) struct Registration {
    standing: watch::Sender<Standing>,
    want_shutdown: watch::Sender<bool>,
}

impl Default for Registration {
    fn default() -> Self {
        Self {
            standing: watch::Sender::new(Standing::default()),
            want_shutdown: watch::Sender::new(false),
        }
    }
}

impl Registration {
    pub(super) fn standing(&self) -> Standing {
        *self.standing.borrow()
    }

    fn update(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_modify(change);
    }

    /// Asks the controller to move leadership away, and waits until it has or `deadline` has passed. Gives whether
    /// this broker may stop without anybody noticing.
    pub(super) async fn shut_down<E: Env>(&self, env: &E, deadline: Instant) -> bool {
        if self.standing().epoch.is_none() {
            return true;
        }
        self.want_shutdown.send_replace(true);
        let mut standing = self.standing.subscribe();
        tokio::select! {
            biased;
            done = standing.wait_for(|standing| standing.should_shut_down) => done.is_ok(),
            () = env.sleep_until(deadline) => false,
        }
    }
}

/// Keeps this broker registered until it may shut down.
pub(super) async fn run<E: Env>(broker: Arc<Broker<E>>) {
    let mut previous = broker.replication.clean_shutdown_epoch();
    let mut wait = RackWait::default();
    loop {
        let epoch = register(&broker, previous).await;
        previous = Some(epoch);
        broker
            .cluster
            .registration
            .update(|standing| standing.epoch = Some(epoch));
        match keep_alive(&broker, epoch, &mut wait).await {
            Ending::RegisterAgain => {
                broker
                    .cluster
                    .registration
                    .update(|standing| standing.unfenced = false);
            }
            Ending::ShutDown => return,
        }
    }
}

/// Registers, however long it takes. `previous` is the registration at whose end this broker is known to have lost
/// nothing; a process that registers again has not.
async fn register<E: Env>(broker: &Arc<Broker<E>>, previous: Option<BrokerEpoch>) -> BrokerEpoch {
    let listener = |listener: taffrail_core::config::Listener| Listener {
        name: listener.name,
        host: listener.host,
        port: listener.port.into(),
    };
    let mut told = None;
    loop {
        let request = RegisterBrokerRequest {
            cluster_id: broker.cluster.cluster_id().unwrap_or_default(),
            broker_id: broker.id.0,
            incarnation: Uuid(broker.incarnation.0),
            previous_broker_epoch: previous.map_or(-1, |epoch| epoch.0),
            log_directories: broker
                .replication
                .directory_ids()
                .iter()
                .map(|id| Uuid(id.0))
                .collect(),
            listeners: broker
                .config
                .advertised()
                .into_iter()
                .map(listener)
                .collect(),
            rack: broker.config.rack.clone(),
        };
        let deadline = broker.env.now() + broker.cluster.session_timeout();
        let failure = match broker
            .cluster
            .heartbeat_channel
            .ask(broker, &request, deadline)
            .await
        {
            Ok(response) if response.error_code == ErrorCode::None.code() => {
                tracing::info!(broker = %broker.id, epoch = response.broker_epoch, "registered");
                return BrokerEpoch(response.broker_epoch);
            }
            Ok(response) => {
                let text = response.error_message.unwrap_or_default();
                format!("refused with error {}: {text}", response.error_code)
            }
            Err(error) => error.to_string(),
        };
        if told.as_ref() != Some(&failure) {
            tracing::warn!(broker = %broker.id, reason = %failure, "not registered yet");
            told = Some(failure);
        }
        broker
            .env
            .sleep_until(broker.env.now() + REGISTER_PAUSE)
            .await;
    }
}

/// How a series of heartbeats ends.
enum Ending {
    RegisterAgain,
    ShutDown,
}

/// The wait for the rack, which decides where replicas are placed. It ends once: a rack that is forgotten later must not
/// stop a broker that serves.
#[derive(Default)]
struct RackWait {
    over: bool,
    told: bool,
}

impl RackWait {
    fn goes_on<E: Env>(&mut self, broker: &Broker<E>) -> bool {
        if self.over {
            return false;
        }
        self.over = !lacks_rack(broker, &broker.cluster.image());
        if !self.over && !self.told {
            tracing::info!(broker = %broker.id, "waits for the operator to tell its rack before it serves");
        }
        if self.over && self.told {
            tracing::info!(broker = %broker.id, "the operator has told the rack");
        }
        self.told = !self.over;
        !self.over
    }
}

async fn keep_alive<E: Env>(
    broker: &Arc<Broker<E>>,
    epoch: BrokerEpoch,
    wait: &mut RackWait,
) -> Ending {
    let cluster = &broker.cluster;
    let mut want_shutdown = cluster.registration.want_shutdown.subscribe();
    loop {
        let wanted = *want_shutdown.borrow_and_update();
        let applied = cluster.published.applied_index();
        let waits = wait.goes_on(broker);
        // Gathered after the applied index was read, so that it is never older than what is told with it.
        let report = broker.replication.impairments.report();
        let request = BrokerHeartbeatRequest {
            broker_id: broker.id.0,
            broker_epoch: epoch.0,
            metadata_offset: i64::try_from(applied).unwrap_or(i64::MAX),
            want_fence: waits,
            want_shutdown: wanted,
            offline_log_directories: broker
                .replication
                .offline_directory_ids()
                .iter()
                .map(|id| Uuid(id.0))
                .collect(),
            impaired_version: report.version,
            impaired_replicas: impaired::to_request(&report.impaired),
        };
        let started = broker.env.now();
        match cluster
            .heartbeat_channel
            .ask(broker, &request, started + cluster.session_timeout())
            .await
        {
            Ok(response) => {
                if let Some(ending) = note(broker, &response) {
                    return ending;
                }
                let impairments = &broker.replication.impairments;
                impairments.note_told(&report, response.metadata_offset);
            }
            Err(error) => {
                tracing::warn!(broker = %broker.id, %error, "the controller does not hear from this broker")
            }
        }
        let fenced = !cluster.registration.standing().unfenced;
        let impatient = wanted || (fenced && !waits);
        let pause = if impatient {
            IMPATIENT_PAUSE
        } else {
            cluster.heartbeat_interval()
        };
        tokio::select! {
            biased;
            _ = want_shutdown.wait_for(|now_wanted| *now_wanted != wanted) => {}
            () = cluster.published.applied_beyond(applied), if impatient || waits => {}
            () = broker.replication.impairments.changed() => {}
            () = broker.env.sleep_until(started + pause) => {}
        }
    }
}

/// Takes over what the controller says about this broker.
fn note<E: Env>(broker: &Broker<E>, response: &BrokerHeartbeatResponse) -> Option<Ending> {
    if response.error_code != ErrorCode::None.code() {
        tracing::info!(broker = %broker.id, error = response.error_code, "registers again");
        return Some(Ending::RegisterAgain);
    }
    let before = broker.cluster.registration.standing();
    broker.cluster.registration.update(|standing| {
        standing.unfenced = !response.fenced;
        standing.caught_up |= response.caught_up;
        standing.should_shut_down |= response.should_shutdown;
    });
    if before.unfenced == response.fenced {
        let fenced = response.fenced;
        tracing::info!(broker = %broker.id, fenced, "standing with the controller changed");
    }
    response.should_shutdown.then_some(Ending::ShutDown)
}
