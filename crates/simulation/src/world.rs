//! A run: events in the order of the simulation's time, and what each device does about them.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use transom_wire::icrc::Path;
use transom_wire::packet::{ICRC_BYTES, Packet};

use crate::faults::{Arrival, FaultInjector};
use crate::model::{At, Model, Verdict};
use crate::network::{InFlight, Network, Place};
use crate::node::{Egress, Node};
use crate::packet::encode;
use crate::plan::Plan;
use crate::random::Random;

/// Something that happens.
pub enum Event {
    /// The network's next packet arrives at a device.
    Arrive(usize),
    /// A packet has left a device's link.
    Leave(usize),
    /// A queue pair wanted to be looked at.
    Alarm(At),
    /// A program does this step.
    Step(usize),
    /// The programs see whether all is done.
    Settle,
}

/// Everything that the queue pairs have around them.
pub struct Shared {
    /// The devices.
    pub nodes: [Node; 2],
    /// Most packets of a burst.
    pub burst: u64,
    model: RefCell<Model>,
    network: RefCell<Network>,
    faults: RefCell<FaultInjector>,
    /// What is to happen, by time.
    pub(crate) events: RefCell<BTreeMap<(u64, u64), Event>>,
    /// Events so far, to keep those of one time in order.
    scheduled: Cell<u64>,
    /// Arrivals so far.
    pub(crate) arrivals: Cell<u64>,
    now: Cell<u64>,
    addresses: [IpAddr; 2],
    moment: u64,
    /// Print what happens.
    trace: bool,
}

/// UDP source port of each device's packets.
const PORTS: [u16; 2] = [0xc001, 0xd002];
/// Where memory begins.
const BASES: [u64; 2] = [0x7a00_0000_0000, 0x10_0000_3000];

