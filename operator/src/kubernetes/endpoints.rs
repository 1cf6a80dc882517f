//! Where brokers stand and where clients reach them from outside, as Pods, Nodes and Services say; and where clients
//! of each listener begin. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use taffrail_crds::{Listener, ListenerStatus, ListenerType};

use super::objects::{
    Blueprint, Names, bootstrap_servers_inside, broker_id, broker_listener_name, outside_listeners,
};
use crate::kafka::Endpoints;

/// Bootstrap addresses of a NodePort listener that are told: enough that some node of them lives.
const BOOTSTRAP_NODES_MAX: usize = 3;

/// What is known of the brokers from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// For each broker with a pod on a node what is known of it; incomplete while `missing` says so.
    pub brokers: BTreeMap<i32, Endpoints>,
    /// What is not known yet and why, each as a sentence for a condition.
    pub missing: Vec<String>,
    /// For `status.listeners`; listeners without any address yet are left out.
    pub listeners: Vec<ListenerStatus>,
}

/// Live objects; Services and Nodes by name.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// The pods of the brokers.
    pub pods: &'a [Pod],
    /// Services of the Cluster.
    pub services: &'a BTreeMap<String, Service>,
    /// Nodes. May be empty where neither racks nor NodePort listeners are asked for.
    pub nodes: &'a BTreeMap<String, Node>,
}

/// Whether anything has to be told to brokers, so that Nodes have to be looked at.
pub fn needs_nodes(blueprint: &Blueprint<'_>) -> bool {
    let mut listeners = blueprint.cluster.listeners.iter();
    blueprint.spec.rack.is_some()
        || listeners.any(|listener| listener.type_ == ListenerType::NodePort)
}

/// Whether brokers wait for anything from outside.
pub fn needs_endpoints(blueprint: &Blueprint<'_>) -> bool {
    blueprint.spec.rack.is_some()
        || outside_listeners(&blueprint.cluster.listeners)
            .next()
            .is_some()
}

/// Looks up racks and addresses.
pub fn outside(blueprint: &Blueprint<'_>, live: Live<'_>) -> Outside {
    let mut outside = Outside::default();
    let mut lacking = Lacking::new();
    if needs_endpoints(blueprint) {
        for pod in live.pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            // A pod that is not on a node yet has a condition of its own, which says why.
            if let (Some(broker), Some(node)) = (broker_id(pod), node) {
                let endpoints = of_broker(blueprint, live, broker, node, &mut lacking);
                outside.brokers.insert(broker, endpoints);
            }
        }
    }
    outside.missing = lacking.into_iter().map(sentence).collect();
    for listener in &blueprint.cluster.listeners {
        let bootstrap_servers = bootstrap_servers(&blueprint.names(), listener, live);
        if !bootstrap_servers.is_empty() {
            outside.listeners.push(ListenerStatus {
                name: listener.name.clone(),
                bootstrap_servers,
            });
        } else if listener.type_ == ListenerType::LoadBalancer {
            outside.missing.push(format!(
                "listener {} has no bootstrap address: Service {} waits for its load balancer; see that the Kubernetes \
                 cluster has a provider of load balancers",
                listener.name,
                blueprint.names().outside(&listener.name)
            ));
        }
    }
    outside
}

