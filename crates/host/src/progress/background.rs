//! The background thread of a device.
//!
//! | module | holds |
//! |---|---|
//! | `vigil` | when arrivals wake it though the program polls |
//! | `lingering` | how long it looks for more packets after one |

mod lingering;
mod vigil;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Barrier, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use transom_net::udp::Others;
use transom_net::{Peer, Wire};
use transom_system::failure::caught;
use transom_system::segment::Wakeup;
use transom_system::tools::Tool;
use transom_system::wanted::Leases;
use transom_system::{clock, sanitizers};

use self::lingering::{Lingered, Lingering, linger};
use self::vigil::Vigil;
use super::{Dispatch, Threads, Worker};
use crate::device::Device;
use crate::objects::Adapter;

/// How often the thread checks whether the program still polls, in nanoseconds.
const TICK: u64 = 1_000_000;
/// How long arrivals may wait for a program that polls, before the thread takes them.
const POLL_TIMEOUT: Duration = Duration::from_micros(20);
/// For how many rounds the thread arms for a program that sleeps until it is told of a completion.
const SLEEPS: u32 = 64;

impl Threads {
    /// Starts the background thread of a device. The thread ends with the device. It is running when this returns: a
    /// thread needs memory to start, and the process ends if there is none. Later there may be none left.
    pub(crate) fn start(adapter: &Arc<Adapter>) -> io::Result<()> {
        let mut background = Background {
            wake: adapter.device().process().wake_descriptor()?,
            addresses: adapter.device().port().addresses().descriptor().try_clone_to_owned()?,
            program_polls: false,
            vigil: Vigil::default(),
            arms: true,
            others: Others::default(),
            woken: Woken::default(),
            lingering: Lingering::default(),
            leases: Leases::default(),
        };
        // Before the program does anything with the device.
        background.turn_tools(adapter);
        let weak = Arc::downgrade(adapter);
        let begun = Arc::new(Barrier::new(2));
        let begins = Arc::clone(&begun);
        let device = Arc::downgrade(adapter.device());
        let thread = transom_thread::start("transom", move || {
            begins.wait();
            drop(begins);
            let _inside = sanitizers::inside();
            wake_in_time();
            let _ = caught(|| background.run(&weak, &device));
            // It may have failed.
            if let Some(device) = device.upgrade() {
                let wanted = &device.process().segment().header().wanted;
                background.leases.end(wanted, clock::steady());
            }
        })?;
        *adapter.device().work.thread.lock() = Some(thread);
        begun.wait();
        Ok(())
    }
}

/// The thread's state between rounds.
struct Background {
    /// The pipe that others write to, to wake the thread.
    wake: OwnedFd,
    /// Readable when the host's addresses change.
    addresses: OwnedFd,
    /// The program has polled since the previous round.
    program_polls: bool,
    vigil: Vigil,
    /// Whether it armed, so that arrivals wake it.
    arms: bool,
    /// The other processes that have the port of the wire link.
    others: Others,
    woken: Woken,
    lingering: Lingering,
    /// The tools that other processes want on here.
    leases: Leases,
}

/// The reasons why a sleep ended, as far as somebody needs them.
#[derive(Default)]
struct Woken {
    /// The host's addresses have changed.
    addresses: bool,
    /// The connection manager has something to do.
    connections: bool,
    /// One of the other processes of the port may have ended.
    others: bool,
    /// Packets have come.
    packets: bool,
    /// Another process has handed packets on.
    handed: bool,
    /// A message that was sent has reached nobody.
    undelivered: bool,
    /// The result of lingering before that.
    lingered: Option<Lingered>,
}

impl Background {
    fn run(&mut self, adapter: &Weak<Adapter>, device: &Weak<Device>) {
        loop {
            drain(&self.wake);
            let Some(device) = device.upgrade() else { return };
            let holding = device.work.holding.lock();
            let Some(adapter) = adapter.upgrade() else { return };
            let dispatch = Dispatch { adapter: &adapter };
            if device.failed.load(Relaxed) {
                return;
            }
            self.look_around(dispatch);
            // A fork waits for this lock, and so for those that are taken under it.
            let working = device.work.working.lock();
            self.turn_tools(&adapter);
            if self.woken.addresses {
                let changed = device.refresh_addresses();
                if !changed.is_empty() {
                    adapter.connections().addresses_changed(&changed);
                }
            }
            if self.woken.handed {
                device.port().wire().inspect(|wire| wire.expect_handed());
            }
            if self.woken.undelivered {
                device.port().wire().inspect(|wire| wire.take_undelivered(&dispatch));
            }
            if self.woken.connections {
                adapter.connections().look();
            }
            device.work.exit.carry_out(|until| adapter.tell_of_exit(until));
            let peers = self.work(dispatch);
            let connections = adapter.connections().descriptors();
            let timeout = self.timeout(dispatch);
            let wire = device.port().wire().cloned();
            drop(working);
            // This may be the last reference.
            drop(adapter);
            drop(holding);
            drop(device);
            self.woken = self.sleep(wire.as_deref(), &peers, &connections, timeout);
            self.lingering.note(self.woken.lingered, Instant::now());
        }
    }

