//! Messages of this library to the person who runs a program.
//!
//! Everything of interest is an event of `tracing`. You get events only if you ask: in a Rust program with its own
//! subscriber, elsewhere with `TRANSOM_LOG` ([`log`](crate::log)). You must know a few things without asking, because
//! an errno does not tell what to do about them. If nobody collects events, such a sentence goes to standard error.
//!
//! The program is a stranger's, and may be a daemon whose log has gone. So a message never becomes the program's
//! trouble: if it cannot be written, it is dropped. `eprintln!` would panic if it cannot write, wait if a pipe is full,
//! and let SIGPIPE end a C program.

use std::fmt::{self, Write};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use tracing::subscriber::NoSubscriber;

use crate::environment;
use crate::signals::without_signals;

/// The longest sentence, in bytes. The rest is cut off, because only so much goes into a pipe in one piece.
const LONGEST: usize = 1024;

/// Tells the person who runs the program: by an event of the highest level, or by a sentence on standard error if
/// nobody collects events.
#[cold]
pub fn say(sentence: fmt::Arguments<'_>) {
    if tracing::dispatcher::get_default(|collector| collector.is::<NoSubscriber>()) {
        write_line(format_args!("transom: {sentence}"));
    } else {
        tracing::error!(target: "transom", "{sentence}");
    }
}

/// Whether the hint was given, or is not wanted.
static SAID: AtomicBool = AtomicBool::new(false);

/// Gives no hint: somebody tells the person without being asked.
pub fn leave_the_hint_out() {
    SAID.store(true, Relaxed);
}

/// Tells once where to ask why something was refused, if a person reads along or a CI keeps the output. In other cases
/// standard error is a file of the program's, or another program reads it. And a subscriber gets the reason itself.
#[cold]
pub(crate) fn hint() {
    // Once is enough, even if it is not written.
    if SAID.swap(true, Relaxed) {
        return;
    }
    let pid = std::process::id();
    let said = "something was refused or failed; `transom explain --pid";
    say_to_a_reader(format_args!("{said} {pid}` says why"));
}

/// Writes a sentence if a person reads along, or a CI keeps the output.
#[cold]
pub fn say_to_a_reader(sentence: fmt::Arguments<'_>) {
    let collected = !tracing::dispatcher::get_default(|collector| collector.is::<NoSubscriber>());
    if !collected && (is_read_by_a_person() || is_ci()) {
        write_line(format_args!("transom: {sentence}"));
    }
}

fn is_read_by_a_person() -> bool {
    let errno = transom_thread::errno();
    let is_terminal = std::io::stderr().is_terminal();
    // The program's own errno. A call that succeeds leaves it as it is.
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
    // A cut line is good enough, and so is the part that a `Display` wrote before it failed.
    let _ = line.write_fmt(text);
    line.end();
    // Ready means that a page fits into a pipe. If another thread of the program writes in between, this may still
    // wait, as that thread's writes do.
    // SAFETY: it is only asked and written to; one that the program has closed is answered as that.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    let mut ready = [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut ready, Some(&at_once)).is_ok_and(|ready| ready > 0) {
        let _ = without_signals(|| rustix::io::write(stderr, &line.bytes[..line.length]));
    }
}

/// A line, up to its limit of bytes.
struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Keep one byte for the end.
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
