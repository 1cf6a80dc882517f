//! Golden plans (manifest and world in, steps out) and the property that a plan, once carried out, leaves nothing to plan.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use proptest::prelude::*;
use taffrail_crds::DeletionPolicy;

use super::{Step, plan, show};
use crate::observed::*;
use crate::refusal::Reason;
use crate::world::*;

/// Compares with `golden/<name>.txt`; `UPDATE_GOLDEN=1` writes it instead.
fn check(name: &str, text: &str, world: &Observed) {
    let valid = valid(text);
    let got = show(&valid, &plan(&valid, world));
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/plan/golden")
        .join(format!("{name}.txt"));
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &got).expect("golden file is written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, expected, "{}", path.display());
}

#[test]
fn quickstart_from_nothing() {
    let text = include_str!("../../../examples/quickstart.yaml");
    check("quickstart_from_nothing", text, &Observed::default());
}

#[test]
fn converged_world_needs_nothing() {
    check("converged", &demo(), &world_of(&demo()));
}

#[test]
fn same_meaning_in_other_words_is_no_drift() {
    let mut world = world_of(&demo());
    let config = Some(BTreeMap::from([(
        "retention.ms".to_owned(),
        " 1000".to_owned(),
    )]));
    kafka(&mut world)
        .topics
        .get_mut("orders")
        .expect("made")
        .config = config;
    check("converged", &demo(), &world);
}

#[test]
fn voters_are_not_removed() {
    let mut world = world_of(&cluster(THREE));
    world.voters = vec![0, 1, 2];
    let smaller = cluster(&THREE.replace("brokers: 3", "brokers: 2"));
    check("voter_to_be_removed", &smaller, &world);
}

#[test]
fn topics_wait_for_brokers_that_have_not_registered() {
    let mut world = world_of(&cluster(THREE));
    kafka(&mut world).brokers.remove(&2);
    check("broker_not_registered", &demo(), &world);
}

#[test]
fn what_was_begun_is_told_until_it_has_ended() {
    let mut world = world_of(&demo());
    kafka(&mut world).brokers.remove(&2);
    world.brokers.get_mut(&1).expect("made").ready = false;
    let orders = kafka(&mut world).topics.get_mut("orders").expect("made");
    orders.config = None;
    let partition = orders.partitions.get_mut(&0).expect("made");
    partition.moves_to = Some(vec![1, 2, 0]);
    check("under_way", &demo(), &world);
    // Nothing new is begun, and what was begun goes on.
    let paused = demo().replace("  brokers: 3", "  paused: true\n  brokers: 3");
    let plan_paused = plan(&valid(&paused), &world);
    assert_eq!(
        plan_paused.under_way,
        plan(&valid(&demo()), &world).under_way
    );
    // Whoever is not the controller may know less.
    kafka(&mut world).authoritative = false;
    check("under_way_without_controller", &demo(), &world);
}

#[test]
fn nothing_is_decided_about_topics_while_no_broker_answers() {
    let mut world = world_of(&demo());
    world.kafka = ObservedKafka::Unreachable {
        why: "no broker answers on 127.0.0.1:9092".to_owned(),
    };
    check("unreachable", &cluster(THREE), &world);
    check("unreachable_with_topic", &demo(), &world);
}

/// Only the active controller knows what is not there: of any other broker's word nothing is made or removed.
#[test]
fn hearsay_makes_and_removes_nothing() {
    let orders = topic("orders", "partitions: 1, replicationFactor: 1");
    let gone = topic(
        "gone",
        "partitions: 1, replicationFactor: 1, deletionPolicy: Delete",
    );
    let mut world = world_of(&(cluster("  brokers: 5") + &orders + &gone));
    let text = cluster("  brokers: 3") + &orders;
    let topics = std::mem::take(&mut kafka(&mut world).topics);
    for (authoritative, topics, expected) in [
        (true, BTreeMap::new(), 4),
        (false, BTreeMap::new(), 0),
        // A topic that is there goes only by the controller's word too.
        (
            false,
            BTreeMap::from([("gone".to_owned(), topics["gone"].clone())]),
            0,
        ),
    ] {
        kafka(&mut world).authoritative = authoritative;
        kafka(&mut world).topics = topics;
        let steps = plan(&valid(&text), &world).steps;
        assert_eq!(steps.len(), expected, "{authoritative}: {steps:?}");
    }
}