    /// Turns on the tools that others want, and off those that nobody wants any more.
    fn turn_tools(&mut self, adapter: &Adapter) {
        let segment = adapter.device().process().segment();
        let prepare = |tool| match tool {
            Tool::Events => segment.open_events().is_ok(),
            Tool::Latencies => segment.open_latencies().is_ok(),
            Tool::Rehearsal | Tool::Listener => false,
        };
        // Who wants to know how long requests take is told how many wait, too.
        let answer = |tool| {
            if tool == Tool::Latencies {
                adapter.queue_pairs.all().iter().for_each(|qp| qp.show_depths());
            }
        };
        let wanted = &segment.header().wanted;
        self.leases.look(wanted, clock::steady, prepare, answer);
        wanted.answer(|| adapter.queue_pairs.all().iter().for_each(|qp| qp.show_depths()));
    }

    /// Does all work there is. Returns the peers whose ends have to be watched.
    fn work(&mut self, dispatch: Dispatch<'_>) -> Vec<Arc<Peer>> {
        let device = dispatch.device();
        let mut changed = None;
        if let Some(wire) = device.port().wire() {
            changed = wire.look_after(&mut self.others, self.woken.others);
            wire.delayed_ack.look(clock::steady());
        }
        dispatch.progress_for(match device.work.polling.has_polled(false) {
            true => Worker::Beside,
            false => Worker::Instead,
        });
        let peers = device.peers.all();
        for peer in peers.iter().filter(|peer| peer.life().has_ended()) {
            dispatch.lose_peer(peer);
            changed.get_or_insert_default().push(peer.announcer);
        }
        if let Some(dead) = changed {
            dispatch.adapter.connections().processes_changed(&dead);
        }
        self.arm(dispatch);
        peers
    }

    /// Checks whether the program needs the thread though it polls.
    fn look_around(&mut self, dispatch: Dispatch<'_>) {
        self.vigil.pass_round();
        // A round that armed would have been woken.
        if !self.arms {
            self.vigil.note_look(dispatch.is_neglected());
        }
        if dispatch.device().work.polling.take_sleep() {
            self.vigil.last(SLEEPS);
        }
    }

    /// Leaves the work to a program that polls. Otherwise makes arrivals wake the thread.
    fn arm(&mut self, dispatch: Dispatch<'_>) {
        let device = dispatch.device();
        let polling = &device.work.polling;
        self.program_polls = polling.has_polled(true);
        self.arms = polling.listen(!self.program_polls || self.vigil.is_on());
        if self.arms {
            dispatch.arm(Wakeup::Pipe);
        } else {
            device.peers.watched.allow();
        }
    }

    /// How long the thread may sleep, in nanoseconds.
    fn timeout(&self, dispatch: Dispatch<'_>) -> Option<u64> {
        let device = dispatch.device();
        let left = |deadline: u64| deadline.saturating_sub(clock::steady());
        let of_progress = device.work.deadlines.next().map(left);
        let of_polling = self.program_polls.then_some(TICK);
        let of_unreached = dispatch.has_inbox().then_some(TICK);
        let wire = device.port().wire();
        let of_waiting = wire.and_then(|wire| wire.watch(self.program_polls));
        let of_faults = wire.and_then(|wire| wire.deadline()).map(left);
        let of_tools = self.leases.deadline().map(left);
        let of_ended = self.others.patience().map(|time| time.as_nanos() as u64);
        let all = [of_progress, of_polling, of_unreached, of_waiting, of_faults, of_tools];
        all.into_iter().flatten().chain(of_ended).min()
    }

