//! The other processes that have the port, and noticing when one ends without a word.
//!
//! Then the kernel's list changes, and packets for the process whose socket has moved in it go to another process.
//! Usually that one hands them on and begins a round. But it may be stopped, so somebody must notice without a packet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use transom_device::protection::Announcer;
use transom_system::registry::Life;

use super::Port;

/// When to look again whether the socket of a process that has ended is gone.
const AGAIN: Duration = Duration::from_millis(1);

/// The other processes that have the port, as this one watches them, whatever their PID namespaces.
#[derive(Default)]
pub struct Others {
    /// The last change of the table that this process has seen.
    change: Option<u32>,
    watched: Vec<Life>,
    /// Those that have ended, and when that was noticed. A child may keep the socket of one for a while. The kernel tells
    /// nobody when the socket goes, so they are looked at again.
    ended: Vec<(Announcer, Instant)>,
    /// Only a guest has it. It hangs up when a process of the user who has the port leaves it.
    holder: Option<OwnedFd>,
}

impl Others {
    /// Watches the processes that have the port now. Returns whether they are others than before. `dead` gets those
    /// that have ended meanwhile.
    pub fn watch(&mut self, port: &Port, dead: &mut Vec<Announcer>) -> bool {
        if self.holder.is_none() {
            self.holder = port.watch_holder();
        }
        let change = port.steering.change();
        if self.change.replace(change) == Some(change) {
            return false;
        }
        let members: Vec<Announcer> = port.steering.others().collect();
        self.watched.retain(|life| members.contains(&life.process()));
        for who in members {
            if !self.watched.iter().any(|life| life.process() == who) {
                self.add(who, port, dead);
            }
        }
        true
    }

    fn add(&mut self, who: Announcer, port: &Port, dead: &mut Vec<Announcer>) {
        let registry = port.steering.registry();
        match registry.watch(who) {
            Ok(Some(life)) => self.watched.push(life),
            Ok(None) => {
                self.ended.push((who, Instant::now()));
                self.bury_ended(port);
                dead.push(who);
            }
            // Packets that go astray will tell of its end.
            Err(_) => {}
        }
    }

    /// Readable when one of them may have ended.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let lives = self.watched.iter().map(|life| life.descriptor().as_fd());
        lives.chain(self.holder.as_ref().map(AsFd::as_fd))
    }

    /// If some of them have ended, packets find their way again after this. `dead` gets those.
    pub fn bury(&mut self, port: &Port, dead: &mut Vec<Announcer>) {
        if self.holder.as_ref().is_some_and(has_hung_up) {
            self.holder = None;
            port.succeed();
        }
        for life in self.watched.extract_if(.., |life| life.has_ended()) {
            self.ended.push((life.process(), Instant::now()));
            dead.push(life.process());
        }
        self.bury_ended(port);
    }

    fn bury_ended(&mut self, port: &Port) {
        self.ended.retain(|(who, noticed)| !port.bury(*who, *noticed));
    }

    /// How long the caller may wait until it calls [`Others::bury`] again, though no descriptor tells it to.
    pub fn patience(&self) -> Option<Duration> {
        (!self.ended.is_empty()).then_some(AGAIN)
    }
}

/// Whether nobody has the other end any more.
fn has_hung_up(watched: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(watched, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    transom_system::wait::poll(&mut fds, Some(&now)).is_ok_and(|told| told > 0)
}
