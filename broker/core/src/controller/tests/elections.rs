//! Who leads, and who is in ISR and ELR, after brokers fail, restart and return.

use std::time::Duration;

use super::cluster::{Cluster, ids, kind};
use crate::controller::{
    AlterConfigs, ConfigChange, ConfigOperation, ConfigRules, ControllerConfig, CreateTopic,
    ElectionType,
};
use crate::error::ErrorKind;
use crate::ids::{BrokerId, DirectoryId, TopicId, TopicPartition};
use crate::metadata::{ConfigResource, Image};

/// What happens to a partition on brokers 0, 1, 2 with `min.insync.replicas` 2, and its state after each step.
enum Step {
    /// The session expires, or the broker asks to be fenced.
    Fence(i32),
    /// A fenced broker returns without having restarted.
    Unfence(i32),
    /// A clean stop and start.
    Restart(i32),
    /// A kill and start, registered but not yet active.
    Kill(i32),
    /// The leader proposes an ISR.
    Isr(&'static [i32]),
    /// Someone asks for an election.
    Elect(ElectionType, Option<ErrorKind>),
    /// The topic allows unclean elections.
    AllowUnclean,
    /// The topic's members fsync before they acknowledge.
    FlushAck,
}

use Step::*;

fn check(replicas: &[i32], steps: &[(Step, &str)]) {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", replicas);
    for (number, (step, expected)) in steps.iter().enumerate() {
        take(&mut cluster, partition, step);
        assert_eq!(cluster.show(partition), *expected, "after step {number}");
    }
}

/// How many elections without proof the records of these steps tell of, as whoever applies them counts.
fn count_without_proof(replicas: &[i32], steps: &[Step]) -> usize {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", replicas);
    for step in steps {
        take(&mut cluster, partition, step);
    }
    let mut image = Image::default();
    let records = cluster.log.iter();
    let elections = records.filter(|record| {
        let counts = image.is_election_without_proof(record);
        image.apply(record);
        counts
    });
    elections.count()
}

fn take(cluster: &mut Cluster, partition: TopicPartition, step: &Step) {
    match step {
        Fence(id) => cluster.fence(*id),
        Unfence(id) => cluster.unfence(*id),
        Restart(id) => cluster.start_clean(*id),
        Kill(id) => cluster.register_unclean(*id),
        Isr(isr) => {
            cluster.propose_isr(partition, isr).unwrap();
        }
        Elect(election, expected) => {
            let decision = cluster
                .controller
                .elect_leaders(*election, Some(&[partition]));
            let (_, result) = cluster.commit(decision).pop().unwrap();
            assert_eq!(kind(result), *expected);
        }
        AllowUnclean => set_config(cluster, "unclean.leader.election.enable", "true"),
        FlushAck => set_config(cluster, "taffrail.flush", "ack"),
    }
}

pub(super) fn set_config(cluster: &mut Cluster, name: &str, value: &str) {
    let request = AlterConfigs {
        resource: ConfigResource::Topic("a".to_owned()),
        changes: vec![ConfigChange {
            name: name.to_owned(),
            operation: ConfigOperation::Set(value.to_owned()),
        }],
    };
    let rules = ConfigRules {
        is_list: &|_, _| false,
        default: &|_, _| None,
        check: &|_, _| Ok(()),
    };
    let decision = cluster.controller.alter_configs(&[request], &rules, false);
    cluster.commit(decision).pop().unwrap().unwrap();
}

#[test]
fn the_next_in_the_isr_leads_and_nobody_is_moved_back() {
    check(
        &[0, 1, 2],
        &[
            (Fence(0), "1/1,2/"),
            (Unfence(0), "1/1,2/"),
            (Isr(&[1, 2, 0]), "1/1,2,0/"),
            (Fence(2), "1/1,0/"),
        ],
    );
}

#[test]
fn a_follower_that_fails_leaves_the_isr_only() {
    check(
        &[0, 1, 2],
        &[
            (Fence(1), "0/0,2/"),
            (Fence(2), "0/0/2"),
            (Unfence(2), "0/0/2"),
        ],
    );
}

#[test]
fn below_min_insync_replicas_those_that_leave_stay_eligible() {
    check(
        &[0, 1, 2],
        &[
            (Fence(0), "1/1,2/"),
            (Fence(1), "2/2/1"),
            (Fence(2), "//1,2 last=2"),
            // 0 left while the ISR was large enough: it may lack what was acknowledged since.
            (Unfence(0), "//1,2 last=2"),
            (Unfence(1), "1/1/2"),
            (Isr(&[1, 0]), "1/1,0/"),
        ],
    );
}

#[test]
fn a_clean_restart_keeps_eligibility_and_a_kill_does_not() {
    check(
        &[0, 1, 2],
        &[
            (Fence(2), "0/0,1/"),
            (Fence(1), "0/0/1"),
            (Fence(0), "//0,1 last=0"),
            (Kill(1), "//0 last=0"),
            (Unfence(1), "//0 last=0"),
            (Restart(0), "0/0/"),
        ],
    );
}

#[test]
fn all_killed_at_once_the_last_known_leader_leads_again_visibly() {
    check(
        &[0, 1, 2],
        &[
            (Kill(1), "0/0,2/"),
            (Kill(2), "0/0/"),
            (Kill(0), "// last=0"),
            (Unfence(2), "// last=0"),
            (Unfence(1), "// last=0"),
            (Unfence(0), "0/0/ recovering"),
            (Isr(&[0, 1]), "0/0,1/"),
        ],
    );
}

#[test]
fn a_single_replica_that_was_killed_leads_again() {
    check(
        &[0],
        &[
            (Kill(0), "// last=0"),
            (Unfence(0), "0/0/ recovering"),
            (Restart(0), "0/0/"),
        ],
    );
}

#[test]
fn each_election_without_proof_counts_once() {
    let check = |replicas: &[i32], steps: &[Step], expected: usize| {
        assert_eq!(count_without_proof(replicas, steps), expected);
    };
    check(&[0, 1, 2], &[Fence(0), Unfence(0), Fence(1)], 0);
    let killed = || [Kill(1), Kill(2), Kill(0), Unfence(2), Unfence(1)];
    check(&[0, 1, 2], &killed(), 0);
    let back = killed().into_iter().chain([Unfence(0), Isr(&[0, 1])]);
    check(&[0, 1, 2], &back.collect::<Vec<_>>(), 1);
    // Once more without proof, and then with it.
    let again = [
        Kill(0),
        Unfence(0),
        Kill(0),
        Unfence(0),
        Restart(0),
        Fence(0),
        Unfence(0),
    ];
    check(&[0], &again, 2);
    let allowed = [Fence(2), Fence(1), Fence(0), Unfence(2), AllowUnclean];
    check(&[0, 1, 2], &allowed, 1);
}

#[test]
fn a_leader_that_was_killed_and_is_back_before_its_session_ended_does_not_lead() {
    check(&[0, 1, 2], &[(Kill(0), "1/1,2/"), (Unfence(0), "1/1,2/")]);
}

#[test]
fn who_fsyncs_before_it_acknowledges_stays_eligible_after_a_kill() {
    check(
        &[0, 1, 2],
        &[
            (FlushAck, "0/0,1,2/"),
            (Kill(2), "0/0,1/"),
            (Kill(1), "0/0/1"),
            (Kill(0), "//0,1 last=0"),
            (Unfence(1), "1/1/0"),
        ],
    );
}

/// However cleanly it stopped, and although its topics fsync before they acknowledge.
#[test]
fn a_broker_without_one_of_its_directories_has_lost_what_was_there() {
    let check = |flush_ack: bool| {
        let mut cluster = Cluster::new(3);
        let partition = cluster.topic("a", &[0, 1]);
        if flush_ack {
            set_config(&mut cluster, "taffrail.flush", "ack");
        }
        cluster.fence(1);
        assert_eq!(cluster.show(partition), "0/0/1");
        let epoch = cluster.epoch(1);
        let mut registration = cluster.registration(1, Some(epoch));
        registration.directories = vec![DirectoryId([77; 16])];
        cluster.register(&registration).unwrap();
        assert_eq!(cluster.show(partition), "0/0/");
    };
    check(false);
    check(true);
}

#[test]
fn unclean_elections_only_where_allowed_or_asked_for() {
    check(
        &[0, 1, 2],
        &[
            (Fence(2), "0/0,1/"),
            (Fence(1), "0/0/1"),
            (Fence(0), "//0,1 last=0"),
            (Unfence(2), "//0,1 last=0"),
            (AllowUnclean, "2/2/ recovering"),
        ],
    );
    check(
        &[0, 1, 2],
        &[
            (Fence(2), "0/0,1/"),
            (Fence(1), "0/0/1"),
            (Fence(0), "//0,1 last=0"),
            (
                Elect(
                    ElectionType::Unclean,
                    Some(ErrorKind::EligibleLeadersNotAvailable),
                ),
                "//0,1 last=0",
            ),
            (Unfence(2), "//0,1 last=0"),
            (Elect(ElectionType::Unclean, None), "2/2/ recovering"),
            (
                Elect(ElectionType::Unclean, Some(ErrorKind::ElectionNotNeeded)),
                "2/2/ recovering",
            ),
        ],
    );
}

#[test]
fn preferred_elections() {
    use ErrorKind::{ElectionNotNeeded, PreferredLeaderNotAvailable};
    check(
        &[0, 1, 2],
        &[
            (
                Elect(ElectionType::Preferred, Some(ElectionNotNeeded)),
                "0/0,1,2/",
            ),
            (Fence(0), "1/1,2/"),
            (
                Elect(ElectionType::Preferred, Some(PreferredLeaderNotAvailable)),
                "1/1,2/",
            ),
            (Unfence(0), "1/1,2/"),
            (
                Elect(ElectionType::Preferred, Some(PreferredLeaderNotAvailable)),
                "1/1,2/",
            ),
            (Isr(&[1, 2, 0]), "1/1,2,0/"),
            (Elect(ElectionType::Preferred, None), "0/1,2,0/"),
        ],
    );
}

#[test]
fn a_partition_that_is_named_again_and_again_is_elected_once() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1]);
    cluster.fence(0);
    cluster.unfence(0);
    cluster.propose_isr(partition, &[1, 0]).unwrap();
    let asked = [partition; 1000];
    let decision = cluster
        .controller
        .elect_leaders(ElectionType::Preferred, Some(&asked));
    assert_eq!(decision.records.len(), 1);
    assert_eq!(cluster.commit(decision), [(partition, Ok(()))]);
}

