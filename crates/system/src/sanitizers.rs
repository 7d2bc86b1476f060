//! The sanitizers of gcc and clang, and valgrind's memcheck, in a program that was built or is run with one of them.
//!
//! They watch the memory accesses of the program's instructions, and see none of a device's. So the device tells them:
//! it asks before it reads or writes memory of the program, and says what it has written. It finds them by their public
//! functions (`transom_sanitizers`), so nothing of Transom is compiled with a sanitizer. In any other process there is nobody to
//! tell, and nothing is done.
//!
//! | module | holds |
//! |---|---|
//! | `runtimes` | the sanitizers in this process, asked and told together |
//! | [`Allocator`] | Transom's own memory, marked as written |
//! | `fibers` | each half of a queue pair, as a thread for ThreadSanitizer |
//! | `posts` | the latest work requests, and where the program posted them |
//! | `report` | our sentence above a sanitizer's report |

mod allocator;
mod fibers;
mod posts;
mod report;
mod runtimes;

use std::cell::Cell;
use std::marker::PhantomData;

use transom_device::operation::Operation;

pub use allocator::Allocator;
pub use fibers::last_byte_tells;
pub use posts::{Posted, note_post};
pub use runtimes::begin;
use runtimes::{Runtimes, runtimes};

/// A half of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// It carries out the requests in the send queue.
    Send,
    /// It carries out the requests of peers.
    Receive,
}

/// The work of the device on a thread.
#[derive(Clone, Copy, Debug)]
struct Work {
    qp: u32,
    half: Half,
    peer: u32,
    /// Whether the peer is of this host. Queue pairs of two hosts may have equal numbers.
    peer_is_of_this_host: bool,
    /// The peer's request, if it is known.
    operation: Option<Operation>,
    /// If the peer's own queue pair sends on this thread: that queue pair, and the one it sends to.
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
    /// The end that does this access, if both ends are at work on this thread.
    fn by_whom(self, access: Access) -> Self {
        let reads = self.operation == Some(Operation::Read);
        match self.sender {
            Some((qp, peer)) if !self.is_atomic() && reads == (access == Access::Write) => {
                let here =
                    Self { peer_is_of_this_host: true, operation: None, sender: None, ..self };
                Self { qp, half: Half::Send, peer, ..here }
            }
            _ => self,
        }
    }

    /// Whether it is an atomic of a peer's.
    fn is_atomic(&self) -> bool {
        use Operation::{AtomicWrite, CompareSwap, FetchAdd};
        matches!(self.operation, Some(CompareSwap | FetchAdd | AtomicWrite))
    }

    /// Whether no request of this process asks for the access.
    fn is_remote(&self, access: Access) -> bool {
        let receives = self.operation == Some(Operation::Send) && access == Access::Write;
        self.half == Half::Receive && !receives
    }
}

/// An access of the device to memory of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

