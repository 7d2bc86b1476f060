//! The requests of a stream: data and grants. Each is a WRITE with a message in immediate data.

use std::ffi::c_int;

use transom_abi::*;

use super::super::flow::Grant;
use super::super::iovec::Source;
use super::super::protocol::{BUFFER, Buffer, Message};
use super::{PLACE, Sending, Stream, staging};
use crate::wrong::Wrong;

impl Stream {
    /// Whether a request can be posted and leave room for `more` requests.
    pub(super) fn can_post(&self, more: u16) -> bool {
        let ready = self.peer.as_ref().is_some_and(|peer| peer.ready);
        ready && !self.ends.gone && self.sending.requests.saturating_add(more) < self.sending.most
    }

    pub(super) fn post_grant(&mut self, grant: Grant) -> Result<(), Wrong> {
        let message = Message::Credits(grant.up_to);
        let Some(half) = grant.half else {
            self.post_message(message)?;
            self.incoming.told(grant);
            return Ok(());
        };
        let Some(peer) = &mut self.peer else { return Ok(()) };
        let (address, key) = self.receive.remote(half as usize);
        let buffer = Buffer { address, key, length: self.incoming.half() };
        let bytes = buffer.bytes(peer.order);
        let at = u64::from(peer.place) * BUFFER as u64;
        let to = Buffer { address: peer.grants.address.wrapping_add(at), ..peer.grants };
        peer.place = (peer.place + 1) % peer.grants.length;
        self.post_list(&bytes, to, message)?;
        self.incoming.told(grant);
        Ok(())
    }

    pub(super) fn post_message(&mut self, message: Message) -> Result<(), Wrong> {
        self.post(&mut [], Some(message), Buffer::default(), 0, 0)
    }

    /// Writes an entry into a list of the peer.
    pub(super) fn post_list(
        &mut self,
        bytes: &[u8],
        to: Buffer,
        message: Message,
    ) -> Result<(), Wrong> {
        let length = bytes.len() as u32;
        if length <= self.pair.inline {
            let addr = bytes.as_ptr().expose_provenance() as u64;
            let sge = ibv_sge { addr, length, lkey: 0 };
            return self.post(&mut [sge], Some(message), to, 0, IBV_SEND_INLINE);
        }
        // There are as many places as requests, used in turn. So the earlier request from this place is complete.
        let at = staging(self.mappings) + usize::from(self.sending.place) * PLACE;
        self.sending.place = (self.sending.place + 1) % self.sending.most;
        // SAFETY: it copies all of `bytes`.
        unsafe { self.lists.put(at, bytes.as_ptr(), bytes.len()) };
        let sge = self.lists.sge(at, length);
        self.post(&mut [sge], Some(message), to, 0, 0)
    }

    /// Posts a WRITE. Its completion frees `frees` bytes of the ring.
    fn post(
        &mut self,
        sges: &mut [ibv_sge],
        message: Option<Message>,
        to: Buffer,
        frees: u32,
        flags: ibv_send_flags,
    ) -> Result<(), Wrong> {
        let opcode = if message.is_some() { IBV_WR_RDMA_WRITE_WITH_IMM } else { IBV_WR_RDMA_WRITE };
        let imm_data = message.map_or(0, |message| message.number().to_be());
        let mut request = ibv_send_wr {
            wr_id: frees.into(),
            sg_list: sges.as_mut_ptr(),
            num_sge: sges.len() as c_int,
            opcode,
            send_flags: flags | IBV_SEND_SIGNALED,
            imm: ibv_send_wr_imm { imm_data },
            wr: ibv_send_wr_wr { rdma: ibv_send_wr_rdma { remote_addr: to.address, rkey: to.key } },
            ..Default::default()
        };
        // SAFETY: data that is not inline lies in regions of this value, which outlive the queue pair.
        unsafe { self.pair.post(&mut request) }?;
        self.sending.requests += 1;
        self.sending.used += frees;
        Ok(())
    }

    pub(super) fn post_data(
        &mut self,
        from: &mut Source<'_>,
        length: u32,
        message: Option<Message>,
        to: Buffer,
    ) -> Result<(), Wrong> {
        if length <= self.pair.inline
            && let Some(bytes) = from.take_together(length as usize)
        {
            let addr = bytes.expose_provenance() as u64;
            let sge = ibv_sge { addr, length, lkey: 0 };
            return self.post(&mut [sge], message, to, 0, IBV_SEND_INLINE);
        }
        let Sending { ring, size, at, .. } = &mut self.sending;
        let first = length.min(*size - *at);
        let mut sges = [ring.sge(*at as usize, first), ring.sge(0, length - first)];
        for (begin, length) in [(*at, first), (0, length - first)] {
            // SAFETY: the source has `length` bytes there.
            from.each(length as usize, |offset, from, length| unsafe {
                ring.put(begin as usize + offset, from, length);
            });
        }
        *at = (*at + length) % *size;
        let count = if length > first { 2 } else { 1 };
        self.post(&mut sges[..count], message, to, length, 0)
    }
}
