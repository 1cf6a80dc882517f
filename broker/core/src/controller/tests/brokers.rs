//! Brokers register, are fenced and unfenced, and leave.

use std::time::Duration;

use super::cluster::{Cluster, kind, listener};
use crate::controller::{BrokerEndpoints, ControllerConfig, Heartbeat, Report};
use crate::error::ErrorKind;
use crate::ids::{BrokerEpoch, BrokerId, DirectoryId, Incarnation};

const SESSION: Duration = Duration::from_secs(3);

#[test]
fn a_repeated_registration_keeps_its_epoch_and_a_restart_gets_a_higher_one() {
    let mut cluster = Cluster::new(1);
    let registration = cluster.registration(0, None);
    let first = cluster.register(&registration).unwrap();
    assert_eq!(cluster.register(&registration).unwrap(), first);
    let registration = cluster.registration(0, None);
    assert!(cluster.register(&registration).unwrap() > first);
}

#[test]
fn registrations_that_are_refused() {
    let mut cluster = Cluster::new(1);
    let mut check = |change: &dyn Fn(&mut crate::controller::Registration), expected| {
        let mut registration = cluster.registration(0, None);
        change(&mut registration);
        assert_eq!(kind(cluster.register(&registration)), expected);
    };
    check(
        &|r| r.cluster_id = "other".to_owned(),
        Some(ErrorKind::InconsistentClusterId),
    );
    check(
        &|r| r.broker = BrokerId(-1),
        Some(ErrorKind::InvalidRequest),
    );
    // Alive, and not the one that holds the directories.
    let elsewhere = DirectoryId([99; 16]);
    check(
        &|r| r.directories = vec![elsewhere],
        Some(ErrorKind::DuplicateBrokerRegistration),
    );
    check(&|_| {}, None);
}

#[test]
fn a_broker_on_other_directories_may_register_when_the_session_is_over() {
    let mut cluster = Cluster::new(1);
    let mut registration = cluster.registration(0, None);
    registration.directories = vec![DirectoryId([99; 16])];
    cluster.pass(SESSION);
    cluster.register(&registration).unwrap();
}

#[test]
fn a_broker_is_unfenced_only_when_it_has_applied_its_registration() {
    let mut cluster = Cluster::new(0);
    cluster.register_unclean(0);
    let epoch = cluster.epoch(0);
    let mut check = |metadata_index, want_fence, fenced| {
        let heartbeat = Heartbeat {
            broker: BrokerId(0),
            epoch,
            metadata_index,
            want_fence,
            want_shutdown: false,
            report: Report::default(),
        };
        let decision = cluster.controller.handle_heartbeat(cluster.now, &heartbeat);
        let reply = cluster.commit(decision).unwrap();
        assert_eq!(
            (reply.caught_up, reply.fenced),
            (metadata_index >= epoch.0, fenced)
        );
        assert_eq!(cluster.image().broker(BrokerId(0)).unwrap().fenced, fenced);
    };
    check(-1, false, true);
    check(epoch.0 - 1, false, true);
    check(epoch.0, true, true);
    check(epoch.0, false, false);
}

#[test]
fn heartbeats_of_nobody_and_of_an_earlier_process_are_refused() {
    let mut cluster = Cluster::new(1);
    let mut check = |broker, epoch, expected| {
        let heartbeat = Heartbeat {
            broker: BrokerId(broker),
            epoch,
            metadata_index: 0,
            want_fence: false,
            want_shutdown: false,
            report: Report::default(),
        };
        let decision = cluster.controller.handle_heartbeat(cluster.now, &heartbeat);
        assert_eq!(kind(decision.reply), Some(expected));
    };
    check(7, BrokerEpoch(1), ErrorKind::BrokerIdNotRegistered);
    check(0, BrokerEpoch(0), ErrorKind::StaleBrokerEpoch);
}

#[test]
fn a_broker_that_is_silent_is_fenced_at_its_deadline() {
    let mut cluster = Cluster::new(2);
    let partition = cluster.topic("a", &[0, 1]);
    cluster.now += Duration::from_secs(1);
    cluster.heartbeat(1, false, false);
    let deadline = cluster.controller.next_deadline().unwrap();
    assert_eq!(deadline, cluster.now + Duration::from_secs(2));
    cluster.pass(Duration::from_millis(1999));
    assert_eq!(cluster.show(partition), "0/0,1/");
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.now, deadline);
    assert_eq!(cluster.show(partition), "1/1/0");
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.show(partition), "//0,1 last=1");
    assert_eq!(cluster.controller.next_deadline(), None);
}

#[test]
fn brokers_silent_at_once_are_fenced_in_one_decision() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    cluster.now += SESSION;
    cluster.heartbeat(2, false, false);
    cluster.pass(Duration::ZERO);
    assert_eq!(cluster.show(partition), "2/2/0,1");
    assert_eq!(cluster.state(partition).partition_epoch.0, 1);
}

