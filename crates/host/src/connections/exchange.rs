//! Sends each message to where it goes: this process, another of this host, or the network.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use transom_cm::{Arrival, Transmit};
use transom_device::protection::Announcer;
use transom_net::management::{ManagementDatagram, ManagementPipe, Note};
use transom_net::udp::{self, Guests};
use transom_system::addresses::gid;
use transom_system::clock;
use transom_system::registry::connections::{ClaimedPort, Connections};
use transom_wire::cm::{
    CommId, Ignored, IpHeader, Mad, Message, Receiver, Req, ServiceId, SidrReq,
};

use super::faults::MessageFaults;
use super::neighbours::Neighbours;
use super::packets::Packets;
use super::routes::reached_by;
use super::starting::Starting;
use crate::device::{Device, Interface};

/// Whose a message is.
enum Owner {
    /// This process's. It has the object that the message is about, or it answers because nobody has.
    Me,
    Process(u8),
    /// That of a process of another user, which does not have the port.
    Guest(u8),
    /// Any process may be the one.
    All,
    /// A request for a port that nobody has. This process has to refuse it.
    NobodyYet,
    /// Nobody's: it is no message.
    Nobody,
}

/// How messages of this process go out, and come in from others of this host.
pub(super) struct Exchange {
    device: Arc<Device>,
    pipe: ManagementPipe,
    neighbours: Neighbours,
    packets: Packets,
    starting: Starting,
    guests: Guests,
    /// When waiting messages are tried again.
    again: Option<u64>,
    /// The faults that a user injects into arriving messages.
    pub(super) faults: MessageFaults,
    /// A descriptor of the pipe that you can wait for without this object.
    readable: Arc<OwnedFd>,
}

impl Exchange {
    /// Announces to the other processes that this one takes messages.
    pub(super) fn open(device: Arc<Device>) -> io::Result<Self> {
        let process = device.process();
        let (registry, slot) = (process.registry(), process.announcer().slot);
        let pipe = ManagementPipe::open(registry, slot)?;
        let readable = Arc::new(pipe.descriptor().try_clone_to_owned()?);
        let faults = MessageFaults::new(device.options().faults);
        let mut neighbours = Neighbours::default();
        neighbours.watch(process, &pipe);
        let packets = Packets::new(device.clone());
        let (starting, guests, again) = Default::default();
        let mut exchange =
            Self { device, pipe, neighbours, packets, starting, guests, again, faults, readable };
        for slot in exchange.neighbours.slots() {
            exchange.pipe.send(slot, Note::Newcomer, clock::steady());
        }
        Ok(exchange)
    }

    /// The descriptors to wait for: messages, and the ends of the other processes.
    pub(super) fn descriptors(&self) -> Vec<Arc<OwnedFd>> {
        std::iter::once(self.readable.clone()).chain(self.neighbours.descriptors()).collect()
    }

    /// Takes the processes that have ended. They are no longer watched.
    pub(super) fn take_ended(&mut self) -> Vec<Announcer> {
        self.neighbours.take_ended(self.device.process(), &self.pipe)
    }

    /// Takes the oldest message that another process of this host has sent or handed on.
    pub(super) fn take(&mut self) -> Option<ManagementDatagram> {
        loop {
            match self.pipe.take()? {
                Note::Newcomer => self.neighbours.watch(self.device.process(), &self.pipe),
                Note::Datagram(datagram) => return Some(datagram),
            }
        }
    }

    /// Sends a message for a process that has ended. It is repeated if it may get lost.
    pub(super) fn send_last(
        &mut self,
        transmit: Transmit,
        ports: &Connections,
    ) -> Option<ManagementDatagram> {
        if self.goes_by_packet(&transmit, ports) {
            self.packets.send_last(transmit, clock::steady());
            return None;
        }
        self.send_here(transmit, ports)
    }

    fn goes_by_packet(&self, transmit: &Transmit, ports: &Connections) -> bool {
        let here = self.device.port().is_here(&gid(reached_by(transmit.destination)));
        !here || self.device.options().wire_only || self.is_for_another_user(transmit, ports)
    }

    /// Sends a message. Gives back a message for this process itself.
    pub(super) fn send(
        &mut self,
        transmit: Transmit,
        ports: &Connections,
    ) -> Option<ManagementDatagram> {
        if self.goes_by_packet(&transmit, ports) {
            self.packets.send(transmit);
            return None;
        }
        self.send_here(transmit, ports)
    }

