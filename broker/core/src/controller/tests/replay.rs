//! Whatever happens: the live image is what its records replay to, and what its snapshot rebuilds; and no invariant breaks, which
//! `Image::apply` asserts.

use std::time::Duration;

use proptest::prelude::*;

use super::cluster::{Cluster, ids};
use crate::controller::{CreatePartitions, CreateTopic, ElectionType, Reassignment, TopicSelector};
use crate::ids::{BrokerId, TopicId, TopicPartition};
use crate::metadata::{Changes, Image, Record};

const BROKERS: i32 = 5;

#[derive(Clone, Debug)]
enum Event {
    Start {
        broker: i32,
        clean: bool,
    },
    Heartbeat {
        broker: i32,
        want_fence: bool,
        want_shutdown: bool,
    },
    Pass {
        millis: u64,
    },
    CreateTopic {
        number: u8,
        partitions: i32,
        factor: i16,
        start: usize,
    },
    DeleteTopic {
        number: u8,
    },
    Grow {
        number: u8,
        count: i32,
    },
    ProposeIsr {
        number: u8,
        partition: i32,
        members: u8,
    },
    Reassign {
        number: u8,
        partition: i32,
        target: Option<Vec<i32>>,
    },
    Elect {
        unclean: bool,
    },
    MinInsyncReplicas {
        number: u8,
        value: u8,
    },
    ProducerIds {
        broker: i32,
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    let broker = 0..BROKERS;
    let topic = 1_u8..4;
    let partition = 0_i32..3;
    prop_oneof![
        2 => (broker.clone(), any::<bool>()).prop_map(|(broker, clean)| Event::Start { broker, clean }),
        6 => (broker.clone(), prop::bool::weighted(0.1), prop::bool::weighted(0.1))
            .prop_map(|(broker, want_fence, want_shutdown)| Event::Heartbeat { broker, want_fence, want_shutdown }),
        2 => (1_u64..2000).prop_map(|millis| Event::Pass { millis }),
        2 => (topic.clone(), 1_i32..4, 1_i16..5, 0_usize..9)
            .prop_map(|(number, partitions, factor, start)| Event::CreateTopic { number, partitions, factor, start }),
        1 => topic.clone().prop_map(|number| Event::DeleteTopic { number }),
        1 => (topic.clone(), 1_i32..6).prop_map(|(number, count)| Event::Grow { number, count }),
        6 => (topic.clone(), partition.clone(), any::<u8>())
            .prop_map(|(number, partition, members)| Event::ProposeIsr { number, partition, members }),
        2 => (topic.clone(), partition, prop::option::of(prop::collection::vec(broker.clone(), 1..4)))
            .prop_map(|(number, partition, target)| Event::Reassign { number, partition, target }),
        1 => any::<bool>().prop_map(|unclean| Event::Elect { unclean }),
        1 => (topic, 1_u8..4).prop_map(|(number, value)| Event::MinInsyncReplicas { number, value }),
        1 => broker.prop_map(|broker| Event::ProducerIds { broker }),
    ]
}

/// Refused requests are part of the history: they must record nothing that breaks.
fn take(cluster: &mut Cluster, event: Event) {
    match event {
        Event::Start { broker, clean } => {
            let existing = cluster.image().broker(BrokerId(broker));
            let previous = existing.map(|existing| existing.epoch).filter(|_| clean);
            let registration = cluster.registration(broker, previous);
            let _ = cluster.register(&registration);
        }
        Event::Heartbeat {
            broker,
            want_fence,
            want_shutdown,
        } => {
            if cluster.image().broker(BrokerId(broker)).is_some() {
                cluster.heartbeat(broker, want_fence, want_shutdown);
            }
        }
        Event::Pass { millis } => cluster.pass(Duration::from_millis(millis)),
        Event::CreateTopic {
            number,
            partitions,
            factor,
            start,
        } => {
            let topic = CreateTopic {
                name: format!("topic-{number}"),
                topic_id: TopicId([number; 16]),
                partitions,
                replication_factor: factor,
                start,
                ..CreateTopic::default()
            };
            let decision = cluster.controller.create_topics(&[topic], false);
            cluster.commit(decision);
        }
        Event::DeleteTopic { number } => {
            let selector = TopicSelector::Id(TopicId([number; 16]));
            let decision = cluster.controller.delete_topics(&[selector]);
            cluster.commit(decision);
        }
        Event::Grow { number, count } => {
            let request = CreatePartitions {
                topic: format!("topic-{number}"),
                count,
                assignments: None,
            };
            let decision = cluster.controller.create_partitions(&[request], false);
            cluster.commit(decision);
        }
        Event::ProposeIsr {
            number,
            partition,
            members,
        } => {
            let partition = TopicPartition::new(TopicId([number; 16]), partition);
            let leads = cluster
                .image()
                .partition(partition)
                .and_then(|state| state.leader);
            if leads.is_some() {
                let registered = (0..BROKERS).filter(|id| members & (1 << id) != 0);
                let registered =
                    registered.filter(|id| cluster.image().broker(BrokerId(*id)).is_some());
                let isr: Vec<_> = registered.collect();
                let _ = cluster.propose_isr(partition, &isr);
            }
        }
        Event::Reassign {
            number,
            partition,
            target,
        } => {
            let request = Reassignment {
                partition: TopicPartition::new(TopicId([number; 16]), partition),
                replicas: target.map(|target| ids(&target)),
            };
            let decision = cluster.controller.reassign_partitions(&[request]);
            cluster.commit(decision);
        }
        Event::Elect { unclean } => {
            let election = if unclean {
                ElectionType::Unclean
            } else {
                ElectionType::Preferred
            };
            let decision = cluster.controller.elect_leaders(election, None);
            cluster.commit(decision);
        }
        Event::MinInsyncReplicas { number, value } => {
            use crate::controller::{AlterConfigs, ConfigChange, ConfigOperation, ConfigRules};
            let request = AlterConfigs {
                resource: crate::metadata::ConfigResource::Topic(format!("topic-{number}")),
                changes: vec![ConfigChange {
                    name: "min.insync.replicas".to_owned(),
                    operation: ConfigOperation::Set(value.to_string()),
                }],
            };
            let rules = ConfigRules {
                is_list: &|_, _| false,
                default: &|_, _| None,
                check: &|_, _| Ok(()),
            };
            let decision = cluster.controller.alter_configs(&[request], &rules, false);
            cluster.commit(decision);
        }
        Event::ProducerIds { broker } => {
            if let Some(registered) = cluster.image().broker(BrokerId(broker)) {
                let epoch = registered.epoch;
                let decision = cluster
                    .controller
                    .allocate_producer_ids(BrokerId(broker), epoch);
                cluster.commit(decision).unwrap();
            }
        }
    }
}

/// What holds between decisions, beyond what each partition's state must hold by itself.
fn check_settled(cluster: &Cluster) {
    let image = cluster.image();
    for (partition, state) in image.partitions() {
        let active = |id: &BrokerId| image.is_active(*id);
        assert!(
            state.isr.iter().all(active),
            "{partition}: an inactive broker is in the ISR: {state:?}"
        );
        assert_eq!(
            state.isr.is_empty(),
            state.leader.is_none(),
            "{partition}: {state:?}"
        );
        if state.leader.is_none() {
            assert!(
                !state.elr.iter().any(active),
                "{partition}: an eligible replica does not lead: {state:?}"
            );
            let last = state.last_known_leader.filter(|_| state.elr.is_empty());
            let last = last.filter(|id| state.replicas.contains(id));
            assert!(
                !last.is_some_and(|id| active(&id)),
                "{partition}: the last leader does not lead: {state:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn live_is_replay_is_snapshot(events in prop::collection::vec(any_event(), 1..120)) {
        let mut cluster = Cluster::new(3);
        let mut last = cluster.image().clone();
        let mut seen = cluster.log.len();
        for event in events {
            take(&mut cluster, event);
            check_settled(&cluster);
            // What the records touch is at least what differs.
            let mut noted = Changes::default();
            let mut image = last.clone();
            for record in &cluster.log[seen..] {
                noted.note(&image, record);
                image.apply(record);
            }
            let between = Changes::between(&last, &image);
            prop_assert!(between.partitions.is_subset(&noted.partitions));
            prop_assert!(between.brokers.is_subset(&noted.brokers));
            prop_assert!(between.configs.is_subset(&noted.configs));
            prop_assert_eq!(between.removed_topics, noted.removed_topics);
            prop_assert_eq!(between.new_topics, noted.new_topics);
            (last, seen) = (image, cluster.log.len());
        }
        let live = cluster.image();
        let replayed = Image::replay(&cluster.log).unwrap();
        prop_assert_eq!(live, &replayed);
        let snapshot: Vec<Record> = live.snapshot();
        let rebuilt = Image::replay(&snapshot).unwrap();
        prop_assert_eq!(live, &rebuilt);
        prop_assert_eq!(live.hash(), rebuilt.hash());
        prop_assert_eq!(&snapshot, &rebuilt.snapshot());
        prop_assert!(Changes::between(live, &rebuilt).is_empty());
    }
}
