//! Pieces of a message: for a device whose bytes land in no order (rule ORD-24).

use std::ops::Range;

/// The most pieces of a message.
const MOST: u64 = 64;

/// A message that lands in two turns: some of its pieces early, and the others late. Within a turn the last one comes
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The length of the message, and that of each piece but the last one.
    length: u64,
    size: u64,
    /// The pieces of each turn, as bits.
    early: u64,
    late: u64,
}

impl Pieces {
    /// Cuts a message up. `number` chooses the size of the pieces, from 1 to 64 bytes if the message is not too long
    /// for that, and which of them are early. `None` if it has no two bytes.
    pub fn cut(length: u64, number: u64) -> Option<Self> {
        if length < 2 {
            return None;
        }
        let size = (1 << (number % 7)).min(length.div_ceil(2)).max(length.div_ceil(MOST));
        let count = length.div_ceil(size);
        let all = u64::MAX >> (MOST - count);
        let (first, last) = (1, 1 << (count - 1));
        let some = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) & all;
        let early = match (number >> 3) % 4 {
            0 => last,
            1 => all & !first,
            2 => some | last,
            _ => some,
        };
        let early = match early {
            0 => last,
            early if early == all => all & !first,
            early => early,
        };
        Some(Self { length, size, early, late: all & !early })
    }

    /// The same, but what lands early lands again.
    pub fn again(self) -> Self {
        Self { late: self.early | self.late, ..self }
    }

    /// A message that lands twice as a whole.
    pub fn twice(length: u64) -> Self {
        Self { length, size: length, early: 1, late: 1 }
    }

    /// The length of the message.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What lands early, the last piece first.
    pub fn early(self) -> impl Iterator<Item = Range<u64>> {
        self.of(self.early)
    }

    /// What lands late, the last piece first.
    pub fn late(self) -> impl Iterator<Item = Range<u64>> {
        self.of(self.late)
    }

    fn of(self, turn: u64) -> impl Iterator<Item = Range<u64>> {
        let Self { length, size, .. } = self;
        let pieces = (0..MOST).rev().filter(move |piece| turn >> piece & 1 == 1);
        pieces.map(move |piece| piece * size..length.min((piece + 1) * size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: ORD-24
    #[test]
    fn each_byte_lands_in_one_of_two_turns_and_both_have_some() {
        for length in (2..300).chain([4095, 4096, 65537, 1 << 31]) {
            for number in 0..64 {
                let pieces = Pieces::cut(length, number * 0x0123_4567).unwrap();
                let of = |turn: Vec<Range<u64>>| turn.iter().map(|it| it.end - it.start).sum();
                let early: u64 = of(pieces.early().collect());
                let late: u64 = of(pieces.late().collect());
                assert!(early > 0 && late > 0, "{pieces:?}");
                assert_eq!(early + late, length, "{pieces:?}");
                let mut all: Vec<_> = pieces.early().chain(pieces.late()).collect();
                all.sort_by_key(|it| it.start);
                assert!(all.is_sorted_by(|one, next| one.end == next.start), "{pieces:?}");
                assert_eq!(of(pieces.again().late().collect()), length);
                assert_eq!(
                    pieces.again().early().collect::<Vec<_>>(),
                    pieces.early().collect::<Vec<_>>()
                );
            }
        }
        assert_eq!((Pieces::cut(0, 5), Pieces::cut(1, 5)), (None, None));
        assert_eq!(
            Pieces::twice(5).early().chain(Pieces::twice(5).late()).collect::<Vec<_>>(),
            [0..5, 0..5]
        );
    }

    #[test]
    fn the_last_byte_often_lands_first() {
        let firsts =
            (0..64).map(|number| Pieces::cut(1000, number).unwrap().early().next().unwrap());
        assert!(firsts.filter(|first| first.end == 1000).count() > 32);
    }
}
