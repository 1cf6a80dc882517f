//! Brokers whose connections close: what has them looked for, and what has them fenced.

use std::time::Duration;

use super::cluster::Cluster;
use crate::controller::{Controller, ControllerConfig, Search, Sighting, Suspect};
use crate::ids::{BrokerId, Incarnation};

const SESSION: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);
const OTHER: Sighting = Sighting::Answered(Incarnation([99; 16]));

fn suspect(cluster: &Cluster, id: i32) -> Suspect {
    let broker = cluster.image().broker(BrokerId(id)).unwrap();
    Suspect {
        broker: broker.id,
        epoch: broker.epoch,
        incarnation: broker.incarnation,
    }
}

fn alive(cluster: &Cluster, id: i32) -> Sighting {
    Sighting::Answered(suspect(cluster, id).incarnation)
}

fn lose(cluster: &mut Cluster, id: i32) {
    let incarnation = suspect(cluster, id).incarnation;
    let now = cluster.now;
    cluster
        .controller
        .handle_connection_lost(now, BrokerId(id), incarnation);
}

fn searches(cluster: &mut Cluster) -> Vec<Search> {
    let now = cluster.now;
    cluster.controller.take_searches(now)
}

/// Broker 0's connection closes, the look for it meets `sighting`, and the other voters meet `others`, if they are asked.
fn after(sighting: fn(&Cluster) -> Sighting, others: Option<Vec<Sighting>>) -> bool {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    lose(&mut cluster, 0);
    let suspect = suspect(&cluster, 0);
    assert_eq!(searches(&mut cluster), [Search::Look(suspect)]);
    assert_eq!(searches(&mut cluster), [], "once");
    let met = sighting(&cluster);
    let now = cluster.now;
    cluster.controller.handle_look(now, &suspect, met);
    if let Some(others) = others {
        cluster.pass(Duration::ZERO);
        assert_eq!(
            cluster.show(partition),
            "0/0,1,2/",
            "not without the others"
        );
        assert_eq!(searches(&mut cluster), [Search::Confirm(suspect)]);
        assert_eq!(searches(&mut cluster), [], "once");
        cluster
            .controller
            .handle_confirmation(now, &suspect, &others);
    }
    let due = cluster.controller.next_deadline().unwrap() <= cluster.now;
    cluster.pass(Duration::ZERO);
    let fenced = cluster.image().broker(BrokerId(0)).unwrap().fenced;
    assert_eq!(due, fenced, "the deadline says when");
    let expected = if fenced { "1/1,2/" } else { "0/0,1,2/" };
    assert_eq!(cluster.show(partition), expected);
    fenced
}

#[test]
fn only_a_refusal_another_incarnation_or_silence_that_others_confirm_fences() {
    let alive = |cluster: &Cluster| alive(cluster, 0);
    assert!(!after(alive, None));
    assert!(!after(|_| Sighting::Unclear, None));
    assert!(after(|_| Sighting::Refused, None));
    assert!(after(|_| OTHER, None));
    let silent = |_: &Cluster| Sighting::Silent;
    let first = Sighting::Answered(Incarnation([1; 16]));
    let confirms = [
        (vec![], false),
        (vec![Sighting::Unclear], false),
        (vec![first], false),
        (vec![Sighting::Silent, first], false),
        (vec![Sighting::Refused, first], false),
        (vec![Sighting::Silent], true),
        (vec![Sighting::Unclear, Sighting::Silent], true),
        (vec![Sighting::Refused], true),
        (vec![OTHER], true),
    ];
    for (others, expected) in confirms {
        let told = format!("{others:?}");
        assert_eq!(after(silent, Some(others)), expected, "{told}");
    }
}

#[test]
fn ten_resets_a_second_of_a_broker_that_answers_change_nothing() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    let records = cluster.log.len();
    let mut looks = 0;
    for _ in 0..600 {
        cluster.now += Duration::from_millis(17);
        lose(&mut cluster, 0);
        for id in 0..3 {
            cluster.heartbeat(id, false, false);
        }
        for search in searches(&mut cluster) {
            let Search::Look(suspect) = search else {
                panic!("{search:?}");
            };
            looks += 1;
            let met = alive(&cluster, 0);
            let now = cluster.now;
            cluster.controller.handle_look(now, &suspect, met);
        }
        cluster.pass(Duration::ZERO);
    }
    assert_eq!(cluster.show(partition), "0/0,1,2/");
    assert_eq!(cluster.log.len(), records);
    assert!((80..=103).contains(&looks), "{looks} looks in 10.2 s");
}

