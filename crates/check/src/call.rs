//! A call of the program.

/// How many callers are kept of a call.
pub const DEPTH: usize = 12;

/// A call: the thread that made it, and the return addresses of those who called, the innermost first.
///
/// It has fixed room, so that taking one down allocates nothing. Names are looked up afterwards, by the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    frames: [usize; DEPTH],
    depth: u8,
    /// The thread, as the system numbers it.
    pub thread: u32,
}

impl Call {
    /// A call by a thread, with no callers known yet.
    pub const fn by(thread: u32) -> Self {
        Self { frames: [0; DEPTH], depth: 0, thread }
    }

    /// Adds the next caller; false if there is no room for more.
    pub fn push(&mut self, address: usize) -> bool {
        let Some(place) = self.frames.get_mut(usize::from(self.depth)) else { return false };
        *place = address;
        self.depth += 1;
        true
    }

    /// The return addresses, the innermost first.
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
        assert_eq!((taken, call.frames()), (DEPTH, &(1..=DEPTH).collect::<Vec<_>>()[..]));
    }
}
