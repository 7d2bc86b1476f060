//! What becomes of messages on their way.

use transom_cm::Transmit;

use crate::random::Random;
use crate::simulation::MILLISECOND;

/// A network that is bad in some ways, or in none; chances are of a hundred.
pub(crate) struct Network {
    loss: u32,
    duplication: u32,
    delay: u32,
    replay: u32,
    longest_delay: u64,
    past: Vec<Transmit>,
}

impl Network {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let mut drawn = |rates: &[u32]| random.one_of(rates);
        Self {
            loss: drawn(&[0, 1, 10, 35]),
            duplication: drawn(&[0, 5, 30]),
            delay: drawn(&[0, 10, 50]),
            replay: drawn(&[0, 2, 20]),
            longest_delay: random.one_of(&[10, 1_000, 20_000]) * MILLISECOND,
            past: Vec::new(),
        }
    }

    /// Whether so little is lost that sixteen losses one after the other do not happen.
    pub(crate) fn is_fair(&self) -> bool {
        self.loss <= 10
    }

    /// The arrivals of a message, and after which time.
    pub(crate) fn carry(&mut self, sent: &Transmit, random: &mut Random) -> Vec<(u64, Transmit)> {
        let mut arrivals = Vec::new();
        if !random.chance(self.loss) {
            let copies = 1 + u32::from(random.chance(self.duplication));
            for _ in 0..copies {
                let delay =
                    if random.chance(self.delay) { random.below(self.longest_delay) } else { 0 };
                arrivals.push((MILLISECOND + delay, sent.clone()));
            }
        }
        if random.chance(self.replay) && !self.past.is_empty() {
            let old = &self.past[random.below(self.past.len() as u64) as usize];
            arrivals.push((MILLISECOND, old.clone()));
        }
        if self.replay > 0 {
            self.past.push(sent.clone());
        }
        arrivals
    }
}