#[test]
fn broker_that_metadata_has_forgotten_is_not_removed() {
    for (down, forgotten, removed) in [
        (false, vec![], true),
        (true, vec![], true),
        (false, vec![3], false),
        // It never came up.
        (true, vec![3], true),
        // As after all voters lost their disks.
        (true, vec![2, 3], false),
    ] {
        let mut world = world_of(&cluster("  brokers: 4"));
        world.brokers.get_mut(&3).expect("made").down = down;
        for broker in &forgotten {
            kafka(&mut world).brokers.remove(broker);
        }
        let steps = plan(&valid(&cluster("  brokers: 3")), &world).steps;
        assert_eq!(
            !steps.is_empty(),
            removed,
            "{down} {forgotten:?}: {steps:?}"
        );
    }
}

#[test]
fn topic_that_somebody_put_in_place_of_ours_is_told() {
    for (policy, recorded, told) in [
        ("Delete", Some("id-of-orders"), false),
        ("Delete", Some("of-the-topic-before"), true),
        ("Delete", None, false),
        ("Retain", Some("of-the-topic-before"), false),
    ] {
        let text =
            cluster(THREE) + &topic("orders", &format!("{ORDERS}, deletionPolicy: {policy}"));
        let mut world = world_of(&text);
        let valid = valid(&text);
        let key = valid.topics[0].key.clone();
        world.recorded = recorded
            .map(|id| (key, id.to_owned()))
            .into_iter()
            .collect();
        let plan = plan(&valid, &world);
        let reasons: Vec<Reason> = plan.refusals().map(|refusal| refusal.reason).collect();
        let expected: &[Reason] = if told { &[Reason::TopicReplaced] } else { &[] };
        assert_eq!(reasons, expected, "{policy} {recorded:?}");
        assert!(plan.steps.is_empty(), "it is as it should be");
    }
}

#[test]
fn partitions_grow_by_the_rotation_of_the_first() {
    let more = cluster(THREE) + &topic("orders", &ORDERS.replace("partitions: 5", "partitions: 8"));
    check("more_partitions", &more, &world_of(&demo()));
}

#[test]
fn fewer_partitions_are_refused() {
    let fewer =
        cluster(THREE) + &topic("orders", &ORDERS.replace("partitions: 5", "partitions: 4"));
    check("fewer_partitions", &fewer, &world_of(&demo()));
}

#[test]
fn more_replicas_than_brokers_are_refused() {
    let text = cluster(THREE)
        + &topic("orders", &ORDERS.replace("Factor: 3", "Factor: 4"))
        + &topic("new", "partitions: 1, replicationFactor: 4");
    check("too_few_brokers", &text, &world_of(&demo()));
}

#[test]
fn replication_factor_changes_by_moves() {
    let one = cluster(THREE) + &topic("orders", &ORDERS.replace("Factor: 3", "Factor: 1"));
    check("fewer_replicas", &one, &world_of(&demo()));
    check("more_replicas", &demo(), &world_of(&one));
}

/// A move that is under way, and the one that takes its place.
#[test]
fn move_to_a_factor_that_nobody_wants_is_replaced() {
    for (moves_to, expected) in [
        // Somebody moves it elsewhere at the wanted factor: left to them.
        (vec![1, 2, 0], None),
        (vec![0], Some(vec![0, 1, 2])),
    ] {
        let mut world = world_of(&demo());
        let orders = kafka(&mut world).topics.get_mut("orders").expect("made");
        let partition = orders.partitions.get_mut(&0).expect("made");
        partition.replicas = vec![0, 1, 2];
        partition.moves_to = Some(moves_to.clone());
        let steps = plan(&valid(&demo()), &world).steps;
        let moves = steps.into_iter().find_map(|planned| match planned.step {
            Step::Reassign { moves, .. } => moves.get(&0).cloned(),
            _ => None,
        });
        assert_eq!(moves, expected, "{moves_to:?}");
    }
}

#[test]
fn moves_are_bounded() {
    let wide = |factor: usize| {
        cluster(THREE)
            + &topic(
                "wide",
                &format!("partitions: 40, replicationFactor: {factor}"),
            )
    };
    check("bounded_moves", &wide(2), &world_of(&wide(1)));
}

