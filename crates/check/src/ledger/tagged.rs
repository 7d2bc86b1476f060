//! Tagged buffers of shared receive queues. Each is a receive, and leaves the queue in any order.

use std::collections::BTreeMap;

use super::memory::Memory;
use super::{Ledger, Posted};
use crate::Call;

/// The most tagged buffers of a queue that are remembered. No device takes as many.
const MOST: usize = 1 << 16;

/// A tagged buffer that waits for its message.
#[derive(Clone, Debug)]
struct Buffer {
    /// Its number in the ledger.
    number: u64,
    /// What the program removes it by, once it is added.
    handle: Option<u32>,
    posted: Posted,
}

/// The tagged buffers, by the address of the queue.
#[derive(Debug, Default)]
pub(super) struct Tagged {
    queues: BTreeMap<usize, Vec<Buffer>>,
    last: u64,
}

impl Tagged {
    /// Those of a queue.
    pub(super) fn of(&self, queue: usize) -> impl Iterator<Item = &Posted> {
        self.queues.get(&queue).into_iter().flatten().map(|it| &it.posted)
    }

    fn take(&mut self, queue: usize, is_it: impl Fn(&Buffer) -> bool) -> Option<Posted> {
        let buffers = self.queues.get_mut(&queue)?;
        let at = buffers.iter().position(is_it)?;
        Some(buffers.remove(at).posted)
    }

    /// A message has filled the oldest buffer of this number in a queue. Whether there was one.
    pub(super) fn received(&mut self, queue: usize, wr_id: u64, memory: &mut Memory) -> bool {
        let mut ended = self.take(queue, |it| it.posted.wr_id == wr_id);
        memory.landed(&mut ended);
        ended.is_some()
    }

    /// The same of a message whose queue is not known.
    pub(super) fn received_somewhere(&mut self, wr_id: u64, memory: &mut Memory) -> bool {
        let has_it = |buffers: &Vec<Buffer>| buffers.iter().any(|it| it.posted.wr_id == wr_id);
        let queue = self.queues.iter().find(|(_, buffers)| has_it(buffers)).map(|(at, _)| *at);
        queue.is_some_and(|queue| self.received(queue, wr_id, memory))
    }

    /// A queue has ended.
    pub(super) fn end(&mut self, queue: usize, memory: &mut Memory) {
        let mut ended = self.queues.remove(&queue).unwrap_or_default();
        memory.landed(ended.iter_mut().map(|it| &mut it.posted));
    }
}

impl Ledger {
    /// A buffer is about to be added to a queue. Returns its number here.
    pub fn tag_added(
        &mut self,
        device: usize,
        queue: usize,
        request: impl FnOnce(&mut Posted),
        call: &Call,
    ) -> u64 {
        let mut posted = Posted::default();
        request(&mut posted);
        posted.call = *call;
        self.locate(device, &mut posted);
        let one = || std::iter::once(&posted);
        self.tell_gone(one());
        self.tell_claimed(one());
        self.aimed(one());
        self.tagged.last += 1;
        let number = self.tagged.last;
        let buffers = self.tagged.queues.entry(queue).or_default();
        buffers.push(Buffer { number, handle: None, posted });
        let mut oldest = (buffers.len() > MOST).then(|| buffers.remove(0).posted);
        self.memory.landed(&mut oldest);
        number
    }

    /// The addition was accepted: the buffer has this handle. Or it was refused.
    pub fn tag_answered(&mut self, queue: usize, number: u64, handle: Option<u32>) {
        if handle.is_none() {
            let refused = self.tagged.take(queue, |it| it.number == number);
            self.memory.missed(refused.as_slice());
            return;
        }
        let buffers = self.tagged.queues.get_mut(&queue);
        // A message may have filled it already.
        let added = buffers.into_iter().flatten().find(|it| it.number == number);
        added.into_iter().for_each(|it| it.handle = handle);
    }

    /// A buffer is removed. If a message has it already, its completion comes all the same.
    pub fn tag_removed(&mut self, queue: usize, handle: u32) {
        let mut removed = self.tagged.take(queue, |it| it.handle == Some(handle));
        self.memory.landed(&mut removed);
    }
}
