//! Services: one headless for names of pods, one for the Internal listeners, and for each outside listener one for all
//! brokers and one for each broker, because a Kafka client must reach the very broker that leads a partition.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use taffrail_crds::{Listener, ListenerType};

use super::labels::{metadata, selector_labels, strings};
use super::{Blueprint, INTERNAL_PORT, METRICS_PORT, Names};

/// Names of the ports that every broker has.
pub(super) const BROKERS_PORT_NAME: &str = "brokers";
pub(super) const METRICS_PORT_NAME: &str = "metrics";

/// The label by which a StatefulSet's controller names each pod.
const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";

/// Which pods a Service sends to.
enum Pods {
    All,
    One(i32),
}

pub(super) fn services(blueprint: &Blueprint<'_>) -> Vec<Service> {
    let mut services = vec![headless(blueprint)];
    services.extend(bootstrap(blueprint));
    for listener in blueprint.outside_listeners() {
        services.push(outside(blueprint, listener, Pods::All));
        for broker in 0..blueprint.replicas {
            services.push(outside(blueprint, listener, Pods::One(broker)));
        }
    }
    services
}

/// The addresses of an Internal listener for clients within Kubernetes.
pub fn bootstrap_servers_inside(names: &Names<'_>, listener: &Listener) -> String {
    format!(
        "{}.{}.svc:{}",
        names.bootstrap(),
        names.namespace(),
        listener.port
    )
}

/// Two things that would be one Service. A Service of another Cluster or of nobody is for whoever writes to find.
pub(super) fn name_clash(blueprint: &Blueprint<'_>) -> Option<String> {
    let names = blueprint.names();
    let mut uses = BTreeMap::from([
        (names.headless(), "the brokers' own Service".to_owned()),
        (
            names.bootstrap(),
            "the Service of Internal listeners".to_owned(),
        ),
    ]);
    for listener in blueprint.outside_listeners() {
        let of_brokers =
            (0..blueprint.replicas).map(|broker| names.outside_broker(&listener.name, broker));
        for name in std::iter::once(names.outside(&listener.name)).chain(of_brokers) {
            let this = format!("listener {}", listener.name);
            if let Some(other) = uses.insert(name.clone(), this) {
                return Some(format!(
                    "spec.listeners: listener {} needs a Service {name}, which is the name of {other}; rename the \
                     listener",
                    listener.name
                ));
            }
        }
    }
    None
}

fn headless(blueprint: &Blueprint<'_>) -> Service {
    let inside = inside_listeners(blueprint);
    let listeners = inside.iter().map(|listener| {
        let name = match listener.name.as_str() {
            BROKERS_PORT_NAME | METRICS_PORT_NAME => format!("listener-{}", listener.name),
            _ => listener.name.clone(),
        };
        port(name, listener.port)
    });
    let ports = [
        port(BROKERS_PORT_NAME.to_owned(), INTERNAL_PORT.into()),
        port(METRICS_PORT_NAME.to_owned(), METRICS_PORT.into()),
    ];
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        // Brokers look for each other before they are ready: that is how they become it.
        publish_not_ready_addresses: Some(true),
        ports: Some(ports.into_iter().chain(listeners).collect()),
        selector: Some(selector_labels(&blueprint.cluster.key.name)),
        ..ServiceSpec::default()
    };
    service(blueprint, blueprint.names().headless(), spec)
}

/// None where every listener is an outside one: a Service without ports cannot be.
fn bootstrap(blueprint: &Blueprint<'_>) -> Option<Service> {
    let ports: Vec<ServicePort> = inside_listeners(blueprint)
        .iter()
        .map(|listener| port(listener.name.clone(), listener.port))
        .collect();
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        selector: Some(selector_labels(&blueprint.cluster.key.name)),
        ports: Some(ports),
        ..ServiceSpec::default()
    };
    let some = spec.ports.as_ref().is_some_and(|ports| !ports.is_empty());
    some.then(|| service(blueprint, blueprint.names().bootstrap(), spec))
}

fn outside(blueprint: &Blueprint<'_>, listener: &Listener, pods: Pods) -> Service {
    let names = blueprint.names();
    let type_ = match listener.type_ {
        ListenerType::NodePort => "NodePort",
        ListenerType::LoadBalancer => "LoadBalancer",
        ListenerType::Internal => "ClusterIP",
    };
    let mut spec = ServiceSpec {
        type_: Some(type_.to_owned()),
        ports: Some(vec![port(listener.name.clone(), listener.port)]),
        selector: Some(selector_labels(&blueprint.cluster.key.name)),
        ..ServiceSpec::default()
    };
    let name = match pods {
        Pods::All => names.outside(&listener.name),
        Pods::One(broker) => {
            spec.selector = Some(strings(&[(POD_NAME_LABEL, &names.pod(broker))]));
            // Whoever was told this broker's address needs this broker, ready or not.
            spec.publish_not_ready_addresses = Some(true);
            if listener.type_ == ListenerType::NodePort {
                // Clients are told the address of the pod's own node, so nothing is gained from a second hop.
                spec.external_traffic_policy = Some("Local".to_owned());
            }
            names.outside_broker(&listener.name, broker)
        }
    };
    service(blueprint, name, spec)
}

fn service(blueprint: &Blueprint<'_>, name: String, spec: ServiceSpec) -> Service {
    Service {
        metadata: metadata(blueprint, name),
        spec: Some(spec),
        ..Service::default()
    }
}

fn inside_listeners<'a>(blueprint: &Blueprint<'a>) -> Vec<&'a Listener> {
    let listeners = blueprint.cluster.listeners.iter();
    listeners
        .filter(|listener| listener.type_ == ListenerType::Internal)
        .collect()
}

fn port(name: String, port: i32) -> ServicePort {
    ServicePort {
        name: Some(name),
        port,
        target_port: Some(IntOrString::Int(port)),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}
