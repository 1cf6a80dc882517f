//! What becomes of the recorded directories of voters, and which changes of the voters are refused.

use super::cluster::{CLUSTER_ID, Cluster};
use crate::controller::{Decision, QuorumMembers, VoterKey, VoterStep};
use crate::error::{ApiError, ErrorKind};
use crate::ids::{BrokerId, DirectoryId};
use crate::metadata::{Image, VoterIntent};
use crate::raft::MembershipChange;

const A: Option<DirectoryId> = Some(DirectoryId([1; 16]));
const B: Option<DirectoryId> = Some(DirectoryId([2; 16]));
const C: Option<DirectoryId> = Some(DirectoryId([3; 16]));

fn directories(cluster: &Cluster) -> Vec<(i32, Option<DirectoryId>)> {
    let voters = cluster.image().voters();
    voters.map(|(id, voter)| (id.0, voter.directory)).collect()
}

#[test]
fn a_directory_is_recorded_once_and_replaced_only_on_purpose() {
    let mut cluster = Cluster::new(1);
    let founders = [(BrokerId(0), A), (BrokerId(1), None)];
    let decision = cluster.controller.record_voters(&founders);
    cluster.commit(decision);
    assert_eq!(directories(&cluster), [(0, A), (1, None)]);
    let since = cluster.image().voter(BrokerId(0)).unwrap().since;
    assert_eq!(since, cluster.index());

    let heard = [(BrokerId(0), B), (BrokerId(1), B)];
    let decision = cluster.controller.record_voters(&heard);
    cluster.commit(decision);
    assert_eq!(directories(&cluster), [(0, A), (1, B)]);

    let decision = cluster.controller.replace_voter(BrokerId(0), B);
    cluster.commit(decision);
    assert_eq!(directories(&cluster), [(0, B), (1, B)]);
    let replaced = cluster.image().voter(BrokerId(0)).unwrap().since;
    assert!(replaced > since);
    let again = cluster.controller.replace_voter(BrokerId(0), B);
    assert!(again.records.is_empty());
}

#[test]
fn how_far_a_voters_log_has_been_is_recorded_in_steps_and_forgotten_with_its_disk() {
    let (mut cluster, _) = two_voters();
    let end = |cluster: &Cluster, id| cluster.image().voter_log_end(BrokerId(id));
    let record = |cluster: &mut Cluster, ends: [i64; 3]| {
        let ends: Vec<_> = (0..).map(BrokerId).zip(ends).collect();
        let decision = cluster.controller.record_voter_logs(&ends);
        cluster.commit(decision);
    };
    record(&mut cluster, [62, 50, 500]);
    assert_eq!(end(&cluster, 0), None, "no step, and 2 is no voter");
    record(&mut cluster, [63, 50, 500]);
    assert_eq!(
        [end(&cluster, 0), end(&cluster, 1), end(&cluster, 2)],
        [Some(63), Some(50), None]
    );
    record(&mut cluster, [126, 10, 0]);
    assert_eq!(end(&cluster, 0), Some(63), "no step");
    record(&mut cluster, [130, 10, 0]);
    assert_eq!(
        [end(&cluster, 0), end(&cluster, 1)],
        [Some(130), Some(50)],
        "never back"
    );
    assert_eq!(
        Image::replay(&cluster.image().snapshot()).as_ref(),
        Ok(cluster.image())
    );
    let decision = cluster.controller.replace_voter(BrokerId(1), C);
    cluster.commit(decision);
    assert_eq!(end(&cluster, 1), None);
}

/// Voters 0 and 1 with directories A and B; 0 leads, both live, and 2 is configured, too.
fn two_voters() -> (Cluster, QuorumMembers) {
    let mut cluster = Cluster::new(1);
    let voters = [(BrokerId(0), A), (BrokerId(1), B)];
    let decision = cluster.controller.record_voters(&voters);
    cluster.commit(decision);
    let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
    let members = QuorumMembers {
        leader: BrokerId(0),
        voters: ids(&[0, 1]),
        learners: Vec::new(),
        live: ids(&[0, 1]).into_iter().collect(),
        settled: true,
        configured: ids(&[0, 1, 2]),
    };
    (cluster, members)
}

fn key(broker: i32, directory: Option<DirectoryId>) -> VoterKey {
    VoterKey {
        cluster_id: None,
        broker: BrokerId(broker),
        directory,
    }
}

/// Commits the step's records, and plays Raft's part.
fn carry_out(cluster: &mut Cluster, members: &mut QuorumMembers, step: VoterStep) {
    let VoterStep::Propose(change, records) = step else {
        panic!("{step:?}");
    };
    cluster.commit(Decision { records, reply: () });
    match change {
        Some(MembershipChange::AddLearner(id)) => members.learners.push(id),
        Some(MembershipChange::AddVoter(id)) => members.voters.push(id),
        Some(MembershipChange::Remove(gone)) => {
            members.voters.retain(|id| *id != gone);
            members.learners.retain(|id| *id != gone);
        }
        None => {}
    }
}

fn kind<T: std::fmt::Debug>(refused: Result<T, ApiError>) -> ErrorKind {
    let refused = refused.unwrap_err();
    assert!(refused.message.is_some(), "{refused}");
    refused.kind
}

