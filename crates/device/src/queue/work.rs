//! Posted work: requests as the consumer gives them, and the ring that keeps them without
//! allocating.

use core::slice;

use bitflags::bitflags;

use super::{SendOp, SizeError, room_for};

/// One scatter/gather entry, laid out as `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// First address, as the region names its addresses.
    pub address: u64,
    /// Bytes; an empty one is skipped unexamined (rule LA-15).
    pub length: u32,
    /// L_Key.
    pub key: u32,
}

bitflags! {
    /// With the values of `enum ibv_send_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Start after all earlier READs and atomics.
        const FENCE = 1;
        /// Report success too.
        const SIGNALED = 2;
        /// Raise a solicited event at the peer.
        const SOLICITED = 4;
        /// The data was copied when posted.
        const INLINE = 8;
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The address handle's protection domain; must be the queue pair's (rule PD-16).
    pub pd: u32,
    /// Where the address handle points.
    pub address: Address,
    /// The queue pair there, 24 bits; all ones for a multicast group.
    pub qp: u32,
    /// The Q_Key to send; with its top bit set, the queue pair's own (rule UD-06).
    pub qkey: u32,
}

/// An address handle's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The GID it names, unicast or multicast.
    pub gid: [u8; 16],
    /// The GID it is sent from, of the same family.
    pub source: [u8; 16],
    /// Traffic class, the TOS byte on IPv4 (rule UD-09).
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Flow label.
    pub flow_label: u32,
}

/// Whom a send work request reaches, beyond what its queue pair says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remote {
    /// The queue pair at the other end: RC and UC.
    #[default]
    Connected,
    /// A shared receive queue behind it, by number: XRC.
    Srq(u32),
    /// Anybody: UD.
    Datagram(Datagram),
}

impl Remote {
    /// The shared receive queue that an XRC message is for.
    #[inline]
    pub const fn srq(&self) -> Option<u32> {
        match self {
            Self::Srq(number) => Some(*number),
            _ => None,
        }
    }

    /// The registry slot of the process that a message for a shared receive queue goes to: the top
    /// byte of the queue's number.
    pub const fn process(&self) -> Option<u8> {
        match self {
            Self::Srq(number) => Some((*number >> 16) as u8),
            _ => None,
        }
    }
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The consumer's number.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// Local buffers; ignored if `inline` is there.
    pub sges: &'a [Sge],
    /// Data captured at post (rule LA-21), from as many places as the program named.
    pub inline: Option<&'a [&'a [u8]]>,
    /// Whom it reaches.
    pub remote: Remote,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest<'a> {
    /// The consumer's number.
    pub wr_id: u64,
    /// Local buffers.
    pub sges: &'a [Sge],
}

/// Why a post is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full: `ENOMEM` (rules PS-02, PS-12).
    #[error("the queue is full")]
    Full,
    /// More scatter/gather entries than the queue pair was created for: `EINVAL` (rule PS-03).
    #[error("more scatter/gather entries than the queue pair was created for")]
    TooManySges,
    /// More inline data than the queue pair was created for: `EINVAL` (rule PS-04).
    #[error("more inline data than the queue pair was created for")]
    InlineTooLong,
    /// Inline data with an operation that sends none: `EINVAL` (rule PS-05).
    #[error("inline data with an operation that sends none")]
    InlineNotAllowed,
    /// The state does not allow it: `EINVAL` (rules ST-20, ST-21).
    #[error("the state of the queue pair does not allow it")]
    WrongState,
    /// The service does not have the operation: `EINVAL` (rules INV-43, T2-11).
    #[error("the service of the queue pair does not have the operation")]
    WrongService,
}

/// The elements of a ring of work.
pub trait Work: Sized + 'static {
    /// The value read where nothing has been posted yet.
    fn blank() -> &'static Self;
}

