//! The other processes that have the port, and noticing when one ends without a word.
//!
//! Then the kernel's list changes, and packets for the process whose socket moved in it go to any.
//! Usually that one hands them on and begins a round; but it may be stopped, so somebody must notice
//! without a packet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use transom_device::protection::Announcer;

use super::Port;

/// The others, as one process watches them, wherever they live.
#[derive(Debug, Default)]
pub struct Others {
    /// The change of the table that was looked at last.
    change: Option<u32>,
    watched: Vec<(Announcer, OwnedFd)>,
}

impl Others {
    /// Watches those that have the port now: whether others have it than before. `dead` gets those that
    /// have ended meanwhile.
    pub fn watch(&mut self, port: &Port, dead: &mut Vec<Announcer>) -> bool {
        let change = port.steering.change();
        if self.change.replace(change) == Some(change) {
            return false;
        }
        let members: Vec<Announcer> = port.steering.others().collect();
        self.watched.retain(|(who, _)| members.contains(who));
        for who in members {
            if !self.watched.iter().any(|(watched, _)| *watched == who) {
                self.add(who, port, dead);
            }
        }
        true
    }

    fn add(&mut self, who: Announcer, port: &Port, dead: &mut Vec<Announcer>) {
        let registry = port.steering.registry();
        match registry.watch(who) {
            Ok(life) => self.watched.push((who, life)),
            // Of its end the packets tell that go astray.
            Err(_) if registry.is_alive(who) => {}
            Err(_) => {
                port.bury(who);
                dead.push(who);
            }
        }
    }

    /// Readable when one of them has ended.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.iter().map(|(_, life)| life.as_fd())
    }

    /// Sees to it that packets find their way again if some of them have ended. `dead` gets those.
    pub fn bury(&mut self, port: &Port, dead: &mut Vec<Announcer>) {
        self.watched.retain(|(who, life)| {
            let mut ended = [PollFd::new(life, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let lives = rustix::event::poll(&mut ended, Some(&now)).is_ok_and(|ended| ended == 0);
            if !lives {
                port.bury(*who);
                dead.push(*who);
            }
            lives
        });
    }
}
