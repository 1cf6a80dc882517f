//! Configs are altered.

use std::time::Duration;

use super::cluster::{Cluster, kind};
use super::elections::set_config;
use crate::controller::{
    AlterConfigs, ConfigChange, ConfigOperation, ConfigRules, Controller, ControllerConfig,
};
use crate::error::{ApiError, ErrorKind};
use crate::ids::BrokerId;
use crate::metadata::ConfigResource;

use ConfigOperation::{Append, Delete, Set, Subtract};

const RULES: ConfigRules<'static> = ConfigRules {
    is_list: &|_, name| name == "cleanup.policy",
    default: &|_, name| (name == "cleanup.policy").then(|| "delete".to_owned()),
    check: &|_, configs| match configs.get("retention.ms").map(String::as_str) {
        Some("bad") => Err(ApiError::new(ErrorKind::InvalidConfig, "not a number")),
        _ => Ok(()),
    },
};

fn request(resource: ConfigResource, changes: &[(&str, ConfigOperation)]) -> AlterConfigs {
    let change = |(name, operation): &(&str, ConfigOperation)| ConfigChange {
        name: (*name).to_owned(),
        operation: operation.clone(),
    };
    AlterConfigs {
        resource,
        changes: changes.iter().map(change).collect(),
    }
}

#[test]
fn operations_and_what_they_lead_to() {
    let check = |changes: &[(&str, ConfigOperation)], expected: Result<&str, ErrorKind>| {
        let mut cluster = Cluster::new(1);
        cluster.topic("a", &[0]);
        set_config(&mut cluster, "retention.ms", "5");
        let resource = ConfigResource::Topic("a".to_owned());
        let decision =
            cluster
                .controller
                .alter_configs(&[request(resource.clone(), changes)], &RULES, false);
        let recorded = !decision.records.is_empty();
        let refused = kind(cluster.commit(decision).pop().unwrap());
        assert_eq!(refused, expected.err(), "{changes:?}");
        let configs = cluster.image().configs(&resource).iter();
        let text: Vec<_> = configs
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(text.join(" "), expected.unwrap_or("retention.ms=5"));
        assert_eq!(recorded, text.join(" ") != "retention.ms=5");
    };
    let text = str::to_owned;
    check(&[("retention.ms", Set(text("7")))], Ok("retention.ms=7"));
    check(&[("retention.ms", Set(text("5")))], Ok("retention.ms=5"));
    check(&[("retention.ms", Delete)], Ok(""));
    check(&[("segment.ms", Delete)], Ok("retention.ms=5"));
    check(
        &[("cleanup.policy", Append(text("compact")))],
        Ok("cleanup.policy=delete,compact retention.ms=5"),
    );
    check(
        &[("cleanup.policy", Append(text("delete, compact, compact")))],
        Ok("cleanup.policy=delete,compact retention.ms=5"),
    );
    check(
        &[("cleanup.policy", Subtract(text("delete")))],
        Ok("cleanup.policy= retention.ms=5"),
    );
    check(
        &[("retention.ms", Append(text("6")))],
        Err(ErrorKind::InvalidConfig),
    );
    check(
        &[("retention.ms", Set(text("bad")))],
        Err(ErrorKind::InvalidConfig),
    );
    check(
        &[
            ("segment.ms", Set(text("1"))),
            ("retention.ms", Set(text("bad"))),
        ],
        Err(ErrorKind::InvalidConfig),
    );
    check(
        &[("a", Delete), ("a", Delete)],
        Err(ErrorKind::InvalidRequest),
    );
}

#[test]
fn resources_that_are_refused() {
    let cluster = Cluster::new(1);
    let check = |resource, expected| {
        let decision = cluster.controller.alter_configs(
            &[request(resource, &[("x", Set("y".to_owned()))])],
            &RULES,
            false,
        );
        let refused = decision.reply.into_iter().next().and_then(kind);
        assert_eq!(refused, expected);
    };
    check(
        ConfigResource::Topic("none".to_owned()),
        Some(ErrorKind::UnknownTopicOrPartition),
    );
    check(
        ConfigResource::Broker(Some(BrokerId(7))),
        Some(ErrorKind::BrokerIdNotRegistered),
    );
    check(ConfigResource::Broker(Some(BrokerId(0))), None);
    check(ConfigResource::Broker(None), None);
}