#[test]
fn leader_epochs_count_leaders_and_partition_epochs_count_changes() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    let mut check = |step: Step, leader_epoch, partition_epoch| {
        take(&mut cluster, partition, &step);
        let epochs = cluster.epochs(partition);
        assert_eq!((epochs.0.0, epochs.1.0), (leader_epoch, partition_epoch));
    };
    check(Fence(2), 0, 1);
    check(Isr(&[0, 1]), 0, 1);
    check(Fence(0), 1, 2);
    check(Unfence(0), 1, 2);
    check(Isr(&[1, 0]), 1, 3);
    check(Elect(ElectionType::Preferred, None), 2, 4);
    check(Fence(0), 3, 5);
    check(Fence(1), 4, 6);
    check(Unfence(1), 5, 7);
}

#[test]
fn leadership_returns_to_preferred_replicas_when_that_is_due() {
    let mut cluster = Cluster::empty(ControllerConfig {
        min_insync_replicas: 2,
        session_timeout: Duration::from_secs(1_000_000),
        ..ControllerConfig::default()
    });
    for id in 0..2 {
        cluster.start(id);
    }
    let partition = cluster.topic("a", &[0, 1]);
    cluster.fence(0);
    cluster.unfence(0);
    cluster.propose_isr(partition, &[1, 0]).unwrap();
    cluster.pass(Duration::from_secs(299));
    assert_eq!(cluster.show(partition), "1/1,0/");
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.show(partition), "0/1,0/");
    cluster.pass(Duration::from_secs(300));
    assert_eq!(
        cluster.state(partition).partition_epoch.0,
        3,
        "nothing to do"
    );
}

