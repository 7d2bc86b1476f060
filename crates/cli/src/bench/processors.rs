//! Where the two processes of a measurement run: each on a processor of its own, for two that wait for each
//! other by looking would wait for the scheduler, if it had put them on one.

/// The first two that this process may use, for the near and the far end.
pub(super) fn two() -> Option<[usize; 2]> {
    // SAFETY: a set of bits, all zero at first, of this call's own.
    let ours = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        set
    };
    // SAFETY: the numbers are within the set.
    let mut usable =
        (0..libc::CPU_SETSIZE as usize).filter(|number| unsafe { libc::CPU_ISSET(*number, &ours) });
    Some([usable.next()?, usable.next()?])
}

/// Keeps this thread on one processor.
pub(super) fn stay_on(processor: usize) {
    // SAFETY: a set of bits, all zero at first, of this call's own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        // It only measures worse without.
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