/// What has to be sent so that `recorded` becomes what is known. What is not known at this moment stays as it is
/// recorded: a load balancer that is being replaced must not take a broker away from its clients. A listener that the
/// spec no longer has is forgotten.
pub fn changes(
    blueprint: &Blueprint<'_>,
    known: &BTreeMap<i32, Endpoints>,
    recorded: &BTreeMap<i32, Endpoints>,
) -> BTreeMap<i32, Endpoints> {
    let kept = |name: &String| {
        outside_listeners(&blueprint.cluster.listeners)
            .any(|listener| broker_listener_name(&listener.name) == *name)
    };
    let mut changes = BTreeMap::new();
    for (&broker, known) in known {
        let before = recorded.get(&broker).cloned().unwrap_or_default();
        let mut wanted = known.clone();
        if wanted.rack.is_none() && blueprint.spec.rack.is_some() {
            wanted.rack.clone_from(&before.rack);
        }
        for (name, address) in before.listeners.iter().filter(|(name, _)| kept(name)) {
            let recorded = || address.clone();
            wanted
                .listeners
                .entry(name.clone())
                .or_insert_with(recorded);
        }
        if wanted != before {
            changes.insert(broker, wanted);
        }
    }
    // Without racks and outside listeners nothing is looked up, but what was told before must not stay.
    if !needs_endpoints(blueprint) {
        for (&broker, before) in recorded {
            if *before != Endpoints::default() {
                changes.insert(broker, Endpoints::default());
            }
        }
    }
    changes
}

/// The brokers that lack something, and why each does, by what they lack.
type Lacking = BTreeMap<String, Vec<(i32, String)>>;

/// One sentence for all brokers that lack the same: a provider of load balancers lets all of them wait.
fn sentence((what, brokers): (String, Vec<(i32, String)>)) -> String {
    let ids: Vec<String> = brokers.iter().map(|(id, _)| id.to_string()).collect();
    let mut whys: Vec<&str> = brokers.iter().map(|(_, why)| why.as_str()).collect();
    whys.dedup();
    let (has, brokers) = match ids.len() {
        1 => ("has", "broker"),
        _ => ("have", "brokers"),
    };
    format!(
        "{brokers} {} {has} no {what}: {}",
        ids.join(", "),
        whys.join("; ")
    )
}

fn of_broker(
    blueprint: &Blueprint<'_>,
    live: Live<'_>,
    broker: i32,
    node: &str,
    lacking: &mut Lacking,
) -> Endpoints {
    let mut endpoints = Endpoints::default();
    let mut lacks = |what: String, why: String| {
        lacking.entry(what).or_default().push((broker, why));
    };
    if let Some(rack) = &blueprint.spec.rack {
        match rack_of(live, node, &rack.topology_key) {
            Ok(value) => endpoints.rack = Some(value),
            Err(why) => lacks("rack".to_owned(), why),
        }
    }
    for listener in outside_listeners(&blueprint.cluster.listeners) {
        let service = blueprint.names().outside_broker(&listener.name, broker);
        match address(listener, live, &service, node) {
            Ok(address) => {
                let name = broker_listener_name(&listener.name);
                endpoints.listeners.insert(name, address);
            }
            Err(why) => lacks(format!("address for listener {}", listener.name), why),
        }
    }
    endpoints
}

fn rack_of(live: Live<'_>, node: &str, key: &str) -> Result<String, String> {
    let found = live
        .nodes
        .get(node)
        .ok_or_else(|| format!("node {node} is not there"))?;
    let labels = found.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(key))
        .filter(|value| !value.is_empty())
        .cloned()
        .ok_or_else(|| {
            format!("node {node} has no label {key}; label it, or correct spec.rack.topologyKey")
        })
}

fn address(
    listener: &Listener,
    live: Live<'_>,
    service: &str,
    node: &str,
) -> Result<(String, u16), String> {
    let found = live
        .services
        .get(service)
        .ok_or_else(|| format!("Service {service} is not there yet"))?;
    match listener.type_ {
        ListenerType::NodePort => {
            let port = node_port(found)
                .ok_or_else(|| format!("Service {service} has no node port yet"))?;
            let host = live
                .nodes
                .get(node)
                .and_then(node_host)
                .ok_or_else(|| format!("node {node} has no address"))?;
            Ok((host, port))
        }
        ListenerType::LoadBalancer | ListenerType::Internal => {
            let host = ingress(found)
                .ok_or_else(|| format!("Service {service} waits for its load balancer"))?;
            Ok((host, u16::try_from(listener.port).unwrap_or(0)))
        }
    }
}

