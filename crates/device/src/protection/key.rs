//! Keys: a 24-bit index and an 8-bit key (rules KEY-01 to KEY-03).

/// An R_Key or L_Key as programs and packets carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u32);

impl Key {
    /// The key of an index below 2^24 and a key byte.
    pub const fn new(index: u32, byte: u8) -> Self {
        Self((index << 8) | byte as u32)
    }

    /// Bits 31 to 8, fixed for the life of the object.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Bits 7 to 0, changing with each binding.
    pub const fn byte(self) -> u8 {
        self.0 as u8
    }

    /// The same index with another byte (rules KEY-03, KEY-09).
    #[must_use]
    pub const fn with_byte(self, byte: u8) -> Self {
        Self((self.0 & !0xff) | byte as u32)
    }

    /// The next key of the same index, as `ibv_inc_rkey` counts (rule KEY-02).
    #[must_use]
    pub const fn next(self) -> Self {
        self.with_byte(self.byte().wrapping_add(1))
    }
}

impl core::fmt::Display for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: KEY-01, KEY-02
    #[test]
    fn counting_a_key_changes_its_low_byte_only() {
        assert_eq!(Key(0x1234_56ff).next(), Key(0x1234_5600));
        assert_eq!(Key::new(0x12_3456, 0xff), Key(0x1234_56ff));
        assert_eq!(Key(0x1234_56ff).index(), 0x12_3456);
    }
}

/// The address of a request at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// First address of the whole message, as the object that the key names counts its addresses.
    pub address: u64,
    /// R_Key.
    pub key: Key,
}