#[test]
fn config_drift_is_put_right() {
    let mut world = world_of(&demo());
    let config = BTreeMap::from([
        ("retention.ms".to_owned(), "5".to_owned()),
        ("cleanup.policy".to_owned(), "compact".to_owned()),
    ]);
    kafka(&mut world)
        .topics
        .get_mut("orders")
        .expect("made")
        .config = Some(config);
    check("config_drift", &demo(), &world);
}

#[test]
fn wrong_config_stops_only_what_needs_it() {
    let text = cluster(THREE)
        + &topic(
            "orders",
            "partitions: 6, replicationFactor: 3, config: {retention.mss: 1, retention.ms: soon}",
        )
        + &topic(
            "new",
            "partitions: 1, replicationFactor: 1, config: {cleanup.policy: [a]}",
        );
    check("wrong_topic_config", &text, &world_of(&demo()));
    let text = cluster("  brokers: 4\n  config: {listeners: a, min.insync.replica: 2}")
        + &topic("orders", &ORDERS.replace("partitions: 5", "partitions: 6"));
    check("wrong_cluster_config", &text, &world_of(&demo()));
}

#[test]
fn deleted_topic_out_of_band_is_made_again() {
    let mut world = world_of(&demo());
    kafka(&mut world).topics.remove("orders");
    check("topic_missing", &demo(), &world);
}

#[test]
fn removed_topic_goes_or_stays_by_its_policy() {
    let text = demo()
        + &topic(
            "gone",
            "partitions: 1, replicationFactor: 1, deletionPolicy: Delete",
        );
    check("removed", &cluster(THREE), &world_of(&text));
    let mut world = world_of(&text);
    let topic = kafka(&mut world).topics.get_mut("gone").expect("made");
    topic.topic_id = "of-another-topic".to_owned();
    check("removed_but_another_topic", &demo(), &world);
}

#[test]
fn topics_of_nobody_are_left_alone() {
    let mut world = world_of(&demo());
    let stranger = ObservedTopic {
        topic_id: "x".to_owned(),
        ..ObservedTopic::default()
    };
    kafka(&mut world)
        .topics
        .insert("stranger".to_owned(), stranger);
    check("converged", &demo(), &world);
}

#[test]
fn older_topic_has_the_name() {
    let text = demo()
        + &topic(
            "late",
            "topicName: orders, partitions: 9, replicationFactor: 1, deletionPolicy: Delete",
        );
    check("name_taken", &text, &world_of(&demo()));
}

#[test]
fn topic_of_unknown_cluster_is_refused() {
    let text = cluster(THREE)
        + &topic("lost", "partitions: 1, replicationFactor: 1")
            .replace("name: demo}", "name: nowhere}");
    check("cluster_not_found", &text, &world_of(&cluster(THREE)));
}

#[test]
fn changed_broker_config_restarts_one_at_a_time() {
    let text = cluster("  brokers: 3\n  config: {min.insync.replicas: 1, num.partitions: 4}");
    check("broker_config", &text, &world_of(&cluster(THREE)));
    let mut world = world_of(&cluster(THREE));
    for broker in world.brokers.values_mut() {
        broker.safe_to_stop = Some(false);
    }
    check("broker_config_not_safe", &text, &world);
    let broker = world.brokers.get_mut(&2).expect("made");
    broker.ready = false;
    check("broker_config_other_unanswered", &text, &world);
    let broker = world.brokers.get_mut(&2).expect("made");
    broker.down = true;
    check("broker_config_one_down", &text, &world);
}

#[test]
fn broker_is_restarted_only_if_it_says_that_it_may_be() {
    let text = cluster("  brokers: 3\n  config: {num.partitions: 4}");
    for (safe_to_stop, restarted) in [(Some(true), true), (Some(false), false), (None, false)] {
        let mut world = world_of(&cluster(THREE));
        for broker in world.brokers.values_mut() {
            broker.safe_to_stop = safe_to_stop;
        }
        let steps = plan(&valid(&text), &world).steps;
        assert_eq!(!steps.is_empty(), restarted, "{safe_to_stop:?}: {steps:?}");
    }
}

#[test]
fn brokers_come_and_go() {
    check(
        "more_brokers",
        &cluster("  brokers: 5"),
        &world_of(&cluster("  brokers: 3")),
    );
    let five = cluster("  brokers: 5") + &topic("orders", "partitions: 5, replicationFactor: 2");
    check(
        "broker_holds_replicas",
        &five.replace("brokers: 5", "brokers: 3"),
        &world_of(&five),
    );
    check(
        "fewer_brokers",
        &cluster("  brokers: 3"),
        &world_of(&cluster("  brokers: 5")),
    );
}