fn bootstrap_servers(names: &Names<'_>, listener: &Listener, live: Live<'_>) -> String {
    let service = live.services.get(&names.outside(&listener.name));
    match listener.type_ {
        ListenerType::Internal => bootstrap_servers_inside(names, listener),
        ListenerType::LoadBalancer => service
            .and_then(ingress)
            .map(|host| with_port(&host, listener.port))
            .unwrap_or_default(),
        ListenerType::NodePort => {
            let Some(port) = service.and_then(node_port) else {
                return String::new();
            };
            let pods = live.pods.iter();
            let mut nodes: Vec<&str> = pods
                .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
                .collect();
            nodes.sort_unstable();
            nodes.dedup();
            let hosts = nodes.iter().filter_map(|node| live.nodes.get(*node));
            let servers: Vec<String> = hosts
                .filter_map(node_host)
                .take(BOOTSTRAP_NODES_MAX)
                .map(|host| with_port(&host, port.into()))
                .collect();
            servers.join(",")
        }
    }
}

/// A node's address as its clients know it: from outside if it has such a one.
fn node_host(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    ["ExternalIP", "InternalIP"].iter().find_map(|type_| {
        let mut of_type = addresses.iter().filter(|address| address.type_ == *type_);
        Some(of_type.next()?.address.clone())
    })
}

fn node_port(service: &Service) -> Option<u16> {
    let port = service.spec.as_ref()?.ports.as_ref()?.first()?.node_port?;
    u16::try_from(port).ok().filter(|port| *port > 0)
}

fn ingress(service: &Service) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    let first = status.ingress.as_ref()?.first()?;
    first.hostname.clone().or_else(|| first.ip.clone())
}

