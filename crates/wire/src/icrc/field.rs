//! The CRC register as a polynomial, and its values before and after zeros go through it.

/// The polynomial, its bits reflected: bit 31 is x^0 (rule CRC-01).
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;
pub(super) const X: u32 = ONE >> 1;
const WORD_BITS: usize = 32;

/// Entries of the fine table.
const FINE: usize = 128;
/// Entries of the coarse table: enough for all words of an IP packet.
const COARSE: usize = 130;

/// Factors that take the register back over 0, 1, 2, … words.
static FINE_BACK: [u32; FINE] = powers(power(inverse_of_x(), WORD_BITS));
/// The same in steps of [`FINE`] words.
static COARSE_BACK: [u32; COARSE] = powers(power(inverse_of_x(), WORD_BITS * FINE));

/// The register as it was before `words` words of zeros, fewer than `FINE * COARSE`.
pub(super) fn back(register: u32, words: usize) -> u32 {
    multiply(multiply(register, FINE_BACK[words % FINE]), COARSE_BACK[words / FINE])
}

/// The product of two polynomials, modulo [`POLYNOMIAL`].
pub(super) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = WORD_BITS;
    while bit > 0 {
        bit -= 1;
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = b >> 1 ^ POLYNOMIAL & (b & 1).wrapping_neg();
    }
    product
}

/// The polynomial whose product with x is 1.
const fn inverse_of_x() -> u32 {
    (ONE ^ POLYNOMIAL) << 1 | 1
}

pub(super) const fn power(base: u32, exponent: usize) -> u32 {
    let (mut power, mut square, mut left) = (ONE, base, exponent);
    while left > 0 {
        if left % 2 == 1 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        left /= 2;
    }
    power
}

const fn powers<const N: usize>(base: u32) -> [u32; N] {
    let mut powers = [ONE; N];
    let mut at = 1;
    while at < N {
        powers[at] = multiply(powers[at - 1], base);
        at += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc32fast::Hasher;

    #[test]
    fn going_back_undoes_words_of_zeros() {
        let register = 0x1234_5678;
        for words in [0, 1, 5, FINE - 1, FINE, FINE + 1, 1040, FINE * COARSE - 1] {
            // Two registers go over the same zeros; their difference is the register without the
            // complements at start and end.
            let mut hashers = [Hasher::new_with_initial(0), Hasher::new_with_initial(register)];
            for _ in 0..words {
                hashers.iter_mut().for_each(|hasher| hasher.update(&[0; 4]));
            }
            let [none, some] = hashers.map(Hasher::finalize);
            assert_eq!(back(none ^ some, words), register, "{words} words");
        }
    }
}
