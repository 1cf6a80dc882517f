//! An allocator that counts what each thread holds and how often it asks, so that whoever takes too much memory for its input
//! fails. Tests and fuzzing install it: `#[global_allocator] static ALLOCATOR: Counting = Counting;`. No broker does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
#[derive(Debug)]
pub struct Counting;

/// What this thread took for a piece of work. All zero where the allocator is not installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The most bytes that it held at once.
    pub peak: usize,
    /// How often it asked for memory, or for more of it.
    pub count: usize,
}

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static TAKEN: Cell<Taken> = const { Cell::new(Taken { peak: 0, count: 0 }) };
}

fn note(taken: usize, given_back: usize) {
    // What was taken before the measurement may be given back during it.
    let live = (LIVE.get() + taken).saturating_sub(given_back);
    LIVE.set(live);
    let before = TAKEN.get();
    TAKEN.set(Taken {
        peak: before.peak.max(live),
        count: before.count + usize::from(taken > 0),
    });
}

// SAFETY: every call goes to the system's allocator unchanged; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What `work` gives, and what it took. May be nested: the outer measurement counts the inner one's memory too.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    let outer = (LIVE.replace(0), TAKEN.replace(Taken::default()));
    let result = work();
    let (live, taken) = (LIVE.get(), TAKEN.get());
    LIVE.set(outer.0 + live);
    TAKEN.set(Taken {
        peak: outer.1.peak.max(outer.0 + taken.peak),
        count: outer.1.count + taken.count,
    });
    (result, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn what_is_held_at_once_and_how_often_it_was_asked_for_is_counted() {
        let (_, taken) = measure(|| (vec![0u8; 1000], vec![0u8; 2000]));
        let expected = Taken {
            peak: 3000,
            count: 2,
        };
        assert_eq!(taken, expected);
        let (_, taken) = measure(|| (0..3).for_each(|_| drop(vec![0u8; 1000])));
        let expected = Taken {
            peak: 1000,
            count: 3,
        };
        assert_eq!(taken, expected);
    }

    #[test]
    fn an_outer_measurement_counts_the_inner_one_too() {
        let (inner, outer) = measure(|| {
            let held = Vec::<u8>::with_capacity(100);
            let (_, inner) = measure(|| drop(Vec::<u8>::with_capacity(1000)));
            drop(held);
            inner
        });
        assert_eq!((inner.peak, inner.count), (1000, 1));
        assert_eq!((outer.peak, outer.count), (1100, 2));
    }

    #[test]
    fn what_was_taken_before_is_not_counted_when_it_is_given_back() {
        let before = vec![0u8; 5000];
        let (_, taken) = measure(move || {
            drop(before);
            vec![0u8; 10]
        });
        assert_eq!((taken.peak, taken.count), (10, 1));
    }
}
