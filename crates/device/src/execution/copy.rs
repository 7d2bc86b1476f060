//! Copies between a party's own memory and memory that it was granted.

use crate::protection::{Attempt, Grant, Refusal, Witness};

/// Why a copy between two parties' memory stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The memory on the copying party's own side: refused by its key, or gone.
    #[error("the memory on this side: {0}")]
    Near(#[source] Refusal),
    /// The memory of the grant is gone (rule MR-40).
    #[error("the memory of the grant is gone")]
    Far,
}

/// Bytes on their way to granted memory.
pub trait Source {
    /// Copies the bytes from `offset` on to `bytes`, which they fill.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError>;

    /// The first eight bytes of the segment, as one number.
    fn word(&mut self) -> Result<u64, CopyError> {
        let mut bytes = [0; 8];
        self.read(0, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Copies the bytes from `offset` on, as many as the grant is long, to the granted memory.
    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError>;
}

/// The bytes of a source from an offset on.
pub(super) struct Behind<'a> {
    pub(super) skip: u64,
    pub(super) source: &'a mut dyn Source,
}

impl Source for Behind<'_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        self.source.read(self.skip + offset, bytes)
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        self.source.copy_to(self.skip + offset, at)
    }
}

/// A place for bytes that come from granted memory.
pub trait Sink {
    /// Copies the granted memory to `offset`.
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError>;
}

/// The bytes of a segment, on their way to or from memory that a peer touches: a witness is told of each copy while its
/// grant stands.
pub(super) struct Told<'a, D: ?Sized> {
    pub(super) data: &'a mut D,
    pub(super) witness: &'a dyn Witness,
    /// The message, from its first byte on.
    pub(super) attempt: Attempt,
    /// Where in its message the segment begins.
    pub(super) offset: u64,
    /// The peer asks once more for what it may have already.
    pub(super) again: bool,
}

impl<D: ?Sized> Told<'_, D> {
    fn tell(&self, offset: u64, at: &Grant<'_>) {
        let offset = self.offset + offset;
        let address = self.attempt.address.wrapping_add(offset);
        let attempt = Attempt { address, length: at.length(), ..self.attempt };
        self.witness.touched(&attempt, offset == 0 && !self.again);
    }
}

impl Source for Told<'_, dyn Source + '_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        self.data.read(offset, bytes)
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        self.data.copy_to(offset, at)?;
        self.tell(offset, at);
        Ok(())
    }
}

impl Sink for Told<'_, dyn Sink + '_> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        self.data.copy_from(offset, at)?;
        self.tell(offset, at);
        Ok(())
    }
}