#[test]
fn leadership_returns_only_to_brokers_that_lack_more_than_their_percentage() {
    let check = |led_elsewhere: usize, percentage: usize, expected: usize| {
        let mut cluster = Cluster::empty(ControllerConfig {
            leader_imbalance_percentage: percentage,
            session_timeout: Duration::from_secs(1_000_000),
            ..ControllerConfig::default()
        });
        for id in 0..2 {
            cluster.start(id);
        }
        let name = |number: usize| format!("t{number}");
        let moved: Vec<_> = (0..led_elsewhere)
            .map(|number| cluster.topic(&name(number), &[0, 1]))
            .collect();
        cluster.fence(0);
        cluster.unfence(0);
        for partition in &moved {
            cluster.propose_isr(*partition, &[1, 0]).unwrap();
        }
        for number in led_elsewhere..10 {
            cluster.topic(&name(number), &[0, 1]);
        }
        cluster.pass(Duration::from_secs(300));
        let away = moved
            .iter()
            .filter(|partition| cluster.state(**partition).leader == Some(BrokerId(1)));
        assert_eq!(
            away.count(),
            expected,
            "{led_elsewhere} of 10, {percentage} %"
        );
    };
    check(1, 10, 1);
    check(2, 10, 0);
    check(2, 20, 2);
    check(1, 0, 0);
}

