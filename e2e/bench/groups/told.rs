//! What a member told (`taffrail-e2e-client follow`), and when a group is whole again by what its members told.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

/// What one member told so far. Times are microseconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Its last assignment, and since when.
    assigned: Option<(u128, BTreeSet<i32>)>,
    /// Each record: when, and of which partition.
    reads: Vec<(u128, i32)>,
    /// Each commit: when it was sent, and when it was acknowledged.
    commits: Vec<(u128, u128)>,
}

impl Told {
    /// Reads a member's output; a line that is still being written does not count.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut told = Self::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            told.take(line)
                .with_context(|| format!("a member told {line:?}"))?;
        }
        Ok(told)
    }

    fn take(&mut self, line: &str) -> Result<()> {
        let (at, rest) = line.split_once(' ').context("no time")?;
        let at = at.parse()?;
        let (what, detail) = rest.split_once(' ').context("nothing said")?;
        match what {
            "assigned" => {
                let partitions = detail.split(',').filter(|one| !one.is_empty());
                let partitions = partitions.map(str::parse).collect::<Result<_, _>>()?;
                self.assigned = Some((at, partitions));
            }
            "read" => self.reads.push((at, detail.parse()?)),
            "committed" => self.commits.push((detail.parse()?, at)),
            _ => bail!("unknown"),
        }
        Ok(())
    }
}

/// When each of `partitions` partitions had been read, since `since`, by the one member that has it now; nothing while partitions are
/// not given to exactly one member, a member has none, or a partition was not read yet.
pub(crate) fn whole_again(members: &[Told], partitions: usize, since: u128) -> Option<u128> {
    let mut given = BTreeSet::new();
    let mut last = since;
    for member in members {
        let (assigned_at, assigned) = member.assigned.as_ref()?;
        if assigned.is_empty() {
            return None;
        }
        let from = since.max(*assigned_at);
        for partition in assigned {
            let mut reads = member.reads.iter();
            let first = reads.find(|(at, of)| *at >= from && of == partition);
            last = last.max(first?.0);
            if !given.insert(partition) {
                return None;
            }
        }
    }
    (given.len() == partitions).then_some(last)
}

/// When each member had a commit acknowledged that it sent after `since`.
pub(crate) fn all_committed(members: &[Told], since: u128) -> Option<u128> {
    let mut last = since;
    for member in members {
        let mut commits = member.commits.iter();
        let first = commits.find(|(sent, _)| *sent >= since);
        last = last.max(first?.1);
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_whole_once_every_partition_was_read_by_who_has_it() {
        let one = Told::parse("10 assigned 0,1\n11 read 0\n12 read 1\n20 assigned 0\n25 read 0\n");
        let other = "20 assigned 1\n22 read 0\n27 read 1\n3";
        let (one, other) = (one.expect("lines"), Told::parse(other).expect("lines"));
        let members = [one.clone(), other];
        assert_eq!(whole_again(&members, 2, 15), Some(27));
        assert_eq!(whole_again(&members, 3, 15), None, "one is nobody's");
        assert_eq!(whole_again(&members, 2, 26), None, "0 was read before that");
        let early = Told::parse("20 assigned 0\n27 read 0\n").expect("lines");
        assert_eq!(whole_again(&[one, early], 1, 15), None, "0 has two owners");
        let idle = Told::parse("20 assigned \n").expect("lines");
        assert_eq!(whole_again(&[idle], 0, 15), None);
    }

    #[test]
    fn commits_count_by_when_they_were_sent() {
        let told = Told::parse("12 committed 9\n16 committed 14\n").expect("lines");
        let members = [told];
        assert_eq!(all_committed(&members, 10), Some(16));
        assert_eq!(all_committed(&members, 15), None);
    }

    #[test]
    fn what_a_member_does_not_tell_is_refused() {
        assert!(Told::parse("12 failed no assignment\n").is_err());
        assert!(Told::parse("x read 1\n").is_err());
    }
}
