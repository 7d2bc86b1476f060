//! Queue pair numbers: the process's slot on top, an index below (docs/design/processes.md).

/// A 24-bit queue pair number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpNumber(u32);

impl QpNumber {
    /// The number of a process slot and an index.
    pub const fn new(slot: u8, index: u16) -> Self {
        Self((slot as u32) << 16 | index as u32)
    }

    /// The low 24 bits of `value` (rule ST-06).
    pub const fn from_bits(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// The number, below 2^24.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The registry slot of its process.
    pub const fn slot(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// The index within its process.
    pub const fn index(self) -> u16 {
        self.0 as u16
    }
}

impl core::fmt::Display for QpNumber {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
