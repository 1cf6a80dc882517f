//! Brokers as an orchestrator starts them: identity by environment, addresses by name, and rack and outside addresses
//! told by an operator while they run.

mod broker;

use std::net::TcpListener;
use std::sync::Arc;

use broker::{Broker, ask, eventually};
use taffrail_protocol::messages::set_broker_endpoints_request::{BrokerEndpoints, Listener};
use taffrail_protocol::messages::{
    DescribeClusterRequest, ListPartitionReassignmentsRequest, LookForBrokerRequest,
    SetBrokerEndpointsRequest,
};

/// Waits until `/readyz` has this status and says this.
fn wait_until_ready_says(broker: &Broker, status: u16, expected: &str) {
    eventually(expected, || {
        let (found, body) = broker.get("/readyz");
        (found == status && body.contains(expected)).then_some(())
    });
}

/// Tells the rack and perhaps the outside address of broker 0.
fn tell(broker: &Broker, rack: &str, address: Option<(&str, i32)>) {
    let listener = address.map(|(host, port)| Listener {
        name: "PLAINTEXT".to_owned(),
        host: host.to_owned(),
        port,
    });
    let request = SetBrokerEndpointsRequest {
        brokers: vec![BrokerEndpoints {
            broker_id: 0,
            rack: Some(rack.to_owned()),
            listeners: listener.into_iter().collect(),
        }],
    };
    let response = ask(broker.internal, &request);
    assert_eq!(response.error_code, 0);
    let results: Vec<i16> = response
        .results
        .iter()
        .map(|result| result.error_code)
        .collect();
    assert_eq!(results, [0]);
}

/// Racks and addresses of all brokers, as they are recorded.
fn recorded(broker: &Broker) -> Vec<String> {
    let response = ask(broker.internal, &SetBrokerEndpointsRequest::default());
    assert_eq!(response.error_code, 0);
    let brokers = response.recorded.into_iter().map(|broker| {
        let listeners = broker.listeners.iter();
        let listeners: Vec<String> = listeners
            .map(|listener| format!("{}={}:{}", listener.name, listener.host, listener.port))
            .collect();
        format!(
            "{} {} {}",
            broker.broker_id,
            broker.rack.unwrap_or_default(),
            listeners.join(",")
        )
    });
    brokers.collect()
}

/// What a client of the outside listener is told.
fn told_to_clients(broker: &Broker) -> Vec<String> {
    let response = ask(broker.clients, &DescribeClusterRequest::default());
    let brokers = response.brokers.into_iter();
    brokers
        .map(|broker| {
            format!(
                "{} {}:{} {}",
                broker.broker_id,
                broker.host,
                broker.port,
                broker.rack.unwrap_or_default()
            )
        })
        .collect()
}

#[test]
fn a_broker_waits_for_its_rack_only_and_takes_up_addresses_without_a_restart() {
    let environment = [
        ("TAFFRAIL_NODE_ID", "0"),
        (
            "TAFFRAIL_LISTENERS",
            "INTERNAL://127.0.0.1:0,PLAINTEXT://:0",
        ),
        ("TAFFRAIL_ADVERTISED_LISTENERS", "INTERNAL://localhost:0"),
    ];
    let extra = "taffrail.rack.required=true";
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let mut broker = Broker::start_with(Arc::clone(&folder), &environment, extra);
    wait_until_ready_says(&broker, 503, "waits for the operator to tell the rack");
    assert_eq!(broker.get("/startupz").0, 200);
    assert_eq!(recorded(&broker), Vec::<String>::new());

    // A load balancer whose address comes late holds nobody else up.
    tell(&broker, "a", None);
    wait_until_ready_says(&broker, 200, "ready");
    assert_eq!(recorded(&broker), ["0 a "]);
    tell(&broker, "a", Some(("203.0.113.1", 30001)));
    eventually("the address", || {
        (told_to_clients(&broker) == ["0 203.0.113.1:30001 a"]).then_some(())
    });
    assert_eq!(recorded(&broker), ["0 a PLAINTEXT=203.0.113.1:30001"]);

    // The pod's node got another address.
    tell(&broker, "a", Some(("203.0.113.2", 30001)));
    eventually("the new address", || {
        (told_to_clients(&broker) == ["0 203.0.113.2:30001 a"]).then_some(())
    });
    // What is forgotten does not stop a broker that serves.
    tell(&broker, "b", None);
    assert_eq!(broker.get("/readyz").0, 200);
    tell(&broker, "b", Some(("203.0.113.2", 30001)));

    broker.signal(libc::SIGTERM);
    assert_eq!(broker.wait().code(), Some(0), "{}", broker.log());
    drop(broker);
    let again = Broker::start_with(folder, &environment, extra);
    wait_until_ready_says(&again, 200, "ready");
    assert_eq!(told_to_clients(&again), ["0 203.0.113.2:30001 b"]);
}

