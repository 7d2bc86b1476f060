//! High-water marks: how full queues were.

use std::fmt::{self, Display};

/// A sort of queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// The send queue of a queue pair.
    Send,
    /// The receive queue of a queue pair.
    Receive,
    /// A shared receive queue.
    SharedReceive,
    /// A completion queue.
    Completion,
}

impl Queue {
    const ALL: [Self; 4] = [Self::Send, Self::Receive, Self::SharedReceive, Self::Completion];

    /// Its name for users, such as `send`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::SharedReceive => "shared_receive",
            Self::Completion => "completion",
        }
    }

    /// The sort with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|queue| queue.name() == name)
    }
}

/// How full a queue was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The most requests, or completions, that it held at a time.
    pub most: u64,
    /// The number that it was asked to hold.
    pub asked: u64,
}

impl Level {
    /// Whether it was full. A queue with one place is full whenever it is used.
    pub const fn is_full(self) -> bool {
        self.asked > 1 && self.most >= self.asked
    }

    /// Whether at most one place in eight was free.
    pub const fn is_near(self) -> bool {
        self.is_full() || (self.asked >= 8 && self.most >= self.asked - self.asked / 8)
    }

    /// Whether it was fuller than another.
    pub(crate) fn is_above(self, other: Self) -> bool {
        let share = |one: Self, other: Self| u128::from(one.most) * u128::from(other.asked.max(1));
        share(self, other) > share(other, self)
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.most, self.asked)
    }
}

/// The queues of one sort that were made at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark<C> {
    /// Their sort.
    pub queue: Queue,
    /// How full the fullest of them was.
    pub level: Level,
    /// How many there were.
    pub count: u64,
    /// The call that made the first of them.
    pub made: C,
}

impl<C> Mark<C> {
    /// Adds others of the same place.
    pub fn join(&mut self, level: Level, count: u64) {
        self.count = self.count.saturating_add(count);
        if level.is_above(self.level) {
            self.level = level;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: CHK-21
    #[test]
    fn a_queue_is_near_its_end_if_one_place_in_eight_is_free() {
        let level = |most, asked| Level { most, asked };
        for (most, asked, is_near, is_full) in [
            (16, 16, true, true),
            (20, 16, true, true),
            (14, 16, true, false),
            (13, 16, false, false),
            (7, 8, true, false),
            (6, 7, false, false),
            (7, 7, true, true),
            (1, 1, false, false),
            (0, 0, false, false),
            (3, 0, false, false),
        ] {
            let it = level(most, asked);
            assert_eq!((it.is_near(), it.is_full()), (is_near, is_full), "{it}");
        }
        assert!(level(3, 4).is_above(level(5, 8)) && !level(4, 8).is_above(level(2, 4)));
        assert!(level(1, 8).is_above(level(0, 0)));
    }

    #[test]
    fn names_are_of_one_sort_each() {
        for queue in Queue::ALL {
            assert_eq!(Queue::named(queue.name()), Some(queue));
        }
        assert_eq!(Queue::named("other"), None);
    }
}
