//! Random numbers from a seed (SplitMix64): the same seed gives the same schedule.

use std::time::Duration;

/// A source of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Starts from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        // The bias of a remainder does not matter to a schedule.
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }

    /// True in `percent` of cases.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A time between two.
    pub(crate) fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = usize::try_from(to.saturating_sub(from).as_millis()).unwrap_or(0);
        from + Duration::from_millis(self.below(span + 1) as u64)
    }

    /// The numbers below `end` in a random order.
    pub(crate) fn order(&mut self, end: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..end).collect();
        for last in (1..end).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        let (mut one, mut two) = (Dice::new(7), Dice::new(7));
        for _ in 0..100 {
            assert_eq!(one.order(5), two.order(5));
            let time = one.between(Duration::from_millis(10), Duration::from_millis(20));
            assert_eq!(
                time,
                two.between(Duration::from_millis(10), Duration::from_millis(20))
            );
            assert!((10..=20).contains(&time.as_millis()));
        }
        let mut order = one.order(5);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }
}
