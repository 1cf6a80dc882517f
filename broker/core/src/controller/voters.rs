//! Which directory each voter keeps its metadata log in. A voter is a broker and a directory together: whoever comes with
//! another one, an old disk or somebody else's, does not vote as the one that is recorded.
//!
//! A directory is recorded when it is first heard of, and replaced only for a voter that lost its log, before that gets what it
//! starts anew on (`raft/seating.rs` of this crate says when that is).

use super::{Controller, Decision};
use crate::ids::{BrokerId, DirectoryId};
use crate::metadata::{Record, Voter};

impl Controller {
    /// Records voters of which nothing is recorded, and the directories of those that had not told theirs.
    pub fn record_voters(&self, voters: &[(BrokerId, Option<DirectoryId>)]) -> Decision<()> {
        let is_news = |(id, directory): &&(BrokerId, Option<DirectoryId>)| {
            let known = self.image.voter(*id);
            known.is_none_or(|known| known.directory.is_none() && directory.is_some())
        };
        let news = voters.iter().filter(is_news);
        let records = news
            .map(|(id, directory)| self.voter_record(*id, *directory))
            .collect();
        Decision { records, reply: () }
    }

    /// Records the directory in which a voter that lost its log starts anew.
    pub fn replace_voter(&self, voter: BrokerId, directory: Option<DirectoryId>) -> Decision<()> {
        let same = |known: Voter| known.directory == directory;
        if self.image.voter(voter).is_some_and(same) {
            return Decision::reply(());
        }
        Decision {
            records: vec![self.voter_record(voter, directory)],
            reply: (),
        }
    }

    fn voter_record(&self, broker: BrokerId, directory: Option<DirectoryId>) -> Record {
        Record::Voter {
            broker,
            directory,
            since: self.last_index + 1,
        }
    }
}
