//! Data of a message that its sender keeps in its own buffer. The receiver copies it from there: one copy in place of
//! one into the ring and one out of it.
//!
//! Until its message is answered, the buffer belongs to the device, and the receiver acts as the device. The sender's
//! key grants it the bytes, as it would grant them to the sender, for as long as the copy takes.

use std::sync::atomic::{Ordering::Acquire, fence};

use transom_device::execution::{CopyError, Source};
use transom_device::protection::{Announcer, Attempt, Grant, Key, Operation, Reason, Refusal};
use transom_device::qp::{Look, QpNumber, QpState};
use transom_system::ThisProcess;
use transom_system::memory::{self, Destination, Fault, PeerMemory};
use transom_system::segment::Segment;

/// Shorter data goes through the ring: checking the sender's key costs more than a second copy.
pub(crate) const LEAST: u64 = 4 << 10;
/// The most bytes of a segment that are copied when it is sent, even if the peer can take them itself.
pub const MAX_COPIED: u64 = LEAST - 1;

/// The place of a segment's data at its sender.
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
    /// The receiving process.
    pub(crate) this: &'a ThisProcess,
    /// The sending queue pair, and the one it sends to.
    pub(crate) from: QpNumber,
    pub(crate) to: QpNumber,
    /// The place of the bytes, and their number.
    pub(crate) reference: Reference,
    pub(crate) length: u64,
}

impl SenderBuffer<'_> {
    /// Calls `copy` with the sender's address of the bytes at `offset`. They may be read during that call.
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
            if !self.has_buffer(look) {
                return Err(near(Reason::MemoryGone));
            }
            let granted = segment.keys().grant(attempt, self.this.announcer(), self.this);
            let grant = granted.map_err(CopyError::Near)?;
            // As for a direct access: a later change of the queue pair waits for the copy.
            if summary.look() != look {
                continue;
            }
            // A null region has no bytes to take. Asked again, its sender sends the zeros along.
            if grant.is_null() {
                return Err(near(Reason::MemoryGone));
            }
            let from = memory::Source::Peer(self.memory, grant.place()).resolved(length);
            let by_kernel = matches!(from, memory::Source::Peer(..));
            let copied = copy(from);
            // A queue pair that goes into error by itself does not wait for the copy. Its program may have its buffers
            // back, with other bytes in them.
            fence(Acquire);
            if !self.has_buffer(summary.look()) {
                return Err(near(Reason::MemoryGone));
            }
            // The kernel was given a PID. It was the sender's if it still is.
            let theirs = !by_kernel || self.this.registry().is_alive(self.sender);
            return match copied {
                Ok(()) if theirs => Ok(()),
                Ok(()) | Err(Fault::Source) => Err(near(Reason::MemoryGone)),
                Err(Fault::Destination) => Err(CopyError::Far),
            };
        }
    }

    /// Whether its queue pair, in this state, has given the device its buffers. In any other state the program has them
    /// back.
    fn has_buffer(&self, look: Look) -> bool {
        matches!(look.gate().state, QpState::Rts | QpState::Sqd) && look.peering().from == self.to
    }
}

impl Source for SenderBuffer<'_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let length = bytes.len() as u64;
        self.with(offset, length, |from| self.this.copier().copy(bytes.into(), from, length))
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let (to, length) = (Destination::Program(at.place()), at.length());
        match at.is_null() {
            true => self.with(offset, length, |_| Ok(())),
            false => self.with(offset, length, |from| self.this.copier().copy(to, from, length)),
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use transom_device::Access;
    use transom_device::protection::{KeyOwner, Kind, Place, Region, Scramble};
    use transom_device::qp::{Bypass, Gate, Peering, Service};
    use transom_system::memory::Copier;
    use transom_system::registry::Registry;
    use transom_system::segment::KEY_SLOTS;
    use transom_wire::Psn;

    use super::*;

    /// A queue pair that goes into error because of its peer completes its posted requests, and its program may change
    /// the buffer during the copy. Then the message ends.
    #[test]
    fn what_is_copied_while_the_sender_falls_is_not_received() {
        const INDEX: u16 = 7;
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
        let segment = Segment::create().expect("a segment");
        segment.scramble().seed(&[5; Scramble::SEED_BYTES]);
        segment.open_qp(INDEX).expect("memory");
        segment.open_keys(4096).expect("memory");
        let mut keys = KeyOwner::new(KEY_SLOTS, 4096);
        let (slot, key) = keys.take(&segment.keys(), Kind::Region, 1).expect("a key");
        let bytes = [3; 64];
        let (address, pd) = (bytes.as_ptr() as u64, 9);
        let (base, length, place) = (address, 64, Place::Memory(address));
        let region = Region { pd, access: Access::LOCAL_WRITE, base, length, place };
        region.register(&segment.keys(), slot, key, 0);
        let this = ThisProcess::new(claim, segment, Copier::Kernel);
        let (segment, to) = (this.segment(), QpNumber::from_bits(0x010203));
        let from = QpNumber::new(this.announcer().slot, INDEX);
        let summary = segment.qps().summary(INDEX).expect("it is open");
        let (mtu_code, established) = (3, true);
        summary.set_peering(Peering { from: to, first: Psn::new(0), mtu_code, established });
        let (service, access) = (Service::Rc, Access::empty());
        let gate =
            |state| Gate { state, service, access, read_resources: 0, pd, bypass: Bypass::Free };
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        let wake = wake.expect("a descriptor");
        let memory = PeerMemory { pid: std::process::id(), shared: None, wake, shadow: None };
        let buffer = SenderBuffer {
            sender: this.announcer(),
            segment,
            memory: &memory,
            this: &this,
            from,
            to,
            reference: Reference { address, key },
            length,
        };
        for (during, received) in
            [(QpState::Rts, true), (QpState::Sqd, true), (QpState::Error, false)]
        {
            summary.set_gate(gate(QpState::Rts));
            let mut copy = [0; 64];
            let done = buffer.with(0, length, |from| {
                summary.set_gate(gate(during));
                this.copier().copy((&mut copy[..]).into(), from, length)
            });
            assert_eq!(done.is_ok(), received, "{during:?}");
            assert_eq!(copy, bytes);
        }
        // More than the message has.
        assert!(buffer.with(60, 5, |_| panic!("it is not asked for")).is_err());
    }
}
