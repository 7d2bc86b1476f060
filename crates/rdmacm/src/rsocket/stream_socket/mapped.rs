//! Memory of the program that the peer may write to.

use super::StreamSocket;
use crate::rsocket::memory::Registration;
use crate::rsocket::protocol::Mapping;
use crate::wrong::Wrong;

/// Memory that the program has mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) address: usize,
    pub(crate) length: usize,
    /// Its index in the peer's list, if the peer may write to it.
    pub(crate) index: Option<u16>,
    pub(crate) _registration: Registration,
}

impl StreamSocket {
    /// A free index in the peer's list of mappings.
    pub(crate) fn free_mapping(&self) -> Result<u16, Wrong> {
        let room = self.stream.as_ref().map_or(0, |stream| stream.room_for_mappings());
        let is_free = |index: &u16| !self.mapped.iter().any(|mapped| mapped.index == Some(*index));
        (0..room).find(is_free).ok_or(Wrong::new(
            libc::ENOMEM,
            "the peer has no room for more mappings: set RDMA_IOMAPSIZE at the peer",
        ))
    }

    /// Keeps memory mapped. If the peer may write to it, tells the peer from which offset on.
    pub(crate) fn map(&mut self, memory: Mapped, mapping: Option<Mapping>) {
        if let Some((index, mapping)) = memory.index.zip(mapping) {
            self.tell_of_mapping(index, mapping);
        }
        self.mapped.push(memory);
    }

    /// Takes back the memory that was mapped with this address and length.
    pub(crate) fn unmap(&mut self, address: usize, length: usize) -> Result<(), Wrong> {
        let is_it = |mapped: &Mapped| (mapped.address, mapped.length) == (address, length);
        let at = self.mapped.iter().position(is_it);
        let at = at.ok_or(Wrong::invalid("nothing is mapped at buf with this length"))?;
        if let Some(index) = self.mapped[at].index {
            self.tell_of_mapping(index, Mapping::default());
        }
        self.mapped.swap_remove(at);
        Ok(())
    }

    /// Tells the peer of a mapping.
    fn tell_of_mapping(&mut self, index: u16, mapping: Mapping) {
        if let Some(stream) = &mut self.stream {
            stream.map(index, mapping);
        }
    }
}
