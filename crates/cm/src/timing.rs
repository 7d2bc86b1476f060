//! Timeouts of answers, and retries (rules CM-14, CM-16, CM-43, CM-48).

use transom_wire::cm::{Bits, TimeCode};

/// The nanoseconds in a millisecond. The engine's time counts nanoseconds, from any beginning.
pub const MILLISECOND: u64 = 1_000_000;

/// The packet life time that Linux uses for RoCE.
pub const LIFE_TIME: TimeCode = code(16);

const fn code(code: u8) -> TimeCode {
    TimeCode::of(Bits::low(code as u32))
}

/// The times of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time in which an end must answer. Messages carry it, and it is the wait for an answer.
    pub response: TimeCode,
    /// The number of repeats of a message.
    pub retries: Bits<4>,
    /// The time for which an MRA asks the other end to wait.
    pub service: TimeCode,
    /// The time after which an exchange is given up, in nanoseconds from its first message, whatever an MRA asks for.
    pub give_up: Option<u64>,
}

impl Timing {
    /// Linux's times: a REQ is given up after 74 seconds (rule CM-14).
    pub const LINUX: Self =
        Self { response: code(20), retries: Bits::MAX, service: code(24), give_up: None };

    /// The times to give up an exchange after this many milliseconds. It has 16 tries, evenly spread. The times in
    /// messages have the form 2^t, and are as near to that as possible.
    pub fn giving_up_after(milliseconds: u64) -> Self {
        let give_up = Some(milliseconds.saturating_mul(MILLISECOND));
        let fits = |response: &TimeCode| {
            Self { response: *response, ..Self::LINUX }.request(LIFE_TIME) * TRIES
                <= milliseconds.saturating_mul(MILLISECOND)
        };
        let longest = (0..=Self::LINUX.response.code()).rev().map(code).find(fits);
        Self { response: longest.unwrap_or(code(0)), give_up, ..Self::LINUX }
    }

    /// The nanoseconds until a REQ is repeated. The packet life time of each direction counts for at most the response
    /// time, so that it does not make a short wait long.
    pub fn request(&self, life_time: TimeCode) -> u64 {
        let (way, answer) = (life_time.min(self.response), self.response);
        self.shared_out(2 * way.milliseconds() + answer.milliseconds())
    }

    /// The nanoseconds until a SIDR_REQ is repeated.
    pub fn resolution(&self) -> u64 {
        self.shared_out(self.response.milliseconds())
    }

    /// This many milliseconds, in nanoseconds; or, with a give-up time, an equal share of that for each try.
    fn shared_out(&self, milliseconds: u64) -> u64 {
        self.give_up
            .map_or(milliseconds * MILLISECOND, |give_up| (give_up / TRIES).max(MILLISECOND))
    }
}

/// The number of tries of a message.
const TRIES: u64 = Timing::LINUX.retries.get() as u64 + 1;

/// Twice the time: there and back.
pub fn twice(life_time: TimeCode) -> TimeCode {
    code((life_time.code() + 1).min(31))
}

/// The ACK timeout of a queue pair: the adapter's delay plus the packet life time there and back. It is rounded up to a
/// power of two only where that matters (rule CM-48).
pub fn ack_timeout(delay: TimeCode, life_time: TimeCode) -> TimeCode {
    let (delay, way) = (delay.code(), life_time.code() + 1);
    let rounded = if way >= delay {
        way + u8::from(delay >= way - 1)
    } else {
        delay + u8::from(way >= delay - 1)
    };
    code(rounded.min(31))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: CM-14
    #[test]
    fn linux_gives_up_a_req_after_74_seconds() {
        assert_eq!(Timing::LINUX.request(LIFE_TIME), 4608 * MILLISECOND);
        assert_eq!(Timing::LINUX.request(LIFE_TIME) * TRIES, 73_728 * MILLISECOND);
        assert_eq!(Timing::LINUX.resolution(), 4096 * MILLISECOND);
    }

    /// Rules: CM-43
    #[test]
    fn a_shorter_timeout_makes_everything_shorter() {
        for milliseconds in [16, 48, 100, 1_000, 10_000, 73_728] {
            let timing = Timing::giving_up_after(milliseconds);
            let tries = timing.request(LIFE_TIME) * TRIES;
            assert_eq!(tries, milliseconds * MILLISECOND, "{timing:?}");
            assert_eq!(timing.resolution(), timing.request(LIFE_TIME));
            assert!(timing.response.milliseconds() * TRIES <= milliseconds.max(16));
        }
        assert_eq!(Timing::giving_up_after(73_728).response, Timing::LINUX.response);
        assert_eq!(Timing::giving_up_after(u64::MAX).response, Timing::LINUX.response);
        assert_eq!(Timing::giving_up_after(0).request(LIFE_TIME), MILLISECOND);
    }

    /// Rules: CM-48
    #[test]
    fn an_ack_timeout_is_rounded_up_where_delay_and_way_are_alike() {
        let timeout = |delay, life_time| ack_timeout(code(delay), code(life_time)).code();
        assert_eq!(timeout(15, 18), 19);
        assert_eq!(timeout(15, 16), 17);
        assert_eq!([timeout(16, 16), timeout(17, 16), timeout(18, 16)], [18, 18, 19]);
        assert_eq!([timeout(19, 16), timeout(25, 16), timeout(0, 31)], [19, 25, 31]);
        assert_eq!((timeout(15, 13), timeout(0, 0)), (16, 2));
    }
}
