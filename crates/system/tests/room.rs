//! A process that may have no more address space.

use rustix::process::{Resource, Rlimit};
use transom_system::memory::{Allocation, FILE_BYTES, begin_sharing, is_shared};

/// How many bytes of addresses this process has.
fn addresses() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split_whitespace().next().unwrap().parse().unwrap();
    pages * transom_system::memory::page_size()
}

/// Shared memory needs addresses twice, for the program and for the device. Without room for both, all memory is
/// private.
#[test]
fn memory_is_private_where_there_are_too_few_addresses() {
    let limit = rustix::process::getrlimit(Resource::As);
    let few = Rlimit { current: Some(addresses() + FILE_BYTES + (64 << 20)), ..limit };
    rustix::process::setrlimit(Resource::As, few).unwrap();
    let shared = begin_sharing();
    let memory = Allocation::new(1 << 20).unwrap();
    rustix::process::setrlimit(Resource::As, limit).unwrap();
    shared.expect_err("there is no room for it");
    assert!(!is_shared(memory.first().as_ptr() as u64, 8));
    begin_sharing().expect("there is room now");
    let memory = Allocation::new(1 << 20).unwrap();
    assert!(is_shared(memory.first().as_ptr() as u64, 1 << 20));
}
