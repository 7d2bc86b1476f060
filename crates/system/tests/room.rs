//! A process that may have no more address space.

use std::ptr::null_mut;

use rustix::process::{Resource, Rlimit};
use transom_system::memory::{Allocation, When, begin_mapping, is_mapped};

/// How many bytes of addresses this process has.
fn addresses() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split_whitespace().next().unwrap().parse().unwrap();
    pages * transom_system::memory::page_size()
}

/// Memory lies where peers reach it by instructions only if this process does so too: atomics of both could not be
/// one step for each other.
#[test]
fn memory_that_there_is_no_room_to_map_twice_stays_private() {
    if let Err(error) = begin_mapping(When::Registered) {
        return println!("skipped: memory cannot be mapped here: {error}");
    }
    let known = Allocation::new(8).unwrap();
    assert!(is_mapped(known.first().as_ptr() as u64, 8));
    // What is made next lies further away than what is mapped at once.
    let (kind, far) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, 4 << 30);
    // SAFETY: a fresh mapping where the kernel finds room.
    let between = unsafe { libc::mmap(null_mut(), far, libc::PROT_NONE, kind, -1, 0) };
    assert_ne!(between, libc::MAP_FAILED);
    let limit = rustix::process::getrlimit(Resource::As);
    let little = Rlimit { current: Some(addresses() + (600 << 20)), ..limit };
    rustix::process::setrlimit(Resource::As, little).unwrap();
    let memory = Allocation::new(300 << 20).unwrap();
    let first = memory.first().as_ptr() as u64;
    let found = is_mapped(first, 8);
    rustix::process::setrlimit(Resource::As, limit).unwrap();
    assert!(!found, "it lies elsewhere");
    assert!(!is_mapped(first, 8), "it is private");
}
