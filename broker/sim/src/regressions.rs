//! Seeds that once found something wrong in the product, each with what it was. A seed means the same only as long as the
//! simulator draws as it did, so what it found also has a test of its own where that is possible.

/// Seed, steps, and what it found.
pub const REGRESSIONS: &[(u64, u32, &str)] = &[
    (
        1383,
        20,
        "a replica that was damaged a second time dropped committed records while its leader's request to take it back was under way",
    ),
    (
        11223,
        20,
        "a follower that had found no room stayed out of the ISR for want of further records",
    ),
    (
        20255,
        20,
        "a coordinator that had stood still told a group an offset of before",
    ),
    (
        7275,
        20,
        "a follower dropped the answer that told the high watermark, for an overlapping one had brought its records, and was not told again",
    ),
    (
        7312,
        20,
        "a leader refused the replicas of a reassignment for ever, because an answer had told it the epoch before",
    ),
];
