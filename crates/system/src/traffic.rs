//! What queue pairs have carried, counted in the segment of their process, where other processes of its user look.
//!
//! Each counter has one writer at a time, the thread that holds the lock of the half it belongs to. So to count is to
//! load and to store; no instruction locks the bus. Readers take the values as they are.
//!
//! | module | holds |
//! |---|---|
//! | `process` | what a process has counted that belongs to no queue pair that is there |
//! | `moves` | values that move between places which several add up |

mod moves;
mod process;

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use strum::{EnumCount, VariantArray};
use transom_device::execution::Tally;
use transom_device::operation::Operation;

pub use self::moves::Moves;
pub use self::process::{ProcessTotals, ProcessTraffic};

/// The kinds of messages that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantArray)]
pub enum Carried {
    /// SENDs, datagrams among them.
    Send,
    /// WRITEs and ATOMIC WRITEs.
    Write,
    /// READs.
    Read,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
    /// FLUSHes.
    Flush,
}

impl Carried {
    /// All of them.
    pub const ALL: [Self; Self::COUNT] =
        *Self::VARIANTS.first_chunk().expect("as many as there are");

    /// The kind of an operation's messages. `None` if it needs none.
    #[inline]
    pub fn by(operation: Operation) -> Option<Self> {
        Some(match operation {
            Operation::Send => Self::Send,
            Operation::Write | Operation::AtomicWrite => Self::Write,
            Operation::Read => Self::Read,
            Operation::CompareSwap | Operation::FetchAdd => Self::Atomic,
            Operation::Flush | Operation::FlushPersistent => Self::Flush,
            Operation::RemoteInvalidate
            | Operation::LocalRead
            | Operation::LocalWrite
            | Operation::Bind
            | Operation::Invalidate => return None,
        })
    }

    /// Its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
            Self::Flush => "flush",
        }
    }
}

/// Messages of one kind in one direction.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Flow {
    messages: AtomicU64,
    bytes: AtomicU64,
    packets: AtomicU64,
}

impl Flow {
    /// One more, of so many bytes and packets. The caller alone writes here now.
    #[inline]
    pub fn add(&self, bytes: u64, packets: u64) {
        grow(&self.messages, 1);
        grow(&self.bytes, bytes);
        grow(&self.packets, packets);
    }

    fn get(&self) -> Amount {
        Amount {
            messages: self.messages.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            packets: self.packets.load(Relaxed),
        }
    }
}

/// Adds to a counter that nobody else writes now.
#[inline]
fn grow(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Makes a mark as high as this, if it was lower. Nobody else writes it now.
#[inline]
fn raise(mark: &AtomicU64, to: u64) {
    if mark.load(Relaxed) < to {
        mark.store(to, Relaxed);
    }
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantArray)]
pub enum Way {
    /// To a process of this host, or this one, without packets.
    Host,
    /// Over the wire.
    Wire,
}

impl Way {
    /// Both.
    pub const ALL: [Self; Self::COUNT] =
        *Self::VARIANTS.first_chunk().expect("as many as there are");
}

/// Messages in one direction, by way and kind.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Flows([[Flow; Carried::ALL.len()]; Way::ALL.len()]);

impl Flows {
    /// Those of a kind on a way.
    #[inline]
    pub fn of(&self, way: Way, kind: Carried) -> &Flow {
        &self.0[way as usize][kind as usize]
    }

    fn get(&self) -> Amounts {
        self.0.each_ref().map(|kinds| kinds.each_ref().map(Flow::get))
    }

    fn all(&self) -> impl Iterator<Item = &Flow> {
        self.0.iter().flatten()
    }
}

/// The values of [`Flows`].
type Amounts = [[Amount; Carried::ALL.len()]; Way::ALL.len()];

/// What follows begins a cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct NewLine;

