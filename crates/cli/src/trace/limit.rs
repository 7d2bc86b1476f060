//! How much is written in a second at most, and what is left out for it.

/// The length of a window, in nanoseconds. At its beginning everything is written. When its share is used up, the rest
/// of it is left out: so what is there, is there whole.
const WINDOW: u64 = 100_000_000;

/// The limit, and how much of the current window's share is used.
#[derive(Debug)]
pub(super) struct Limit {
    /// Bytes of a window.
    share: u64,
    window: u64,
    /// How much was written when the window began.
    before: u64,
    /// What is left out of this window: how many, and since when.
    left: Option<(u64, u64)>,
    total: u64,
}

/// A part of the time in which events are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) since: u64,
    pub(super) until: u64,
    pub(super) events: u64,
}

impl Limit {
    /// So many bytes a second.
    pub(super) fn new(bytes: u64) -> Self {
        let share = (bytes / (1_000_000_000 / WINDOW)).max(1);
        Self { share, window: 0, before: 0, left: None, total: 0 }
    }

    /// Time has come to this, and so much was written so far. Returns what was left out, if that is over.
    pub(super) fn advance(&mut self, time: u64, written: u64) -> Option<LeftOut> {
        let window = time / WINDOW;
        if window <= self.window {
            return None;
        }
        let until = (self.window + 1) * WINDOW;
        (self.window, self.before) = (window, written);
        self.end(until)
    }

    /// Whether something is left out, because its share is used up.
    pub(super) fn leaves_out(&mut self, time: u64, written: u64) -> bool {
        let leaves = written.saturating_sub(self.before) >= self.share;
        if leaves {
            self.left.get_or_insert((0, time)).0 += 1;
            self.total += 1;
        }
        leaves
    }

    /// The same for what is rare and says much: it has as much again.
    pub(super) fn leaves_out_rare(&mut self, time: u64, written: u64) -> bool {
        written.saturating_sub(self.before) >= 2 * self.share && self.leaves_out(time, written)
    }

    /// What is left out of the last window.
    pub(super) fn end(&mut self, until: u64) -> Option<LeftOut> {
        let (events, since) = self.left.take()?;
        Some(LeftOut { since, until: until.max(since), events })
    }

    /// How much is left out in all.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: SEE-45
    #[test]
    fn what_comes_after_the_share_of_a_window_is_left_out_and_counted() {
        let mut limit = Limit::new(10_000);
        let mut written = 0;
        let mut write = |limit: &mut Limit, time| {
            let over = limit.advance(time, written);
            let leaves = limit.leaves_out(time, written);
            written += if leaves { 0 } else { 300 };
            (leaves, over)
        };
        let at = |time| 5 * WINDOW + time;
        let kept: Vec<_> = (0..6).map(|time| write(&mut limit, at(time)).0).collect();
        assert_eq!(kept, [false, false, false, false, true, true]);
        let over = LeftOut { since: at(4), until: at(WINDOW), events: 2 };
        assert_eq!(write(&mut limit, at(WINDOW + 7)), (false, Some(over)));
        assert_eq!(write(&mut limit, at(WINDOW + 8)), (false, None));
        assert_eq!((limit.end(at(2 * WINDOW)), limit.total()), (None, 2));
    }
}
