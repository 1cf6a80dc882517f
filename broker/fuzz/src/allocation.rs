//! An allocator that counts what each thread holds, so that a target which takes too much memory for its input fails.
//! Whoever runs targets installs it: `#[global_allocator] static ALLOCATOR: Counting = Counting;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::targets::Memory;

/// The system's allocator, counted.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn note(taken: usize, given_back: usize) {
    LIVE.with(|live| {
        // What was taken before the measurement may be given back during it.
        live.set((live.get() + taken).saturating_sub(given_back));
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
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

/// What `work` gives, and the most bytes that this thread held for it at once. Zero where the allocator is not installed.
/// May be nested: the outer measurement counts the inner one's bytes too.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let outer = (
        LIVE.with(|live| live.replace(0)),
        PEAK.with(|peak| peak.replace(0)),
    );
    let result = work();
    let (live, peak) = (LIVE.with(Cell::get), PEAK.with(Cell::get));
    LIVE.with(|cell| cell.set(outer.0 + live));
    PEAK.with(|cell| cell.set(outer.1.max(outer.0 + peak)));
    (result, peak)
}

/// Runs a decoder on an input of this size, and fails if it held more than it may.
///
/// # Panics
/// When it did.
pub fn decoder<T>(input: usize, work: impl FnOnce() -> T) -> T {
    let (result, peak) = measure(work);
    let allowed = Memory::DECODER.allowed(input);
    assert!(
        peak <= allowed,
        "decoding {input} bytes held {peak}, {allowed} are allowed"
    );
    result
}
