//! The sanitizers of gcc and clang, and valgrind's memcheck, in a program that was built or is run with one of them.
//!
//! They watch what the program's instructions do with memory, and know nothing of what a device does there. So the
//! device tells them: it asks before it reads or writes memory of the program, and says what it has written. It finds
//! them by the functions that they have for that (`runtimes`), so that nothing of Transom is compiled with them. In
//! any other process there is nobody to tell, and nothing is done.
//!
//! | module | holds |
//! |---|---|
//! | `runtimes` | which of them are there, and their functions |
//! | [`Allocator`] | memory of Transom's own, which the program reads as written |
//! | `fibers` | what the ThreadSanitizer is told: of each half of a queue pair, as of a thread |
//! | `posts` | the latest work requests, and where they were posted |
//! | `report` | our sentence above a report of theirs |

mod allocator;
mod fibers;
mod posts;
mod report;
mod runtimes;

use std::cell::Cell;
use std::marker::PhantomData;

use transom_device::operation::Operation;

pub use allocator::Allocator;
pub use posts::{Posted, note_post};
pub use runtimes::begin;
use runtimes::{Runtimes, runtimes};

/// The half of a queue pair that is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// It carries out what is posted to the send queue.
    Send,
    /// It carries out what peers ask for.
    Receive,
}

/// What the device does on a thread.
#[derive(Clone, Copy, Debug)]
struct Work {
    qp: u32,
    half: Half,
    peer: u32,
    /// What the peer has asked for, as far as that is known.
    operation: Option<Operation>,
    /// The peer's own queue pair, if it sends on this thread, and whom it sends to.
    sender: Option<(u32, u32)>,
}

impl Half {
    fn other(self) -> Self {
        match self {
            Self::Send => Self::Receive,
            Self::Receive => Self::Send,
        }
    }
}

impl Work {
    /// Who of both ends does this, where both are at work.
    fn by_whom(self, access: Access) -> Self {
        let reads = self.operation == Some(Operation::Read);
        match self.sender {
            Some((qp, peer)) if reads == (access == Access::Write) => {
                Self { qp, half: Half::Send, peer, operation: None, sender: None }
            }
            _ => self,
        }
    }

    /// Whether it is for nothing that the program has posted here.
    fn is_remote(&self, access: Access) -> bool {
        let receives = self.operation == Some(Operation::Send) && access == Access::Write;
        self.half == Half::Receive && !receives
    }
}

/// What is done to memory of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

thread_local! {
    static WORK: Cell<Option<Work>> = const { Cell::new(None) };
    /// How often this thread has entered Transom without having left it.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether anybody in this process is to be told.
#[inline]
pub fn are_told() -> bool {
    runtimes().is_some()
}

/// Until it goes, this thread works for half of a queue pair.
#[must_use]
pub struct Working(Option<Work>);

/// This thread works for half of a queue pair, whose peer is as told. `None` where nobody is to be told.
#[inline]
pub fn work(qp: u32, half: Half, peer: u32) -> Option<Working> {
    runtimes()?;
    let before = WORK.get();
    let sender = before.filter(|it| it.half == Half::Send && half == Half::Receive);
    let sender = sender.map(|it| (it.qp, it.peer));
    WORK.set(Some(Work { qp, half, peer, operation: None, sender }));
    Some(Working(before))
}

/// What it works for is this, asked for by a peer.
#[inline]
pub fn work_is(operation: Operation, peer: u32) {
    if are_told() {
        WORK.set(WORK.get().map(|work| Work { operation: Some(operation), peer, ..work }));
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORK.set(self.0);
    }
}

/// Until it goes, this thread is within Transom: what it does with memory is nothing that the program does.
#[must_use]
pub struct Inside(&'static Runtimes, PhantomData<*const ()>);

/// This thread is within Transom. `None` where nobody is to be told.
#[inline]
pub fn inside() -> Option<Inside> {
    let runtimes = runtimes()?;
    if INSIDE.replace(INSIDE.get() + 1) == 0 {
        runtimes.begin_inside();
    }
    Some(Inside(runtimes, PhantomData))
}

/// Until it goes, this thread waits within Transom as if outside.
#[must_use]
pub struct Outside(&'static Runtimes, PhantomData<*const ()>);

/// This thread, which is [inside](inside()), waits. `None` where nobody is to be told.
pub fn outside() -> Option<Outside> {
    let runtimes = runtimes().filter(|_| INSIDE.get() > 0)?;
    runtimes.end_inside();
    Some(Outside(runtimes, PhantomData))
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.0.begin_inside();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if INSIDE.replace(INSIDE.get() - 1) == 1 {
            self.0.end_inside();
        }
    }
}

/// The device is about to read or write memory of the program; asked before it does.
pub(crate) fn begins(address: u64, length: u64, access: Access) {
    let Some(runtimes) = runtimes() else { return };
    let _inside = inside();
    let work = WORK.get().map(|work| work.by_whom(access));
    if let Some(first) = runtimes.first_poisoned(address, length) {
        report::tell(runtimes, report::What::Poisoned, work.as_ref(), access, address, length);
        runtimes.report_poisoned(first, address, length, access);
    }
    let sends = access == Access::Read && work.is_none_or(|work| !work.is_remote(access));
    if sends && runtimes.has_undefined(address, length) {
        report::tell(runtimes, report::What::Undefined, work.as_ref(), access, address, length);
        runtimes.report_undefined(address, length);
    }
    if let (Some(tsan), Some(work)) = (&runtimes.thread, work) {
        fibers::touch(tsan, &work, address, length, access);
    }
}

/// A library of Transom's is about to read memory of the program. It need not be written as a whole.
pub fn are_used(address: u64, length: u64) {
    let Some(runtimes) = runtimes() else { return };
    let _inside = inside();
    if let Some(first) = runtimes.first_poisoned(address, length) {
        report::tell(runtimes, report::What::Poisoned, None, Access::Read, address, length);
        runtimes.report_poisoned(first, address, length, Access::Read);
    }
}

/// Whether one of them is there that sees for itself what is freed.
pub fn see_what_is_freed() -> bool {
    runtimes().is_some_and(Runtimes::see_what_is_freed)
}

/// Transom has written memory of the program: what is there now has come from elsewhere.
pub fn have_written(address: u64, length: u64) {
    if let Some(runtimes) = runtimes() {
        runtimes.define(address, length);
    }
}

/// Transom has written memory of the program where nothing is to be read.
pub fn left_undefined(address: u64, length: u64) {
    if let Some(runtimes) = runtimes() {
        runtimes.undefine(address, length);
    }
}

/// The program hands over bytes that are sent from where they are now.
pub fn are_sent(address: u64, length: u64) {
    begins(address, length, Access::Read);
}

/// The program has said, by a verb, what comes before all that is done for it from now on.
pub fn released() {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::released(tsan);
    }
}

/// By a verb that ends something the program has back what was used for it.
pub fn acquired_all() {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::acquired_all(tsan);
    }
}

/// The program has posted to this half of a queue pair, or to a shared receive queue.
pub fn posted(qp: Option<u32>, half: Half) {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::posted(tsan, qp, half);
    }
}

/// The program has polled, and there are completions.
pub fn polled() {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::polled(tsan);
    }
}

/// One of them is of this queue pair: of a half, or of either.
pub fn completed(qp: u32, half: Option<Half>) {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::completed(tsan, qp, half);
    }
}

/// A queue pair has been made.
pub fn made(qp: u32) {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::made(tsan, qp);
    }
}

/// A queue pair is gone.
pub fn forget(qp: u32) {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::forget(tsan, qp);
    }
}
