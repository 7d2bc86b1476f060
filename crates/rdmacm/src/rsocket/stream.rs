//! A stream: the data sent and received over a connected queue pair.
//!
//! Data goes by WRITE with immediate data from a ring of this end into the receive ring of the peer, as far as the peer
//! has granted it. Short data goes inline. Grants go the other way, into the list of buffers that the peer has for
//! them.

mod ends;
mod mappings;
mod requests;

use std::collections::VecDeque;
use std::ffi::c_int;

use transom_abi::*;

use super::flow::{Incoming, Outgoing};
use super::iovec::{Sink, Source};
use super::memory::Region;
use super::own_id::OwnId;
use super::protocol::{BUFFER, Buffer, GRANTS, Introduction, MAPPING, Mapping, Message, Order};
use super::queue_pair::{QueuePair, Sizes};
use super::settings::{CONTROLS, Settings};
use crate::id::Id;
use crate::qp;
use crate::wrong::Wrong;

/// The most bytes that one request moves. The peer reads the first request's data while the next are on their way. With
/// four times as many, half of a default ring, the two ends would wait for each other.
const PORTION: u32 = 1 << 14;
/// The connection is gone.
const RESET: Wrong = Wrong::new(
    libc::ECONNRESET,
    "the peer has ended the connection without an orderly end, or has died",
);
/// The peer breaks the protocol.
const PROTOCOL: Wrong =
    Wrong::new(libc::EPROTO, "the peer does not keep to the protocol of rsockets");
/// Writing is not possible any more.
const SHUT: Wrong = Wrong::new(
    libc::EPIPE,
    "this end has shut down writing, or the peer has closed the connection",
);

/// The most completions taken at a time.
const BATCH: usize = 16;

/// A stream, from the moment it has a queue pair.
#[derive(Debug)]
pub(crate) struct Stream {
    /// It ends before the id.
    pair: QueuePair,
    /// The peer's grants, then its mappings, then places for outgoing list entries that cannot go inline.
    lists: Region,
    mappings: u16,
    receive: Region,
    incoming: Incoming,
    sending: Sending,
    /// Mappings that the peer must still be told of.
    unsent_mappings: VecDeque<(u16, Mapping)>,
    peer: Option<Peer>,
    ends: Ends,
}

/// Data and requests under way.
#[derive(Debug)]
struct Sending {
    ring: Region,
    size: u32,
    /// The offset for the next byte.
    at: u32,
    /// The number of bytes of the ring in use.
    used: u32,
    /// The number of requests under way, and its maximum.
    requests: u16,
    most: u16,
    /// The next place in the lists for an entry that cannot go inline.
    place: u16,
}

/// The peer, from its introduction and messages.
#[derive(Debug)]
struct Peer {
    order: Order,
    outgoing: Outgoing,
    /// Its list of buffers, and the next index there.
    grants: Buffer,
    place: u32,
    /// The next index in this end's list.
    own_place: usize,
    mappings: u16,
    /// Whether it can receive.
    ready: bool,
}

/// The ended parts of a stream.
#[derive(Debug, Default)]
struct Ends {
    /// The program reads no more, so arriving data is dropped.
    read: bool,
    /// The peer sends no more.
    finished: bool,
    /// The program writes no more.
    write: bool,
    /// The peer receives no more.
    peer: bool,
    /// A message that could not be sent yet.
    unsent: Option<Message>,
    /// The connection is gone. `reason` is set if it was no orderly end.
    gone: bool,
    reason: Option<Wrong>,
}

/// The offset in the lists of the places for outgoing entries.
fn staging(mappings: u16) -> usize {
    GRANTS as usize * BUFFER + usize::from(mappings) * MAPPING
}

/// The length of such a place in bytes.
const PLACE: usize = MAPPING;

impl Stream {
    /// A stream that is not connected yet. It can receive as soon as the queue pair can.
    pub(crate) fn create(own: &OwnId, settings: &Settings) -> Result<Self, Wrong> {
        let id = own.id();
        let receives = settings.receives.saturating_add(CONTROLS);
        let sizes = Sizes {
            sends: settings.sends.into(),
            receives: receives.into(),
            inline: settings.inline,
            sges: 2,
        };
        let mut pair = QueuePair::create(id, sizes)?;
        let made = Self::memory(own, settings);
        let [lists, receive, ring] = made.inspect_err(|_| pair.end(id))?;
        let sending = Sending {
            ring,
            size: settings.send_buffer,
            at: 0,
            used: 0,
            requests: 0,
            most: settings.sends,
            place: 0,
        };
        let mut this = Self {
            pair,
            lists,
            mappings: settings.mappings,
            receive,
            incoming: Incoming::new(settings.receive_buffer / 2, settings.receives),
            sending,
            unsent_mappings: VecDeque::new(),
            peer: None,
            ends: Ends::default(),
        };
        for _ in 0..receives {
            this.receive_again(1).inspect_err(|_| this.pair.end(id))?;
        }
        Ok(this)
    }

