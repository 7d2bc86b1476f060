//! A datagram queue pair of one local address, with memory for arriving and leaving datagrams.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::Duration;

use transom_abi::*;

use super::datagram_protocol::{LONGEST, read_source};
use super::iovec::{Sink, Source};
use super::memory::Region;
use super::names;
use super::own_id::OwnId;
use super::queue_pair::{QueuePair, Sizes};
use super::settings::Settings;
use super::wait::{Deadline, wait_for};
use crate::provider::Provider;
use crate::resolve;
use crate::wrong::{NotNow, Wrong};

/// The timeout to find the device of a loopback address, in milliseconds.
const RESOLVE_TIMEOUT: c_int = 2000;
/// The length in bytes of the GRH area before a datagram.
const ROUTE: usize = 40;
/// The longest datagram between queue pairs, with its header, in bytes. rdma-core's sockets have this much room. A
/// longer one would put their queue pair into error, so it goes by UDP.
const LONGEST_MESSAGE: usize = 2048;
/// The length of a slot for one datagram, in bytes.
const SLOT: usize = (ROUTE + LONGEST_MESSAGE).next_multiple_of(64);
/// The Q_Key of datagrams.
const QKEY: u32 = 0x0123_4567;
/// The most datagrams under way.
const SENDS: u16 = 64;
/// The bit in `wr_id` that marks a send.
const SEND: u64 = 1 << 32;

/// A queue pair of datagrams.
#[derive(Debug)]
pub(crate) struct DatagramPair {
    pair: QueuePair,
    /// Its address, as peers see it.
    pub(crate) address: SocketAddr,
    receive: Region,
    send: Region,
    free: Vec<u16>,
    /// A send has failed, so no later one will succeed.
    failed: bool,
    /// Its device is gone, so nothing comes any more.
    gone: bool,
    /// Behind the regions, which end before: with the last id goes the domain that they are in.
    own: OwnId,
}

/// An arrived datagram that waits in its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) from: SocketAddr,
    slot: u16,
    offset: usize,
    pub(crate) length: usize,
}

impl DatagramPair {
    /// Makes the queue pair of a local address.
    pub(crate) fn create(
        provider: &'static Provider,
        address: SocketAddr,
        settings: &Settings,
    ) -> Result<Self, Wrong> {
        let own = OwnId::create(provider, RDMA_PS_UDP, IBV_QPT_UD)?;
        let any_port = names::storage(SocketAddr::new(address.ip(), 0));
        if address.ip().is_loopback() {
            // A loopback address belongs to no device. The route to itself leads to one (rule CM-67).
            resolve::resolve_address(own.id(), Some(any_port), any_port, RESOLVE_TIMEOUT)?;
            let limit = Duration::from_millis(RESOLVE_TIMEOUT as u64);
            wait_for(own.descriptor(), Deadline::after(Some(limit)))?;
            own.next();
        } else {
            resolve::bind(own.id(), any_port)?;
        }
        // Without a device there is no protection domain.
        let device = own.id().seen().pd;
        if device.is_null() {
            return Err(Wrong::new(libc::ENODEV, "no device has the address"));
        }
        let slots = (settings.receive_buffer / 1024).clamp(64, settings.receives.max(64).into());
        let sizes = Sizes { sends: SENDS.into(), receives: slots, inline: 0, sges: 1 };
        let mut pair = QueuePair::create(own.id(), sizes)?;
        let verbs = &provider.verbs;
        let region = |count| Region::new(verbs, device, count * SLOT, IBV_ACCESS_LOCAL_WRITE);
        let both = region(slots as usize).and_then(|first| Ok((first, region(SENDS.into())?)));
        let (receive, send) = both.inspect_err(|_| pair.end(own.id()))?;
        let free = (0..SENDS).collect();
        let this = Self { pair, own, address, receive, send, free, failed: false, gone: false };
        for slot in 0..slots {
            this.receive_again(slot as u16)?;
        }
        Ok(this)
    }

    pub(crate) fn number(&self) -> u32 {
        self.pair.number()
    }

    pub(crate) fn descriptor(&self) -> c_int {
        self.pair.descriptor()
    }

    pub(crate) fn arm(&mut self) -> Result<(), Wrong> {
        self.pair.arm()
    }

    pub(crate) fn take_events(&mut self) -> bool {
        self.pair.take_events()
    }

