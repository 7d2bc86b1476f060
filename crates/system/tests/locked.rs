//! A program that has all its memory locked (`mlockall(2)`).

use transom_system::memory::{When, begin_mapping};
use transom_system::segment::Segment;

/// How much memory this process has locked, in KiB.
fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// What processes share is mostly holes, which take no memory then either, and are not refused where little may be
/// locked.
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
    begin_mapping(When::Used).expect("there is room for the address space");
    let more = locked() - before;
    assert!(more < 1 << 10, "{more} KiB");
}