    fn memory(own: &OwnId, settings: &Settings) -> Result<[Region; 3], Wrong> {
        let id = own.id();
        let (verbs, pd) = (&id.provider.verbs, id.seen().pd);
        let both = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        let lists = staging(settings.mappings) + usize::from(settings.sends) * PLACE;
        Ok([
            Region::new(verbs, pd, lists, both)?,
            Region::new(verbs, pd, settings.receive_buffer as usize, both)?,
            Region::new(verbs, pd, settings.send_buffer as usize, IBV_ACCESS_LOCAL_WRITE)?,
        ])
    }

    /// Ends the queue pair. The memory is freed with the value.
    pub(crate) fn end(&mut self, own: &OwnId) {
        self.pair.end(own.id());
    }

    /// The introduction for the peer.
    pub(crate) fn introduction(&self, settings: &Settings) -> Introduction {
        let ((address, key), (data, data_key)) = (self.lists.remote(0), self.receive.remote(0));
        Introduction {
            order: Order::HERE,
            credits: settings.receives,
            mappings: self.mappings,
            grants: Buffer { address, key, length: GRANTS },
            buffer: Buffer { address: data, key: data_key, length: settings.receive_buffer / 2 },
        }
    }

    /// The peer's introduction has arrived. If the peer is not `ready`, it can be sent to after its first message.
    pub(crate) fn met(&mut self, peer: &Introduction, ready: bool) {
        self.peer = Some(Peer {
            order: peer.order,
            outgoing: Outgoing::new(peer.credits, peer.buffer),
            grants: peer.grants,
            // The first buffer of each end is in its introduction.
            place: 1,
            own_place: 1,
            mappings: peer.mappings,
            ready,
        });
    }

    /// The peer can be sent to.
    pub(crate) fn ready(&mut self) {
        if let Some(peer) = &mut self.peer {
            peer.ready = true;
        }
    }

    /// A descriptor that is readable when there may be completions.
    pub(crate) fn descriptor(&self) -> c_int {
        self.pair.descriptor()
    }

    pub(crate) fn arm(&mut self) -> Result<(), Wrong> {
        if self.ends.gone { Ok(()) } else { self.pair.arm() }
    }

    pub(crate) fn take_events(&mut self) -> bool {
        self.pair.take_events()
    }

    /// Takes completions, and sends due messages to the peer.
    pub(crate) fn progress(&mut self) {
        let mut completions = [ibv_wc::default(); BATCH];
        // Limited, so that a peer that never stops sending does not keep the caller for ever.
        for _ in 0..64 {
            let count = match self.pair.poll(&mut completions) {
                Ok(count) => count,
                Err(wrong) => return self.fail(wrong),
            };
            let mut received = 0;
            for completion in &completions[..count] {
                received += usize::from(self.completed(completion));
            }
            if received > 0
                && !self.ends.gone
                && let Err(wrong) = self.receive_again(received)
            {
                self.fail(wrong);
            }
            if count < BATCH {
                break;
            }
        }
        self.tell();
    }

    /// Handles a completion. True if it was a receive that must be posted again.
    fn completed(&mut self, completion: &ibv_wc) -> bool {
        if completion.status != IBV_WC_SUCCESS {
            self.fail(match completion.status {
                IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR => {
                    Wrong::new(libc::ETIMEDOUT, "the peer does not answer any more")
                }
                _ => RESET,
            });
            return false;
        }
        if completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM {
            if completion.opcode & IBV_WC_RECV != 0 {
                // This is no message of this protocol.
                self.fail(PROTOCOL);
                return false;
            }
            self.sending.requests -= 1;
            self.sending.used -= completion.wr_id as u32;
            return false;
        }
        self.ready();
        match Message::of(completion) {
            Some(message) if self.arrived(message) => true,
            _ => {
                self.fail(PROTOCOL);
                false
            }
        }
    }

    /// Handles a message. False if the peer may not send it now.
    fn arrived(&mut self, message: Message) -> bool {
        let Some(peer) = &mut self.peer else { return false };
        match message {
            Message::Data(length) => return self.incoming.received(length),
            Message::Credits(up_to) => {
                peer.outgoing.credited(up_to);
                // The length comes last in the entry, so the entry is complete.
                let at = peer.own_place * BUFFER;
                let length = self.lists.word::<u32>(at + 12);
                if length > 0 && peer.outgoing.wants_buffer() {
                    std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
                    let (address, key) = (self.lists.word(at), self.lists.word(at + 8));
                    peer.outgoing.granted(Buffer { address, key, length });
                    self.lists.set_word(at + 12, 0_u32);
                    peer.own_place = (peer.own_place + 1) % GRANTS as usize;
                }
            }
            Message::Mapped(index) => return index < self.mappings.into(),
            Message::KeepAlive => {}
            Message::Shutdown => self.ends.finished = true,
            Message::Disconnect => {
                self.ends.finished = true;
                self.ends.peer = true;
            }
        }
        true
    }

