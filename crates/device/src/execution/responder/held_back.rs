//! WRITEs of which a rehearsal decides when they get to memory, and READs that must see them.

use super::super::{CopyError, Process, Request, Sink, Source};
use crate::protection::Grant;

/// The bytes of a WRITE. All that memory gets of them is granted first, as ever.
pub(super) struct HeldBack<'a, P> {
    pub(super) request: &'a Request,
    pub(super) process: &'a P,
    pub(super) source: &'a mut dyn Source,
}

impl<P: Process> Source for HeldBack<'_, P> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        self.source.read(offset, bytes)
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        self.process.place(self.request, at, offset, self.source)
    }
}

/// The place for what a READ brings.
pub(super) struct Seen<'a, P> {
    pub(super) process: &'a P,
    pub(super) sink: &'a mut dyn Sink,
}

impl<P: Process> Sink for Seen<'_, P> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        self.process.reads(at);
        self.sink.copy_from(offset, at)
    }
}
