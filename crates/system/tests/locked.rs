//! A program that has all its memory locked (`mlockall(2)`).

use transom_system::memory::{Allocation, SharedMemory, begin_sharing, is_shared};
use transom_system::segment::Segment;

/// How much memory this process has locked, in KiB.
fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The memory that processes share is mostly holes. The holes take no memory even then, and are not refused if little
/// may be locked. This holds if all future memory is locked, and if all present memory is, also for a peer's memory.
/// What is freed goes back to the system all the same.
#[test]
fn holes_take_no_memory_where_all_is_locked() {
    // SAFETY: takes flags.
    if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
        return println!("skipped: this process may not lock memory");
    }
    let before = locked();
    let segment = Segment::create().expect("it is made");
    let used = segment.memory_used().expect("it is asked");
    assert!(used < 1 << 20, "{used}");
    drop(segment);
    let descriptor = begin_sharing().expect("there is room for shared memory");
    let more = locked() - before;
    assert!(more < 1 << 10, "{more} KiB");
    let peers = SharedMemory::attach(std::process::id(), descriptor).expect("it is there");
    assert!(peers.find(5 << 20, 8).is_some());
    let block = Allocation::new(64 << 10).expect("there is memory");
    assert!(is_shared(block.first().as_ptr() as u64, 64 << 10));
    let resident = resident();
    // SAFETY: takes flags.
    if unsafe { libc::mlockall(libc::MCL_CURRENT) } != 0 {
        return println!("skipped: this process may not lock all that it has");
    }
    let more = self::resident() - resident;
    assert!(more < 64 << 10, "{more} KiB");
    let large = Allocation::new(64 << 20).expect("there is memory");
    assert!(is_shared(large.first().as_ptr() as u64, 64 << 20));
    // SAFETY: the block, which nobody else knows.
    unsafe { large.first().write_bytes(7, 64 << 20) };
    let resident = self::resident();
    drop(large);
    let less = resident - self::resident();
    assert!(less >= 64 << 10, "{less} KiB");
}

/// How many KiB of shared memory this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
