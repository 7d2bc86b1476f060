//! The port of this process's device: its addresses, and the wire link. The wire link opens when something first goes
//! over it.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Once, OnceLock};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tracing::{info, warn};
use transom_device::execution::MAX_DATAGRAM;
use transom_device::qp::QpNumber;
use transom_device::queue::Address;
use transom_system::addresses::{
    Addresses, Changes, GroupGid, Unreachable, check_reachable, ip, is_interface, is_multicast,
    leaves_host, path_mtu,
};
use transom_system::{ThisProcess, clock, say};
use transom_wire::packet::PORT;

use crate::faults::Outages;
use crate::udp::PortError;
use crate::wire::{Instruments, Network, NoRoom, Observer, Path, Wire};

/// The message about a process that has a slot in this network namespace and is not in the registry.
const OTHER_REGISTRY: &str = "\
    the queue pair to send to is of a process that shares this network namespace, but not the registry \
    in /dev/shm, so it cannot be reached: have both containers share /dev/shm (the IPC namespace), run \
    the same version of Transom in both, or give each a network namespace of its own";

/// The options of a user for the port.
#[derive(Clone, Default)]
pub struct PortOptions {
    /// Everything goes over the wire, even within this host.
    pub wire_only: bool,
    /// The interface whose addresses it has, if not those of all.
    pub interface: Option<&'static str>,
    /// Sees the packets that leave.
    pub observer: Option<Arc<dyn Observer>>,
    /// They pass through this then.
    pub network: Option<Arc<dyn Network>>,
}

/// The port of this process's device.
pub struct DevicePort {
    process: Arc<ThisProcess>,
    options: PortOptions,
    outages: Arc<Outages>,
    addresses: RwLock<Addresses>,
    /// The wire link. It opens when something first goes over it.
    wire: OnceLock<Arc<Wire>>,
    opening: Mutex<()>,
    /// When it could not be opened for a datagram; see [`DevicePort::open_wire_for_datagram`].
    failed: AtomicU64,
    /// The device has failed.
    closed: AtomicBool,
    /// A queue pair may receive datagrams from other hosts.
    expects_datagrams: AtomicBool,
    /// The groups whose datagrams the networks have to bring. Lock order: this lock comes before that of the addresses.
    /// Each with the interfaces that it has been joined on. An address may go from one before the group is left.
    groups: Mutex<HashMap<GroupGid, BTreeSet<u32>>>,
}

/// For how long datagrams do not try to open the wire link after that failed, in nanoseconds.
const MOMENT: u64 = 100_000_000;

/// Tells the program that its network access depends on another user.
fn tell_of_holder(user: u32) {
    static TOLD: Once = Once::new();
    let but = match user {
        0 => "",
        _ => ". From other hosts nothing comes so",
    };
    TOLD.call_once(|| {
        say(format_args!(
            "UDP port {PORT} is had by programs of user {user} in this network namespace, who hand on what comes \
             for this program, and see it{but}. Datagrams to groups are theirs alone. A network namespace of its \
             own has a port of its own"
        ));
    });
}

impl DevicePort {
    /// Makes a port that nothing has gone over yet.
    ///
    /// # Errors
    ///
    /// The kernel's error if it does not tell its addresses; `ENODEV` if there is no such interface.
    pub fn new(process: Arc<ThisProcess>, options: PortOptions) -> io::Result<Self> {
        if options.interface.is_some_and(|name| !is_interface(name)) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let addresses = Addresses::of(options.interface)?;
        Ok(Self {
            process,
            options,
            outages: Arc::default(),
            addresses: RwLock::new(addresses),
            wire: OnceLock::new(),
            opening: Mutex::default(),
            failed: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            expects_datagrams: AtomicBool::new(false),
            groups: Mutex::default(),
        })
    }

    /// The wire link, if it is open.
    #[inline]
    pub fn wire(&self) -> Option<&Arc<Wire>> {
        self.wire.get()
    }

