//! The processors of the two measuring processes. Each gets its own. Two processes that spin while they wait for each
//! other would wait for the scheduler if both were on one processor.

/// The first two processors that this process may use, for the near and the far end.
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
        // Without it, the measurement is only less exact.
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