/// What a ring has at a place. Most work has one scatter/gather entry, so that lies beside it.
struct Element<T> {
    work: T,
    /// The first entry, if there is one.
    sge: Sge,
}

/// A ring of work of fixed size. Positions count up for ever. An element lies at its position modulo the ring's length,
/// which is a power of two no smaller than the size.
///
/// Each vector is as long as the most elements there have been need it, and never longer than the room taken at first.
pub struct WorkRing<T> {
    elements: Vec<Element<T>>,
    length: usize,
    size: usize,
    /// All entries of the elements that have more than one.
    sges: Vec<Sge>,
    inline: Vec<u8>,
    max_sge: usize,
    inline_room: usize,
    head: u64,
    tail: u64,
}

impl<T: Work> WorkRing<T> {
    /// A ring of `size` elements, each with room for `max_sge` scatter/gather entries and `inline_room`
    /// bytes.
    pub fn new(size: usize, max_sge: usize, inline_room: usize) -> Result<Self, SizeError> {
        let length = size.next_power_of_two();
        Ok(Self {
            elements: room_for(length)?,
            length,
            size,
            sges: room_for(if max_sge > 1 { length * max_sge } else { 0 })?,
            inline: room_for(length * inline_room)?,
            max_sge,
            inline_room,
            head: 0,
            tail: 0,
        })
    }

    /// How many elements it holds at most.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many scatter/gather entries an element may have.
    pub fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// How many inline bytes an element may have.
    pub fn inline_room(&self) -> usize {
        self.inline_room
    }

    /// The position of the oldest element.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The position the next element will get.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether no element is left.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// How many elements it holds.
    pub fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }

    #[inline]
    fn slot(&self, position: u64) -> usize {
        position as usize & (self.length - 1)
    }

    /// The element at a position between head and tail.
    pub fn at(&self, position: u64) -> &T {
        self.elements.get(self.slot(position)).map_or_else(|| T::blank(), |element| &element.work)
    }

    /// The same, to change.
    pub fn at_mut(&mut self, position: u64) -> &mut T {
        let slot = self.slot(position);
        &mut self.elements[slot].work
    }

    /// The first `count` scatter/gather entries of an element.
    #[inline]
    pub fn sges_at(&self, position: u64, count: usize) -> &[Sge] {
        let slot = self.slot(position);
        if count <= 1 {
            let Some(element) = self.elements.get(slot) else { return &[] };
            return &slice::from_ref(&element.sge)[..count];
        }
        let start = slot * self.max_sge;
        &self.sges[start..start + count.min(self.max_sge)]
    }

    /// The first `length` inline bytes of an element.
    pub fn inline_at(&self, position: u64, length: usize) -> &[u8] {
        let start = self.slot(position) * self.inline_room;
        &self.inline[start..start + length.min(self.inline_room)]
    }

    /// Adds an element. The caller has checked that it fits.
    pub fn push(&mut self, work: T, sges: &[Sge], inline: &[&[u8]]) {
        let slot = self.slot(self.tail);
        let element = Element { work, sge: sges.first().copied().unwrap_or_default() };
        match self.elements.get_mut(slot) {
            Some(place) => *place = element,
            // The first time round. There is room.
            None => {
                self.elements.push(element);
                if self.max_sge > 1 {
                    self.sges.resize((slot + 1) * self.max_sge, Sge::default());
                }
                self.inline.resize((slot + 1) * self.inline_room, 0);
            }
        }
        if sges.len() > 1 {
            let start = slot * self.max_sge;
            self.sges[start..start + sges.len()].copy_from_slice(sges);
        }
        let mut start = slot * self.inline_room;
        for bytes in inline {
            self.inline[start..start + bytes.len()].copy_from_slice(bytes);
            start += bytes.len();
        }
        self.tail += 1;
    }

    /// Removes the oldest element.
    pub fn pop(&mut self) {
        if self.head < self.tail {
            self.head += 1;
        }
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.head = self.tail;
    }
}
