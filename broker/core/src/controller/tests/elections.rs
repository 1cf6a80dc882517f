//! Who leads, and who is in ISR and ELR, after brokers fail, restart and return.

use std::time::Duration;

use super::cluster::{Cluster, kind};
use crate::controller::{
    AlterConfigs, ConfigChange, ConfigOperation, ConfigRules, ControllerConfig, ElectionType,
};
use crate::error::ErrorKind;
use crate::ids::TopicPartition;
use crate::metadata::ConfigResource;

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