#[test]
fn more_partitions_than_one_entry_takes_return_at_once() {
    let mut cluster = Cluster::empty(ControllerConfig {
        session_timeout: Duration::from_secs(1_000_000),
        ..ControllerConfig::default()
    });
    for id in 0..2 {
        cluster.start(id);
    }
    let request = CreateTopic {
        name: "many".to_owned(),
        topic_id: TopicId([200; 16]),
        partitions: -1,
        replication_factor: -1,
        assignments: (0..1500).map(|index| (index, ids(&[0, 1]))).collect(),
        ..CreateTopic::default()
    };
    let decision = cluster.controller.create_topics(&[request], false);
    cluster.commit(decision).pop().unwrap().unwrap();
    cluster.fence(0);
    cluster.unfence(0);
    for index in 0..1500 {
        let partition = TopicPartition::new(TopicId([200; 16]), index);
        cluster.propose_isr(partition, &[1, 0]).unwrap();
    }
    let away = |cluster: &Cluster| {
        let partitions = cluster.image().partitions();
        partitions
            .filter(|(_, state)| state.leader == Some(BrokerId(1)))
            .count()
    };
    cluster.pass(Duration::from_secs(300));
    assert_eq!(away(&cluster), 500);
    assert_eq!(cluster.controller.next_deadline(), Some(cluster.now));
    cluster.pass(Duration::ZERO);
    assert_eq!(away(&cluster), 0);
}

#[test]
fn refused_elections_say_who_is_missing() {
    let check = |election: ElectionType, expected: &str| {
        let mut cluster = Cluster::new(3);
        let partition = cluster.topic("a", &[0, 1]);
        cluster.fence(1);
        cluster.fence(0);
        let mut decision = cluster
            .controller
            .elect_leaders(election, Some(&[partition]));
        let (_, result) = decision.reply.pop().unwrap();
        assert_eq!(result.unwrap_err().message.as_deref(), Some(expected));
    };
    check(
        ElectionType::Preferred,
        "The preferred leader is broker 0 (fenced) and not in sync.",
    );
    check(
        ElectionType::Unclean,
        "No replica is on an active broker; they are on 0 (fenced), 1 (fenced).",
    );
}

#[test]
fn elections_of_all_partitions_name_only_those_that_need_one() {
    let mut cluster = Cluster::new(3);
    let moved = cluster.topic("a", &[0, 1]);
    cluster.topic("b", &[1, 2]);
    cluster.fence(0);
    cluster.unfence(0);
    cluster.propose_isr(moved, &[1, 0]).unwrap();
    let decision = cluster
        .controller
        .elect_leaders(ElectionType::Preferred, None);
    assert_eq!(cluster.commit(decision), [(moved, Ok(()))]);
    let unknown = TopicPartition::new(moved.topic_id, 7);
    let mut decision = cluster
        .controller
        .elect_leaders(ElectionType::Preferred, Some(&[unknown]));
    let (_, result) = decision.reply.pop().unwrap();
    assert_eq!(kind(result), Some(ErrorKind::UnknownTopicOrPartition));
}
