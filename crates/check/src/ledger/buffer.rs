//! The buffers of a work request, and their content while only the device may change it.

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

/// A part of a buffer.
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

/// The content of a request's buffers at some time, which only the device may change from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Parts of the buffers, or all of them.
    pub pieces: Vec<Piece>,
    /// The count of written targets at the time of the sample.
    pub(super) since: u64,
    /// The counts at which the request's own targets were among them.
    pub(super) own: Range<u64>,
}

impl Sample {
    /// The first so many bytes of the request's data are not compared.
    pub(super) fn leave_out(&mut self, bytes: u64) {
        for piece in &mut self.pieces {
            let length = piece.bytes.len() as u64;
            let out = bytes.saturating_sub(piece.offset).min(length);
            piece.bytes.drain(..out as usize);
            (piece.at, piece.place) = (piece.at + out, piece.place + out);
            piece.offset += out;
        }
        self.pieces.retain(|piece| !piece.bytes.is_empty());
    }
}
