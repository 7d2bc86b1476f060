//! Locks of the whole process that a forked child needs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use transom_system::fork::{begin, hold_too};
use transom_system::lock::SleepingMutex;

static LIST: SleepingMutex<u64> = SleepingMutex::new(0);
static OTHER: SleepingMutex<u64> = SleepingMutex::new(0);

/// Forks. The child does this, and must be done soon: a lock that it finds held by another thread would keep it for ever.
/// Returns whether it was.
fn fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only takes locks that are held over the fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: these take any numbers, and the second ends this process.
        unsafe {
            libc::alarm(20);
            libc::_exit(i32::from(!child()));
        }
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status == 0
}

#[test]
fn a_fork_finds_no_lock_held_by_another_thread() {
    for _ in 0..2 {
        hold_too(&[&LIST, &OTHER]);
    }
    begin().expect("handlers");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for order in [[&LIST, &OTHER], [&OTHER, &LIST]] {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    let mut first = order[0].lock();
                    // Another may hold both in the other order.
                    *first += order[1].try_lock().map_or(1, |mut second| {
                        *second += 1;
                        *second & 1
                    });
                }
            });
        }
        let all_were_done = (0..100).all(|_| fork(|| *LIST.lock() + *OTHER.lock() < u64::MAX));
        is_over.store(true, Relaxed);
        assert!(all_were_done);
    });
    // In the handler of a signal a thread may fork while it holds one itself. So does its copy, until it is done.
    let mut held = LIST.lock();
    let was_done = fork(move || {
        *held += 1;
        let is_held = LIST.try_lock().is_none();
        drop(held);
        is_held && LIST.try_lock().is_some()
    });
    assert!(was_done && LIST.try_lock().is_some());
}