    /// Its addresses: the GID table.
    pub fn addresses(&self) -> RwLockReadGuard<'_, Addresses> {
        self.addresses.read()
    }

    /// The outages of the port. During one, nothing passes over the wire.
    #[inline]
    pub fn outages(&self) -> &Outages {
        &self.outages
    }

    /// Whether an address is reached over the wire: it is on another host, or a process of this host has it in other
    /// namespaces. `slot` is that of the queue pair there.
    pub fn is_over_wire(&self, to: &Address, slot: u8) -> bool {
        let other = slot != self.process.announcer().slot;
        !self.is_here(&to.gid)
            || self.options.wire_only
            || other && self.process.registry().needs_packets(slot)
    }

    /// The path of a queue pair's packets to an address.
    pub fn path(&self, to: &Address, from: QpNumber, mtu: u64) -> Path {
        Path::from_table(&self.addresses(), to, from, mtu)
    }

    /// Whether the slot is another user's, and no process of this user on this host has it. Ask this if nobody is found
    /// otherwise.
    pub fn is_another_users(&self, slot: u8) -> bool {
        self.process.registry().is_of_another_user(slot)
    }

    /// Whether a slot was just seen not to be another user's.
    pub fn was_nobodys(&self, slot: u8) -> bool {
        self.process.registry().was_of_no_other_user(slot)
    }

    /// Checks that this process shares a registry with the one on this host that has the slot. If not, the error is a
    /// system error number, and the program is told why.
    pub fn check_same_registry(&self, slot: u8) -> Result<(), i32> {
        if !self.process.registry().is_in_other_registry(slot) {
            return Ok(());
        }
        static TOLD: Once = Once::new();
        TOLD.call_once(|| say(format_args!("{OTHER_REGISTRY}")));
        Err(libc::EHOSTUNREACH)
    }

    /// The longest datagram that gets to an address, in bytes. A network bounds it by the length of its packets.
    /// Without a network underneath, it is the longest length that packets have (rule UD-03).
    pub fn datagram_limit(&self, to: &Address) -> u64 {
        let by_network = if is_multicast(&to.gid) {
            leaves_host(&to.gid) && self.addresses().network_of(&to.source).is_some()
        } else {
            self.options.wire_only || !self.is_here(&to.gid)
        };
        match by_network {
            true => self.addresses().path_mtu_from(&to.source).into(),
            false => MAX_DATAGRAM.min(path_mtu(u32::MAX).into()),
        }
    }

    /// Checks that packets can be sent to an address: it is one of this host's, or the kernel knows a route to it.
    /// Datagrams may go to groups too.
    pub fn check_reachable(&self, to: &Address, datagrams: bool) -> Result<(), Unreachable> {
        if self.is_here(&to.gid) {
            return Ok(());
        }
        let interface = self.addresses().interface_between(&to.source, &to.gid);
        check_reachable(to, datagrams, interface)
    }

    /// Whether a GID is one of this host's: of any interface, or a loopback address other than their broadcast.
    pub fn is_here(&self, gid: &[u8; 16]) -> bool {
        is_loopback(gid) || self.addresses().is_of_this_host(gid)
    }

    /// Whether a GID is one of this port's: in the table, or a loopback address other than their broadcast.
    pub fn has(&self, gid: &[u8; 16]) -> bool {
        is_loopback(gid) || self.addresses().index_of(gid).is_some()
    }

    /// A queue pair receives datagrams from now on. They may come from other hosts, and from this host's other PID
    /// namespaces. If the port cannot be opened, it receives only those that come by the local link.
    pub fn expect_datagrams(&self) {
        self.expects_datagrams.store(true, Release);
        let _ = self.open_wire();
    }

    /// Takes in the changes of the addresses. Group datagrams that come by all of them will come by a new one too.
    ///
    /// # Errors
    ///
    /// As [`Addresses::refresh`].
    pub fn refresh_addresses(&self) -> io::Result<Changes> {
        let changes = self.addresses.write().refresh()?;
        if !changes.added.is_empty() || changes.moved {
            if self.expects_datagrams.load(Acquire) {
                self.expect_datagrams();
            }
            self.join_networks();
        }
        Ok(changes)
    }

    /// Queue pairs are in a group from now on. Call [`DevicePort::join_group`] to get its datagrams.
    pub fn add_group(&self, group: GroupGid) {
        if !leaves_host(&group) && self.addresses().has_network() {
            warn!(group = %ip(&group), "its scope is one interface: it ends at this host");
        }
        self.groups.lock().entry(group).or_default();
    }

    /// Makes the networks bring the groups' datagrams. Call it for a new group, for a new address, or once the wire
    /// link is open.
    ///
    /// If the kernel lets the socket join no more groups, some of them end at this host, and the program is told.
    pub fn join_networks(&self) {
        let Some(wire) = self.wire() else { return };
        let mut groups = self.groups.lock();
        for (gid, interfaces) in groups.iter_mut() {
            if let Err(error) = self.join_each(wire, gid, interfaces) {
                static TOLD: Once = Once::new();
                TOLD.call_once(|| say(format_args!("{error}")));
            }
        }
    }

    /// The same for one group. Where it has been joined before, a new member gets what the others get.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the kernel lets the socket join no more groups.
    pub fn join_group(&self, group: &GroupGid) -> Result<(), NoRoom> {
        let (Some(wire), mut groups) = (self.wire(), self.groups.lock()) else { return Ok(()) };
        // Another thread may have taken it out again.
        let Some(interfaces) = groups.get_mut(group).filter(|it| it.is_empty()) else {
            return Ok(());
        };
        self.join_each(wire, group, interfaces)
    }

    fn join_each(
        &self,
        wire: &Wire,
        group: &GroupGid,
        interfaces: &mut BTreeSet<u32>,
    ) -> Result<(), NoRoom> {
        if !leaves_host(group) {
            return Ok(());
        }
        let group = ip(group);
        self.addresses().networks(group.is_ipv4()).try_for_each(|network| {
            wire.join(group, network)?;
            interfaces.insert(network);
            Ok(())
        })
    }

    /// No queue pair is in the group any more.
    pub fn remove_group(&self, group: &GroupGid) {
        let joined = self.groups.lock().remove(group).unwrap_or_default();
        let Some(wire) = self.wire().filter(|_| !self.process.is_inherited()) else { return };
        joined.into_iter().for_each(|interface| wire.leave(ip(group), interface));
    }

    /// Leaves the port to the process that this one was forked from.
    pub fn leave_to_parent(&self) {
        if let Some(wire) = self.wire() {
            wire.leave_port();
        }
    }

    /// Gives up its part in the port, because the device has failed.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        if let Some(wire) = self.wire() {
            wire.close_port();
        }
    }

    /// Sends the packets that an injected network holds back, because nobody may be there to do it later. In a forked
    /// child they are the parent's.
    pub fn send_rest(&self) {
        if let Some(wire) = self.wire().filter(|_| !self.process.is_inherited()) {
            wire.send_rest();
        }
    }

    /// The user's instruments for the wire link: faults and an observer.
    fn instruments(&self) -> Result<Instruments, PortError> {
        Ok(Instruments {
            observer: self.options.observer.clone(),
            outages: self.outages.clone(),
            network: self.options.network.clone(),
            wake: self.process.wake_descriptor().map_err(PortError::new)?,
        })
    }

    /// Whether the wire link is open for a datagram. If it cannot be opened, the next datagrams within a moment do not
    /// try: a program may send any number, and each try asks the kernel hundreds of times.
    pub fn open_wire_for_datagram(&self) -> bool {
        let now = clock::steady();
        let failed = self.failed.load(Relaxed);
        let is_open = self.wire.get().is_some();
        if is_open || (failed != 0 && now.saturating_sub(failed) < MOMENT) {
            return is_open;
        }
        let opened = self.open_wire().is_ok();
        if !opened {
            self.failed.store(now, Relaxed);
        }
        opened
    }

    /// Opens the wire link if it is not open. If that fails, the error is the system's error number, and the program is
    /// told why.
    pub fn open_wire(&self) -> Result<(), i32> {
        let _one = self.opening.lock();
        if self.wire.get().is_some() {
            return Ok(());
        }
        let (registry, me) = (self.process.registry(), self.process.announcer());
        match self.instruments().and_then(|it| Wire::open(registry, me, it)) {
            Ok(wire) => {
                info!(port = PORT, "port opened");
                if let Some(user) = wire.holder() {
                    tell_of_holder(user);
                }
                let _ = self.wire.set(Arc::new(wire));
                // The device may have failed meanwhile. Either this sees it, or the failing thread sees the wire link.
                if self.closed.load(SeqCst) {
                    self.close();
                    return Err(libc::EIO);
                }
                // The background thread has to listen to it too.
                self.process.wake();
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

/// Whether a GID is a loopback address other than their broadcast.
fn is_loopback(gid: &[u8; 16]) -> bool {
    let ip = ip(gid);
    ip.is_loopback() && ip != Ipv4Addr::new(127, 255, 255, 255)
}
