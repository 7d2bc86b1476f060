//! When arrivals wake the background thread though the program polls.

/// For how many rounds the thread arms after it had to. A program may poll for its own work, and then wait for a peer's
/// WRITE by looking at memory. Without this, each such message would wait for the next check. It begins with few
/// rounds: a program that just lost its processor polls again, and takes messages faster than a thread that is woken
/// for each. The number doubles if the next check finds the same.
const VIGILANT: [u32; 2] = [8, 512];

/// The rounds in which arrivals wake the thread, whether or not the program polls.
pub(super) struct Vigil {
    /// How many are left.
    left: u32,
    /// The number of rounds for the next time it has to.
    next: u32,
}

impl Default for Vigil {
    fn default() -> Self {
        Self { left: 0, next: VIGILANT[0] }
    }
}

impl Vigil {
    pub(super) fn is_on(&self) -> bool {
        self.left > 0
    }

    pub(super) fn pass_round(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// A check has found that the program polls and yet leaves something, or that it does not.
    pub(super) fn note_look(&mut self, neglected: bool) {
        let [first, most] = VIGILANT;
        if neglected {
            self.last(self.next);
            self.next = (2 * self.next).min(most);
        } else {
            self.next = first;
        }
    }

    /// Makes it last so many rounds at least.
    pub(super) fn last(&mut self, rounds: u32) {
        self.left = self.left.max(rounds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that lost its processor once soon takes its packets itself again. A program that looks at memory keeps
    /// getting them from the thread.
    #[test]
    fn a_vigil_is_short_at_first_and_twice_as_long_while_it_is_needed() {
        let mut vigil = Vigil::default();
        let mut rounds = |neglected: bool| {
            vigil.note_look(neglected);
            let mut rounds = 0;
            while vigil.is_on() {
                vigil.pass_round();
                rounds += 1;
            }
            rounds
        };
        assert_eq!([(); 8].map(|()| rounds(true)), [8, 16, 32, 64, 128, 256, 512, 512]);
        assert_eq!([false, true, true].map(rounds), [0, 8, 16]);
        vigil.last(100);
        vigil.note_look(true);
        assert_eq!(vigil.left, 100, "a shorter one does not end it");
    }
}
