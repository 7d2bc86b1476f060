//! Sources and sinks of bytes: a work request's buffers, and records in a ring.

use std::sync::atomic::AtomicU64;

use transom_device::execution::{CopyError, LocalBuffers, Payload, Sink, Source};
use transom_device::protection::{Grant, Operation, Refusal};
use transom_system::memory::{self, Copier, Destination, Fault, PeerMemory, Readable, Writable};

use super::Reference;

/// The content of a null region, a part at a time.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Whose the granted memory is.
#[derive(Clone, Copy)]
pub enum Where<'a> {
    /// This process's.
    Here,
    /// Another's.
    Peer(&'a PeerMemory),
}

/// A send work request's data, on its way to granted memory.
pub struct Gather<'a> {
    /// The bytes.
    pub payload: Payload<'a>,
    /// Whose buffers they are in.
    pub local: LocalBuffers<'a>,
    /// The offset in the message of the byte that the target counts as zero.
    pub skip: u64,
    /// Copies the bytes.
    pub copier: &'a Copier,
    /// Where they go.
    pub to: Where<'a>,
    /// Why the local side failed, if it did.
    pub failed: Option<Refusal>,
}

impl<'a> Where<'a> {
    /// Granted memory, to copy to.
    #[inline]
    pub fn destination(self, place: u64) -> Destination<'a> {
        match self {
            Self::Here => Destination::Program(place),
            Self::Peer(peer) => Destination::Peer(peer, place),
        }
    }

    /// A granted word, for an atomic instruction. `None` if only the kernel reaches it.
    pub fn word(self, at: &Grant<'_>) -> Option<&'a AtomicU64> {
        match self {
            Self::Here => memory::shared_word(at.place()),
            Self::Peer(peer) => peer.shared_word(at.place()),
        }
    }

    /// Granted memory, to copy from.
    #[inline]
    pub fn source(self, place: u64) -> memory::Source<'a> {
        match self {
            Self::Here => memory::Source::Program(place),
            Self::Peer(peer) => memory::Source::Peer(peer, place),
        }
    }
}

/// Writes zeros, the content of a null region (rule MR-36).
#[cold]
#[inline(never)]
fn zero(copier: &Copier, to: Destination<'_>, length: u64) -> Result<(), Fault> {
    let mut done = 0;
    while done < length {
        let step = (length - done).min(ZEROS.len() as u64);
        copier.copy(to.behind(done), ZEROS[..].into(), step)?;
        done += step;
    }
    Ok(())
}