    fn receive_again(&mut self, count: usize) -> Result<(), Wrong> {
        let mut list = [ibv_recv_wr::default(); BATCH];
        // SAFETY: the requests name no memory.
        unsafe { self.pair.post_receives(&mut list[..count]) }
    }

    /// The connection is gone. This is an orderly end if the peer has announced it. It is also one if this end has
    /// announced it and all its data has arrived, because then the peer has nothing more to say.
    pub(crate) fn fail(&mut self, wrong: Wrong) {
        let is_told = self.ends.is_over() && self.ends.unsent.is_none();
        let in_order = self.ends.peer || is_told && self.sending.requests == 0;
        if !std::mem::replace(&mut self.ends.gone, true) && !in_order {
            self.ends.reason = Some(wrong);
        }
    }

    /// The peer's end of the connection is gone. What it sent before has arrived, but may be in the completion queue only
    /// later: nothing orders that and the event. So the queue pair of this end fails now. Its receives come back behind
    /// what was sent, and end the stream.
    pub(crate) fn disconnected(&mut self, id: &Id) {
        if let Err(wrong) = qp::fail(id) {
            self.fail(wrong);
        }
        self.progress();
    }

    /// Sends due messages to the peer, as far as there is room.
    fn tell(&mut self) {
        if !self.can_post(0) || self.ends.peer {
            return;
        }
        if let Some(message) = self.ends.unsent
            && self.post_message(message).is_ok()
        {
            self.ends.unsent = None;
        }
        while self.can_post(0)
            && let Some((index, mapping)) = self.unsent_mappings.pop_front()
        {
            if let Err(wrong) = self.post_mapping(index, &mapping) {
                return self.fail(wrong);
            }
        }
        if self.ends.finished || self.ends.is_over() {
            return;
        }
        while let Some(grant) = self.incoming.grant() {
            if !self.can_post(0) {
                break;
            }
            if let Err(wrong) = self.post_grant(grant) {
                return self.fail(wrong);
            }
        }
    }

    /// Reads available data. With `peek` the data stays. `None` if there is none yet. With `tells`, it reports why the
    /// connection is gone; a call that has already read data must not report that.
    pub(crate) fn read(
        &mut self,
        to: &mut Sink<'_>,
        peek: bool,
        tells: bool,
    ) -> Result<Option<usize>, Wrong> {
        if self.incoming.unread() == 0 && !self.ends.read {
            self.progress();
        }
        let mut incoming = self.incoming.clone();
        let mut total = 0;
        while to.left() > 0 {
            let (at, there) = incoming.next();
            if there == 0 {
                break;
            }
            let length = there.min(to.left());
            // SAFETY: the sink has room.
            to.each(length, |offset, to, length| unsafe {
                self.receive.get(at + offset, to, length);
            });
            incoming.read(length);
            total += length;
        }
        if total > 0 {
            if !peek {
                self.incoming = incoming;
                self.tell();
            }
            return Ok(Some(total));
        }
        if self.ends.finished || self.ends.read {
            return Ok(Some(0));
        }
        // Report the reason once. After that, it is the end of the stream.
        match self.ends.reason.take_if(|_| tells) {
            Some(wrong) => Err(wrong),
            None => Ok(self.ends.gone.then_some(0)),
        }
    }

    fn room(&self) -> u32 {
        let granted = self.peer.as_ref().map_or(0, |peer| peer.outgoing.room());
        let free = self.sending.size - self.sending.used;
        let told = self.unsent_mappings.is_empty();
        if told && self.can_post(CONTROLS) { granted.min(free) } else { 0 }
    }

    /// Checks that data may be written. It takes the reason for the end only with `tells`.
    fn may_write(&mut self, tells: bool) -> Result<(), Wrong> {
        if self.ends.write || self.ends.peer {
            return Err(SHUT);
        }
        if self.ends.gone {
            return Err(self.ends.reason.take_if(|_| tells).unwrap_or(SHUT));
        }
        Ok(())
    }

    /// Sends as much data as there is room for. With `tells`, it reports why the connection is gone; a call that has
    /// already sent data must not report that.
    pub(crate) fn write(&mut self, from: &mut Source<'_>, tells: bool) -> Result<usize, Wrong> {
        self.may_write(tells)?;
        let mut total = 0;
        while from.left() > 0 {
            let mut room = self.room();
            if room == 0 {
                self.progress();
                if total == 0 {
                    self.may_write(tells)?;
                }
                room = self.room();
            }
            if room == 0 {
                break;
            }
            let left = u32::try_from(from.left()).unwrap_or(u32::MAX);
            let length = room.min(PORTION).min(left);
            let Some(peer) = &mut self.peer else { break };
            let to = peer.outgoing.take(length);
            if let Err(wrong) = self.post_data(from, length, Some(Message::Data(length)), to) {
                self.fail(wrong);
                return if total > 0 { Ok(total) } else { self.may_write(tells).map(|()| 0) };
            }
            total += length as usize;
        }
        Ok(total)
    }
}
