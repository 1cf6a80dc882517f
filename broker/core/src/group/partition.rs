//! Which partition of `__consumer_offsets` a group belongs to.

/// The partition of a group among `count` partitions: Kafka's `abs(groupId.hashCode()) % count`, where the hash is
/// Java's over UTF-16 units and the absolute value of the smallest number is 0 (`GroupCoordinatorService`).
/// With no partitions it is 0.
pub fn partition_for(group_id: &str, count: i32) -> i32 {
    let hash = group_id.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    hash.checked_abs()
        .unwrap_or(0)
        .checked_rem(count)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::partition_for;

    #[test]
    fn groups_fall_where_java_puts_them() {
        let check = |group_id: &str, count: i32, expected: i32| {
            assert_eq!(partition_for(group_id, count), expected, "{group_id:?}");
        };
        // hashCode: "" 0, "a" 97, "abc" 96354, "hello" 99162322.
        check("", 50, 0);
        check("a", 50, 47);
        check("abc", 50, 4);
        check("hello", 50, 22);
        // The hash of this word is the smallest number, whose absolute value does not exist.
        check("polygenelubricants", 50, 0);
        // Two UTF-16 units: 31 * 0xd83d + 0xde00 = 1772899.
        check("\u{1f600}", 50, 49);
        check("a", 0, 0);
    }
}