/// What one queue pair has carried since it was created. Threads that write at the same time have lines of their own.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Traffic {
    most_sends: AtomicU64,
    /// Its own requests that ended well. Its send half writes this.
    pub sent: Flows,
    /// How much waits in its queues, when somebody last asked. Its process's background thread writes these.
    sends: AtomicU32,
    completions: AtomicU32,
    _receive_half: NewLine,
    /// Requests of its peer that it carried out itself. Its receive half writes this.
    pub received: Flows,
    most_receives: AtomicU64,
    receives: AtomicU32,
    silent: AtomicU32,
    _peer: NewLine,
    /// Requests of its peer that the peer carried out itself, on the direct way. The peer's send half writes this.
    pub served: [Flow; Carried::ALL.len()],
    /// The index of the queue pair, plus one. Zero for none.
    user: AtomicU32,
    /// How its requests wait, when somebody last asked. Its process's background thread writes this.
    waits: AtomicU32,
    tallies: [AtomicU64; Tally::ALL.len()],
}

const _: () = {
    assert!(offset_of!(Traffic, received).is_multiple_of(64));
    assert!(offset_of!(Traffic, served).is_multiple_of(64));
    assert!(offset_of!(Traffic, tallies).is_multiple_of(64));
    assert!(size_of::<Traffic>() == 832);
};

impl Traffic {
    /// The queue pair that counts here, by its index.
    pub fn user(&self) -> Option<u16> {
        self.user.load(Acquire).checked_sub(1).map(|index| index as u16)
    }

    /// A queue pair counts here from now on.
    pub fn begin(&self, index: u16) {
        self.user.store(u32::from(index) + 1, Release);
    }

    /// Counts so many. The half that sees this kind of thing is locked.
    pub fn tally(&self, tally: Tally, count: u64) {
        grow(&self.tallies[tally as usize], count);
    }

    /// So many requests wait in the send queue.
    #[inline]
    pub fn sends_wait(&self, count: usize) {
        raise(&self.most_sends, count as u64);
    }

    /// So many receives wait in the receive queue.
    #[inline]
    pub fn receives_wait(&self, count: usize) {
        raise(&self.most_receives, count as u64);
    }

    /// So much waits in its queues now.
    pub fn show_depths(&self, depths: Depths) {
        let Depths { sends, silent, receives, completions, waits } = depths;
        self.sends.store(sends, Relaxed);
        self.silent.store(silent, Relaxed);
        self.waits.store(waits.pack(), Relaxed);
        self.receives.store(receives, Relaxed);
        self.completions.store(completions, Relaxed);
    }

    /// How much waited in its queues when somebody last asked.
    pub fn depths(&self) -> Depths {
        let of = |count: &AtomicU32| count.load(Relaxed);
        Depths {
            sends: of(&self.sends),
            silent: of(&self.silent),
            waits: Waits::unpack(of(&self.waits)),
            receives: of(&self.receives),
            completions: of(&self.completions),
        }
    }

    /// The values now.
    pub fn get(&self) -> Totals {
        let mut received = self.received.get();
        for (sum, more) in received[Way::Host as usize].iter_mut().zip(&self.served) {
            sum.add(more.get());
        }
        Totals {
            sent: self.sent.get(),
            received,
            most_sends: self.most_sends.load(Relaxed),
            most_receives: self.most_receives.load(Relaxed),
            tallies: self.tallies.each_ref().map(|tally| tally.load(Relaxed)),
        }
    }

    /// Adds these to the values here. Several may do it at once.
    pub(crate) fn collect(&self, totals: &Totals) {
        let add = |flows: &Flows, amounts: &Amounts| {
            for (flow, amount) in flows.all().zip(amounts.iter().flatten()) {
                flow.messages.fetch_add(amount.messages, Relaxed);
                flow.bytes.fetch_add(amount.bytes, Relaxed);
                flow.packets.fetch_add(amount.packets, Relaxed);
            }
        };
        add(&self.sent, &totals.sent);
        add(&self.received, &totals.received);
        self.most_sends.fetch_max(totals.most_sends, Relaxed);
        self.most_receives.fetch_max(totals.most_receives, Relaxed);
        for (tally, count) in self.tallies.iter().zip(totals.tallies) {
            tally.fetch_add(count, Relaxed);
        }
    }

