//! What every broker's properties file has in common, whoever starts the broker.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The brokers that vote on metadata when the cluster's data is made: one, or three if there are as many.
pub(crate) fn voters(brokers: i32) -> Vec<i32> {
    (0..if brokers < 3 { 1 } else { 3 }).collect()
}

/// The brokers that are to vote, once there are or were so many. Those that vote already stay, and others join them; there are
/// never fewer.
pub(crate) fn grown(voters: &[i32], brokers: i32) -> Vec<i32> {
    let possible = self::voters(brokers);
    if possible.len() > voters.len() && voters.iter().all(|voter| possible.contains(voter)) {
        possible
    } else {
        voters.to_vec()
    }
}

/// The file's text, in Java's properties format, in which a backslash, line breaks and leading blanks are written
/// with a backslash.
pub(crate) fn text(properties: &BTreeMap<String, String>) -> String {
    let mut text = String::from("# Written by taffrail-operator; changes are overwritten.\n");
    for (name, value) in properties {
        let mut escaped = String::new();
        for (index, letter) in value.chars().enumerate() {
            match letter {
                '\\' => escaped.push_str("\\\\"),
                '\n' => escaped.push_str("\\n"),
                '\r' => escaped.push_str("\\r"),
                '\t' => escaped.push_str("\\t"),
                ' ' if index == 0 => escaped.push_str("\\ "),
                letter => escaped.push(letter),
            }
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}={escaped}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_sorted() {
        let properties = BTreeMap::from([
            ("b".to_owned(), " x\\y\nz".to_owned()),
            ("a".to_owned(), "1".to_owned()),
        ]);
        assert_eq!(
            text(&properties),
            "# Written by taffrail-operator; changes are overwritten.\na=1\nb=\\ x\\\\y\\nz\n"
        );
    }

    #[test]
    fn three_brokers_vote_or_one() {
        for (brokers, expected) in [
            (1, vec![0]),
            (2, vec![0]),
            (3, vec![0, 1, 2]),
            (9, vec![0, 1, 2]),
        ] {
            assert_eq!(voters(brokers), expected);
        }
    }

    #[test]
    fn voters_become_three_and_never_fewer() {
        for (before, brokers, expected) in [
            (vec![0], 2, vec![0]),
            (vec![0], 3, vec![0, 1, 2]),
            (vec![0, 1, 2], 1, vec![0, 1, 2]),
            (vec![0, 1, 2], 9, vec![0, 1, 2]),
            (vec![7], 9, vec![7]),
        ] {
            assert_eq!(grown(&before, brokers), expected);
        }
    }
}
