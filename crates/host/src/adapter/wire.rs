//! The wire link of this process's device: what goes over it, and opening it.

use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Once};
use std::time::Instant;

use parking_lot::Mutex;
use transom_device::execution::MAX_DATAGRAM;
use transom_device::queue::Address;
use transom_net::faults::FaultyNetwork;
use transom_net::udp::PortError;
use transom_net::{Instruments, Network, Observer, Wire};
use transom_system::addresses::{
    LOOPBACK, Unreachable, check_reachable, is_multicast, leaves_host,
};
use transom_system::say;

use super::Adapter;
use crate::capture::Departures;
use crate::objects::Destination;

/// What to say of a process that has a slot in this network namespace and is not in the registry.
const STRANGER: &str = "\
    the queue pair to send to is of a process that shares this network namespace, but not the registry \
    in /dev/shm, so it cannot be reached: have both containers share /dev/shm (the IPC namespace), run \
    the same version of Transom in both, or give each a network namespace of its own";

impl Adapter {
    /// The wire link, if something has gone over it.
    #[inline]
    pub(crate) fn wire(&self) -> Option<&Arc<Wire>> {
        self.wire.get()
    }

    /// The address of a destination that is reached over the wire: on another host, or a process of
    /// this one in other namespaces. `slot` is that of the queue pair there.
    pub(crate) fn over_wire(&self, destination: Destination, slot: u8) -> Option<Address> {
        let packets_only = || {
            let other = slot != self.announcer().slot;
            self.options().wire_only || other && self.claim.registry().needs_packets(slot)
        };
        match destination {
            Destination::Address(address) => {
                (!self.is_here(&address.gid) || packets_only()).then_some(address)
            }
            Destination::ThisDevice => packets_only().then_some(LOOPBACK),
        }
    }

    /// The system's error number if the slot is that of a process on this host which this one cannot
    /// reach, for they do not share a registry; the program is told why.
    pub(crate) fn check_strangers(&self, slot: u8) -> Result<(), i32> {
        if !self.claim.registry().is_strangers(slot) {
            return Ok(());
        }
        static TOLD: Once = Once::new();
        TOLD.call_once(|| say(format_args!("{STRANGER}")));
        Err(libc::EHOSTUNREACH)
    }

    /// The longest datagram that gets to an address, in bytes: a packet of the network that it is sent
    /// by, or of any length that packets have where no network is under it (rule UD-03).
    pub(crate) fn datagram_limit(&self, to: &Address) -> u64 {
        let by_network = if is_multicast(&to.gid) {
            leaves_host(&to.gid) && self.addresses().network_of(&to.source).is_some()
        } else {
            self.options().wire_only || !self.is_here(&to.gid)
        };
        if by_network { self.addresses().path_mtu_from(&to.source).into() } else { MAX_DATAGRAM }
    }

    /// Whether packets can be sent to an address: one of this host's, or one that the kernel knows a
    /// way to; datagrams go to groups too.
    pub fn check_reachable(&self, to: &Address, datagrams: bool) -> Result<(), Unreachable> {
        if self.is_here(&to.gid) { Ok(()) } else { check_reachable(to, datagrams) }
    }

    /// Whether a GID is one of this host's.
    pub(crate) fn is_here(&self, gid: &[u8; 16]) -> bool {
        self.addresses().index_of(gid).is_some()
    }

    /// A queue pair receives datagrams from now on, and they may come from anywhere: from other hosts,
    /// and from this one's other PID namespaces. If the port cannot be had, it has those that come by
    /// the local link.
    pub(crate) fn expect_datagrams(&self) {
        self.expects_datagrams.store(true, Release);
        let _ = self.open_wire();
    }

    /// There is a new address: what is to come by all of them comes by this one too.
    pub(crate) fn expect_at_new_address(&self) {
        if self.expects_datagrams.load(Acquire) {
            self.expect_datagrams();
        }
        self.join_networks();
    }

