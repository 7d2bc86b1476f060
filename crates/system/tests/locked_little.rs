//! A program that has all its memory locked, and may lock only a little of it (`ulimit -l`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use transom_system::memory::{Allocation, SharedMemory, begin_sharing, is_shared};

/// What systems let an ordinary user lock.
const LITTLE: u64 = 8 << 20;

/// What Transom maps is mostly holes, and none of it counts, neither for the process nor for a peer of it.
#[test]
fn shared_memory_is_not_refused_where_little_may_be_locked() {
    let mut rights = capabilities(None).expect("it is asked");
    rights.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, rights).expect("fewer rights are never refused");
    let limit = getrlimit(Resource::Memlock);
    if limit.maximum.is_some_and(|most| most < LITTLE) {
        return println!("skipped: this process may lock less");
    }
    setrlimit(Resource::Memlock, Rlimit { current: Some(LITTLE), ..limit }).expect("it is lower");
    // SAFETY: takes flags.
    assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
    let descriptor = begin_sharing().expect("there is room for shared memory");
    let peers = SharedMemory::attach(std::process::id(), descriptor).expect("it is there");
    assert!(peers.find(5 << 20, 8).is_some());
    let block = Allocation::new(64 << 10).expect("there is memory");
    assert!(is_shared(block.first().as_ptr() as u64, 64 << 10));
    // SAFETY: the block, which nobody else knows.
    unsafe { block.first().write_bytes(7, 64 << 10) };
}
