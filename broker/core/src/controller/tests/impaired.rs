//! What becomes of partitions whose replicas their brokers report as unfit.

use super::cluster::{Cluster, ids};
use crate::controller::{ElectionType, Impairment};
use crate::error::ErrorKind;
use crate::ids::TopicPartition;

use Impairment::{Damaged, Full, Offline};

/// Broker 0 reports its replica of a partition on brokers 0, 1, 2 whose ISR is `isr`, led by the first of it.
fn check(isr: &[i32], impairment: Impairment, expected: &str) {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    for gone in (0..3).filter(|id| !isr.contains(id)) {
        let state = cluster.state(partition);
        let rest: Vec<i32> = state
            .isr
            .iter()
            .map(|id| id.0)
            .filter(|id| *id != gone)
            .collect();
        if cluster.state(partition).leader == Some(ids(&[gone])[0]) {
            cluster.fence(gone);
            cluster.unfence(gone);
        } else {
            cluster.propose_isr(partition, &rest).unwrap();
        }
    }
    cluster.report(0, &[(partition, impairment)]);
    assert_eq!(
        cluster.show(partition),
        expected,
        "{impairment:?}, ISR {isr:?}"
    );
}

#[test]
fn unfit_replica_leaves_the_isr_as_its_impairment_demands() {
    check(&[0, 1, 2], Offline, "1/1,2/");
    check(&[0, 1, 2], Damaged, "1/1,2/");
    // A leader without room refuses records, and nobody is served better by another.
    check(&[0, 1, 2], Full, "0/0,1,2/");
    // The last one in the ISR: nothing can be read from it, or it is all there is.
    check(&[0], Offline, "2/2/");
    check(&[0], Damaged, "0/0/2");
    // A follower.
    check(&[1, 2], Full, "1/1,2/");
}

#[test]
fn follower_without_room_leaves_the_isr_and_stays_eligible() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    cluster.report(1, &[(partition, Full)]);
    assert_eq!(cluster.show(partition), "0/0,2/");
    cluster.report(2, &[(partition, Full)]);
    assert_eq!(cluster.show(partition), "0/0/2");
    assert_eq!(
        cluster.propose_isr(partition, &[0, 1]).unwrap_err(),
        ErrorKind::IneligibleReplica
    );
    cluster.report(1, &[]);
    cluster.propose_isr(partition, &[0, 1]).unwrap();
    assert_eq!(cluster.show(partition), "0/0,1/");
}

#[test]
fn failed_directory_moves_all_its_partitions_in_one_decision_and_no_others() {
    let mut cluster = Cluster::new(3);
    let failed: Vec<TopicPartition> = (0..20)
        .map(|number| cluster.topic(&format!("failed-{number}"), &[0, 1, 2]))
        .collect();
    let kept = cluster.topic("kept", &[0, 1, 2]);
    let report: Vec<_> = failed
        .iter()
        .map(|partition| (*partition, Offline))
        .collect();
    let index = cluster.index();
    assert_eq!(cluster.report(0, &report), 20);
    assert_eq!(cluster.index(), index + 1, "one entry of the metadata log");
    for partition in &failed {
        assert_eq!(cluster.show(*partition), "1/1,2/");
    }
    assert_eq!(cluster.show(kept), "0/0,1,2/");
    assert_eq!(cluster.report(0, &report), 0, "told again, nothing changes");
}

#[test]
fn offline_replica_is_neither_elected_nor_let_in() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    cluster.report(0, &[(partition, Offline)]);
    assert_eq!(
        cluster.propose_isr(partition, &[0, 1, 2]).unwrap_err(),
        ErrorKind::IneligibleReplica
    );
    let preferred = cluster
        .controller
        .elect_leaders(ElectionType::Preferred, Some(&[partition]));
    assert!(cluster.commit(preferred)[0].1.is_err());
    cluster.fence(1);
    cluster.fence(2);
    assert_eq!(cluster.show(partition), "//1,2 last=2");
    // Nobody else is left, and still it may not lead, not even when that is asked for.
    cluster.report(0, &[(partition, Offline)]);
    let unclean = cluster
        .controller
        .elect_leaders(ElectionType::Unclean, Some(&[partition]));
    assert!(cluster.commit(unclean)[0].1.is_err());
    assert_eq!(cluster.show(partition), "//1,2 last=2");
}

#[test]
fn only_replica_leads_again_when_it_is_fit_again() {
    let mut cluster = Cluster::new(1);
    let partition = cluster.topic("a", &[0]);
    cluster.report(0, &[(partition, Offline)]);
    assert_eq!(cluster.show(partition), "// last=0");
    cluster.report(0, &[]);
    assert_eq!(cluster.show(partition), "0/0/ recovering");
}

#[test]
fn damaged_replica_leaves_once_another_is_in_sync() {
    let mut cluster = Cluster::new(2);
    let partition = cluster.topic("a", &[0, 1]);
    cluster.propose_isr(partition, &[0]).unwrap();
    cluster.report(0, &[(partition, Damaged)]);
    assert_eq!(cluster.show(partition), "0/0/1");
    cluster.propose_isr(partition, &[0, 1]).unwrap();
    cluster.report(0, &[(partition, Damaged)]);
    assert_eq!(cluster.show(partition), "1/1/");
}

#[test]
fn damage_of_a_replica_outside_the_isr_outdates_the_requests_to_take_it_in() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    cluster.propose_isr(partition, &[0, 2]).unwrap();
    let before = cluster.state(partition).clone();
    assert_eq!(cluster.report(1, &[(partition, Damaged)]), 1);
    let noted = cluster.state(partition).clone();
    assert_eq!(noted.partition_epoch.0, before.partition_epoch.0 + 1);
    assert_eq!(
        (noted.leader_epoch, &noted.isr),
        (before.leader_epoch, &before.isr)
    );
    assert_eq!(cluster.report(1, &[(partition, Damaged)]), 0, "noted once");

    // Whole and damaged again.
    cluster.report(1, &[]);
    assert_eq!(cluster.report(1, &[(partition, Damaged)]), 1);
}

#[test]
fn damage_whose_record_was_not_proposed_is_noted_when_it_is_told_again() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    cluster.propose_isr(partition, &[0, 2]).unwrap();
    let index = cluster.index();
    let refused = cluster.decide_report(1, 0, index, &[(partition, Damaged)]);
    assert_eq!(refused.records.len(), 1);
    assert_eq!(cluster.report(1, &[(partition, Damaged)]), 1);
}

#[test]
fn new_controller_lets_a_replica_join_once_it_knows_that_it_is_fit() {
    let mut cluster = Cluster::new(3);
    let partition = cluster.topic("a", &[0, 1, 2]);
    cluster.propose_isr(partition, &[0, 2]).unwrap();
    cluster.fail_over();
    let join = |cluster: &mut Cluster| cluster.propose_isr(partition, &[0, 1, 2]);
    assert_eq!(join(&mut cluster), Err(ErrorKind::IneligibleReplica));
    // A report from before this controller began, which comes late.
    let index = cluster.index();
    cluster.report_late(1, 3, index - 1, &[]);
    assert_eq!(join(&mut cluster), Err(ErrorKind::IneligibleReplica));
    cluster.report_late(1, 4, index, &[(partition, Damaged)]);
    assert_eq!(join(&mut cluster), Err(ErrorKind::IneligibleReplica));
    // One that is older than what is known.
    cluster.report_late(1, 3, index, &[]);
    assert_eq!(join(&mut cluster), Err(ErrorKind::IneligibleReplica));
    cluster.report_late(1, 5, index, &[]);
    join(&mut cluster).unwrap();
}
