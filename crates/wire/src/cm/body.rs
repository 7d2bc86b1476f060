//! Bytes with fields at fixed places, all in network order.

use super::fields::Bits;

/// A header or a message.
pub(super) struct Body<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> Body<N> {
    pub(super) fn bytes<const M: usize>(&self, at: usize) -> [u8; M] {
        let mut bytes = [0; M];
        bytes.copy_from_slice(&self.0[at..at + M]);
        bytes
    }

    pub(super) fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }

    pub(super) fn u24(&self, at: usize) -> Bits<24> {
        let [high, middle, low] = self.bytes(at);
        Bits::low(u32::from_be_bytes([0, high, middle, low]))
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    /// `WIDTH` bits of a byte, above its lowest `shift`.
    pub(super) fn bits<const WIDTH: u32>(&self, at: usize, shift: u32) -> Bits<WIDTH> {
        Bits::low(u32::from(self.0[at]) >> shift)
    }

    pub(super) fn bit(&self, at: usize, shift: u32) -> bool {
        self.0[at] >> shift & 1 == 1
    }

    pub(super) fn set<const M: usize>(&mut self, at: usize, bytes: [u8; M]) {
        self.0[at..at + M].copy_from_slice(&bytes);
    }

    pub(super) fn set_u24(&mut self, at: usize, value: Bits<24>) {
        let [_, bytes @ ..] = value.get().to_be_bytes();
        self.set(at, bytes);
    }

    /// Adds bits to a byte that has none there yet.
    pub(super) fn set_bits<const WIDTH: u32>(&mut self, at: usize, shift: u32, value: Bits<WIDTH>) {
        self.0[at] |= (value.get() << shift) as u8;
    }

    pub(super) fn set_bit(&mut self, at: usize, shift: u32, value: bool) {
        self.0[at] |= u8::from(value) << shift;
    }
}