    /// Sleeps until the pipe, a change of addresses, the end of a peer or another process of the port,
    /// something for the connection manager, a packet, or the timeout in nanoseconds.
    fn sleep(
        &self,
        wire: Option<&Wire>,
        peers: &[Arc<Peer>],
        connections: &[Arc<OwnedFd>],
        timeout: Option<u64>,
    ) -> Woken {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: (timeout / 1_000_000_000) as i64,
            tv_nsec: (timeout % 1_000_000_000) as i64,
        });
        // While the program takes packets, they must not wake the thread.
        let sockets = wire.filter(|_| self.arms).map(|wire| wire.descriptors());
        // There rarely is anything, so it may come between two polls of the program.
        let undelivered = wire.map(|wire| wire.undelivered_descriptor());
        let own = [self.addresses.as_fd(), self.wake.as_fd()];
        let of_peers = peers.iter().map(|peer| peer.life().descriptor().as_fd());
        let of_connections = connections.iter().map(|fd| fd.as_fd());
        let all = own.into_iter().chain(undelivered).chain(of_connections);
        let all = all.chain(self.others.descriptors());
        let all = all.chain(sockets.into_iter().flatten()).chain(of_peers);
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A program that polls itself has a better use for the processor.
        let lingers = self.woken.packets && !self.program_polls;
        let lingers = lingers && self.lingering.is_due(Instant::now());
        let lingered = lingers.then(|| linger(&mut fds));
        if lingered != Some(Lingered::Ready) {
            // The process may end while this waits, and what has begun is to have ended then.
            let _outside = sanitizers::outside();
            let _ = transom_system::wait::poll(&mut fds, timeout.as_ref());
        }
        let told = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (_, rest) = fds.split_at(own.len());
        let (of_undelivered, rest) = rest.split_at(usize::from(undelivered.is_some()));
        let (of_connections, rest) = rest.split_at(connections.len());
        let (of_others, rest) = rest.split_at(self.others.descriptors().count());
        let of_wire = &rest[..sockets.map_or(0, |sockets| sockets.len())];
        Woken {
            addresses: told(&fds[0]),
            connections: of_connections.iter().any(told),
            others: of_others.iter().any(told),
            packets: of_wire.iter().any(told),
            handed: of_wire.last().is_some_and(told),
            undelivered: of_undelivered.iter().any(told),
            lingered,
        }
    }
}

impl Dispatch<'_> {
    /// Whether arrivals wait that a polling program would have taken by now. The thread asks this after it has left the
    /// work to the program.
    fn is_neglected(self) -> bool {
        let inbox = &self.device().process().segment().header().inbox;
        let waits = || {
            inbox.iter().any(|bits| bits.load(Acquire) != 0)
                || !self.device().peers.watched.senders().is_empty()
                || self
                    .device()
                    .port()
                    .wire()
                    .is_some_and(|wire| wire.has_arrivals() || wire.stalled.any())
        };
        let polls = self.device().work.polling.in_vain();
        if !waits() {
            return false;
        }
        std::thread::sleep(POLL_TIMEOUT);
        waits() && self.device().work.polling.in_vain() == polls
    }
}

fn drain(wake: &impl AsFd) {
    let mut bytes = [0; 256];
    while rustix::io::read(wake, &mut bytes).is_ok_and(|count| count == bytes.len()) {}
}

/// Stops the kernel from rounding this thread's timeouts up to 50 microseconds.
fn wake_in_time() {
    // SAFETY: this prctl takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::OnTheWire;

    /// Again and again adds work while the background thread is about to sleep: it is woken.
    fn expect_woken(begin: impl Fn(&Wire, u16), waits: impl Fn(&Wire) -> bool) {
        let adapter = OnTheWire::open();
        let wire = adapter.device().port().wire().expect("it is open");
        for index in 0..100 {
            // It has looked whether anything waits.
            drop(adapter.device().work.working.lock());
            begin(wire, index);
            let start = Instant::now();
            while waits(wire) {
                assert!(start.elapsed() < Duration::from_secs(20), "it sleeps");
                std::thread::yield_now();
            }
        }
    }

    /// A program that sleeps does not poll for its posted requests.
    #[test]
    fn a_thread_that_sleeps_is_woken_by_a_queue_pair_that_waits_for_room() {
        expect_woken(|wire, index| wire.stall(index), |wire| wire.stalled.any());
    }

    /// A program may take a message in a poll and then neither poll nor post.
    #[test]
    fn a_thread_that_sleeps_is_woken_by_a_delayed_acknowledgement() {
        let delay = |wire: &Wire, index| wire.delay_ack(index, clock::steady());
        expect_woken(delay, |wire| wire.delayed_ack.waits());
    }
}
