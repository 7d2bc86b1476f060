//! The buffers of a program's call, as one sequence of bytes.

use std::marker::PhantomData;

use crate::sanitized;
use crate::wrong::Wrong;
use libc::iovec;

/// The buffers are not valid memory.
const NOT_THERE: Wrong = Wrong::new(
    libc::EFAULT,
    "a buffer is null and its length is not 0, or the buffers are too long together",
);

/// Buffers that are read or filled, from the first byte on.
#[derive(Clone, Debug)]
struct Buffers<'a> {
    list: &'a [iovec],
    /// The number of bytes of the first buffer that are done.
    done: usize,
    left: usize,
}

impl<'a> Buffers<'a> {
    fn new(list: &'a [iovec]) -> Result<Self, Wrong> {
        let left = list.iter().try_fold(0_usize, |sum, buffer| {
            let null = buffer.iov_base.is_null() && buffer.iov_len > 0;
            if null { None } else { sum.checked_add(buffer.iov_len) }
        });
        let left = left.filter(|left| isize::try_from(*left).is_ok()).ok_or(NOT_THERE)?;
        Ok(Self { list, done: 0, left })
    }

    /// Visits the next `length` bytes, buffer by buffer. `with` gets the offset, the address and the length of each
    /// part.
    fn each(&mut self, length: usize, mut with: impl FnMut(usize, *mut u8, usize)) {
        let length = length.min(self.left);
        let mut offset = 0;
        while offset < length {
            let Some((first, rest)) = self.list.split_first() else { break };
            let part = (first.iov_len - self.done).min(length - offset);
            if part > 0 {
                with(offset, first.iov_base.cast::<u8>().wrapping_add(self.done), part);
            }
            offset += part;
            self.done += part;
            if self.done == first.iov_len {
                self.list = rest;
                self.done = 0;
            }
        }
        self.left -= length;
    }
}

/// The data that a program sends.
#[derive(Clone, Debug)]
pub(crate) struct Source<'a>(Buffers<'a>);

/// The memory where a program receives.
#[derive(Debug)]
pub(crate) struct Sink<'a>(Buffers<'a>, PhantomData<&'a mut [u8]>);

impl<'a> Source<'a> {
    /// # Safety
    /// The buffers are readable while this is used.
    pub(crate) unsafe fn new(list: &'a [iovec]) -> Result<Self, Wrong> {
        Buffers::new(list).map(Self)
    }

    pub(crate) fn left(&self) -> usize {
        self.0.left
    }

    /// Visits the next `length` bytes.
    pub(crate) fn each(&mut self, length: usize, mut with: impl FnMut(usize, *const u8, usize)) {
        self.0.each(length, |offset, from, length| {
            sanitized::bytes_sent(from, length);
            with(offset, from, length);
        });
    }

    /// Takes the next `length` bytes if they lie in one buffer.
    pub(crate) fn take_together(&mut self, length: usize) -> Option<*const u8> {
        let first = self.0.list.first()?;
        if first.iov_len - self.0.done < length {
            return None;
        }
        let mut at = None;
        self.each(length, |_, from, _| at = Some(from));
        at
    }
}

impl<'a> Sink<'a> {
    /// # Safety
    /// The buffers are writable while this is used.
    pub(crate) unsafe fn new(list: &'a [iovec]) -> Result<Self, Wrong> {
        Ok(Self(Buffers::new(list)?, PhantomData))
    }

    /// Room for as many bytes as these buffers have, but nothing is written to them.
    pub(crate) fn nowhere(list: &[iovec]) -> Self {
        let left = list.iter().fold(0_usize, |sum, buffer| sum.saturating_add(buffer.iov_len));
        Self(Buffers { list: &[], done: 0, left: left.min(isize::MAX as usize) }, PhantomData)
    }

    pub(crate) fn left(&self) -> usize {
        self.0.left
    }

    /// Visits the next `length` bytes.
    pub(crate) fn each(&mut self, length: usize, mut with: impl FnMut(usize, *mut u8, usize)) {
        self.0.each(length, |offset, to, length| {
            with(offset, to, length);
            sanitized::bytes_received(to, length);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_gone_over_in_turn() {
        let mut bytes: Vec<u8> = (0..10).collect();
        let at =
            |from: usize, iov_len| iovec { iov_base: bytes[from..].as_ptr() as *mut _, iov_len };
        let list = [at(0, 3), at(3, 0), at(3, 5), at(8, 2)];
        // SAFETY: the buffers live on.
        let mut source = unsafe { Source::new(&list) }.unwrap();
        assert!(source.take_together(4).is_none());
        let mut parts = Vec::new();
        source.each(6, |offset, _, length| parts.push((offset, length)));
        assert_eq!((parts, source.left()), (vec![(0, 3), (3, 3)], 4));
        // SAFETY: it points into the bytes.
        assert_eq!(source.take_together(2).map(|at| unsafe { *at }), Some(6));
        assert_eq!(source.left(), 2);
        let null = [iovec { iov_base: std::ptr::null_mut(), iov_len: 1 }];
        // SAFETY: it is refused.
        assert_eq!(unsafe { Sink::new(&null) }.err(), Some(NOT_THERE));
        let mut nowhere = Sink::nowhere(&null);
        nowhere.each(9, |_, _, _| panic!("there is no memory"));
        assert_eq!((nowhere.left(), Sink::nowhere(&list).left()), (0, 10));
        bytes.clear();
    }
}
