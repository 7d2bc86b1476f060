//! Numbers that nobody may foresee: PSNs and communication ids. If you know those of a connection, you can send
//! messages that seem to belong to it.
//!
//! SipHash 2-4 makes them from a secret. However many of them you know, you cannot predict the next one.

use std::hash::Hasher;
#[expect(
    deprecated,
    reason = "it names its algorithm, SipHash 2-4, which the default hasher does not"
)]
use std::hash::SipHasher;

use transom_wire::Psn;

/// The numbers of an engine, and the counts of those given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    secret: Secret,
    ids: u32,
    psns: u64,
}

impl Numbers {
    pub(crate) fn new(seed: u128) -> Self {
        Self { secret: Secret(seed), ids: 0, psns: 0 }
    }

    /// The lower 24 bits of ids: each once, the least recently given first.
    pub(crate) fn ids(&mut self) -> impl Iterator<Item = u32> {
        (0..=LOW).map(|_| {
            let low = self.secret.id(self.ids & LOW);
            self.ids = self.ids.wrapping_add(1);
            low
        })
    }

    /// A PSN to begin with (rule CM-44).
    pub(crate) fn psn(&mut self) -> Psn {
        let psn = self.secret.psn(self.psns);
        self.psns += 1;
        psn
    }
}

/// The lower 24 bits of an id.
const LOW: u32 = 0xff_ffff;

/// The secret of an engine. It is random, except in a simulation.
#[derive(Clone, Copy, Debug)]
struct Secret(u128);

/// The purpose of a number. Numbers for one purpose reveal nothing about those for another.
#[derive(Clone, Copy)]
enum Purpose {
    Psn,
    /// A round of the order of ids.
    IdRound(u8),
}

const HALF_BITS: u32 = 12;
const HALF: u32 = (1 << HALF_BITS) - 1;
/// Four rounds make a permutation look random if you see little of it. These are more.
const ROUNDS: u8 = 8;

impl Secret {
    /// The `nth` PSN of an engine.
    fn psn(&self, nth: u64) -> Psn {
        Psn::new(self.number(Purpose::Psn, nth) as u32)
    }

    /// The lower 24 bits of the `nth` id of an engine. Each value comes once in 2^24, in an order that a Feistel
    /// network makes.
    fn id(&self, nth: u32) -> u32 {
        let (mut left, mut right) = (nth >> HALF_BITS & HALF, nth & HALF);
        for round in 0..ROUNDS {
            let mixed = self.number(Purpose::IdRound(round), right.into()) as u32 & HALF;
            (left, right) = (right, left ^ mixed);
        }
        left << HALF_BITS | right
    }

    fn number(&self, purpose: Purpose, of: u64) -> u64 {
        let purpose = match purpose {
            Purpose::Psn => [0, 0],
            Purpose::IdRound(round) => [1, round],
        };
        #[expect(deprecated, reason = "as above")]
        let mut hasher = SipHasher::new_with_keys((self.0 >> 64) as u64, self.0 as u64);
        hasher.write(&purpose);
        hasher.write(&of.to_be_bytes());
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A predictable generator would fail here. The state of SplitMix64 follows from three outputs; a factor and an
    /// offset follow from two.
    #[test]
    fn a_number_is_not_what_those_before_it_foretell() {
        let secret = Secret(0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978);
        let differences: BTreeSet<u32> = (0..1000)
            .map(|nth| secret.id(nth + 1).wrapping_sub(secret.id(nth)) & 0xff_ffff)
            .collect();
        assert!(differences.len() > 990, "ids that follow each other at a distance");
        let psns: BTreeSet<u32> = (0..1000).map(|nth| secret.psn(nth).value()).collect();
        assert!(psns.len() > 990);
        // Each bit of the seed must matter. Otherwise an attacker could try out the rest.
        for bit in 0..128 {
            let other = Secret(secret.0 ^ 1 << bit);
            assert_ne!(
                (0..4).map(|nth| other.id(nth)).collect::<Vec<_>>(),
                [0, 1, 2, 3].map(|nth| secret.id(nth))
            );
            assert_ne!([0, 1].map(|nth| other.psn(nth)), [0, 1].map(|nth| secret.psn(nth)));
        }
    }

    #[test]
    fn each_id_comes_once() {
        let secret = Secret(7);
        let mut seen = vec![false; 1 << 24];
        // All inputs with the same first half, and some of the others.
        for nth in (0..1 << 13).chain((1 << 13..1 << 24).step_by(997)) {
            assert!(!std::mem::replace(&mut seen[secret.id(nth) as usize], true));
        }
    }
}
