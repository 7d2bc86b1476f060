//! The send window: how much may be on its way unacknowledged (rules PSN-07, CNP-04).

use transom_wire::Psn;

/// Bytes that the window begins with.
const INITIAL: u64 = 256 * 1024;
/// By how much a window that was acknowledged in full grows, and the least that remains of it: a burst.
const STEP: u64 = 64 * 1024;
/// Most bytes that one request of a READ asks for.
const MAX_READ: u64 = 256 * 1024;
/// Most numbers under way (rule PSN-07).
const MAX_NUMBERS: u64 = (1 << 23) - 1;

/// How much may be on its way, counted in packets of full size: packets sent, and packets that READs will bring. It
/// grows by a burst with each window that is acknowledged. It halves with each window in which something is lost or
/// congestion is reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow {
    size: u64,
    limit: u64,
    /// Bytes acknowledged since it last grew.
    gained: u64,
    /// It does not shrink again for packets sent before this number.
    shrunk: Option<Psn>,
}

impl SendWindow {
    /// A window that never is larger than `limit` bytes, but always lets a burst pass.
    pub(super) fn new(limit: u64) -> Self {
        let limit = limit.max(STEP);
        Self { size: INITIAL.min(limit), limit, gained: 0, shrunk: None }
    }

    /// How many packets it lets be on their way.
    pub(super) fn packets(&self, mtu: u64) -> u32 {
        (self.size / mtu).min(MAX_NUMBERS) as u32
    }

    /// How many bytes one request of a READ asks for, a power of two: fixed as long as the limit,
    /// for requests that are repeated end where they ended before.
    pub(super) fn read_limit(&self) -> u64 {
        let share = (self.limit / 4).min(MAX_READ);
        1 << share.ilog2()
    }

    /// So many bytes have been acknowledged.
    pub(super) fn acknowledged(&mut self, bytes: u64) {
        self.gained += bytes;
        if self.gained >= self.size {
            self.gained = 0;
            self.shrunk = None;
            self.size = (self.size + STEP).min(self.limit);
        }
    }

    /// Nothing has come back for as long as the timeout: whatever others send at the same time, a
    /// burst finds its way.
    pub(super) fn collapse(&mut self, oldest: Psn, end: Psn) {
        self.shrink(oldest, end);
        self.size = STEP;
    }

    /// Something is lost, or congestion told of, while the numbers from `oldest` to before `end` are
    /// on their way.
    pub(super) fn shrink(&mut self, oldest: Psn, end: Psn) {
        if self.shrunk.is_some_and(|shrunk| oldest.compare(shrunk).is_lt()) {
            return;
        }
        self.shrunk = Some(end);
        self.gained = 0;
        self.size = (self.size / 2).max(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: PSN-07
    #[test]
    fn it_stays_between_a_burst_and_its_limit() {
        for limit in [0, 1 << 10, 300_000, 1 << 20, u64::MAX] {
            let mut window = SendWindow::new(limit);
            let most = limit.max(STEP);
            for _ in 0..1000 {
                window.acknowledged(1 << 20);
                assert!((STEP..=most).contains(&window.size));
                assert!(window.packets(256) < 1 << 23);
            }
            for lost in 0..1000 {
                window.shrink(Psn::new(lost), Psn::new(lost));
            }
            assert_eq!(window.size, STEP);
            assert!(window.read_limit() <= most && window.read_limit().is_multiple_of(4096));
        }
    }

    /// Rules: CNP-04
    #[test]
    fn what_one_window_loses_counts_once() {
        let mut window = SendWindow::new(1 << 20);
        let psn = Psn::new;
        window.shrink(psn(0xff_fff0), psn(16));
        window.shrink(psn(0xff_fff8), psn(20));
        window.shrink(psn(15), psn(30));
        assert_eq!(window.size, INITIAL / 2);
        window.shrink(psn(16), psn(40));
        assert_eq!(window.size, STEP);
        window.acknowledged(STEP - 1);
        assert_eq!(window.size, STEP);
        window.acknowledged(1);
        assert_eq!(window.size, 2 * STEP);
    }

    #[test]
    fn it_is_a_burst_after_a_timeout_and_grows_again() {
        let mut window = SendWindow::new(1 << 20);
        window.shrink(Psn::new(0), Psn::new(9));
        assert_eq!(window.size, INITIAL / 2);
        // Also if it has shrunk for these numbers already.
        window.collapse(Psn::new(1), Psn::new(9));
        assert_eq!(window.size, STEP);
        window.acknowledged(STEP);
        assert_eq!(window.size, 2 * STEP);
    }
}
