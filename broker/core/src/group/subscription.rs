//! The topics in a consumer's subscription: the one thing the coordinator reads of what members exchange.

/// Topics of a `ConsumerProtocolSubscription`: a version, then an array of strings, then what does not matter here.
/// `None` if the bytes are something else.
pub(super) fn topics(subscription: &[u8]) -> Option<Vec<&str>> {
    let (_version, rest) = subscription.split_first_chunk::<2>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    // Every string takes two bytes at least, so a claimed count allocates no more than came.
    let mut topics = Vec::with_capacity(count.min(rest.len() / 2));
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (name, after) = after.split_at_checked(length)?;
        topics.push(std::str::from_utf8(name).ok()?);
        rest = after;
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::topics;

    #[test]
    fn topics_are_read_and_other_bytes_are_not() {
        let check = |bytes: &[u8], expected: Option<&[&str]>| {
            assert_eq!(topics(bytes).as_deref(), expected, "{bytes:?}");
        };
        check(
            b"\0\x01\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff",
            Some(&["a", "bc"]),
        );
        check(b"\0\0\0\0\0\0", Some(&[]));
        check(b"", None);
        check(b"\0\0\xff\xff\xff\xff", None);
        check(b"\0\0\x7f\xff\xff\xff", None);
        check(b"\0\0\0\0\0\x01\0\x05a", None);
        check(b"\0\0\0\0\0\x01\xff\xff", None);
        check(b"\0\0\0\0\0\x01\0\x01\xff", None);
    }
}
