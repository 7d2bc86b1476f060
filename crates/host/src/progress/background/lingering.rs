//! How long the background thread looks for more packets after one, before it sleeps again.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec};

/// How long the thread looks for more packets after one woke it, before it sleeps again. Waking it takes longer than
/// most peers need to send the next one.
const LINGER: Duration = Duration::from_micros(50);
/// If yielding took longer than this, another thread ran.
const GAVE_WAY: Duration = Duration::from_micros(100);
/// How long it does not linger after that. Some threads never wait, like a program that spins on memory. A thread that
/// yields to one gets the processor back only after milliseconds, but at once if it is woken. The first value is the
/// first pause, short because most threads want a processor for a moment. The second is the longest. The pause doubles
/// each time until the thread has lingered without others.
const CROWDED: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(128)];

/// The result of lingering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lingered {
    /// Something is ready.
    Ready,
    InVain,
    /// Others want the processor.
    Crowded,
}

/// How long it paused when others last wanted the processor, while they still do.
#[derive(Default)]
pub(super) struct Lingering {
    /// For how long it did not when others wanted the processor last, while they do.
    pause: Option<Duration>,
    /// Until then they want it.
    from: Option<Instant>,
}

impl Lingering {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.from.is_none_or(|from| now >= from)
    }

    pub(super) fn note(&mut self, lingered: Option<Lingered>, now: Instant) {
        let [first, most] = CROWDED;
        match lingered {
            None => {}
            Some(Lingered::Ready | Lingered::InVain) => *self = Self::default(),
            Some(Lingered::Crowded) => {
                let pause = self.pause.map_or(first, |pause| (2 * pause).min(most));
                (self.pause, self.from) = (Some(pause), Some(now + pause));
            }
        }
    }
}

/// Looks for a moment whether something becomes ready.
pub(super) fn linger(fds: &mut [PollFd<'_>]) -> Lingered {
    let end = Instant::now() + LINGER;
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        if transom_system::wait::poll(fds, Some(&at_once)).is_ok_and(|ready| ready > 0) {
            return Lingered::Ready;
        }
        let now = Instant::now();
        if now >= end {
            return Lingered::InVain;
        }
        std::thread::yield_now();
        if now.elapsed() > GAVE_WAY {
            return Lingered::Crowded;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that wants the processor for a moment does not stop the background thread from lingering for long.
    #[test]
    fn the_thread_lingers_again_soon_unless_it_is_crowded_again() {
        let mut lingering = Lingering::default();
        let mut now = Instant::now();
        let mut pause = |lingering: &mut Lingering| {
            lingering.note(Some(Lingered::Crowded), now);
            let begin = now;
            while !lingering.is_due(now) {
                now += Duration::from_millis(1);
                lingering.note(None, now);
            }
            (now - begin).as_millis()
        };
        assert!(lingering.is_due(Instant::now()));
        let pauses: Vec<_> = (0..9).map(|_| pause(&mut lingering)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 128]);
        lingering.note(Some(Lingered::InVain), Instant::now());
        assert_eq!(pause(&mut lingering), 1);
    }
}