fn with_port(host: &str, port: i32) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::objects::tests::{EVERYTHING, Given, MINIMAL};
    use super::*;

    fn pods(nodes: &[(i32, &str)]) -> Vec<Pod> {
        let pod = |(broker, node): &(i32, &str)| {
            serde_json::from_value(json!({
                "metadata": {"name": format!("demo-broker-{broker}")},
                "spec": {"nodeName": node, "containers": []},
            }))
            .expect("a pod")
        };
        nodes.iter().map(pod).collect()
    }

    fn services(services: &[(&str, i32, &str)]) -> BTreeMap<String, Service> {
        let service = |(name, node_port, ingress): &(&str, i32, &str)| {
            let ingress = match *ingress {
                "" => json!([]),
                host => json!([{"hostname": host}]),
            };
            let service = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"ports": [{"port": 9094, "nodePort": node_port}]},
                "status": {"loadBalancer": {"ingress": ingress}},
            }));
            ((*name).to_owned(), service.expect("a Service"))
        };
        services.iter().map(service).collect()
    }

    /// Name, zone, and addresses by type.
    type NodeCase<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    fn nodes(nodes: &[NodeCase<'_>]) -> BTreeMap<String, Node> {
        let node = |(name, zone, addresses): &NodeCase<'_>| {
            let addresses: Vec<_> = addresses
                .iter()
                .map(|(type_, address)| json!({"type": type_, "address": address}))
                .collect();
            let mut node = json!({
                "metadata": {"name": name, "labels": {}},
                "status": {"addresses": addresses},
            });
            if !zone.is_empty() {
                node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone);
            }
            (
                (*name).to_owned(),
                serde_json::from_value(node).expect("a Node"),
            )
        };
        nodes.iter().map(node).collect()
    }

    fn shown(outside: &Outside) -> Vec<String> {
        let brokers = outside.brokers.iter().map(|(broker, endpoints)| {
            let listeners = endpoints.listeners.iter();
            let listeners: Vec<String> = listeners
                .map(|(name, (host, port))| format!("{name}={host}:{port}"))
                .collect();
            let rack = endpoints.rack.as_deref().unwrap_or("-");
            format!("{broker} {rack} {}", listeners.join(" "))
        });
        let listeners = outside
            .listeners
            .iter()
            .map(|listener| format!("{}: {}", listener.name, listener.bootstrap_servers));
        brokers
            .chain(outside.missing.clone())
            .chain(listeners)
            .collect()
    }

    #[test]
    fn all_is_found() {
        let given = Given::new(EVERYTHING);
        let live = Live {
            pods: &pods(&[(0, "n1"), (1, "n2")]),
            services: &services(&[
                ("demo-outside", 30000, ""),
                ("demo-outside-0", 30001, ""),
                ("demo-outside-1", 30002, ""),
                ("demo-far", 0, "far.example.org"),
                ("demo-far-0", 0, "0.example.org"),
                ("demo-far-1", 0, "1.example.org"),
            ]),
            nodes: &nodes(&[
                ("n1", "a", &[("InternalIP", "10.0.0.1")]),
                (
                    "n2",
                    "b",
                    &[("InternalIP", "10.0.0.2"), ("ExternalIP", "192.0.2.2")],
                ),
            ]),
        };
        let found = outside(&given.blueprint(), live);
        assert_eq!(
            shown(&found),
            [
                "0 a FAR=0.example.org:9096 OUTSIDE=10.0.0.1:30001",
                "1 b FAR=1.example.org:9096 OUTSIDE=192.0.2.2:30002",
                "internal: demo-bootstrap.ns.svc:9092",
                "metrics: demo-bootstrap.ns.svc:9095",
                "outside: 10.0.0.1:30000,192.0.2.2:30000",
                "far: far.example.org:9096",
            ]
        );
        let none = BTreeMap::new();
        assert_eq!(
            changes(&given.blueprint(), &found.brokers, &none),
            found.brokers
        );
        assert!(changes(&given.blueprint(), &found.brokers, &found.brokers).is_empty());
    }

    #[test]
    fn what_is_missing_is_told_and_what_is_recorded_stays() {
        let given = Given::new(EVERYTHING);
        let live = Live {
            pods: &pods(&[(0, "n1"), (1, "gone")]),
            services: &services(&[("demo-outside-0", 0, ""), ("demo-far-0", 0, "")]),
            nodes: &nodes(&[("n1", "", &[])]),
        };
        let found = outside(&given.blueprint(), live);
        let told = shown(&found);
        for expected in [
            "brokers 0, 1 have no rack: node n1 has no label topology.kubernetes.io/zone; label it, or correct \
             spec.rack.topologyKey; node gone is not there",
            "brokers 0, 1 have no address for listener outside: Service demo-outside-0 has no node port yet; Service \
             demo-outside-1 is not there yet",
            "brokers 0, 1 have no address for listener far: Service demo-far-0 waits for its load balancer; Service \
             demo-far-1 is not there yet",
            "listener far has no bootstrap address: Service demo-far waits for its load balancer",
        ] {
            assert!(told.iter().any(|told| told.contains(expected)), "{told:?}");
        }
        let before = Endpoints {
            rack: Some("a".to_owned()),
            listeners: BTreeMap::from([
                ("OUTSIDE".to_owned(), ("10.0.0.1".to_owned(), 30001)),
                ("FAR".to_owned(), ("0.example.org".to_owned(), 9096)),
            ]),
        };
        let recorded = BTreeMap::from([(0, before.clone()), (1, before.clone())]);
        assert!(changes(&given.blueprint(), &found.brokers, &recorded).is_empty());
        // Nothing of this is asked for any more.
        let minimal = Given::new(MINIMAL);
        let none = BTreeMap::new();
        let cleared = changes(&minimal.blueprint(), &none, &recorded);
        assert_eq!(
            cleared
                .values()
                .filter(|set| **set == Endpoints::default())
                .count(),
            2
        );
        assert!(changes(&minimal.blueprint(), &none, &cleared).is_empty());
    }
}