impl Gather<'_> {
    /// Copies `length` bytes from `offset` on.
    pub fn copy_out(
        &mut self,
        offset: u64,
        length: u64,
        to: Destination<'_>,
    ) -> Result<(), CopyError> {
        let offset = offset + self.skip;
        let (copier, local) = (self.copier, self.local);
        // All of one buffer, as for most messages. Every less simple case goes the long way.
        if let Payload::Buffers([one]) = self.payload
            && (offset, length) == (0, u64::from(one.length))
            && let Some(from) = local.grant_whole(Operation::LocalRead, one)
            && copier.copy(to, Where::Here.source(from.place()), length).is_ok()
        {
            return Ok(());
        }
        self.copy_parts(offset, length, to)
    }

    #[inline(never)]
    fn copy_parts(
        &mut self,
        offset: u64,
        length: u64,
        to: Destination<'_>,
    ) -> Result<(), CopyError> {
        let (copier, local) = (self.copier, self.local);
        let done = match self.payload {
            Payload::Inline(bytes) => {
                let range = offset as usize..(offset + length) as usize;
                let bytes = bytes.get(range).ok_or(CopyError::Far)?;
                copier.copy(to, bytes.into(), length).map_err(|_| CopyError::Far)
            }
            Payload::Buffers(_) => local.each(Operation::LocalRead, offset, length, |at, part| {
                let (to, length) = (to.behind(at), part.length());
                let done = if part.is_null() {
                    zero(copier, to, length)
                } else {
                    copier.copy(to, Where::Here.source(part.place()), length)
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
    /// The place of the first `length` bytes, if all of them are together in one buffer of the program.
    pub(crate) fn reference(&self, length: u64) -> Option<Reference> {
        let Payload::Buffers(sges) = self.payload else { return None };
        let mut skip = self.skip;
        let within = sges.iter().find(|sge| {
            let size = u64::from(sge.length);
            let here = skip < size;
            skip -= if here { 0 } else { size };
            here
        })?;
        let whole = u64::from(within.length) - skip >= length;
        let address = within.address.checked_add(skip).filter(|_| whole)?;
        Some(Reference { address, key: self.local.keys.local_key(within.key) })
    }
}

/// Whether the buffers may be read. Discarded data is not copied, so a faulty buffer would go unnoticed.
#[cold]
#[inline(never)]
fn may_gather(payload: Payload<'_>, local: LocalBuffers<'_>) -> Result<(), Refusal> {
    match payload {
        Payload::Inline(_) => Ok(()),
        Payload::Buffers(_) => local.check(Operation::LocalRead),
    }
}

impl Source for Gather<'_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        self.copy_out(offset, bytes.len() as u64, bytes.into())
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        if at.is_null() {
            let checked = may_gather(self.payload, self.local);
            self.failed = checked.err().or(self.failed);
            return checked.map_err(CopyError::Near);
        }
        self.copy_out(offset, at.length(), self.to.destination(at.place()))
    }
}

/// The buffers of a READ, filled from granted memory.
pub struct Scatter<'a> {
    /// Whose buffers they go to.
    pub local: LocalBuffers<'a>,
    /// The offset in the message of the byte that the target counts as zero.
    pub skip: u64,
    /// Copies the bytes.
    pub copier: &'a Copier,
    /// Where they come from.
    pub from: Where<'a>,
    /// Why the local side failed, if it did.
    pub failed: Option<Refusal>,
}

impl Sink for Scatter<'_> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let (copier, local, from) = (self.copier, self.local, self.from);
        let offset = offset + self.skip;
        let done = local.each(Operation::LocalWrite, offset, at.length(), |done, part| {
            if part.is_null() {
                return Ok(());
            }
            let (to, length) = (Where::Here.destination(part.place()), part.length());
            match at.is_null() {
                true => zero(copier, to, length),
                false => copier.copy(to, from.source(at.place() + done), length),
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
#[derive(Clone, Copy)]
pub struct RingBytes<'a> {
    /// The first of them, in a ring. Only the copier reads and writes there.
    bytes: *mut u8,
    /// How many there are.
    length: u64,
    /// Copies the bytes.
    copier: &'a Copier,
}

impl<'a> RingBytes<'a> {
    /// The part of a ring that belongs to a record.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, readable and writable, for `'a`, and nobody has a reference to them.
    pub unsafe fn new(bytes: *mut u8, length: u64, copier: &'a Copier) -> Self {
        Self { bytes, length, copier }
    }

    /// No bytes at all.
    pub fn none(copier: &'a Copier) -> Self {
        Self { bytes: std::ptr::null_mut(), length: 0, copier }
    }

    /// How many there are.
    pub fn length(&self) -> u64 {
        self.length
    }

    fn at(&self, offset: u64, length: u64) -> Result<*mut u8, CopyError> {
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.length);
        if fits { Ok(self.bytes.wrapping_add(offset as usize)) } else { Err(CopyError::Far) }
    }

    fn readable(&self, offset: u64, length: u64) -> Result<memory::Source<'_>, CopyError> {
        let first = self.at(offset, length)?;
        // SAFETY: within the record, which stays (`new`).
        Ok(memory::Source::Own(unsafe { Readable::shared(first, length) }))
    }

    fn writable(&self, offset: u64, length: u64) -> Result<Destination<'_>, CopyError> {
        let first = self.at(offset, length)?;
        // SAFETY: as above.
        Ok(Destination::Own(unsafe { Writable::shared(first, length) }))
    }
}

impl Source for RingBytes<'_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let length = bytes.len() as u64;
        let from = self.readable(offset, length)?;
        self.copier.copy(bytes.into(), from, length).map_err(|_| CopyError::Far)
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let from = self.readable(offset, at.length())?;
        if at.is_null() {
            return Ok(());
        }
        let to = Destination::Program(at.place());
        self.copier.copy(to, from, at.length()).map_err(|_| CopyError::Far)
    }
}

impl Sink for RingBytes<'_> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let (to, length) = (self.writable(offset, at.length())?, at.length());
        let copied = match at.is_null() {
            true => zero(self.copier, to, length),
            false => self.copier.copy(to, memory::Source::Program(at.place()), length),
        };
        copied.map_err(|_| CopyError::Far)
    }
}