    pub(crate) fn clear(&self) {
        self.user.store(0, Relaxed);
        self.show_depths(Depths::default());
        for flow in self.sent.all().chain(self.received.all()).chain(&self.served) {
            let Flow { messages, bytes, packets } = flow;
            [messages, bytes, packets].into_iter().for_each(|counter| counter.store(0, Relaxed));
        }
        let marks = [&self.most_sends, &self.most_receives];
        self.tallies.iter().chain(marks).for_each(|counter| counter.store(0, Relaxed));
    }
}

/// How much waits in the queues of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// Requests that have not ended.
    pub sends: u32,
    /// Requests that have ended without a completion since the last one that had one.
    pub silent: u32,
    /// Receives that no message has taken, also in a shared queue.
    pub receives: u32,
    /// Completions that nobody has polled, in its completion queues.
    pub completions: u32,
    /// How its requests wait.
    pub waits: Waits,
}

/// How the requests of a queue pair wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For a receive they wait for ever: `rnr_retry` is 7.
    pub for_a_receive: bool,
    /// For an answer they wait for ever: `timeout` is 0.
    pub for_an_answer: bool,
    /// They go to the other end in packets.
    pub on_the_wire: bool,
}

impl Waits {
    fn pack(self) -> u32 {
        let Self { for_a_receive, for_an_answer, on_the_wire } = self;
        u32::from(for_a_receive) | u32::from(for_an_answer) << 1 | u32::from(on_the_wire) << 2
    }

    fn unpack(word: u32) -> Self {
        let [for_a_receive, for_an_answer, on_the_wire] = [0, 1, 2].map(|bit| word >> bit & 1 == 1);
        Self { for_a_receive, for_an_answer, on_the_wire }
    }
}

/// Messages of one kind, in bytes and packets too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub messages: u64,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// The packets that an adapter needs for their data at the path MTU: those of the answers, for READs.
    pub packets: u64,
}

impl Amount {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.messages = self.messages.wrapping_add(other.messages);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.packets = self.packets.wrapping_add(other.packets);
    }
}

/// What a queue pair, a process or all of them have carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    sent: Amounts,
    received: Amounts,
    /// The most requests that waited in a send queue.
    pub most_sends: u64,
    /// The most receives that waited in a receive queue.
    pub most_receives: u64,
    tallies: [u64; Tally::ALL.len()],
}

impl Totals {
    /// Own requests of a kind that ended well.
    pub fn sent(&self, way: Way, kind: Carried) -> Amount {
        self.sent[way as usize][kind as usize]
    }

    /// Requests of peers that were carried out.
    pub fn received(&self, way: Way, kind: Carried) -> Amount {
        self.received[way as usize][kind as usize]
    }

    /// How often this happened.
    pub fn tally(&self, tally: Tally) -> u64 {
        self.tallies[tally as usize]
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        let sums = self.sent.iter_mut().chain(&mut self.received).flatten();
        let more = other.sent.iter().chain(&other.received).flatten();
        sums.zip(more).for_each(|(sum, more)| sum.add(*more));
        self.most_sends = self.most_sends.max(other.most_sends);
        self.most_receives = self.most_receives.max(other.most_receives);
        for (sum, more) in self.tallies.iter_mut().zip(other.tallies) {
            *sum = sum.wrapping_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_shown_as_they_are() {
        let traffic = Traffic::default();
        let wait = |for_a_receive, for_an_answer, on_the_wire| Waits {
            for_a_receive,
            for_an_answer,
            on_the_wire,
        };
        for waits in [wait(true, false, false), wait(false, true, false), wait(false, false, true)]
        {
            let depths = Depths { sends: 1, silent: 2, receives: 3, completions: 4, waits };
            traffic.show_depths(depths);
            assert_eq!(traffic.depths(), depths);
        }
    }
}