#[test]
fn volumes_are_added_and_kept() {
    let two = cluster("  brokers: 1").replace(
        "[{name: data-0",
        "[{name: data-1, size: 1Gi}, {name: data-0",
    );
    check("volume_added", &two, &world_of(&cluster("  brokers: 1")));
    check("volume_removed", &cluster("  brokers: 1"), &world_of(&two));
}

#[test]
fn an_outdated_broker_is_restarted() {
    let mut world = world_of(&demo());
    let broker = world.brokers.get_mut(&1).expect("exists");
    broker.outdated = vec!["the image changes from a:1 to a:2".to_owned()];
    check("broker_outdated", &demo(), &world);
}

#[test]
fn paused_plans_nothing() {
    check(
        "paused",
        &(cluster("  brokers: 3\n  paused: true") + &topic("a", ORDERS)),
        &Observed::default(),
    );
}

prop_compose! {
    fn any_topic()(
        partitions in 1_usize..7,
        factor in 1_usize..6,
        retention in prop::option::of(1_u32..4),
        compact in any::<bool>(),
        delete in any::<bool>(),
    ) -> String {
        let mut config = Vec::new();
        if let Some(ms) = retention {
            config.push(format!("retention.ms: {ms}"));
        }
        if compact {
            config.push("cleanup.policy: compact".to_owned());
        }
        let policy = if delete { DeletionPolicy::Delete } else { DeletionPolicy::Retain };
        format!(
            "partitions: {partitions}, replicationFactor: {factor}, config: {{{}}}, deletionPolicy: {policy:?}",
            config.join(", ")
        )
    }
}

prop_compose! {
    fn any_manifest()(
        brokers in 1..6,
        racks in any::<bool>(),
        min_insync in prop::option::of(1..3),
        topics in prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), any_topic(), 0..4),
    ) -> String {
        let mut spec = format!("  brokers: {brokers}\n");
        if racks {
            spec += "  rack: {topologyKey: zone}\n";
        }
        if let Some(number) = min_insync {
            spec += &format!("  config: {{min.insync.replicas: {number}}}\n");
        }
        let topics: String = topics.iter().map(|(name, spec)| topic(name, spec)).collect();
        cluster(&spec) + &topics
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// From any world that one manifest left, another one converges, and then plans nothing.
    #[test]
    fn plan_of_applied_plan_is_empty(before in any_manifest(), after in any_manifest()) {
        let mut world = world_of(&before);
        let valid = valid(&after);
        let mut passes = 0;
        loop {
            let next = plan(&valid, &world);
            if next.steps.is_empty() {
                break;
            }
            apply(&valid, &next, &mut world);
            passes += 1;
            // One broker restarts a pass, then MOVES_MAX partitions move a pass; both are few here.
            prop_assert!(passes <= 12, "does not converge: {}", show(&valid, &next));
        }
        for topic in &valid.topics {
            if topic.replication_factor > usize::try_from(valid.cluster.brokers).expect("small") {
                continue;
            }
            let kafka = world.kafka.world().expect("known");
            let made = &kafka.topics[&topic.name];
            prop_assert!(made.partitions.len() >= topic.partitions);
            prop_assert!(made.partitions.values().all(|partition| partition.replicas.len() == topic.replication_factor));
        }
    }

    /// Brokers, topics and partitions that exist keep their replicas unless the replication factor changes.
    #[test]
    fn existing_assignments_stay(before in any_manifest(), brokers in 1..6) {
        let mut world = world_of(&before);
        let old = world.clone();
        let after = before
            .lines()
            .map(|line| if line.starts_with("  brokers:") { format!("  brokers: {brokers}") } else { line.to_owned() })
            .collect::<Vec<_>>()
            .join("\n");
        let valid = valid(&after);
        for _ in 0..12 {
            let next = plan(&valid, &world);
            apply(&valid, &next, &mut world);
        }
        for (name, topic) in &old.kafka.world().expect("known").topics {
            let now = &world.kafka.world().expect("known").topics[name];
            for (index, partition) in &topic.partitions {
                prop_assert_eq!(&now.partitions[index].replicas, &partition.replicas);
            }
        }
    }
}