impl Shared {
    /// The world of a plan, without queue pairs yet.
    pub fn new(plan: &Plan, trace: bool) -> Self {
        let mut random = Random::new(plan.seed ^ 0x5eed);
        let mut node = |index: usize| {
            let (depth, pace) = plan.links[index];
            let (pending, free_at) = (Cell::new(0), Cell::new(0));
            let full = Cell::new(false);
            let egress = Egress {
                depth,
                pace,
                pending,
                free_at,
                has_refused: Cell::new(false),
                was_full: full,
                ever_full: Cell::new(false),
            };
            Node::new(BASES[index], plan.clocks[index], random.number(), egress)
        };
        let nodes = [node(0), node(1)];
        let addresses = if plan.ipv6 {
            [1, 2].map(|host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host).into())
        } else {
            [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host).into())
        };
        Self {
            nodes,
            burst: plan.burst,
            model: RefCell::default(),
            network: RefCell::new(Network::new(2, plan.moment)),
            faults: RefCell::new(FaultInjector::new(2, plan.faults.clone(), random)),
            events: RefCell::default(),
            scheduled: Cell::new(0),
            arrivals: Cell::new(0),
            now: Cell::new(0),
            addresses,
            moment: plan.moment,
            trace,
        }
    }

    /// The simulation's time.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// The model.
    pub fn model(&self) -> RefMut<'_, Model> {
        self.model.borrow_mut()
    }

    /// The GID of a device.
    pub fn gid(&self, device: usize) -> [u8; 16] {
        match self.addresses[device] {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }

    /// Keeps what is wrong.
    pub fn note(&self, at: At, verdict: Verdict) {
        if let Err(wrong) = &verdict {
            self.say(|| format!("{at} WRONG: {wrong}"));
        }
        self.model().note(at, verdict);
    }

    /// Prints what happens, if somebody wants to know.
    pub fn say(&self, what: impl Fn() -> String) {
        if self.trace {
            println!("{:>12.3} µs  {}", self.now() as f64 / 1e3, what());
        }
    }

    /// Arranges for an event.
    pub fn schedule(&self, at: u64, event: Event) {
        let number = self.scheduled.get();
        self.scheduled.set(number + 1);
        self.events.borrow_mut().insert((at.max(self.now()), number), event);
    }

    /// The next event, with its time, which is now.
    pub fn next(&self) -> Option<Event> {
        let ((at, _), event) = self.events.borrow_mut().pop_first()?;
        self.now.set(at);
        Some(event)
    }

    /// What arrives at a device now, as one event has said.
    pub(crate) fn arrival(&self, device: usize) -> InFlight {
        let packet = self.network.borrow_mut().arrive(device);
        packet.expect("each packet on its way has an event")
    }

    /// Whatever befalls the packets of this queue pair and its peer from now on, a missing answer is
    /// no wonder.
    pub fn disturb(&self, at: At) {
        let mut model = self.model();
        let peer = At { device: 1 - at.device, qp: model.end(at).peer };
        model.end_mut(at).disturbed = true;
        model.end_mut(peer).disturbed = true;
    }

    /// Answers of this queue pair and its peer may come too late for the other.
    pub fn slow_down(&self, at: At) {
        self.disturb(at);
        let mut model = self.model();
        let peer = At { device: 1 - at.device, qp: model.end(at).peer };
        model.end_mut(at).slow = true;
        model.end_mut(peer).slow = true;
    }

    pub(crate) fn path(&self, from: usize) -> Path {
        let (source, destination) = (self.addresses[from], self.addresses[1 - from]);
        Path::new(source, PORTS[from], destination).expect("both addresses are of one family")
    }

    /// Sends a packet.
    pub fn transmit(&self, at: At, packet: &Packet<'_>) {
        let mut bytes = encode(packet);
        let length = bytes.len() - ICRC_BYTES;
        let icrc = self.path(at.device).icrc(0, &bytes[..length]);
        bytes[length..].copy_from_slice(&icrc);
        let egress = &self.nodes[at.device].egress;
        let leaves = egress.free_at.get().max(self.now()) + egress.pace;
        egress.free_at.set(leaves);
        egress.pending.set(egress.pending.get() + 1);
        self.schedule(leaves, Event::Leave(at.device));
        let (arrivals, disturbed) = {
            let mut network = self.network.borrow_mut();
            let (from, to) = (at.device, 1 - at.device);
            self.faults.borrow_mut().send(&mut network, from, to, leaves, &bytes)
        };
        self.say(|| {
            let times: Vec<_> = arrivals.iter().map(|one| one.at - self.now()).collect();
            format!("{at} sends {} (arrives after {times:?} ns)", describe(packet))
        });
        self.model().counts.packets += 1;
        let slow = arrivals.iter().any(|one| one.at - self.now() > self.impatience(at));
        if slow {
            self.slow_down(at);
        } else if disturbed {
            self.disturb(at);
        }
        let to = 1 - at.device;
        for Arrival { place, replayed, .. } in arrivals {
            if replayed && let Some(qp) = self.receiver(to, place) {
                self.disturb(At { device: to, qp });
            }
            self.schedule(place.0, Event::Arrive(to));
        }
    }

    /// The queue pair that a packet on its way is for.
    fn receiver(&self, to: usize, place: Place) -> Option<usize> {
        let network = self.network.borrow();
        let packet = Packet::parse(&network.packet(to, place)?.bytes).ok()?;
        self.named(to, packet.to)
    }

    /// How long a packet may take without an answer to it coming too late: part of the timeout.
    fn impatience(&self, at: At) -> u64 {
        let timeout = self.model().end(at).timeout;
        timeout.map_or(u64::MAX, |timeout| timeout / 8).saturating_sub(self.moment)
    }
}

/// A packet in a line.
pub fn describe(packet: &Packet<'_>) -> String {
    let Packet { operation, psn, payload, ack_request, .. } = packet;
    let ack = if *ack_request { ", AckReq" } else { "" };
    format!("{operation:x?} PSN {:#x}, {} bytes{ack}", psn.value(), payload.len())
}
