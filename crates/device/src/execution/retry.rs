//! Retries: how often and when a request is sent again (rules G.4).

use transom_wire::RnrTimer;

/// How to react to a request that got no answer, or "receiver not ready".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send again at this time.
    At(u64),
    /// Wait for ever: the timeout is switched off (rule RN-06).
    Never,
    /// The last attempt is given its time, then the request has failed.
    GiveUpAt(u64),
    /// The retries are used up.
    Exceeded,
}

/// The retry counters of one requester.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retry {
    /// `timeout`: the exponent of 4.096 µs; zero for no timeout.
    pub timeout: u8,
    /// `retry_cnt`, 0 to 7.
    pub count: u8,
    /// `rnr_retry`, 0 to 6; 7 for ever (rule RN-04).
    pub rnr_count: u8,
    timeouts: u8,
    rnrs: u8,
    /// Waits for an answer that have passed in vain, one after the other.
    silences: u8,
}

/// Every wait in vain doubles the next one, at most so often: up to four times the timeout, as long as the
/// specification lets an adapter wait. So a loss is noticed soon, and a peer that is busy, or not ready yet, gets more
/// time than one timeout for each retry.
const DOUBLINGS: u8 = 2;

impl Retry {
    /// Progress was made: counters start again (rules RN-05, RN-08).
    pub fn reload(&mut self) {
        self.timeouts = 0;
        self.rnrs = 0;
        self.silences = 0;
    }

    /// How long to wait for an answer now, in nanoseconds; `None` for ever (rule RN-06).
    pub fn wait(&self) -> Option<u64> {
        let doublings = self.silences.min(DOUBLINGS);
        (self.timeout != 0).then(|| 4_096 << (self.timeout.min(31) + doublings))
    }

    /// A wait has passed in vain.
    pub fn note_silence(&mut self) {
        self.silences = self.silences.saturating_add(1);
    }

    /// A request was lost, which shows when the wait for its answer is over (rule RN-07).
    pub fn lost(&mut self, now: u64) -> Verdict {
        let Some(timeout) = self.wait() else { return Verdict::Never };
        self.note_silence();
        // The program may have lowered the count meanwhile.
        if self.timeouts >= self.count {
            return Verdict::GiveUpAt(now + timeout);
        }
        self.timeouts += 1;
        Verdict::At(now + timeout)
    }

    /// A request was lost, and its time is over or its loss was told: it goes out again at once
    /// (rules RN-07, RN-10).
    pub fn resend(&mut self, now: u64) -> Verdict {
        if self.timeouts >= self.count {
            return Verdict::Exceeded;
        }
        self.timeouts += 1;
        Verdict::At(now)
    }

    /// The receiver was not ready (rules RN-02, RN-03). It is there, and the request came to it, so earlier losses do
    /// not count any more. Otherwise some losses would end a wait that may last for ever (rule RN-04).
    pub fn not_ready(&mut self, now: u64, timer: RnrTimer) -> Verdict {
        (self.timeouts, self.silences) = (0, 0);
        if self.rnr_count < 7 {
            if self.rnrs >= self.rnr_count {
                return Verdict::Exceeded;
            }
            self.rnrs += 1;
        }
        Verdict::At(now + timer.nanoseconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: RN-06, RN-07
    #[test]
    fn a_lost_request_is_sent_once_more_than_the_retry_count() {
        let mut retry = Retry { timeout: 14, count: 2, ..Retry::default() };
        let timeout = 4_096 << 14;
        assert_eq!(retry.lost(0), Verdict::At(timeout));
        assert_eq!(retry.lost(0), Verdict::At(2 * timeout));
        assert_eq!(retry.lost(5), Verdict::GiveUpAt(5 + 4 * timeout));
        retry.reload();
        assert_eq!(retry.lost(0), Verdict::At(timeout));
        let mut never = Retry { timeout: 0, count: 7, ..Retry::default() };
        assert_eq!(never.lost(0), Verdict::Never);
    }

    /// Rules: RN-06
    #[test]
    fn waits_in_vain_grow_to_four_timeouts_and_no_further() {
        for timeout in [1, 14, 31] {
            let mut retry = Retry { timeout, count: 7, ..Retry::default() };
            let waits: Vec<_> = (0..1000)
                .map(|_| {
                    let wait = retry.wait().expect("it ends");
                    retry.note_silence();
                    wait >> timeout
                })
                .collect();
            assert_eq!(waits[..4], [4_096, 8_192, 16_384, 16_384]);
            assert!(waits[4..].iter().all(|wait| *wait == 16_384));
            retry.reload();
            assert_eq!(retry.wait(), Some(4_096 << timeout));
        }
    }

    /// Rules: RN-07, RN-08, RN-10
    #[test]
    fn what_is_known_to_be_lost_goes_out_at_once() {
        let mut retry = Retry { timeout: 0, count: 2, ..Retry::default() };
        for _ in 0..3 {
            assert_eq!(retry.resend(7), Verdict::At(7));
            assert_eq!(retry.resend(8), Verdict::At(8));
            assert_eq!(retry.resend(9), Verdict::Exceeded);
            retry.reload();
        }
    }

    /// Rules: RN-03, RN-07
    #[test]
    fn a_count_that_is_lowered_below_what_is_used_up_is_used_up() {
        let mut retry = Retry { timeout: 14, count: 6, rnr_count: 6, ..Retry::default() };
        let timer = RnrTimer::new(1).expect("a code");
        for _ in 0..4 {
            assert!(matches!(retry.not_ready(0, timer), Verdict::At(_)));
        }
        retry.rnr_count = 2;
        assert_eq!(retry.not_ready(0, timer), Verdict::Exceeded);
        for _ in 0..4 {
            assert!(matches!(retry.lost(0), Verdict::At(_)));
        }
        retry.count = 2;
        assert!(matches!(retry.lost(0), Verdict::GiveUpAt(_)));
    }

    /// Rules: RN-03, RN-04, RN-05
    #[test]
    fn seven_rnr_retries_are_for_ever() {
        let timer = RnrTimer::new(1).unwrap();
        let mut retry = Retry { rnr_count: 1, ..Retry::default() };
        assert_eq!(retry.not_ready(0, timer), Verdict::At(10_000));
        assert_eq!(retry.not_ready(0, timer), Verdict::Exceeded);
        retry.reload();
        assert_eq!(retry.not_ready(0, timer), Verdict::At(10_000));
        let mut forever = Retry { rnr_count: 7, ..Retry::default() };
        for _ in 0..1000 {
            assert_eq!(forever.not_ready(0, timer), Verdict::At(10_000));
        }
    }

    /// Rules: RN-04, RN-08
    #[test]
    fn losses_do_not_end_a_wait_for_a_receiver() {
        let timer = RnrTimer::new(1).unwrap();
        let mut retry = Retry { timeout: 1, count: 1, rnr_count: 7, ..Retry::default() };
        for _ in 0..100 {
            assert_eq!(retry.resend(0), Verdict::At(0));
            assert_eq!(retry.not_ready(0, timer), Verdict::At(10_000));
        }
        assert_eq!(retry.resend(0), Verdict::At(0));
        assert_eq!(retry.resend(0), Verdict::Exceeded);
    }
}
