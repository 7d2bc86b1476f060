//! Memory of Transom's own: buffers on the stack or the heap, and rings, which another process may write
//! to at the same time. It stays where it is, so it is copied by instructions.

use std::marker::PhantomData;

use super::Fault;

/// Bytes to copy from.
#[derive(Clone, Copy, Debug)]
pub struct Readable<'a> {
    first: *const u8,
    length: u64,
    life: PhantomData<&'a [u8]>,
}

/// Bytes to copy to.
#[derive(Clone, Copy, Debug)]
pub struct Writable<'a> {
    first: *mut u8,
    length: u64,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> From<&'a [u8]> for Readable<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self { first: bytes.as_ptr(), length: bytes.len() as u64, life: PhantomData }
    }
}

impl<'a> From<&'a mut [u8]> for Writable<'a> {
    #[inline]
    fn from(bytes: &'a mut [u8]) -> Self {
        Self { first: bytes.as_mut_ptr(), length: bytes.len() as u64, life: PhantomData }
    }
}

impl Readable<'_> {
    /// Shared memory, of which no reference can be had.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, and readable, for as long as this is used.
    #[inline]
    pub unsafe fn shared(first: *const u8, length: u64) -> Self {
        Self { first, length, life: PhantomData }
    }

    #[inline]
    pub(super) fn address(self, length: u64) -> Option<u64> {
        (length <= self.length).then_some(self.first as u64)
    }
}

impl Writable<'_> {
    /// As [`Readable::shared`].
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, and writable, for as long as this is used, and nobody has a reference to
    /// them.
    #[inline]
    pub unsafe fn shared(first: *mut u8, length: u64) -> Self {
        Self { first, length, life: PhantomData }
    }

    #[inline]
    pub(super) fn address(self, length: u64) -> Option<u64> {
        (length <= self.length).then_some(self.first as u64)
    }

    #[inline]
    pub(super) fn behind(self, done: u64) -> Self {
        let done = done.min(self.length);
        let first = self.first.wrapping_add(done as usize);
        Self { first, length: self.length - done, life: PhantomData }
    }
}

/// Copies `length` bytes that do not overlap.
#[inline]
pub(super) fn copy(to: Writable<'_>, from: Readable<'_>, length: u64) -> Result<(), Fault> {
    if length > from.length {
        return Err(Fault::Source);
    }
    if length > to.length {
        return Err(Fault::Destination);
    }
    // SAFETY: both are as long, mapped, and stay so (`shared`, or a reference that is held). They are
    // different: what is written to is borrowed alone, or a part of a ring that nobody else names. Should
    // another process write to a ring meanwhile against the protocol, the bytes copied are any bytes,
    // which are checked like those from a network.
    unsafe { std::ptr::copy_nonoverlapping(from.first, to.first, length as usize) };
    Ok(())
}