#[test]
fn a_repeated_resource_is_refused_and_validate_only_records_nothing() {
    let cluster = Cluster::new(1);
    let one = request(ConfigResource::Broker(None), &[("x", Set("y".to_owned()))]);
    let decision = cluster
        .controller
        .alter_configs(&[one.clone(), one.clone()], &RULES, false);
    assert_eq!(decision.records.len(), 1);
    assert!(decision.reply[0].is_ok() && decision.reply[1].is_err());
    let decision = cluster.controller.alter_configs(&[one], &RULES, true);
    assert!(decision.records.is_empty() && decision.reply[0].is_ok());
}

#[test]
fn a_lower_min_insync_replicas_empties_the_elr() {
    let mut cluster = Cluster::new(2);
    let partition = cluster.topic("a", &[0, 1]);
    cluster.fence(1);
    assert_eq!(cluster.show(partition), "0/0/1");
    set_config(&mut cluster, "min.insync.replicas", "1");
    assert_eq!(cluster.show(partition), "0/0/");
}

#[test]
fn a_new_controller_with_a_lower_min_insync_replicas_empties_elrs_at_once() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1]);
    cluster.fence(1);
    assert_eq!(cluster.show(partition), "0/0/1");
    let config = ControllerConfig {
        min_insync_replicas: 1,
        ..ControllerConfig::default()
    };
    let image = cluster.image().clone();
    cluster.controller = Controller::new(cluster.now, config.clone(), image, cluster.index());
    assert_eq!(cluster.controller.next_deadline(), Some(cluster.now));
    cluster.pass(Duration::ZERO);
    assert_eq!(cluster.show(partition), "0/0/");
    let image = cluster.image().clone();
    cluster.controller = Controller::new(cluster.now, config, image, cluster.index());
    // It looks for every broker, whatever the configuration.
    cluster.controller.take_searches(cluster.now);
    assert!(cluster.controller.next_deadline() > Some(cluster.now));
}

#[test]
fn a_decision_of_time_alone_that_is_not_appended_stays_due() {
    let mut cluster = Cluster::new(3);
    let elr = cluster.topic("a", &[0, 1]);
    let led_elsewhere = cluster.topic("b", &[1, 2]);
    cluster.fence(1);
    assert_eq!(cluster.show(elr), "0/0/1");
    let interval = Duration::from_secs(2);
    let config = ControllerConfig {
        min_insync_replicas: 1,
        leader_rebalance_interval: Some(interval),
        ..ControllerConfig::default()
    };
    let image = cluster.image().clone();
    cluster.controller = Controller::new(cluster.now, config, image, cluster.index());
    cluster.controller.take_searches(cluster.now);
    // The quorum refuses the first proposal.
    let refused = cluster.controller.handle_timeout(cluster.now);
    assert!(!refused.records.is_empty());
    assert_eq!(cluster.controller.next_deadline(), Some(cluster.now));
    cluster.pass(Duration::ZERO);
    assert_eq!(cluster.show(elr), "0/0/");
    cluster.pass(Duration::ZERO);
    assert!(cluster.controller.next_deadline() > Some(cluster.now));
    cluster.unfence(1);
    cluster.propose_isr(led_elsewhere, &[1, 2]).unwrap();
    cluster.now += interval;
    for id in 0..3 {
        cluster.heartbeat(id, false, false);
    }
    let refused = cluster.controller.handle_timeout(cluster.now);
    assert!(!refused.records.is_empty());
    assert_eq!(cluster.controller.next_deadline(), Some(cluster.now));
    cluster.pass(Duration::ZERO);
    assert_eq!(cluster.show(led_elsewhere), "1/1,2/");
    cluster.pass(Duration::ZERO);
    assert!(cluster.controller.next_deadline() > Some(cluster.now));
}

#[test]
fn a_cluster_wide_default_reaches_all_topics_without_their_own() {
    let mut cluster = Cluster::new(2);
    let own = cluster.topic("a", &[0, 1]);
    let other = cluster.topic("b", &[0, 1]);
    set_config(&mut cluster, "min.insync.replicas", "2");
    cluster.fence(1);
    let change = request(
        ConfigResource::Broker(None),
        &[("min.insync.replicas", Set("1".to_owned()))],
    );
    let decision = cluster.controller.alter_configs(&[change], &RULES, false);
    cluster.commit(decision);
    assert_eq!(
        (cluster.show(own), cluster.show(other)),
        ("0/0/1".to_owned(), "0/0/".to_owned())
    );
}