thread_local! {
    static WORK: Cell<Option<Work>> = const { Cell::new(None) };
    /// The number of times that this thread has entered Transom and not left it.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether there is a sanitizer in this process.
#[inline]
pub fn are_told() -> bool {
    runtimes().is_some()
}

/// Until this is dropped, this thread works for a half of a queue pair. It is one word, because every post and every
/// message has one, mostly `None`.
#[must_use]
pub struct Working(Box<Option<Work>>);

/// This thread begins to work for a half of a queue pair with this peer, which may be of this host. `None` if there is
/// no sanitizer.
#[inline]
pub fn work(
    qp: u32,
    half: Half,
    peer: u32,
    is_of_this_host: impl FnOnce() -> bool,
) -> Option<Working> {
    if are_told() { Some(begin_work(qp, half, peer, is_of_this_host())) } else { None }
}

#[cold]
fn begin_work(qp: u32, half: Half, peer: u32, peer_is_of_this_host: bool) -> Working {
    let before = WORK.get();
    let sender = before.filter(|it| it.half == Half::Send && half == Half::Receive);
    let sender = sender.map(|it| (it.qp, it.peer));
    WORK.set(Some(Work { qp, half, peer, peer_is_of_this_host, operation: None, sender }));
    Working(Box::new(before))
}

/// The work of this thread is this operation, which `peer` asks for.
#[inline]
pub fn work_is(operation: Operation, peer: u32) {
    if are_told() {
        WORK.set(WORK.get().map(|work| Work { operation: Some(operation), peer, ..work }));
    }
}

impl Drop for Working {
    #[cold]
    fn drop(&mut self) {
        WORK.set(*self.0);
    }
}

/// Until this is dropped, this thread is within Transom: its memory accesses are not the program's.
#[must_use]
pub struct Inside(&'static Runtimes, PhantomData<*const ()>);

/// This thread enters Transom. `None` if there is no sanitizer.
#[inline]
pub fn inside() -> Option<Inside> {
    let runtimes = runtimes().filter(|it| it.look_inside())?;
    if INSIDE.replace(INSIDE.get() + 1) == 0 {
        runtimes.begin_inside();
    }
    Some(Inside(runtimes, PhantomData))
}

/// Until this is dropped, this thread waits within Transom as if it were outside.
#[must_use]
pub struct Outside(&'static Runtimes, PhantomData<*const ()>);

/// This thread, which is [inside](inside()), begins to wait. `None` if there is no sanitizer.
pub fn outside() -> Option<Outside> {
    let runtimes = runtimes().filter(|it| it.look_inside() && INSIDE.get() > 0)?;
    runtimes.end_inside();
    Some(Outside(runtimes, PhantomData))
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.0.begin_inside();
    }
}

impl Drop for Inside {
    #[cold]
    fn drop(&mut self) {
        if INSIDE.replace(INSIDE.get() - 1) == 1 {
            self.0.end_inside();
        }
    }
}

/// The device is about to read or write memory of the program.
#[inline]
pub(crate) fn begins(address: u64, length: u64, access: Access) {
    if let Some(runtimes) = runtimes() {
        tell_of_beginning(runtimes, address, length, access);
    }
}

#[cold]
fn tell_of_beginning(runtimes: &'static Runtimes, address: u64, length: u64, access: Access) {
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
    if let (Some(tsan), Some(work)) = (&runtimes.thread, work.filter(|it| !it.is_atomic())) {
        fibers::touch(tsan, &work, address, length, access);
    }
}

/// The device has read or written memory of the program.
#[inline]
pub(crate) fn has_ended(address: u64, length: u64, access: Access) {
    if let Some(runtimes) = runtimes() {
        tell_of_end(runtimes, address, length, access);
    }
}

#[cold]
fn tell_of_end(runtimes: &Runtimes, address: u64, length: u64, access: Access) {
    if access == Access::Write {
        runtimes.define(address, length);
    }
    // To note an atomic, the sanitizer takes part in it. So the word must be there.
    let work = WORK.get().filter(Work::is_atomic);
    if let (Some(tsan), Some(work), 8) = (&runtimes.thread, work, length) {
        let _inside = inside();
        fibers::touch(tsan, &work, address, length, access);
    }
}

/// A library of Transom is about to read memory of the program. The program need not have written all of it.
pub fn are_used(address: u64, length: u64) {
    let Some(runtimes) = runtimes() else { return };
    let _inside = inside();
    if let Some(first) = runtimes.first_poisoned(address, length) {
        report::tell(runtimes, report::What::Poisoned, None, Access::Read, address, length);
        runtimes.report_poisoned(first, address, length, Access::Read);
    }
}

/// Whether a sanitizer of this process itself recognizes the use of freed memory.
pub fn see_what_is_freed() -> bool {
    runtimes().is_some_and(Runtimes::see_what_is_freed)
}

/// The offset of AddressSanitizer's notes of memory, if it is the only sanitizer of this process. Then other processes
/// may access this one's memory themselves, if they look at the notes before. Zero if not.
pub fn notes_for_others() -> u64 {
    runtimes().and_then(Runtimes::notes_for_others).unwrap_or(0)
}

/// Transom has written memory of the program.
pub fn have_written(address: u64, length: u64) {
    if let Some(runtimes) = runtimes() {
        runtimes.define(address, length);
    }
}

/// The content of this memory of the program is undefined now.
pub fn left_undefined(address: u64, length: u64) {
    if let Some(runtimes) = runtimes() {
        runtimes.undefine(address, length);
    }
}

/// The device sends these bytes during the call that hands them over, such as inline data.
pub fn are_sent(address: u64, length: u64) {
    begins(address, length, Access::Read);
}

/// The program has called a verb. Its accesses up to now come before everything that the device does from now on.
pub fn released() {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::released(tsan);
    }
}

/// A verb that ends something has waited for the device. All accesses of the device come before those of the program
/// from now on.
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

/// The program has polled, and there are completions. Or it has got an event.
pub fn polled() {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::polled(tsan);
    }
}

/// The program has called something of which its peers may hear, otherwise than by a queue pair.
pub fn peers_are_told() {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::peers_are_told(tsan);
    }
}

/// The program has heard of a peer, otherwise than by a queue pair.
pub fn peers_have_told() {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::peers_have_told(tsan);
    }
}

/// All that this thread has done so far comes before what a thread does that [is told](is_told()) of the same address
/// later. `what` stands for it.
pub fn tells<T>(what: *const T) {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        tsan.thread.release(what as u64);
    }
}

/// What other threads did before they [told](tells()) this comes before what this thread does from now on.
pub fn is_told<T>(what: *const T) {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        tsan.thread.acquire(what as u64);
    }
}

/// A polled completion is of this queue pair. `half` is None if it may be of either half.
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

/// A queue pair has ended.
pub fn forget(qp: u32) {
    if let Some(tsan) = runtimes().and_then(|it| it.thread.as_ref()) {
        fibers::forget(tsan, qp);
    }
}
