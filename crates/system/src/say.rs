//! What this library says to the person who runs a program.
//!
//! All that may be worth knowing is an event of `tracing`, which nobody hears unless he asks: a Rust
//! program by its own subscriber, others by `TRANSOM_LOG` ([`log`](crate::log)). Few things the person must
//! know without asking, for an errno does not tell what to do about them: a sentence of these is on
//! standard error where nobody collects events.
//!
//! The program is a stranger's, and may be a daemon whose log has gone. So nothing that becomes of a
//! sentence is the program's trouble: what cannot be written is left unsaid. `eprintln!` would panic
//! where it cannot write, wait where a pipe is full, and let SIGPIPE end a program of C.

use std::fmt::{self, Write};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use tracing::subscriber::NoSubscriber;

use crate::environment;
use crate::signals::without_signals;

/// A longer sentence is cut off: what is no longer goes into a pipe in one piece.
const LONGEST: usize = 1024;

/// Says what the person who runs the program must know: an event of the highest level, or a sentence on
/// standard error if nobody collects events.
#[cold]
pub fn say(sentence: fmt::Arguments<'_>) {
    if tracing::dispatcher::get_default(|collector| collector.is::<NoSubscriber>()) {
        write_line(format_args!("transom: {sentence}"));
    } else {
        tracing::error!(target: "transom", "{sentence}");
    }
}

/// Says once where to ask why something was refused: where a person reads along, or a CI keeps what is written. Others'
/// standard error is a file of theirs, or a program reads it; and whoever collects events has the reason itself.
#[cold]
pub(crate) fn hint() {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Once is enough, also where it is not said.
    if SAID.swap(true, Relaxed) {
        return;
    }
    let pid = std::process::id();
    let said = "something was refused or failed; `transom explain --pid";
    say_to_whoever_reads(format_args!("{said} {pid}` says why"));
}

/// Says a sentence where a person reads along, or a CI keeps what is written.
#[cold]
pub fn say_to_whoever_reads(sentence: fmt::Arguments<'_>) {
    let collected = !tracing::dispatcher::get_default(|collector| collector.is::<NoSubscriber>());
    if !collected && (is_read_by_a_person() || is_ci()) {
        write_line(format_args!("transom: {sentence}"));
    }
}

fn is_read_by_a_person() -> bool {
    let errno = transom_thread::errno();
    let is_terminal = std::io::stderr().is_terminal();
    // The program's own, which a call that succeeds leaves as it is.
    transom_thread::set_errno(errno);
    is_terminal
}

/// As all of them say it.
fn is_ci() -> bool {
    environment::variable("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Writes a line to standard error. It takes no memory and no lock, and does not wait.
pub(crate) fn write_line(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LONGEST], length: 0 };
    // Cut off is good enough, and so is what somebody's `Display` had to say before it failed.
    let _ = line.write_fmt(text);
    line.end();
    // Ready means that a page fits into a pipe. What another thread of the program writes in between
    // may still make this wait, as it makes that thread wait.
    // SAFETY: it is only asked and written to; one that the program has closed is answered as that.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    let mut ready = [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut ready, Some(&at_once)).is_ok_and(|ready| ready > 0) {
        let _ = without_signals(|| rustix::io::write(stderr, &line.bytes[..line.length]));
    }
}

/// A line as far as there is room for it.
struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte is left for the end.
        let room = &mut self.bytes[self.length..LONGEST - 1];
        let taken = text.floor_char_boundary(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

impl Line {
    fn end(&mut self) {
        self.bytes[self.length] = b'\n';
        self.length += 1;
    }
}
