//! What clients are told about brokers: for each listener its own addresses. Used by every API that lists brokers.

use std::collections::BTreeSet;

use taffrail_core::ids::BrokerId;
use taffrail_core::metadata::{Image, Partition};

use crate::broker::Broker;
use crate::env::Env;

/// A broker as clients of one listener see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientBroker {
    pub(crate) id: BrokerId,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<String>,
    pub(crate) fenced: bool,
}

/// Which fenced brokers to tell of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fenced {
    /// All of them.
    All,
    /// These.
    These(BTreeSet<BrokerId>),
}

/// The brokers that clients of a listener can reach, by id, and the fenced ones that are asked for. Never empty: clients drop
/// all they know when told of no broker (KAFKA-7924), so at least this one is told.
pub(crate) fn client_brokers<E: Env>(
    broker: &Broker<E>,
    image: &Image,
    listener: &str,
    fenced: &Fenced,
) -> Vec<ClientBroker> {
    let told = |id: BrokerId| match fenced {
        Fenced::All => true,
        Fenced::These(these) => these.contains(&id),
    };
    let mut brokers: Vec<ClientBroker> = image
        .brokers()
        .filter(|registered| !registered.fenced || told(registered.id))
        .filter_map(|registered| {
            let address = image.listener(registered.id, listener)?;
            Some(ClientBroker {
                id: registered.id,
                host: address.host.clone(),
                port: address.port.into(),
                rack: image.rack(registered.id).map(str::to_owned),
                fenced: registered.fenced,
            })
        })
        .collect();
    if brokers.is_empty() {
        brokers.push(this_broker(broker, image, listener));
    }
    brokers
}

/// Whether this broker has to be told its rack before it may take replicas. An address of a listener is nothing to wait
/// for: clients of the other listeners are served, and those of this one are told once it is known.
pub(crate) fn lacks_rack<E: Env>(broker: &Broker<E>, image: &Image) -> bool {
    let config = &broker.config;
    config.rack_required && config.rack.is_none() && image.rack(broker.id).is_none()
}

/// This broker, before the cluster knows it: where its configuration says, else where it listens.
fn this_broker<E: Env>(broker: &Broker<E>, image: &Image, listener: &str) -> ClientBroker {
    let advertised = broker
        .config
        .advertised()
        .into_iter()
        .find(|advertised| advertised.name == listener);
    let listening = || {
        broker
            .config
            .listeners
            .iter()
            .find(|listening| listening.name == listener)
            .cloned()
    };
    let (host, port) = match advertised.or_else(listening) {
        Some(address) if !address.is_wildcard() => (address.host, address.port),
        Some(address) => ("localhost".to_string(), address.port),
        None => ("localhost".to_string(), 0),
    };
    let rack = image
        .rack(broker.id)
        .map(str::to_owned)
        .or_else(|| broker.config.rack.clone());
    ClientBroker {
        id: broker.id,
        host,
        port: port.into(),
        rack,
        fenced: true,
    }
}

/// Whom clients take for the controller: the active one if they can reach it, else any broker, since all forward.
pub(crate) fn client_controller<E: Env>(broker: &Broker<E>, brokers: &[ClientBroker]) -> i32 {
    let known = |id: &BrokerId| {
        brokers
            .iter()
            .any(|broker| broker.id == *id && !broker.fenced)
    };
    let active = broker.cluster.controller_id().filter(known);
    let any = brokers
        .iter()
        .find(|candidate| candidate.id == broker.id)
        .or(brokers.first())
        .map(|any| any.id);
    active.or(any).map_or(-1, |id| id.0)
}

/// The replicas of a partition whose brokers are not there.
pub(crate) fn offline_replicas(image: &Image, partition: &Partition) -> Vec<i32> {
    let offline = |id: &&BrokerId| image.broker(**id).is_none_or(|broker| broker.fenced);
    partition
        .replicas
        .iter()
        .filter(offline)
        .map(|id| id.0)
        .collect()
}

/// Ids as the protocol has them.
pub(crate) fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|id| id.0).collect()
}
