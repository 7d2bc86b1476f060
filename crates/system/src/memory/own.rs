//! Memory of Transom's own: buffers on the stack or the heap, and rings, which another process may write to at the same
//! time. It stays where it is, so instructions copy it.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*};

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

/// Bytes on one side of a copy.
pub trait Bytes: Copy {
    /// The fault if they cannot be reached.
    const FAULT: Fault;

    /// Shared memory. Nobody can have a reference to it.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, readable and writable, for as long as this is used, and nobody has a
    /// reference to them.
    unsafe fn mapped(first: NonNull<u8>, length: u64) -> Self;

    /// The address of the first one, if there are `length` of them.
    fn address(self, length: u64) -> Option<u64>;
}

impl Bytes for Readable<'_> {
    const FAULT: Fault = Fault::Source;

    #[inline]
    unsafe fn mapped(first: NonNull<u8>, length: u64) -> Self {
        // SAFETY: as the caller says.
        unsafe { Self::shared(first.as_ptr(), length) }
    }

    #[inline]
    fn address(self, length: u64) -> Option<u64> {
        (length <= self.length).then_some(self.first as u64)
    }
}

impl Bytes for Writable<'_> {
    const FAULT: Fault = Fault::Destination;

    #[inline]
    unsafe fn mapped(first: NonNull<u8>, length: u64) -> Self {
        // SAFETY: as the caller says.
        unsafe { Self::shared(first.as_ptr(), length) }
    }

    #[inline]
    fn address(self, length: u64) -> Option<u64> {
        (length <= self.length).then_some(self.first as u64)
    }
}

impl Readable<'_> {
    /// Shared memory. Nobody can have a reference to it.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, and readable, for as long as this is used.
    #[inline]
    pub unsafe fn shared(first: *const u8, length: u64) -> Self {
        Self { first, length, life: PhantomData }
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
    pub(super) fn behind(self, done: u64) -> Self {
        let done = done.min(self.length);
        let first = self.first.wrapping_add(done as usize);
        Self { first, length: self.length - done, life: PhantomData }
    }
}

/// Copies `length` bytes, the last one last. One, two, four or eight aligned bytes are one store, because programs look
/// at memory until it changes.
#[inline]
pub(super) fn copy(to: Writable<'_>, from: Readable<'_>, length: u64) -> Result<(), Fault> {
    if length > from.length {
        return Err(Fault::Source);
    }
    if length > to.length {
        return Err(Fault::Destination);
    }
    let (to, from, length) = (to.first, from.first, length as usize);
    let aligned = |size: usize| (to.addr() | from.addr()).is_multiple_of(size);
    // SAFETY: both are as long, mapped, and stay so (`shared`, or a reference that is held). Another process, or a
    // thread of the program, may write there at the same time, through other addresses or against the protocol. Then
    // the bytes are any bytes, and nothing here depends on them.
    unsafe {
        match length {
            8 if aligned(8) => move_one::<AtomicU64>(to, from),
            4 if aligned(4) => move_one::<AtomicU32>(to, from),
            2 if aligned(2) => move_one::<AtomicU16>(to, from),
            0 => {}
            // A program copies within its own buffer.
            _ if to.addr().abs_diff(from.addr()) < length => std::ptr::copy(from, to, length),
            _ => {
                std::ptr::copy_nonoverlapping(from, to, length - 1);
                move_one::<AtomicU8>(to.add(length - 1), from.add(length - 1));
            }
        }
    }
    Ok(())
}

/// Numbers that are moved in one step.
trait OneStep {
    fn move_from(&self, from: &Self);
}

macro_rules! one_step {
    ($($number:ty)+) => {
        $(impl OneStep for $number {
            #[inline]
            fn move_from(&self, from: &Self) {
                self.store(from.load(Relaxed), Release);
            }
        })+
    };
}

one_step! { AtomicU8 AtomicU16 AtomicU32 AtomicU64 }

/// # Safety
///
/// Both are valid, and aligned, for a `T`.
#[inline]
unsafe fn move_one<T: OneStep>(to: *mut u8, from: *const u8) {
    // SAFETY: as the caller says; bytes of any value make a number.
    unsafe { (*to.cast::<T>()).move_from(&*from.cast::<T>()) };
}
