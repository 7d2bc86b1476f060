//! A stream: what has been sent and received over a connected queue pair.
//!
//! Data goes by WRITE with immediate data into the receive ring of the peer, as far as that has granted
//! it, out of a ring of this end's own; what is short goes inline. Grants go the other way, into a list
//! of buffers that the peer has for them.

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
use crate::wrong::Wrong;

/// Bytes that one request moves at most: the peer reads the first while the next are on their way. With four
/// times as many, which is half of a usual ring, the two ends wait for each other.
const PORTION: u32 = 1 << 14;
/// The connection is gone.
const RESET: Wrong = Wrong::new(
    libc::ECONNRESET,
    "the peer has ended the connection without an orderly end, or has died",
);
/// The peer says what no rsocket says.
const PROTOCOL: Wrong =
    Wrong::new(libc::EPROTO, "the peer does not keep to the protocol of rsockets");
/// Nothing can be written.
const SHUT: Wrong = Wrong::new(
    libc::EPIPE,
    "this end has shut down writing, or the peer has closed the connection",
);

/// Completions taken at a time.
const BATCH: usize = 16;

/// A stream, from the moment it has a queue pair.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Declared before the id, and ended before it.
    pair: QueuePair,
    /// What the peer grants, then where it maps, then what is on its way to it when that cannot go inline.
    lists: Region,
    mappings: u16,
    receive: Region,
    incoming: Incoming,
    sending: Sending,
    /// Mappings that the peer is to be told of.
    unsent_mappings: VecDeque<(u16, Mapping)>,
    peer: Option<Peer>,
    ends: Ends,
}

/// What is under way.
#[derive(Debug)]
struct Sending {
    ring: Region,
    size: u32,
    /// Where the next byte goes.
    at: u32,
    /// Bytes of the ring in use.
    used: u32,
    /// Requests under way, and how many may be.
    requests: u16,
    most: u16,
    /// The next place in the lists for what cannot go inline.
    place: u16,
}

/// What the peer has told.
#[derive(Debug)]
struct Peer {
    order: Order,
    outgoing: Outgoing,
    /// Its list of buffers, and the next place there.
    grants: Buffer,
    place: u32,
    /// The next place in this end's list.
    own_place: usize,
    mappings: u16,
    /// It can be sent to.
    ready: bool,
}

/// What has ended of a stream.
#[derive(Debug, Default)]
struct Ends {
    /// The program reads no more: what comes is dropped.
    read: bool,
    /// The peer sends no more.
    finished: bool,
    /// The program writes no more.
    write: bool,
    /// The peer receives no more.
    peer: bool,
    /// A message that there was no room for.
    unsent: Option<Message>,
    /// The connection is gone, and why if that was no orderly end.
    gone: bool,
    reason: Option<Wrong>,
}

/// The byte at which a place for what is sent from the lists begins.
fn staging(mappings: u16) -> usize {
    GRANTS as usize * BUFFER + usize::from(mappings) * MAPPING
}

/// Bytes of such a place.
const PLACE: usize = MAPPING;

impl Stream {
    /// One that is to be connected: it can receive as soon as the queue pair can.
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

    /// Ends it: what it has is freed with the value.
    pub(crate) fn end(&mut self, own: &OwnId) {
        self.pair.end(own.id());
    }

    /// What the peer is to know.
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

    /// The peer has told. It can be sent to at once, or when it has been heard of.
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

    /// Readable when there may be completions.
    pub(crate) fn descriptor(&self) -> c_int {
        self.pair.descriptor()
    }

    pub(crate) fn arm(&mut self) -> Result<(), Wrong> {
        if self.ends.gone { Ok(()) } else { self.pair.arm() }
    }

    pub(crate) fn take_events(&mut self) -> bool {
        self.pair.take_events()
    }

    /// Takes what has come, and tells the peer what it should know.
    pub(crate) fn progress(&mut self) {
        let mut completions = [ibv_wc::default(); BATCH];
        // A peer that sends and sends does not keep the caller for ever.
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

    /// True if it was a receive that is to be posted again.
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
                // No message of this protocol.
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

    /// False if the peer may not say that.
    fn arrived(&mut self, message: Message) -> bool {
        let Some(peer) = &mut self.peer else { return false };
        match message {
            Message::Data(length) => return self.incoming.received(length),
            Message::Credits(up_to) => {
                peer.outgoing.credited(up_to);
                // The length is written last.
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
        // SAFETY: they name no memory.
        unsafe { self.pair.post_receives(&mut list[..count]) }
    }

    /// The connection is gone. It has ended in order if the peer has said so; or if this end has, and all that it
    /// has sent has arrived: the peer then has nothing more to say.
    pub(crate) fn fail(&mut self, wrong: Wrong) {
        let is_told = self.ends.is_over() && self.ends.unsent.is_none();
        let in_order = self.ends.peer || is_told && self.sending.requests == 0;
        if !std::mem::replace(&mut self.ends.gone, true) && !in_order {
            self.ends.reason = Some(wrong);
        }
    }

    /// The peer's end of the connection is gone: what it has written before has come.
    pub(crate) fn disconnected(&mut self) {
        self.progress();
        self.fail(RESET);
    }

    /// Tells the peer what it should know, as far as there is room.
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
        if self.ends.read {
            self.incoming.read(self.incoming.unread());
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

    /// Reads what there is, or looks at it (`peek`). Nothing if the peer may send more. Why the connection is
    /// gone is said if the call can tell it (`tells`): one that has read something does not.
    pub(crate) fn read(
        &mut self,
        to: &mut Sink<'_>,
        peek: bool,
        tells: bool,
    ) -> Result<Option<usize>, Wrong> {
        if self.ends.read {
            return Ok(Some(0));
        }
        if self.incoming.unread() == 0 {
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
        if self.ends.finished {
            return Ok(Some(0));
        }
        // Told once; then it has ended.
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

    /// Whether anything may be written at all. The reason, if there is one, stays unless the call can tell it.
    fn may_write(&mut self, tells: bool) -> Result<(), Wrong> {
        if self.ends.write || self.ends.peer {
            return Err(SHUT);
        }
        if self.ends.gone {
            return Err(self.ends.reason.take_if(|_| tells).unwrap_or(SHUT));
        }
        Ok(())
    }

    /// Sends what there is room for. Why the connection is gone is said if the call can tell it: one that has
    /// sent something does not.
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