#[test]
fn a_voter_goes_and_comes_in_again_only_when_somebody_asks() {
    let (mut cluster, mut members) = two_voters();
    let step = cluster.controller.remove_voter(&key(1, B), &members);
    carry_out(&mut cluster, &mut members, step.unwrap());
    let since = cluster.index();
    assert_eq!(directories(&cluster), [(0, A)]);
    let removed = VoterIntent::Removed { since };
    assert_eq!(cluster.image().voter_intent(BrokerId(1)), Some(removed));

    let add = |cluster: &Cluster, members: &QuorumMembers, waiting| {
        cluster.controller.add_voter(&key(1, C), members, waiting)
    };
    assert_eq!(
        kind(add(&cluster, &members, None)),
        ErrorKind::RequestTimedOut
    );
    let step = add(&cluster, &members, Some(C)).unwrap();
    carry_out(&mut cluster, &mut members, step);
    assert_eq!(members.learners, [BrokerId(1)]);
    assert_eq!(
        kind(add(&cluster, &members, Some(C))),
        ErrorKind::RequestTimedOut
    );
    let decision = cluster.controller.replace_voter(BrokerId(1), C);
    cluster.commit(decision);
    assert_eq!(directories(&cluster), [(0, A), (1, C)]);
    assert_eq!(cluster.image().voter_intent(BrokerId(1)), None);
    assert_eq!(Image::replay(&cluster.log).as_ref(), Ok(cluster.image()));
}

#[test]
fn an_invitation_is_taken_back_like_a_vote_and_survives_a_snapshot() {
    let (mut cluster, mut members) = two_voters();
    let step = cluster
        .controller
        .add_voter(&key(2, None), &members, Some(C));
    carry_out(&mut cluster, &mut members, step.unwrap());
    assert_eq!(
        Image::replay(&cluster.image().snapshot()).as_ref(),
        Ok(cluster.image())
    );
    let refused = cluster.controller.remove_voter(&key(2, A), &members);
    assert_eq!(kind(refused), ErrorKind::VoterNotFound);
    let step = cluster.controller.remove_voter(&key(2, C), &members);
    carry_out(&mut cluster, &mut members, step.unwrap());
    assert_eq!(members.learners, []);
    assert_eq!(
        Image::replay(&cluster.image().snapshot()).as_ref(),
        Ok(cluster.image())
    );
}

#[test]
fn additions_that_make_no_sense_are_refused() {
    let (cluster, members) = two_voters();
    let check = |key: VoterKey, waiting, expected| {
        let refused = cluster.controller.add_voter(&key, &members, waiting);
        assert_eq!(kind(refused), expected, "{key:?}");
    };
    let elsewhere = VoterKey {
        cluster_id: Some("other".to_owned()),
        ..key(2, C)
    };
    check(elsewhere, Some(C), ErrorKind::InconsistentClusterId);
    check(key(1, B), None, ErrorKind::DuplicateVoter);
    check(key(1, C), Some(C), ErrorKind::DuplicateVoter);
    check(key(7, C), Some(C), ErrorKind::InvalidRequest);
    check(key(2, C), Some(B), ErrorKind::InvalidVoterKey);
    check(key(2, C), Some(None), ErrorKind::InvalidVoterKey);
    check(key(2, C), None, ErrorKind::RequestTimedOut);
    let here = VoterKey {
        cluster_id: Some(CLUSTER_ID.to_owned()),
        ..key(2, C)
    };
    assert!(
        cluster
            .controller
            .add_voter(&here, &members, Some(C))
            .is_ok()
    );
}

#[test]
fn removals_that_name_nobody_or_leave_no_majority_are_refused() {
    let (cluster, members) = two_voters();
    let check = |key: VoterKey, change: &dyn Fn(&mut QuorumMembers), expected| {
        let mut members = members.clone();
        change(&mut members);
        let refused = cluster.controller.remove_voter(&key, &members);
        assert_eq!(kind(refused), expected, "{key:?}");
    };
    let elsewhere = VoterKey {
        cluster_id: Some("other".to_owned()),
        ..key(1, B)
    };
    check(elsewhere, &|_| {}, ErrorKind::InconsistentClusterId);
    check(key(2, C), &|_| {}, ErrorKind::VoterNotFound);
    check(key(1, C), &|_| {}, ErrorKind::VoterNotFound);
    check(key(1, None), &|_| {}, ErrorKind::VoterNotFound);
    let alone = |members: &mut QuorumMembers| members.voters = vec![BrokerId(0)];
    check(key(0, A), &alone, ErrorKind::InvalidRequest);
    let with_a_dead_one = |members: &mut QuorumMembers| members.voters.push(BrokerId(2));
    check(key(1, B), &with_a_dead_one, ErrorKind::InvalidRequest);
    let just_elected = |members: &mut QuorumMembers| {
        members.voters.push(BrokerId(2));
        members.settled = false;
    };
    check(key(1, B), &just_elected, ErrorKind::RequestTimedOut);
    let step = cluster.controller.remove_voter(&key(0, A), &members);
    assert_eq!(step, Ok(VoterStep::HandOver));
}
