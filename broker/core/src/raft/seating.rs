//! What a voter with an empty metadata log does: found the quorum with others, or take over from them what its disk lost.
//!
//! An empty log is that of a voter that never voted, or of one whose disk was lost; by itself nobody can tell. If the second one
//! simply voted, it could vote twice in a term, and its share of a majority would be gone without anybody knowing. So it asks
//! all other voters before it sends or takes a single Raft message:
//!
//! | the other voters | what it does |
//! |---|---|
//! | all were heard to be as empty, and hold no replicas either, or have founded the quorum and have no entry yet | founds it with them |
//! | one that leads says that this broker is no voter of its quorum | joins it: follows the metadata until it is taken in as a learner |
//! | all answer, vote in the same term, and name the same one of them as leader | restores its log from that leader |
//! | anything else | waits, and asks again |
//!
//! Why founding with voters that have no entry yet is safe, though it may have voted for one of them in its earlier life: that one
//! would have become the leader by this vote, and a leader has an entry. If the vote is still on its way, it is not taken any
//! more, because this process has connected to whom it asked. Without it, a voter that founds before it could ask the others
//! would leave them waiting for ever: they find it voting and each other empty.
//!
//! Why restoring is safe. What this voter's earlier life voted for in some term makes no difference any more: a candidate of a later
//! term than the one that all others are in would be one of them, and in that term. What it had acknowledged is either
//! committed, and then in the snapshot, since the leader commits an entry of its own term before it gives one; or it does not
//! count, since the leader forgets how far this voter was before it gives the snapshot, and listens to no connection of an
//! earlier life afterwards.

//!
//! Why joining is safe. The quorum's log says who votes, and the one who leads it changes that only by an entry that a majority of
//! them has. A learner that has lost its log, or was a voter once and was removed, is no voter until another such entry says so,
//! and by then it has all that is committed. And nobody founds a second quorum meanwhile: whoever is configured as a voter of
//! several founds only with all of them, and a leader takes in only whom its own configuration names, so that it, too, would
//! ask them if it lost its log.

use std::collections::BTreeSet;

use crate::ids::BrokerId;

/// How a voter stands, as it answers another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoterStanding {
    /// Its metadata log is empty, and it holds no replicas.
    Empty,
    /// Its metadata log is empty though it has served.
    Lost,
    /// It votes, and its log has no entry yet.
    Fresh,
    /// It votes.
    Seated {
        /// The newest term that it has seen.
        term: u64,
        /// Who leads in it, as far as it knows.
        leader: Option<BrokerId>,
        /// Whether whoever asks is a voter of its quorum.
        counts_asker: bool,
    },
}

/// What a voter with an empty log should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seating {
    /// Vote, on an empty log.
    Found,
    /// Ask this voter, which must lead in this term, for a snapshot, and vote on that.
    Restore {
        /// Whom to ask.
        leader: BrokerId,
        /// The term that it and all others are in.
        term: u64,
    },
    /// Follow the metadata, and ask this voter, which leads a quorum that this broker is not of, to be taken in.
    Join {
        /// Whom to ask.
        leader: BrokerId,
    },
    /// Ask again; the text says what is missing.
    Wait(String),
    /// Nobody has the metadata of a cluster that this voter has served: a person must bring a log back.
    Refuse,
}

