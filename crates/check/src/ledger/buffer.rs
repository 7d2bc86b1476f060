//! The buffers of a work request, and their content at the post.

use std::ops::Range;

/// A buffer that a work request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The L_Key.
    pub key: u32,
    /// The address, counted from the region's base.
    pub address: u64,
    /// The length in bytes.
    pub length: u64,
    /// The registration that the key named when it was posted.
    pub(super) region: Option<u64>,
    /// Its address in the program's memory.
    pub(super) at: Option<u64>,
    /// Its place, as the device reads it.
    pub(super) place: Option<u64>,
}

impl Buffer {
    /// A buffer as a work request names it.
    pub const fn new(key: u32, address: u64, length: u64) -> Self {
        Self { key, address, length, region: None, at: None, place: None }
    }

    pub(super) fn range(&self) -> Option<Range<u64>> {
        let start = self.at.filter(|_| self.length > 0)?;
        Some(start..start.saturating_add(self.length))
    }
}

/// A part of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its address in the program's memory.
    pub at: u64,
    /// Its place, as the device reads it.
    pub place: u64,
    /// Its offset in the data of the request, in bytes.
    pub offset: u64,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The content of a source when it was posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Parts of the source, or all of it.
    pub pieces: Vec<Piece>,
    /// The count of written targets at the time of the sample.
    pub(super) since: u64,
}
