//! Flow control: the bytes and messages that the peer has granted to this end, and those that this end has granted to
//! the peer.
//!
//! A stream's receive ring has two halves. The peer is granted them in turn. It fills each from its beginning to its
//! end, and gets it again when the program has read it. Each data message takes a receive at the other end, so messages
//! are counted too, modulo 2^16.

use super::protocol::{Buffer, GRANTS};

/// The grants of the peer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The number of data messages sent.
    sent: u16,
    /// The number up to which messages may be sent.
    limit: u16,
    /// The rest of the granted buffers, in order.
    buffers: [Buffer; GRANTS as usize],
}

impl Outgoing {
    pub(crate) fn new(credits: u16, first: Buffer) -> Self {
        Self { sent: 0, limit: credits, buffers: [first, Buffer::default()] }
    }

    /// The number of bytes that the next message may bring.
    pub(crate) fn room(&self) -> u32 {
        if self.sent == self.limit { 0 } else { self.buffers[0].length }
    }

    /// The place for a message of `length` bytes. There must be room for it.
    pub(crate) fn take(&mut self, length: u32) -> Buffer {
        let to = Buffer { length, ..self.buffers[0] };
        self.sent = self.sent.wrapping_add(1);
        let [first, second] = &mut self.buffers;
        // The peer may have told any address. Its own adapter checks it.
        first.address = first.address.wrapping_add(length.into());
        first.length -= length;
        if first.length == 0 {
            *first = std::mem::take(second);
        }
        to
    }

    /// The peer has set the number up to which messages may be sent.
    pub(crate) fn credited(&mut self, up_to: u16) {
        self.limit = up_to;
    }

    /// Whether there is room for another buffer. Otherwise, an entry in the list is no new grant.
    pub(crate) fn wants_buffer(&self) -> bool {
        self.buffers[1].length == 0
    }

    /// Another buffer has been granted, and there was room for it.
    pub(crate) fn granted(&mut self, buffer: Buffer) {
        let at = usize::from(self.buffers[0].length > 0);
        self.buffers[at] = buffer;
    }
}

/// The grants to the peer, and their use. Positions count the bytes of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    half: u32,
    granted: u64,
    received: u64,
    read: u64,
    credits: u16,
    /// The number of data messages received.
    messages: u16,
    /// The number of messages when the peer last got credits.
    told: u16,
}

/// A grant to tell the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The peer may send messages up to this number.
    pub(crate) up_to: u16,
    /// The offset of the half of the ring that the peer may fill.
    pub(crate) half: Option<u32>,
}

impl Incoming {
    /// The introduction grants the first half.
    pub(crate) fn new(half: u32, credits: u16) -> Self {
        Self { half, granted: half.into(), received: 0, read: 0, credits, messages: 0, told: 0 }
    }

    /// The length of one half in bytes.
    pub(crate) fn half(&self) -> u32 {
        self.half
    }

    /// The number of received bytes that the program has not read.
    pub(crate) fn unread(&self) -> usize {
        (self.received - self.read) as usize
    }

    /// The peer announces `length` written bytes. False if it has no grant for them.
    #[must_use]
    pub(crate) fn received(&mut self, length: u32) -> bool {
        let received = self.received + u64::from(length);
        if received > self.granted {
            return false;
        }
        self.messages = self.messages.wrapping_add(1);
        self.received = received;
        true
    }

    /// The offset in the ring of the next bytes to read, and their number up to the end of the ring.
    pub(crate) fn next(&self) -> (usize, usize) {
        let ring = 2 * u64::from(self.half);
        let at = self.read % ring;
        (at as usize, self.unread().min((ring - at) as usize))
    }

    /// The program has read `length` bytes.
    pub(crate) fn read(&mut self, length: usize) {
        self.read += length as u64;
    }

    /// The grant that is due now, if any.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let half_is_free = self.granted - self.read <= self.half.into();
        let many = self.messages.wrapping_sub(self.told) >= (self.credits / 2).max(1);
        (half_is_free || many).then(|| Grant {
            up_to: self.messages.wrapping_add(self.credits),
            half: half_is_free.then(|| (self.granted % (2 * u64::from(self.half))) as u32),
        })
    }

    /// The peer has been told of a grant.
    pub(crate) fn told(&mut self, grant: Grant) {
        self.told = self.messages;
        if grant.half.is_some() {
            self.granted += u64::from(self.half);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ends that follow the rules lose nothing and never stop, for all sizes.
    #[test]
    fn a_stream_flows_through_a_small_ring() {
        let mut state = 7_u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) % u64::from(below.max(1))) as u32
        };
        for _ in 0..200 {
            let (half, credits) = (1 + random(100), 1 + random(10) as u16);
            let mut ring = vec![0_u8; 2 * half as usize];
            let mut incoming = Incoming::new(half, credits);
            let first = Buffer { address: 0, key: 0, length: half };
            let mut outgoing = Outgoing::new(credits, first);
            let (mut sent, mut got) = (0_u64, 0_u64);
            while got < 2000 {
                let before = (sent, got);
                let room = outgoing.room();
                if room > 0 {
                    let to = outgoing.take(1 + random(room));
                    for at in 0..u64::from(to.length) {
                        ring[(to.address + at) as usize] = (sent + at) as u8;
                    }
                    sent += u64::from(to.length);
                    assert!(incoming.received(to.length));
                }
                let (at, there) = incoming.next();
                let length = if room == 0 { there } else { random(there as u32 + 1) as usize };
                for byte in &ring[at..at + length] {
                    assert_eq!(*byte, got as u8);
                    got += 1;
                }
                incoming.read(length);
                if let Some(grant) = incoming.grant() {
                    incoming.told(grant);
                    outgoing.credited(grant.up_to);
                    if let Some(at) = grant.half {
                        assert!(outgoing.wants_buffer());
                        outgoing.granted(Buffer { address: at.into(), key: 0, length: half });
                    }
                }
                assert!(before != (sent, got) || outgoing.room() > 0);
            }
        }
    }

    /// Rules: CM-64
    #[test]
    fn a_peer_that_claims_more_than_it_was_granted_is_found_out() {
        let mut incoming = Incoming::new(100, 8);
        assert!(incoming.received(100));
        assert!(!incoming.received(1));
        let mut incoming = Incoming::new(100, 8);
        assert!(!incoming.received(u32::MAX));
    }
}