    fn receive_again(&self, slot: u16) -> Result<(), Wrong> {
        let mut sge = self.receive.sge(usize::from(slot) * SLOT, SLOT as u32);
        let (sg_list, wr_id) = (&raw mut sge, slot.into());
        let request = ibv_recv_wr { wr_id, sg_list, num_sge: 1, ..Default::default() };
        // SAFETY: the slot belongs to this value, and outlives the queue pair.
        unsafe { self.pair.post_receives(&mut [request]) }
    }

    /// Takes completions.
    pub(crate) fn progress(&mut self, mut each: impl FnMut(Waiting)) {
        let mut completions = [ibv_wc::default(); 16];
        for _ in 0..64 {
            let polled = self.pair.poll(&mut completions);
            self.gone |= polled.is_err();
            let count = polled.unwrap_or(0);
            for completion in &completions[..count] {
                let slot = completion.wr_id as u16;
                if completion.wr_id & SEND != 0 {
                    self.free.push(slot);
                    self.failed |= completion.status != IBV_WC_SUCCESS;
                } else if completion.status == IBV_WC_SUCCESS {
                    match self.waiting(slot, completion.byte_len as usize) {
                        Some(waiting) => each(waiting),
                        None => self.done(slot),
                    }
                }
            }
            if count < completions.len() {
                break;
            }
        }
    }

    /// The datagram in a slot. `None` if it is not of this protocol.
    fn waiting(&self, slot: u16, length: usize) -> Option<Waiting> {
        let length = length.min(SLOT).checked_sub(ROUTE)?;
        let mut header = [0; LONGEST];
        let header = &mut header[..length.min(LONGEST)];
        let begin = usize::from(slot) * SLOT + ROUTE;
        // SAFETY: there is room for the header.
        unsafe { self.receive.get(begin, header.as_mut_ptr(), header.len()) };
        let (from, bytes) = read_source(header)?;
        Some(Waiting { from, slot, offset: ROUTE + bytes, length: length - bytes })
    }

    /// Copies the part of a datagram that there is room for.
    pub(crate) fn read(&self, waiting: &Waiting, to: &mut Sink<'_>) -> usize {
        let length = waiting.length.min(to.left());
        let begin = usize::from(waiting.slot) * SLOT + waiting.offset;
        // SAFETY: the sink has room.
        to.each(length, |offset, to, length| unsafe {
            self.receive.get(begin + offset, to, length);
        });
        length
    }

    /// The program has read the datagram.
    pub(crate) fn finish(&self, waiting: Waiting) {
        self.done(waiting.slot);
    }

    fn done(&self, slot: u16) {
        // A queue pair in error receives nothing more.
        let _ = self.receive_again(slot);
    }

    /// Whether a poll has shown that its device is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether a datagram can be sent at once.
    pub(crate) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether a datagram with its header fits into one message of a path.
    pub(crate) fn takes(&self, length: usize, mtu: usize) -> bool {
        !self.failed && length <= mtu.min(LONGEST_MESSAGE)
    }

    /// Sends a datagram. It must fit, and there must be a free slot.
    pub(crate) fn send(
        &mut self,
        (ah, remote_qpn): (*mut ibv_ah, u32),
        header: &[u8],
        from: &mut Source<'_>,
    ) -> Result<(), Wrong> {
        let slot = self.free.pop().ok_or(Wrong::not_now(NotNow::Again))?;
        let begin = usize::from(slot) * SLOT;
        let length = from.left();
        // SAFETY: the source has `length` bytes there.
        unsafe { self.send.put(begin, header.as_ptr(), header.len()) };
        from.each(length, |offset, from, length| {
            // SAFETY: the source has `length` bytes there.
            unsafe { self.send.put(begin + header.len() + offset, from, length) };
        });
        let mut sge = self.send.sge(begin, (header.len() + length) as u32);
        let mut request = ibv_send_wr {
            wr_id: SEND | u64::from(slot),
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED,
            wr: ibv_send_wr_wr { ud: ibv_send_wr_ud { ah, remote_qpn, remote_qkey: QKEY } },
            ..Default::default()
        };
        // SAFETY: the slot belongs to this value, and outlives the queue pair.
        let posted = unsafe { self.pair.post(&mut request) };
        posted.inspect_err(|_| self.free.push(slot))
    }
}

impl Drop for DatagramPair {
    fn drop(&mut self) {
        self.pair.end(self.own.id());
    }
}
