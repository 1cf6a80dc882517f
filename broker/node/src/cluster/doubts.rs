//! Brokers that lost a connection to this one and may be gone: what clients are told of leaders waits a moment for the
//! answer. A client whose leader died asks another broker at once, and one that is told the old leader then asks again only
//! after a pause of its own, of a second or more; the controller needs some milliseconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use taffrail_core::controller::Sighting;
use taffrail_core::ids::{BrokerId, Incarnation};
use taffrail_core::metadata::Image;
use tokio::sync::watch;

use super::{Cluster, search};
use crate::broker::Broker;
use crate::env::Env;

/// How long a client waits at most. Longer than it takes to fence a broker that is gone, also with a thousand
/// partitions; a broker that lives answers within a millisecond or so.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// The brokers in doubt: as many as have introduced themselves at most, each until somebody has looked.
#[derive(Default)]
pub(super) struct Doubts {
    brokers: watch::Sender<BTreeMap<BrokerId, Doubt>>,
}

#[derive(Clone, Copy)]
struct Doubt {
    incarnation: Incarnation,
    /// Whether somebody looks already.
    taken: bool,
}

impl Doubts {
    /// A connection of this process ended.
    pub(super) fn raise(&self, broker: BrokerId, incarnation: Incarnation) {
        self.brokers.send_if_modified(|doubts| {
            let doubt = Doubt {
                incarnation,
                taken: false,
            };
            let known = doubts.contains_key(&broker);
            doubts.entry(broker).or_insert(doubt);
            !known
        });
    }

    fn take(&self) -> Vec<(BrokerId, Incarnation)> {
        let mut taken = Vec::new();
        self.brokers.send_if_modified(|doubts| {
            for (broker, doubt) in doubts.iter_mut().filter(|(_, doubt)| !doubt.taken) {
                doubt.taken = true;
                taken.push((*broker, doubt.incarnation));
            }
            false
        });
        taken
    }

    fn settle(&self, broker: BrokerId) {
        self.brokers.send_modify(|doubts| {
            doubts.remove(&broker);
        });
    }
}

impl<E: Env> Cluster<E> {
    /// A connection from this broker to another one broke. The other one may have none to this one that tells, since it
    /// opens some only to whom it follows and to the controller.
    pub(crate) fn doubt(&self, broker: BrokerId) {
        if let Some(registered) = self.image().broker(broker) {
            self.doubts.raise(broker, registered.incarnation);
        }
    }

    /// Waits until no broker is in doubt, or for as long as a client may wait for that.
    pub(crate) async fn doubts_settled(&self, env: &E) {
        let mut doubts = self.doubts.brokers.subscribe();
        if doubts.borrow_and_update().is_empty() {
            return;
        }
        let deadline = env.now() + WAIT_MAX;
        tokio::select! {
            biased;
            // The sender lives in self.
            _ = doubts.wait_for(BTreeMap::is_empty) => {}
            () = env.sleep_until(deadline) => {}
        }
    }
}

/// Looks for brokers in doubt, for ever.
pub(super) async fn run<E: Env>(broker: Arc<Broker<E>>) {
    let mut doubts = broker.cluster.doubts.brokers.subscribe();
    loop {
        for (id, incarnation) in broker.cluster.doubts.take() {
            let looking = Arc::clone(&broker);
            broker.env.spawn(async move {
                settle(&looking, id, incarnation).await;
                looking.cluster.doubts.settle(id);
            });
        }
        // The sender lives in the broker.
        let _ = doubts.changed().await;
    }
}

/// Waits until the metadata says what is to be said of a process that may be gone.
async fn settle<E: Env>(broker: &Arc<Broker<E>>, id: BrokerId, incarnation: Incarnation) {
    let serves = |image: &Image| {
        let registered = image.broker(id);
        registered.is_some_and(|known| !known.fenced && known.incarnation == incarnation)
    };
    let deadline = broker.env.now() + WAIT_MAX;
    if !serves(&broker.cluster.image()) || broker.is_stopping() {
        return;
    }
    let gone = match search::look(broker, id).await {
        Sighting::Refused => true,
        Sighting::Answered(answered) => answered != incarnation,
        Sighting::Unclear | Sighting::Silent => false,
    };
    if gone {
        let cluster = &broker.cluster;
        cluster
            .wait_for_image(deadline, |image| !serves(image))
            .await;
    }
}