    /// Sends a message to a process of this host.
    fn send_here(&mut self, transmit: Transmit, ports: &Connections) -> Option<ManagementDatagram> {
        let Transmit { source, destination, .. } = transmit;
        let datagram = ManagementDatagram { source, destination, mad: transmit.mad.write() };
        self.packets.show(&transmit, &datagram.mad);
        self.hand_on(datagram, Interface::Local, ports)
    }

    /// Whether a message to this host is for a process of another user. It is if it is about that process's connection,
    /// or if it asks for a service that no process of this user has and another user has the port.
    fn is_for_another_user(&self, transmit: &Transmit, ports: &Connections) -> bool {
        let registry = self.device.process().registry();
        match transmit.mad.receiver() {
            Receiver::Id(CommId(id)) => registry.is_of_another_user((id >> 24) as u8),
            Receiver::Service(service) => {
                let is_ours =
                    taker(service, destination(&transmit.mad.message), true, ports).is_some();
                let others_have_port = || {
                    let taken = udp::taken_by_others(registry).and_then(|taken| taken.user());
                    taken.is_some_and(udp::hands_on)
                };
                !is_ours && (others_have_port() || udp::listening_guest(service).is_some())
            }
            Receiver::Peer(..) => false,
        }
    }

    /// Sends messages that found no room earlier, as far as there is room now.
    pub(super) fn send_rest(&mut self) {
        self.again = None;
        self.packets.send_rest(clock::steady());
        self.pipe.send_rest(clock::steady());
    }

    /// The last round: busy processes of this host still get their messages.
    pub(super) fn finish(mut self) {
        self.send_rest();
        while self.pipe.deadline(0).is_some() {
            std::thread::sleep(Duration::from_millis(1));
            self.send_rest();
        }
    }

    /// When to call [`Exchange::send_rest`] or take late messages. Each call of a program asks for this, and must not
    /// push the time back.
    pub(super) fn deadline(&mut self) -> Option<u64> {
        let now = clock::steady();
        let of_others = self.pipe.deadline(now).into_iter().chain(self.starting.deadline(now));
        let again = self.packets.retry_at(now).into_iter().chain(of_others).min();
        self.again = again.map(|again| self.again.unwrap_or(again).min(again));
        let of_others = self.faults.deadline().into_iter().chain(self.packets.repeat_at());
        self.again.into_iter().chain(of_others).min()
    }

    /// Hands a message that reached the wrong process on to its own. Gives back a message for this process.
    pub(super) fn hand_on(
        &mut self,
        datagram: ManagementDatagram,
        by: Interface,
        ports: &Connections,
    ) -> Option<ManagementDatagram> {
        match self.owner(&datagram, by, ports) {
            Owner::Me => Some(datagram),
            Owner::Nobody => None,
            Owner::NobodyYet => {
                let opened = self.device.process().registry().last_opened();
                self.starting.wait(datagram, by, opened, clock::steady())
            }
            // If that process has ended meanwhile, this one answers in its place.
            Owner::Process(slot) => {
                let sent = self.pipe.send(slot, Note::Datagram(datagram), clock::steady());
                (!sent).then_some(datagram)
            }
            Owner::Guest(slot) => {
                (!self.packets.give_to_guest(slot, &datagram)).then_some(datagram)
            }
            Owner::All => {
                self.starting.forget(&datagram);
                for slot in self.neighbours.slots() {
                    self.pipe.send(slot, Note::Datagram(datagram), clock::steady());
                }
                Some(datagram)
            }
        }
    }

    /// Hands a request to another device of this process. False if that is not there.
    pub(super) fn give(&mut self, slot: u8, datagram: &ManagementDatagram) -> bool {
        self.pipe.send(slot, Note::Datagram(*datagram), clock::steady())
    }

    /// Takes the requests for ports that nobody had, if their port is this process's now or nobody has come for it in
    /// time.
    pub(super) fn take_started(&mut self, ports: &Connections) -> Vec<ManagementDatagram> {
        let now = clock::steady();
        let mut mine = Vec::new();
        for waiting in self.starting.take() {
            match self.owner(&waiting.request, waiting.by, ports) {
                Owner::NobodyYet if now < waiting.until => self.starting.put_back(waiting),
                Owner::NobodyYet => mine.push(waiting.request),
                _ => mine.extend(self.hand_on(waiting.request, waiting.by, ports)),
            }
        }
        mine
    }