#[test]
fn voters_find_each_other_by_name_whenever_they_start() {
    let ports: Vec<u16> = [(); 3]
        .map(|()| TcpListener::bind("127.0.0.1:0").unwrap())
        .iter()
        .map(|socket| socket.local_addr().unwrap().port())
        .collect();
    let voters: Vec<String> = (0..3)
        .map(|id| format!("{id}@localhost:{}", ports[id]))
        .collect();
    let extra = format!("controller.quorum.voters={}", voters.join(","));
    let start = |id: usize| {
        let (node, internal) = (
            id.to_string(),
            format!("INTERNAL://localhost:{}", ports[id]),
        );
        let listeners = format!("INTERNAL://:{},PLAINTEXT://127.0.0.1:0", ports[id]);
        let environment = [
            ("TAFFRAIL_NODE_ID", node.as_str()),
            ("TAFFRAIL_LISTENERS", listeners.as_str()),
            ("TAFFRAIL_ADVERTISED_LISTENERS", internal.as_str()),
        ];
        Broker::start_with(Arc::new(tempfile::tempdir().unwrap()), &environment, &extra)
    };
    let mut first = start(0);
    // It asks the others in vain before they are there, and votes on nothing until it has heard from both.
    first.wait_for_line("does not answer");
    // Without a controller nobody knows what moves, which is not the same as that nothing does.
    let moves = ListPartitionReassignmentsRequest {
        timeout_ms: 500,
        ..ListPartitionReassignmentsRequest::default()
    };
    assert_ne!(ask(first.clients, &moves).error_code, 0);
    let others = [start(1), start(2)];
    for broker in others.iter().chain([&first]) {
        wait_until_ready_says(broker, 200, "ready");
    }
    let told = eventually("three brokers", || {
        let request = DescribeClusterRequest::default();
        let brokers = ask(first.clients, &request).brokers;
        (brokers.len() == 3).then_some(brokers)
    });
    assert_eq!(told.iter().map(|broker| broker.broker_id).sum::<i32>(), 3);
    // Whoever is asked has the controller answer.
    for broker in others.iter().chain([&first]) {
        let answer = ask(broker.clients, &moves);
        assert_eq!((answer.error_code, answer.topics.len()), (0, 0));
    }
}

#[test]
fn a_broker_that_is_looked_for_tells_who_it_is_and_answers_for_no_other() {
    let broker = Broker::start("");
    let look = |cluster_id: &str, asked_broker_id, broker_id| {
        let request = LookForBrokerRequest {
            cluster_id: cluster_id.to_owned(),
            asked_broker_id,
            broker_id,
        };
        ask(broker.internal, &request)
    };
    let first = look("test", 0, 0);
    assert_eq!((first.error_code, first.sighting), (0, 0));
    assert_ne!(first.incarnation.0, [0; 16]);
    assert_eq!(look("test", 0, 0), first, "one life, one incarnation");
    assert_ne!(look("test", 1, 1).error_code, 0);
    assert_ne!(look("other", 0, 0).error_code, 0);
    // It knows no address of broker 1.
    let unknown = look("test", 0, 1);
    assert_eq!((unknown.error_code, unknown.sighting), (0, 3));
}
