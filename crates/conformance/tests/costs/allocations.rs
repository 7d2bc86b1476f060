//! Posting and polling allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use transom_conformance::harness::Link;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};

use crate::workloads::{Stage, WARM_UP, WORKLOADS};

/// The system's allocator, which counts for each thread what it is asked for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: all of it is the system's; counting allocates nothing, for the counter has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller says.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller says.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller says.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread has allocated, or given back, while it did this.
fn allocations(what: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    what();
    ALLOCATIONS.get() - before
}

#[test]
fn an_allocation_is_counted() {
    let word = std::hint::black_box(Box::new(1_u8));
    assert_eq!(allocations(|| drop(word)), 1);
    assert_eq!(allocations(|| ()), 0);
}

/// How often of a thousand times an operation may allocate: the first time that a thread waits for a lock,
/// the lock's library makes or extends a table for all threads.
const FIRST_WAITS: usize = 2;

/// A thousand of each operation, after some that may make what they need.
fn run(stage: &Stage) {
    for workload in WORKLOADS {
        let mut allocated = vec![0; workload.steps.len()];
        for round in 0..WARM_UP + 1000 {
            for (step, allocated) in workload.steps.iter().zip(&mut allocated) {
                let counted = allocations(|| (step.run)(stage));
                *allocated += usize::from(round >= WARM_UP && counted > 0);
            }
        }
        for (step, allocated) in workload.steps.iter().zip(allocated) {
            assert!(allocated <= FIRST_WAITS, "{}, {}: {allocated}", workload.name, step.name);
        }
    }
}

#[test]
fn posting_and_polling_allocate_nothing() {
    [Link::Loopback, Link::Local, Link::Rings].map(Stage::new).iter().for_each(run);
}

/// With deadlines that come now and then meanwhile: 17 ms after something is posted.
#[test]
fn nor_do_they_over_the_wire() {
    let impatient = || run(&Stage::with_timeout(Link::Wire, 12));
    alone(path_of!("nor_do_they_over_the_wire"), Way::Network, impatient);
}

#[test]
fn nor_do_they_on_shared_memory() {
    alone(path_of!("nor_do_they_on_shared_memory"), Way::Shared, || run(&Stage::new(Link::Shared)));
}
