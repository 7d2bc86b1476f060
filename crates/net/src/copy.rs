//! Sources and sinks of bytes: a work request's buffers, and records in a ring.

use transom_device::execution::{CopyError, LocalBuffers, Payload, Sink, Source};
use transom_device::protection::{Grant, Operation, Refusal};
use transom_system::memory::{Copier, Fault};

/// What a null region reads as, a part at a time.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Whose the granted memory is.
#[derive(Clone, Copy)]
pub enum Where {
    /// This process's.
    Here,
    /// That of the process with this PID.
    Peer(u32),
}

/// A send work request's data, on its way to granted memory.
pub struct Gather<'a> {
    /// The bytes.
    pub payload: Payload<'a>,
    /// Whose buffers they are in.
    pub local: LocalBuffers<'a>,
    /// Where in the message the bytes begin that the target counts from zero.
    pub skip: u64,
    /// What copies them.
    pub copier: &'a Copier,
    /// Where they go.
    pub to: Where,
    /// Why the local side failed, if it did.
    pub failed: Option<Refusal>,
}

impl Gather<'_> {
    fn copy(copier: &Copier, at: Where, to: u64, from: u64, length: u64) -> Result<(), Fault> {
        match at {
            Where::Here => copier.copy(to, from, length),
            Where::Peer(pid) => copier.copy_to_peer(pid, to, from, length),
        }
    }

    /// Writes zeros, which is what a null region holds (rule MR-36).
    fn zero(copier: &Copier, at: Where, to: u64, length: u64) -> Result<(), Fault> {
        let mut done = 0;
        while done < length {
            let step = (length - done).min(ZEROS.len() as u64);
            Self::copy(copier, at, to + done, ZEROS.as_ptr() as u64, step)?;
            done += step;
        }
        Ok(())
    }

    /// Copies `length` bytes from `offset` on to memory of this process that no key guards.
    pub fn copy_out(&mut self, offset: u64, length: u64, to: u64) -> Result<(), CopyError> {
        let offset = offset + self.skip;
        let (copier, local, whose) = (self.copier, &self.local, self.to);
        let done = match self.payload {
            Payload::Inline(bytes) => {
                let range = offset as usize..(offset + length) as usize;
                let bytes = bytes.get(range).ok_or(CopyError::Far)?;
                Self::copy(copier, whose, to, bytes.as_ptr() as u64, length)
                    .map_err(|_| CopyError::Far)
            }
            Payload::Buffers(_) => local.each(Operation::LocalRead, offset, length, |at, part| {
                let (to, length) = (to + at, part.length());
                let done = if part.is_null() {
                    Self::zero(copier, whose, to, length)
                } else {
                    Self::copy(copier, whose, to, part.address(), length)
                };
                done.map_err(|fault| match fault {
                    Fault::Source => CopyError::Near(local.gone(Operation::LocalRead)),
                    Fault::Destination => CopyError::Far,
                })
            }),
        };
        if let Err(CopyError::Near(refusal)) = done {
            self.failed = Some(refusal);
        }
        done
    }
}

impl Gather<'_> {
    /// Whether the buffers may be read: of what is discarded nothing is copied, which would tell.
    #[cold]
    fn check(&mut self) -> Result<(), CopyError> {
        let Payload::Buffers(_) = self.payload else { return Ok(()) };
        self.local.check(Operation::LocalRead).map_err(|refusal| {
            self.failed = Some(refusal);
            CopyError::Near(refusal)
        })
    }
}

impl Source for Gather<'_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let to = std::mem::replace(&mut self.to, Where::Here);
        let copied = self.copy_out(offset, bytes.len() as u64, bytes.as_mut_ptr() as u64);
        self.to = to;
        copied
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        if at.is_null() {
            return self.check();
        }
        self.copy_out(offset, at.length(), at.address())
    }
}

/// The buffers of a READ, filled from granted memory.
pub struct Scatter<'a> {
    /// Whose buffers they go to.
    pub local: LocalBuffers<'a>,
    /// Where in the message the bytes begin that the target counts from zero.
    pub skip: u64,
    /// What copies them.
    pub copier: &'a Copier,
    /// Where they come from.
    pub from: Where,
    /// Why the local side failed, if it did.
    pub failed: Option<Refusal>,
}

impl Sink for Scatter<'_> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let (copier, local, from) = (self.copier, &self.local, self.from);
        let offset = offset + self.skip;
        let done = local.each(Operation::LocalWrite, offset, at.length(), |done, part| {
            if part.is_null() {
                return Ok(());
            }
            let (to, length) = (part.address(), part.length());
            match from {
                _ if at.is_null() => Gather::zero(copier, Where::Here, to, length),
                Where::Here => copier.copy(to, at.address() + done, length),
                Where::Peer(pid) => copier.copy_from_peer(pid, to, at.address() + done, length),
            }
            .map_err(|fault| match fault {
                Fault::Source => CopyError::Far,
                Fault::Destination => CopyError::Near(local.gone(Operation::LocalWrite)),
            })
        });
        if let Err(CopyError::Near(refusal)) = done {
            self.failed = Some(refusal);
        }
        done
    }
}

/// The payload of a record: a source when it is received, a sink while a READ's reply is made.
pub struct RingBytes<'a> {
    /// The first of them, in shared memory: read and written by the copier only.
    pub bytes: *mut u8,
    /// How many there are.
    pub length: u64,
    /// What copies them.
    pub copier: &'a Copier,
}

impl RingBytes<'_> {
    /// No bytes at all.
    pub fn empty(&self) -> Self {
        RingBytes { bytes: std::ptr::null_mut(), length: 0, copier: self.copier }
    }

    fn at(&self, offset: u64, length: u64) -> Result<u64, CopyError> {
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.length);
        if fits { Ok(self.bytes as u64 + offset) } else { Err(CopyError::Far) }
    }
}

impl Source for RingBytes<'_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let (to, length) = (bytes.as_mut_ptr() as u64, bytes.len() as u64);
        let from = self.at(offset, length)?;
        self.copier.copy(to, from, length).map_err(|_| CopyError::Far)
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let from = self.at(offset, at.length())?;
        if at.is_null() {
            return Ok(());
        }
        self.copier.copy(at.address(), from, at.length()).map_err(|_| CopyError::Far)
    }
}

impl Sink for RingBytes<'_> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let (to, length) = (self.at(offset, at.length())?, at.length());
        let copied = match at.is_null() {
            true => Gather::zero(self.copier, Where::Here, to, length),
            false => self.copier.copy(to, at.address(), length),
        };
        copied.map_err(|_| CopyError::Far)
    }
}