#[test]
fn a_new_controller_gives_every_broker_a_new_session() {
    let mut cluster = Cluster::new(1);
    let later = cluster.now + SESSION * 10;
    let mut next = crate::controller::Controller::new(
        later,
        ControllerConfig::default(),
        cluster.image().clone(),
        cluster.index(),
    );
    assert!(next.handle_timeout(later).records.is_empty());
    assert!(!next.handle_timeout(later + SESSION).records.is_empty());
    cluster.pass(SESSION);
}

#[test]
fn a_broker_that_shuts_down_goes_when_all_others_know() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    assert!(!cluster.heartbeat(0, false, true).should_shutdown);
    assert_eq!(cluster.show(partition), "1/1,2/");
    assert!(
        !cluster.heartbeat(0, false, true).should_shutdown,
        "1 and 2 do not know"
    );
    cluster.heartbeat(1, false, false);
    assert!(
        !cluster.heartbeat(0, false, true).should_shutdown,
        "2 does not know"
    );
    cluster.heartbeat(2, false, false);
    let reply = cluster.heartbeat(0, false, true);
    assert!(reply.should_shutdown && reply.fenced);
    assert!(
        cluster.heartbeat(0, false, true).should_shutdown,
        "the answer may have been lost"
    );
    cluster.start_clean(0);
    assert_eq!(
        cluster.propose_isr(partition, &[1, 2, 0]).map(|_| ()),
        Ok(())
    );
}

#[test]
fn an_isr_of_a_broker_that_shuts_down_takes_it_back_only_when_it_is_active() {
    let mut cluster = Cluster::new(2);
    let partition = cluster.topic("a", &[0, 1]);
    cluster.heartbeat(1, false, true);
    assert_eq!(cluster.show(partition), "0/0/1");
    assert_eq!(
        cluster.propose_isr(partition, &[0, 1]),
        Err(ErrorKind::IneligibleReplica)
    );
}

#[test]
fn endpoints_override_what_a_broker_says_of_itself() {
    let mut cluster = Cluster::new(1);
    let set = |broker, listeners| BrokerEndpoints {
        broker: BrokerId(broker),
        rack: Some("zone-a".to_owned()),
        listeners,
    };
    let outside = listener("OUTSIDE", "example.org", 30000);
    let endpoints = [
        set(0, vec![outside.clone(), listener("INTERNAL", "other", 1)]),
        set(5, vec![outside.clone()]),
        set(-1, vec![]),
        set(1, vec![outside.clone(), outside.clone()]),
        set(1, vec![listener("OUTSIDE", "", 1)]),
    ];
    let decision = cluster.controller.set_broker_endpoints(&endpoints);
    let reply: Vec<_> = cluster.commit(decision).into_iter().map(kind).collect();
    let refused = Some(ErrorKind::InvalidRequest);
    assert_eq!(reply, [None, None, refused, refused, refused]);
    let id = BrokerId(0);
    assert_eq!(cluster.image().rack(id), Some("zone-a"));
    assert_eq!(
        cluster.image().listener(id, "INTERNAL").unwrap().host,
        "other"
    );
    assert_eq!(cluster.image().listeners(id).len(), 2);
    assert!(cluster.image().listener(BrokerId(5), "OUTSIDE").is_some());
    let again = cluster.controller.set_broker_endpoints(&endpoints[..2]);
    assert!(again.records.is_empty(), "nothing new is recorded");
}

#[test]
fn only_a_fenced_broker_without_replicas_is_unregistered() {
    let mut cluster = Cluster::new(3);
    cluster.topic("a", &[0]);
    let mut check = |id, fence: bool, expected| {
        if fence {
            cluster.fence(id);
        }
        let decision = cluster.controller.unregister_broker(BrokerId(id));
        assert_eq!(kind(cluster.commit(decision)), expected);
    };
    check(9, false, Some(ErrorKind::BrokerIdNotRegistered));
    check(1, false, Some(ErrorKind::InvalidRequest));
    check(0, true, Some(ErrorKind::InvalidRequest));
    check(1, true, None);
    check(1, false, Some(ErrorKind::BrokerIdNotRegistered));
}

#[test]
fn producer_id_blocks_do_not_overlap() {
    let mut cluster = Cluster::new(2);
    for (id, first) in [(0, 0), (1, 1000), (0, 2000)] {
        let decision = cluster
            .controller
            .allocate_producer_ids(BrokerId(id), cluster.epoch(id));
        let block = cluster.commit(decision).unwrap();
        assert_eq!((block.first.0, block.count), (first, 1000));
    }
    let stale = cluster
        .controller
        .allocate_producer_ids(BrokerId(0), BrokerEpoch(0));
    assert_eq!(kind(stale.reply), Some(ErrorKind::StaleBrokerEpoch));
}

#[test]
fn an_incarnation_is_told_from_another() {
    let mut cluster = Cluster::new(1);
    let before = cluster.image().broker(BrokerId(0)).unwrap().incarnation;
    cluster.start(0);
    let after = cluster.image().broker(BrokerId(0)).unwrap().incarnation;
    assert_ne!(before, after);
    assert_ne!(after, Incarnation::ZERO);
}