#[test]
fn a_connection_lost_during_a_look_owes_another_one() {
    let mut cluster = Cluster::new(2);
    lose(&mut cluster, 0);
    let suspect = suspect(&cluster, 0);
    assert_eq!(searches(&mut cluster), [Search::Look(suspect)]);
    lose(&mut cluster, 0);
    assert_eq!(searches(&mut cluster), []);
    let (now, met) = (cluster.now, alive(&cluster, 0));
    cluster.controller.handle_look(now, &suspect, met);
    assert_eq!(searches(&mut cluster), [], "not at once");
    assert_eq!(cluster.controller.next_deadline(), Some(now + PAUSE));
    cluster.now += PAUSE;
    assert_eq!(searches(&mut cluster), [Search::Look(suspect)]);
}

#[test]
fn connections_of_earlier_processes_and_of_fenced_brokers_are_nobodys_loss() {
    let mut cluster = Cluster::new(2);
    let earlier = suspect(&cluster, 0).incarnation;
    cluster.start(0);
    let now = cluster.now;
    for broker in [0, 7] {
        cluster
            .controller
            .handle_connection_lost(now, BrokerId(broker), earlier);
    }
    cluster.fence(1);
    lose(&mut cluster, 1);
    assert_eq!(searches(&mut cluster), []);
}

#[test]
fn a_look_for_an_earlier_registration_means_nothing_to_the_next() {
    let mut cluster = Cluster::new(2);
    lose(&mut cluster, 0);
    let suspect = suspect(&cluster, 0);
    assert_eq!(searches(&mut cluster), [Search::Look(suspect)]);
    cluster.start(0);
    lose(&mut cluster, 0);
    let now = cluster.now;
    searches(&mut cluster);
    cluster
        .controller
        .handle_look(now, &suspect, Sighting::Refused);
    cluster.pass(Duration::ZERO);
    assert!(!cluster.image().broker(BrokerId(0)).unwrap().fenced);
}

#[test]
fn brokers_found_gone_at_once_are_fenced_in_one_decision() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    for id in [0, 1] {
        lose(&mut cluster, id);
    }
    for search in searches(&mut cluster) {
        let (Search::Look(suspect) | Search::Confirm(suspect)) = search;
        let now = cluster.now;
        cluster
            .controller
            .handle_look(now, &suspect, Sighting::Refused);
    }
    cluster.pass(Duration::ZERO);
    assert_eq!(cluster.show(partition), "2/2/0,1");
    assert_eq!(cluster.state(partition).partition_epoch.0, 1);
}

#[test]
fn a_broker_found_gone_is_fenced_whatever_else_it_was_doing() {
    let mut cluster = Cluster::new(3);
    cluster.heartbeat(0, false, true);
    lose(&mut cluster, 0);
    let suspect = suspect(&cluster, 0);
    assert_eq!(searches(&mut cluster), [Search::Look(suspect)]);
    let now = cluster.now;
    cluster
        .controller
        .handle_look(now, &suspect, Sighting::Refused);
    cluster.pass(Duration::ZERO);
    let broker = cluster.image().broker(BrokerId(0)).unwrap();
    assert!(broker.fenced && !broker.in_controlled_shutdown);
    cluster.unfence(0);
    cluster.pass(Duration::ZERO);
    assert!(
        !cluster.image().broker(BrokerId(0)).unwrap().fenced,
        "forgotten"
    );
}

#[test]
fn a_new_controller_looks_for_every_active_broker() {
    let mut cluster = Cluster::new(3);
    cluster.fence(1);
    let later = cluster.now + SESSION;
    let mut next = Controller::new(
        later,
        ControllerConfig::default(),
        cluster.image().clone(),
        cluster.index(),
    );
    assert_eq!(next.next_deadline(), Some(later));
    let expected = [0, 2].map(|id| Search::Look(suspect(&cluster, id)));
    assert_eq!(next.take_searches(later), expected);
    cluster.pass(Duration::ZERO);
}

#[test]
fn all_leaders_of_a_broker_move_in_one_decision() {
    let mut cluster = Cluster::new(3);
    let partitions: Vec<_> = (0..100)
        .map(|number| cluster.topic(&format!("t{number}"), &[0, 1, 2]))
        .collect();
    lose(&mut cluster, 0);
    let suspect = suspect(&cluster, 0);
    searches(&mut cluster);
    let now = cluster.now;
    cluster
        .controller
        .handle_look(now, &suspect, Sighting::Refused);
    let decision = cluster.controller.handle_timeout(now);
    assert_eq!(decision.records.len(), partitions.len() + 1);
    cluster.commit(decision);
    for partition in partitions {
        assert_eq!(cluster.show(partition), "1/1,2/");
    }
}