    /// Leaves the port to the process that this one was forked from.
    pub(crate) fn leave_port(&self) {
        if let Some(wire) = self.wire() {
            wire.leave_port();
        }
    }

    /// What a user wants of the wire link beside its work.
    fn instruments(&self) -> Result<Instruments, PortError> {
        let (registry, slot) = (self.claim.registry(), self.announcer().slot);
        let observer = self.capture.clone().map(|capture| {
            let departures = Departures { capture, registry, slot };
            Arc::new(departures) as Arc<dyn Observer>
        });
        Ok(Instruments {
            observer,
            outages: self.outages.clone(),
            network: self.network(),
            wake: self.claim.wake.try_clone().map_err(PortError::new)?,
        })
    }

    /// What packets pass through on their way out.
    fn network(&self) -> Option<Arc<dyn Network>> {
        #[cfg(test)]
        if let Some(network) = self.network.get() {
            return Some(network.clone());
        }
        let faults = self.options().faults?.network?;
        Some(Arc::new(Mutex::new(FaultyNetwork::new(&faults, self.announcer().slot))))
    }

    /// Sends all acknowledgements that were kept back, for the program exits. In a forked child they are
    /// the parent's.
    pub(crate) fn acknowledge_all(&self, until: Instant) {
        if self.wire().is_some() && !self.is_inherited() {
            self.all_qps().iter().for_each(|qp| qp.acknowledge_at_exit(until));
        }
    }

    /// Sends what a network with faults holds back, for there may be nobody to do it later. In a forked
    /// child it is the parent's.
    pub(crate) fn send_rest(&self) {
        if let Some(wire) = self.wire().filter(|_| !self.is_inherited()) {
            wire.send_rest();
        }
    }

    /// Opens the wire link if it is not open; the system's error number if that fails, and the
    /// program is told why.
    pub(crate) fn open_wire(&self) -> Result<(), i32> {
        let _one = self.opening_wire.lock();
        if self.wire.get().is_some() {
            return Ok(());
        }
        let (registry, me) = (self.claim.registry(), self.announcer());
        match self.instruments().and_then(|it| Wire::open(registry, me, it)) {
            Ok(wire) => {
                let _ = self.wire.set(Arc::new(wire));
                // The background thread is to listen to it too.
                self.progress.wake(self);
                self.join_networks();
                Ok(())
            }
            Err(error) => {
                static TOLD: Once = Once::new();
                TOLD.call_once(|| say(format_args!("{error}")));
                Err(error.errno())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use transom_system::clock;

    use super::*;
    use crate::Options;

    /// A device with its port open.
    fn on_the_wire() -> Arc<Adapter> {
        let options = Options { wire_only: true, ..Options::default() };
        let adapter = Adapter::open(options).expect("a device opens");
        adapter.open_wire().expect("the port is free");
        adapter
    }

    /// Has something wait while the background thread is about to sleep, again and again: it is woken.
    fn expect_woken(begin: impl Fn(&Wire, u16), waits: impl Fn(&Wire) -> bool) {
        let adapter = on_the_wire();
        let wire = adapter.wire().expect("it is open");
        for index in 0..100 {
            // It has looked whether anything waits.
            drop(adapter.progress.working.lock());
            begin(wire, index);
            let start = Instant::now();
            while waits(wire) {
                assert!(start.elapsed() < Duration::from_secs(20), "it sleeps");
                std::thread::yield_now();
            }
        }
    }

    /// A program that sleeps does not poll for what it has posted.
    #[test]
    fn a_thread_that_sleeps_is_woken_by_a_queue_pair_that_waits_for_room() {
        expect_woken(|wire, index| wire.stall(index), |wire| wire.stalled.any());
    }

    /// A program may take a message in a poll and then neither poll nor post.
    #[test]
    fn a_thread_that_sleeps_is_woken_by_an_acknowledgement_that_is_kept_back() {
        let owe = |wire: &Wire, index| wire.owe(index, clock::steady());
        expect_woken(owe, |wire| wire.owed.waits());
    }
}
