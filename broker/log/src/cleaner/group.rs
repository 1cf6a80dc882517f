//! Which segments a cleaning makes into one: as many neighbours as fit, by what they are before it, so that segments that lost
//! most of their records do not stay small for ever (Kafka's `Cleaner.groupSegmentsBySize`).

use std::ops::Range;

use crate::cleaner::source::Source;
use crate::config::LogConfig;
use crate::segment::RELATIVE_OFFSET_MAX;

/// The segments that begin below `end_offset`, in groups. Offsets of a group fit an index, also at its very end.
pub(super) fn group<F>(
    segments: &[Source<F>],
    end_offset: i64,
    config: &LogConfig,
) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut sums = [0; 3];
    let limits = [
        u64::from(config.segment_bytes),
        u64::from(config.segment_index_bytes),
        u64::from(config.segment_index_bytes),
    ];
    for (at, segment) in segments.iter().enumerate() {
        if segment.base_offset >= end_offset {
            break;
        }
        let sizes = [segment.size, segment.index_bytes, segment.time_index_bytes];
        let fits = groups.last().is_some_and(|group| {
            let span = segment.end_offset - 1 - segments[group.start].base_offset;
            let mut sums = sums.iter().zip(sizes).zip(limits);
            span <= RELATIVE_OFFSET_MAX && sums.all(|((sum, size), limit)| sum + size <= limit)
        });
        match groups.last_mut().filter(|_| fits) {
            Some(group) => {
                group.end = at + 1;
                for (sum, size) in sums.iter_mut().zip(sizes) {
                    *sum += size;
                }
            }
            None => {
                groups.push(at..at + 1);
                sums = sizes;
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_files::Handle;

    fn check(sizes: &[(i64, u64, u64)], end_offset: i64, expected: &[(usize, usize)]) {
        let segments: Vec<Source<()>> = sizes
            .iter()
            .zip(sizes[1..].iter().map(|next| next.0).chain([i64::MAX]))
            .map(|(&(base_offset, size, index_bytes), end_offset)| Source {
                base_offset,
                end_offset,
                size,
                index_bytes,
                time_index_bytes: 0,
                has_aborted: false,
                handle: Handle::closed(),
            })
            .collect();
        let config = LogConfig {
            segment_bytes: 100,
            segment_index_bytes: 50,
            ..LogConfig::default()
        };
        let segments = &segments[..segments.len() - 1];
        let groups = group(segments, end_offset, &config);
        let groups: Vec<_> = groups
            .iter()
            .map(|group| (group.start, group.end))
            .collect();
        assert_eq!(groups, expected, "{sizes:?}");
    }

    #[test]
    fn groups_are_no_larger_than_a_segment_may_be() {
        let end = (50, 0, 0);
        check(
            &[(0, 50, 0), (10, 50, 0), (20, 1, 0), end],
            50,
            &[(0, 2), (2, 3)],
        );
        check(&[(0, 200, 0), (10, 1, 0), end], 50, &[(0, 1), (1, 2)]);
        check(
            &[(0, 1, 30), (10, 1, 30), (20, 1, 20), end],
            50,
            &[(0, 1), (1, 3)],
        );
        check(&[(0, 1, 0), (10, 1, 0), (20, 1, 0), end], 20, &[(0, 2)]);
        check(&[(0, 1, 0), (10, 1, 0), (20, 1, 0), end], 21, &[(0, 3)]);
        check(&[(0, 1, 0), end], 0, &[]);
    }

    #[test]
    fn offsets_of_a_group_fit_its_index() {
        let far = RELATIVE_OFFSET_MAX;
        // The last offset of the second segment is the last that fits, or one further.
        check(&[(0, 1, 0), (10, 1, 0), (far + 1, 0, 0)], far, &[(0, 2)]);
        check(
            &[(0, 1, 0), (10, 1, 0), (far + 2, 0, 0)],
            far,
            &[(0, 1), (1, 2)],
        );
    }
}