/// Judges by the answers of all other voters (none of those that did not answer), those that were heard to be empty
/// since this voter started, and its own standing, which is `Empty` or `Lost`.
pub fn judge_seating(
    own: VoterStanding,
    others: &[(BrokerId, Option<VoterStanding>)],
    heard_empty: &BTreeSet<BrokerId>,
) -> Seating {
    let is_founder = |(id, standing): &(BrokerId, Option<VoterStanding>)| {
        let has_nothing = matches!(standing, Some(VoterStanding::Empty | VoterStanding::Fresh));
        heard_empty.contains(id) || has_nothing
    };
    if others.iter().all(is_founder) {
        return match own {
            VoterStanding::Empty => Seating::Found,
            VoterStanding::Lost | VoterStanding::Fresh | VoterStanding::Seated { .. } => {
                Seating::Refuse
            }
        };
    }
    let leads_without_us = |(id, standing): &&(BrokerId, Option<VoterStanding>)| match standing {
        Some(VoterStanding::Seated {
            leader,
            counts_asker,
            ..
        }) => *leader == Some(*id) && !counts_asker,
        Some(VoterStanding::Empty | VoterStanding::Lost | VoterStanding::Fresh) | None => false,
    };
    if let Some((leader, _)) = others.iter().find(leads_without_us) {
        return Seating::Join { leader: *leader };
    }
    let mut agreed = None;
    for (id, standing) in others {
        match standing {
            None => return Seating::Wait(format!("voter {id} does not answer")),
            Some(VoterStanding::Empty | VoterStanding::Lost) => {
                return Seating::Wait(format!("the metadata log of voter {id} is empty, too"));
            }
            Some(VoterStanding::Fresh | VoterStanding::Seated { leader: None, .. }) => {
                return Seating::Wait(format!("voter {id} knows no leader"));
            }
            Some(VoterStanding::Seated {
                term,
                leader: Some(leader),
                ..
            }) => {
                if *agreed.get_or_insert((*term, *leader)) != (*term, *leader) {
                    return Seating::Wait("the other voters do not agree on a leader".to_owned());
                }
            }
        }
    }
    match agreed {
        Some((term, leader)) if others.iter().any(|(id, _)| *id == leader) => {
            Seating::Restore { leader, term }
        }
        Some(_) | None => Seating::Wait("none of the other voters leads".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seated(term: u64, leader: i32) -> Option<VoterStanding> {
        let leader = (leader >= 0).then_some(BrokerId(leader));
        Some(VoterStanding::Seated {
            term,
            leader,
            counts_asker: true,
        })
    }

    /// Of a quorum that does not count the one who asks.
    fn foreign(leader: i32) -> Option<VoterStanding> {
        Some(VoterStanding::Seated {
            term: 4,
            leader: (leader >= 0).then_some(BrokerId(leader)),
            counts_asker: false,
        })
    }

    fn check(
        own: VoterStanding,
        others: [Option<VoterStanding>; 2],
        heard: &[i32],
        expected: &Seating,
    ) {
        let others = [(BrokerId(1), others[0]), (BrokerId(2), others[1])];
        let heard = heard.iter().copied().map(BrokerId).collect();
        assert_eq!(&judge_seating(own, &others, &heard), expected, "{others:?}");
    }

    #[test]
    fn an_empty_voter_founds_only_with_all_others_and_restores_only_from_all_others() {
        use VoterStanding::{Empty, Fresh, Lost};
        let wait = |text: &str| Seating::Wait(text.to_owned());
        let restore = Seating::Restore {
            leader: BrokerId(1),
            term: 4,
        };
        check(Empty, [Some(Empty), Some(Empty)], &[], &Seating::Found);
        check(Empty, [Some(Empty), None], &[2], &Seating::Found);
        check(
            Empty,
            [seated(1, 1), seated(1, 1)],
            &[1, 2],
            &Seating::Found,
        );
        // The second one founded before it could ask this one.
        check(Empty, [Some(Empty), Some(Fresh)], &[], &Seating::Found);
        check(Empty, [Some(Fresh), Some(Fresh)], &[], &Seating::Found);
        check(
            Empty,
            [Some(Fresh), None],
            &[],
            &wait("voter 1 knows no leader"),
        );
        check(Lost, [Some(Empty), Some(Empty)], &[], &Seating::Refuse);
        check(Lost, [Some(Fresh), Some(Fresh)], &[], &Seating::Refuse);
        let silent = wait("voter 2 does not answer");
        check(
            Empty,
            [Some(Empty), None],
            &[1],
            &wait("the metadata log of voter 1 is empty, too"),
        );
        check(Empty, [seated(4, 1), None], &[], &silent);
        check(Empty, [seated(4, 1), seated(4, 1)], &[], &restore);
        check(Lost, [seated(4, 1), seated(4, 1)], &[], &restore);
        check(Empty, [seated(4, 1), seated(4, 1)], &[2], &restore);
        check(
            Lost,
            [seated(4, 1), Some(Lost)],
            &[],
            &wait("the metadata log of voter 2 is empty, too"),
        );
        check(
            Lost,
            [seated(4, 1), seated(4, -1)],
            &[],
            &wait("voter 2 knows no leader"),
        );
        let join = Seating::Join {
            leader: BrokerId(1),
        };
        check(Empty, [foreign(1), Some(Empty)], &[], &join);
        check(Lost, [foreign(1), Some(Lost)], &[], &join);
        check(Lost, [foreign(1), None], &[], &join);
        check(Empty, [foreign(1), foreign(1)], &[2], &join);
        check(
            Empty,
            [foreign(-1), Some(Empty)],
            &[],
            &wait("voter 1 knows no leader"),
        );
        let apart = wait("the other voters do not agree on a leader");
        check(Lost, [seated(4, 1), seated(5, 1)], &[], &apart);
        check(Lost, [seated(4, 1), seated(4, 2)], &[], &apart);
        let earlier = wait("none of the other voters leads");
        check(Lost, [seated(4, 0), seated(4, 0)], &[], &earlier);
    }
}
