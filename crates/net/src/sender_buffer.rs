//! Data of a message that its sender keeps in its own buffer, for the receiver to take from there: one copy
//! in place of one into the ring and one out of it.
//!
//! Until its message is answered the buffer is the device's, and the receiver is the device: it is granted
//! the bytes by the sender's key, as the sender itself would be, for as long as it copies them.

use transom_device::execution::{CopyError, Source};
use transom_device::protection::{Announcer, Attempt, Grant, Key, Operation, Reason, Refusal};
use transom_device::qp::{QpNumber, QpState};
use transom_system::ThisProcess;
use transom_system::memory::{self, Destination, Fault, PeerMemory};
use transom_system::segment::Segment;

/// What is shorter goes through the ring: asking for the sender's key costs more than copying twice.
pub(crate) const LEAST: u64 = 4 << 10;
/// Most bytes of a segment that are copied when it is sent, whatever the peer can.
pub const MAX_COPIED: u64 = LEAST - 1;

/// Where the sender has the data of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its first byte there.
    pub address: u64,
    /// L_Key.
    pub key: Key,
}

/// The bytes of a segment in its sender's buffer.
pub struct SenderBuffer<'a> {
    /// The sender's process, its segment and its memory.
    pub(crate) sender: Announcer,
    pub(crate) segment: &'a Segment,
    pub(crate) memory: &'a PeerMemory,
    /// Who receives.
    pub(crate) this: &'a ThisProcess,
    /// The sending queue pair, and the one it sends to.
    pub(crate) from: QpNumber,
    pub(crate) to: QpNumber,
    /// Where the bytes are, and how many.
    pub(crate) reference: Reference,
    pub(crate) length: u64,
}

impl SenderBuffer<'_> {
    /// Has `copy` copy from the sender's address of the bytes at `offset`, which it may be read from
    /// meanwhile.
    fn with(
        &self,
        offset: u64,
        length: u64,
        copy: impl FnOnce(memory::Source<'_>) -> Result<(), Fault>,
    ) -> Result<(), CopyError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.length);
        let address = self.reference.address.checked_add(offset).filter(|_| end.is_some());
        let Some(address) = address else { return Err(CopyError::Far) };
        let (segment, key) = (self.segment, self.reference.key);
        let Some(summary) = segment.qps().summary(self.from.index()) else {
            return Err(CopyError::Far);
        };
        loop {
            let look = summary.look();
            let gate = look.gate();
            let (operation, qp) = (Operation::LocalRead, self.from.bits());
            let attempt = Attempt { operation, key, address, length, qp, pd: gate.pd };
            let near = |reason| {
                let object = segment.keys().look_up(key);
                CopyError::Near(Refusal { reason, attempt, object })
            };
            // In any other state the program has its buffers back.
            let sends = matches!(gate.state, QpState::Rts | QpState::Sqd);
            if !sends || look.peering().from != self.to {
                return Err(near(Reason::MemoryGone));
            }
            let granted = segment.keys().grant(attempt, self.this.announcer(), self.this);
            let grant = granted.map_err(CopyError::Near)?;
            // As for a direct access: whoever changes the queue pair after this waits for the copy.
            if summary.look() != look {
                continue;
            }
            // A null region has no bytes to take: asked again, its sender sends the zeros along.
            if grant.is_null() {
                return Err(near(Reason::MemoryGone));
            }
            let from = memory::Source::Peer(self.memory, grant.address()).resolved(length);
            let by_kernel = matches!(from, memory::Source::Peer(..));
            let copied = copy(from);
            // The kernel was told a PID, which was the sender's if it still is.
            let theirs = !by_kernel || self.this.registry().is_alive(self.sender);
            return match copied {
                Ok(()) if theirs => Ok(()),
                Ok(()) | Err(Fault::Source) => Err(near(Reason::MemoryGone)),
                Err(Fault::Destination) => Err(CopyError::Far),
            };
        }
    }
}

impl Source for SenderBuffer<'_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let length = bytes.len() as u64;
        self.with(offset, length, |from| self.this.copier().copy(bytes.into(), from, length))
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let (to, length) = (Destination::Program(at.address()), at.length());
        match at.is_null() {
            true => self.with(offset, length, |_| Ok(())),
            false => self.with(offset, length, |from| self.this.copier().copy(to, from, length)),
        }
    }
}
