//! A call of the program.

/// The most callers that are kept of a call.
pub const DEPTH: usize = 12;

/// A call: the thread that made it, and the return addresses of its callers, innermost first.
///
/// It has a fixed size, so recording one allocates nothing. The command looks up the names afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Call {
    frames: [usize; DEPTH],
    depth: u8,
    /// The thread, by the system's number.
    pub thread: u32,
}

impl Call {
    /// A call by a thread, with no callers known yet.
    pub const fn by(thread: u32) -> Self {
        Self { frames: [0; DEPTH], depth: 0, thread }
    }

    /// A call by a thread with this many callers, innermost first, and zeros behind them.
    pub const fn of(thread: u32, (frames, count): ([usize; DEPTH], usize)) -> Self {
        Self { frames, depth: if count < DEPTH { count as u8 } else { DEPTH as u8 }, thread }
    }

    /// Adds the next caller. Returns false if there is no room.
    pub fn push(&mut self, address: usize) -> bool {
        let Some(place) = self.frames.get_mut(usize::from(self.depth)) else { return false };
        *place = address;
        self.depth += 1;
        true
    }

    /// The return addresses, innermost first.
    pub fn frames(&self) -> &[usize] {
        &self.frames[..usize::from(self.depth)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_keeps_the_innermost_callers() {
        let mut call = Call::by(7);
        let taken = (1..=20).take_while(|address| call.push(*address)).count();
        let expected: [usize; DEPTH] = std::array::from_fn(|nth| nth + 1);
        assert_eq!((taken, call.frames()), (DEPTH, &expected[..]));
        assert_eq!(Call::of(7, (expected, DEPTH)), call);
    }
}
