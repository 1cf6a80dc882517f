//! What a request of many names costs: each name is answered once, and so many names at most.

use std::collections::BTreeSet;

/// Groups that one request may name. A coordinator has 100,000 at most; Java's admin client asks again for those that an answer
/// leaves out.
const GROUPS_MAX: usize = 100_000;

/// Each name once, in the order in which they came first: what is said of a group may be large, and is said once. Those beyond
/// the limit are left out.
pub(super) fn each_once(names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let first: Vec<bool> = names
        .iter()
        .map(|name| seen.insert(name.as_str()))
        .collect();
    let once = names.into_iter().zip(first);
    once.filter_map(|(name, first)| first.then_some(name))
        .take(GROUPS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_answered_once_in_their_order() {
        let check = |names: &[&str], expected: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(each_once(names), expected);
        };
        check(&["b", "a", "b", "", "a", ""], &["b", "a", ""]);
        check(&[], &[]);
        let many = (0..GROUPS_MAX + 5).map(|number| number.to_string());
        assert_eq!(each_once(many.collect()).len(), GROUPS_MAX);
    }
}
