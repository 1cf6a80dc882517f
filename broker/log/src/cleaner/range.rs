//! What part of a log may be cleaned, and whether it is worth it (Kafka's `LogCleanerManager` and `LogToClean`).

/// The settings of a topic that only its compaction needs; names follow Kafka's topic configs.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionConfig {
    /// `min.cleanable.dirty.ratio`: the dirty part of all that could be cleaned must be larger than this.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: how long a record stays untouched at least; by whole segments.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: from when on the ratio is not asked for.
    pub max_compaction_lag_ms: i64,
    /// `delete.retention.ms`: how long tombstones and markers stay once nothing else keeps them.
    pub delete_retention_ms: i64,
}

impl Default for CompactionConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        CompactionConfig {
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: 24 * 60 * 60 * 1000,
        }
    }
}

/// The dirty part of a log, as it was at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct DirtyRange {
    /// Below it everything is clean.
    pub first_dirty_offset: i64,
    /// Where the first segment begins that may not be cleaned; not above the first dirty offset if there is nothing to do.
    pub end_offset: i64,
    /// Bytes of the segments below the first dirty offset.
    pub clean_bytes: u64,
    /// Bytes of the segments from the one of the first dirty offset on up to the end.
    pub dirty_bytes: u64,
    /// By how much the oldest dirty record exceeds `max.compaction.lag.ms`; 0 if it does not.
    pub overdue_ms: i64,
    /// The checkpoint that was given is of another log: it should be replaced by the first dirty offset.
    pub checkpoint_is_void: bool,
    pub(crate) truncations: u64,
}

impl DirtyRange {
    /// How much of what could be cleaned is dirty, from 0 to 1. Of several logs that with the highest ratio goes first.
    pub fn dirty_ratio(&self) -> f64 {
        match self.clean_bytes + self.dirty_bytes {
            0 => 0.0,
            total => self.dirty_bytes as f64 / total as f64,
        }
    }

    /// Whether there is enough to do.
    pub fn is_due(&self, config: &CompactionConfig) -> bool {
        self.dirty_bytes > 0
            && (self.overdue_ms > 0 || self.dirty_ratio() > config.min_cleanable_dirty_ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_due_by_its_ratio_or_by_its_age() {
        let check = |clean_bytes, dirty_bytes, overdue_ms, expected| {
            let range = DirtyRange {
                first_dirty_offset: 0,
                end_offset: 10,
                clean_bytes,
                dirty_bytes,
                overdue_ms,
                checkpoint_is_void: false,
                truncations: 0,
            };
            let config = CompactionConfig::default();
            assert_eq!(range.is_due(&config), expected, "{range:?}");
        };
        check(0, 0, 0, false);
        check(0, 0, 1, false);
        check(0, 1, 0, true);
        check(50, 50, 0, false);
        check(50, 51, 0, true);
        check(99, 1, 0, false);
        check(99, 1, 1, true);
    }
}
