//! Mappings: memory of programs that their peers write to directly.

use super::super::iovec::Source;
use super::super::protocol::{BUFFER, Buffer, GRANTS, MAPPING, Mapping, Message};
use super::super::settings::CONTROLS;
use super::{PORTION, Stream};
use crate::wrong::Wrong;

impl Stream {
    /// Tells the peer of a mapping, before the next data.
    pub(crate) fn map(&mut self, index: u16, mapping: Mapping) {
        self.unsent_mappings.push_back((index, mapping));
        self.tell();
    }

    pub(super) fn post_mapping(&mut self, index: u16, mapping: &Mapping) -> Result<(), Wrong> {
        let Some(peer) = &self.peer else { return Ok(()) };
        let bytes = mapping.bytes(peer.order);
        let at = u64::from(peer.grants.length) * BUFFER as u64 + u64::from(index) * MAPPING as u64;
        let to = Buffer { address: peer.grants.address.wrapping_add(at), ..peer.grants };
        self.post_list(&bytes, to, Message::Mapped(index.into()))
    }

    /// The number of mappings that the peer has room for.
    pub(crate) fn room_for_mappings(&self) -> u16 {
        self.peer.as_ref().map_or(0, |peer| peer.mappings)
    }

    /// The peer's mapped buffer from this offset on.
    pub(crate) fn mapping_at(&self, offset: u64) -> Option<Buffer> {
        (0..usize::from(self.mappings)).find_map(|index| {
            let at = GRANTS as usize * BUFFER + index * MAPPING;
            let begin = self.lists.word::<u64>(at);
            let length = self.lists.word::<u32>(at + 20);
            let into = offset.checked_sub(begin).filter(|into| *into < length.into())?;
            let address = self.lists.word::<u64>(at + 8).wrapping_add(into);
            Some(Buffer { address, key: self.lists.word(at + 16), length: length - into as u32 })
        })
    }

    /// Writes to a peer's buffer as much as there is room for, in one request. With `tells`, it reports why the
    /// connection is gone.
    pub(crate) fn write_to(
        &mut self,
        from: &mut Source<'_>,
        to: Buffer,
        tells: bool,
    ) -> Result<usize, Wrong> {
        self.may_write(tells)?;
        if self.room_to_write_directly() == 0 {
            self.progress();
            self.may_write(tells)?;
        }
        let left = u32::try_from(from.left()).unwrap_or(u32::MAX);
        let length = self.room_to_write_directly().min(PORTION).min(left).min(to.length);
        if length > 0 {
            self.post_data(from, length, None, to).inspect_err(|wrong| self.fail(wrong.clone()))?;
        }
        Ok(length as usize)
    }

    /// The room to write directly. This needs no grant.
    fn room_to_write_directly(&self) -> u32 {
        if self.can_post(CONTROLS) { self.sending.size - self.sending.used } else { 0 }
    }
}
