//! The clocks of the machine.

use rustix::time::{ClockId, clock_gettime};

/// A reading of both clocks is good if the steady one moved at most so many nanoseconds meanwhile.
const CLOSE: u64 = 1_000;

/// Nanoseconds of the steady clock. All processes share it.
#[inline]
pub fn steady() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds since 1970.
pub fn wall() -> u64 {
    read(ClockId::Realtime)
}

/// Nanoseconds since 1970 at a moment of the steady clock, as the wall clock stands now.
pub fn wall_time(moment: u64) -> u64 {
    // A thread that is interrupted between the two clocks reads them again, a few times at most.
    let readings = (0..8).map(|_| {
        let before = steady();
        let wall = wall();
        let after = steady();
        (after - before, before + (after - before) / 2, wall)
    });
    let mut best = (u64::MAX, 0, 0);
    for reading in readings {
        best = best.min(reading);
        if best.0 <= CLOSE {
            break;
        }
    }
    let (_, steady, wall) = best;
    wall.wrapping_sub(steady).wrapping_add(moment)
}

/// Nanoseconds of the clock of a thread. None if the thread has ended.
pub(crate) fn of_thread(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a variable, and the kernel checks the clock.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (answer == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
