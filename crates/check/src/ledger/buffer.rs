//! The buffers of a work request, and what was in them.

use std::ops::Range;

/// A buffer that a work request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The L_Key.
    pub key: u32,
    /// The address, as the region counts.
    pub address: u64,
    /// The bytes.
    pub length: u64,
    /// The registration that the key named when it was posted.
    pub(super) region: Option<u64>,
    /// Where the program has it.
    pub(super) at: Option<u64>,
}

impl Buffer {
    /// A buffer as a work request names it.
    pub const fn new(key: u32, address: u64, length: u64) -> Self {
        Self { key, address, length, region: None, at: None }
    }

    pub(super) fn range(&self) -> Option<Range<u64>> {
        let start = self.at.filter(|_| self.length > 0)?;
        Some(start..start.saturating_add(self.length))
    }
}

/// Some bytes of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the program has them.
    pub at: u64,
    /// Where they are in the data of the request.
    pub offset: u64,
    /// What they were.
    pub bytes: Vec<u8>,
}

/// What was in a source when it was posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Pieces of it, or all.
    pub pieces: Vec<Piece>,
    /// What had landed by then.
    pub(super) since: u64,
}