    fn owner(&self, datagram: &ManagementDatagram, by: Interface, ports: &Connections) -> Owner {
        let me = self.device.process().announcer().slot;
        let slot = match Mad::parse(&datagram.mad) {
            Ok(mad) => match mad.receiver() {
                Receiver::Service(service) => {
                    let from_here = self.device.port().is_here(&gid(datagram.source));
                    let taker = taker(service, destination(&mad.message), from_here, ports);
                    let owner = taker.map(|it| it.owner);
                    // This looks through all connections, so no outsider may cause it.
                    let near = || match by {
                        Interface::Loopback | Interface::Local => connected_at(service, ports),
                        Interface::Wire => None,
                    };
                    let guest = || match by {
                        Interface::Loopback | Interface::Local => None,
                        Interface::Wire => self.guests.listening(service),
                    };
                    match owner.or_else(near) {
                        Some(owner) => Some(owner.slot),
                        None => return guest().map_or(Owner::NobodyYet, Owner::Guest),
                    }
                }
                Receiver::Id(CommId(id)) => Some((id >> 24) as u8),
                Receiver::Peer(..) => return Owner::All,
            },
            // There is an error code to refuse it with.
            Err(Ignored::Impossible { .. }) => None,
            Err(_) => return Owner::Nobody,
        };
        slot.filter(|slot| *slot != me).map_or(Owner::Me, Owner::Process)
    }
}

/// The process that takes requests for a service: the one that listens at this address, or else at any address. If
/// nobody listens: the one that has the port and may listen soon.
fn taker(
    service: ServiceId,
    destination: Option<IpAddr>,
    from_here: bool,
    ports: &Connections,
) -> Option<ClaimedPort> {
    let (space, port) = service.port()?;
    let all = ports.lock().ok()?.ports(space, port);
    let listeners: Vec<_> = all.iter().filter(|it| it.listens).collect();
    let at = |it: &&&ClaimedPort| Some(it.claim.address.ip()) == destination;
    let takes = |it: &&&ClaimedPort| destination.is_some_and(|ip| it.claim.takes(ip, from_here));
    let found = listeners.iter().find(at).or_else(|| listeners.iter().find(takes));
    // A process that has the port can say why it does not take the request.
    found.copied().or(listeners.first().copied()).or(all.first()).copied()
}

/// The process that has a connection at the port of a service, and may listen there again (rule CM-56).
fn connected_at(service: ServiceId, ports: &Connections) -> Option<Announcer> {
    let (_, port) = service.port()?;
    ports.lock().ok()?.connected_at(port)
}

/// The address that a request is for, by its header.
fn destination(message: &Message) -> Option<IpAddr> {
    let private_data: &[u8] = match message {
        Message::Req(Req { private_data, .. }) => private_data,
        Message::SidrReq(SidrReq { private_data, .. }) => private_data,
        _ => return None,
    };
    Some(IpHeader::read(private_data.first_chunk()?)?.addresses.destination())
}

/// Where a message came from, in the engine's terms.
pub(super) fn arrival(datagram: &ManagementDatagram) -> Arrival {
    let ManagementDatagram { source, destination, .. } = *datagram;
    Arrival { source, destination }
}

#[cfg(test)]
mod tests {
    use transom_system::registry::Registry;

    use super::*;
    use crate::testing::turn;
    use crate::{Adapter, Options};

    /// Each call asks for the time of the next attempt. Asking does not push it back.
    #[test]
    fn what_waits_for_room_is_tried_again_however_many_calls_come() {
        let _turn = turn();
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        let registry = Registry::open().expect("it is open");
        let claim = registry.claim(0, 0).expect("a slot");
        let slot = claim.announcer().slot;
        let pipe = ManagementPipe::open(registry, slot).expect("a pipe");
        let mut exchange = Exchange::open(adapter.device().clone()).expect("a pipe of its own");
        let mut waits = || {
            while exchange.deadline().is_none() {
                assert!(exchange.pipe.send(slot, Note::Newcomer, clock::steady()));
            }
            let first = exchange.deadline();
            let begun = clock::steady();
            while clock::steady() == begun {}
            assert_eq!(exchange.deadline(), first);
            while pipe.take().is_some() {}
            exchange.send_rest();
            assert_eq!(exchange.deadline(), None);
            first
        };
        let [first, second] = [waits(), waits()];
        assert!(first < second, "the next one waits anew");
        drop(claim);
    }
}
