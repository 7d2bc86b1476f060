//! The terminal, which is given back as it was, however this command ends.

use crate::failure::{Failure, Result};
use crate::signals::Signals;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use std::ffi::c_int;
use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// The terminal is ours now.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The signals that end or stop this command, which must not be ended with the terminal still taken, and that of another
/// size. If crossterm got that one, it would wait for it and for keys at once. Where both have come, it takes the first
/// and forgets the second, of which the kernel tells it only once: a key would wait for the next one.
const SIGNALS: [c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH];

/// Something to react to.
pub(super) enum Message {
    Input(Event),
    Signal(c_int),
    /// Nothing can be typed any more.
    Closed,
}

pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    messages: Receiver<Message>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn take() -> Result<Self> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Err(Failure::with_status(
                2,
                "this needs a terminal; --once prints one screen, and --json is for programs",
            ));
        }
        // Before another thread begins, so that no signal ends this process there.
        let signals = Signals::block(&SIGNALS)?;
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()));
        let terminal = terminal.inspect_err(|_| leave())?;
        let (sender, messages) = channel();
        let typed = sender.clone();
        thread::spawn(move || read(&typed));
        thread::spawn(move || while sender.send(Message::Signal(signals.next())).is_ok() {});
        Ok(Self { terminal, messages })
    }

    /// The next message, if one comes within this time. Without a time it waits for one.
    pub(super) fn next_within(&self, time: Option<Duration>) -> Option<Message> {
        match time {
            None => Some(self.messages.recv().unwrap_or(Message::Closed)),
            Some(time) => match self.messages.recv_timeout(time) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Message::Closed),
            },
        }
    }

    /// Gives the terminal back, stops until somebody lets this process go on, and takes it again.
    pub(super) fn suspend(&mut self) -> Result {
        leave();
        // SAFETY: it stops this process, as the user asked.
        unsafe { libc::raise(libc::SIGSTOP) };
        enter()?;
        // A new one draws everything. To clear the old one would ask the terminal where the cursor is, and the thread
        // that reads would get the answer.
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn read(to: &Sender<Message>) {
    while let Ok(event) = event::read() {
        if to.send(Message::Input(event)).is_err() {
            return;
        }
    }
    let _ = to.send(Message::Closed);
}

fn enter() -> io::Result<()> {
    TAKEN.store(true, SeqCst);
    let entered = enable_raw_mode()
        .and_then(|()| execute!(stdout(), EnterAlternateScreen, EnableMouseCapture));
    entered.inspect_err(|_| leave())
}

/// Once for each time that it was taken. If the terminal is gone, there is nothing to give back.
fn leave() {
    if TAKEN.swap(false, SeqCst) {
        let _ = queue!(stdout(), DisableMouseCapture, Show);
        let _ = execute!(stdout(), LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::process::{Command, Stdio};
    use std::ptr::{null, null_mut};

    /// Says that this process is the one on the terminal.
    const PANICS: &str = "TOP_PANICS";

    /// Whether a terminal gives lines to who reads it, and shows what is typed.
    fn is_usual(terminal: &File) -> bool {
        // SAFETY: all zeros is a value, and the call fills it in.
        let (asked, settings) = unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            (libc::tcgetattr(terminal.as_raw_fd(), &mut settings), settings)
        };
        assert_eq!(asked, 0, "{}", io::Error::last_os_error());
        let flags = libc::ICANON | libc::ECHO | libc::ISIG;
        settings.c_lflag & flags == flags
    }

    /// Rule: SEE-33
    #[test]
    fn a_panic_gives_the_terminal_back_and_is_told_there() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::take().expect("a terminal");
            panic!("over the transom");
        }
        let (mut ours, mut theirs) = (-1, -1);
        // SAFETY: it fills in the two descriptors.
        let opened = unsafe { libc::openpty(&mut ours, &mut theirs, null_mut(), null(), null()) };
        assert_eq!(opened, 0, "{}", io::Error::last_os_error());
        // SAFETY: both are new, and nobody else has them.
        let [mut ours, theirs] =
            [ours, theirs].map(|it| File::from(unsafe { OwnedFd::from_raw_fd(it) }));
        assert!(is_usual(&theirs));
        let path = "top::terminal::tests::a_panic_gives_the_terminal_back_and_is_told_there";
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.args(["--exact", "--nocapture", path]).env(PANICS, "1");
        let copy = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let mut child =
            again.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("this program");
        drop(again);
        // What it prints fits into the terminal's buffer, so it ends without a reader.
        assert!(!child.wait().expect("a child").success());
        assert!(is_usual(&theirs));
        drop(theirs);
        let (mut printed, mut some) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = ours.read(&mut some) {
            printed.extend_from_slice(&some[..length]);
        }
        let printed = String::from_utf8_lossy(&printed);
        let at =
            |what: &str| printed.find(what).unwrap_or_else(|| panic!("no {what:?} in {printed:?}"));
        let (entered, left, told) = (at("\x1b[?1049h"), at("\x1b[?1049l"), at("over the transom"));
        assert!(entered < left && left < told, "{printed:?}");
        assert!(at("\x1b[?1000h") < at("\x1b[?1000l"), "{printed:?}");
    }
}
