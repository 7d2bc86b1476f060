//! A process that may have only so much address space.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use transom_system::memory::{Allocation, SharedMemory, begin_sharing, is_shared};

/// Shared memory takes addresses for the program, for the device, and for each peer. However many the program may have,
/// it may want them all.
#[test]
fn memory_is_private_where_addresses_are_limited() {
    let limit = getrlimit(Resource::As);
    let many = Rlimit { current: Some(1 << 45), ..limit };
    let limited = |limit| setrlimit(Resource::As, limit).expect("it may be set");
    limited(many);
    let shared = begin_sharing();
    let memory = Allocation::new(1 << 20).unwrap();
    limited(limit);
    shared.expect_err("these are the program's own");
    assert!(!is_shared(memory.first().as_ptr() as u64, 8));
    let descriptor = begin_sharing().expect("there is no limit now");
    let memory = Allocation::new(1 << 20).unwrap();
    assert!(is_shared(memory.first().as_ptr() as u64, 1 << 20));
    let attach = || SharedMemory::attach(std::process::id(), descriptor);
    limited(many);
    let peers = attach();
    limited(limit);
    peers.expect_err("these are the program's own");
    attach().expect("there is no limit now");
}
