//! The content that the ends send each other. The same seed, end and round give the same content.

use transom_conformance::random::Random;

/// The kind of content in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Written to the other end.
    Write,
    /// Read by the other end.
    Shelf,
    /// The message that ends the round.
    Message,
}

/// The content of one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    seed: u64,
    largest: usize,
}

impl Content {
    pub(crate) fn new(seed: u64, is_client: bool, largest: usize) -> Self {
        Self { seed: seed.wrapping_mul(2).wrapping_add(is_client.into()), largest }
    }

    fn random(&self, round: u32, salt: u64) -> Random {
        let mut random = Random::new(self.seed);
        Random::new(random.number() ^ (u64::from(round) << 8 | salt))
    }

    /// The offset of the bytes in their place, and their number. Both are often at the limits of packets.
    pub(crate) fn range(&self, round: u32, what: What) -> (usize, usize) {
        let mut random = self.random(round, 16 + what as u64);
        let some = random.below(self.largest + 1);
        let lengths = [0, 1, 8, 255, 1024, 1025, 4095, 4096, 8193, some, some];
        let length = random.one_of(&lengths).min(self.largest);
        (random.below(self.largest - length + 1), length)
    }

    /// The bytes.
    pub(crate) fn bytes(&self, round: u32, what: What) -> Vec<u8> {
        let (_, length) = self.range(round, what);
        let mut random = self.random(round, what as u64);
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend(random.number().to_ne_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// The number that the end's FETCH_ADD adds to the word of the other end.
    pub(crate) fn added(&self, round: u32) -> u64 {
        self.random(round, 32).number()
    }

    /// The number that its CMP_SWAP puts there afterwards. In every other round the CMP_SWAP must fail.
    pub(crate) fn swapped(&self, round: u32) -> Option<u64> {
        round.is_multiple_of(2).then(|| self.random(round, 33).number())
    }

    /// The word of the other end after a round, given its value before.
    pub(crate) fn word_after(&self, round: u32, before: u64) -> u64 {
        self.swapped(round).unwrap_or(before.wrapping_add(self.added(round)))
    }
}
