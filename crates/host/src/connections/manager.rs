//! The engine, between files, ports and messages: runs every call, message and deadline.

mod calls;
mod connecting;
mod elsewhere;
mod groups;
mod records;
mod stand_ins;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::Ordering::Acquire;

use tracing::debug;
use transom_cm::{Answered, Arrival, Config, Engine, Event, Handled, Happened, Nobody, Timing};
use transom_device::protection::Announcer;
use transom_net::management::ManagementDatagram;
use transom_net::udp::{Announcement, Obstacle};
use transom_system::registry::ConnectionFault;
use transom_system::registry::connections::Connections;
use transom_system::{clock, failure, rehearsal, tools};
use transom_wire::cm::{CommId, MAD_BYTES, RejectReason, SidrStatus};

pub use self::elsewhere::Unbound;
use self::groups::Memberships;
use self::records::Records;
use self::stand_ins::StandIns;
use super::complaints::Complaints;
use super::exchange::{Exchange, arrival};
use super::faults::Fate;
use super::files::{Delivered, Files};
use super::ports::SharedPorts;
use super::rehearsed::Rehearsed;
use super::traced;
use crate::device::{Device, Interface};

/// How many messages of other processes are taken at a time.
const TOGETHER: usize = 64;

/// The connection manager of this process.
pub struct Manager {
    device: Arc<Device>,
    engine: Engine,
    ports: SharedPorts,
    exchange: Exchange,
    files: Files,
    memberships: Memberships,
    /// The announcements of listeners whose port another user has.
    announcements: HashMap<CommId, Announcement>,
    records: Records,
    stand_ins: StandIns,
    complaints: Complaints,
    rehearsed: Rehearsed,
    phase: Phase,
}

/// What has become of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is of use.
    Serving,
    /// It has gone, and the ids that belong to it have been told. Others of the program are left.
    Removed,
    /// It has gone, and none is left. All ids have been told.
    AllRemoved,
    /// It has gone, and a panic has left things half done. Nothing acts on them any more.
    Broken,
}

impl Manager {
    /// Announces this process to the others, and ends the connections that dead ones have left.
    pub(super) fn new(device: Arc<Device>) -> io::Result<Self> {
        let process = device.process();
        let table = Connections::open(process.registry(), process.announcer())?;
        let exchange = Exchange::open(device.clone())?;
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let slot = process.announcer().slot;
        // Peers tell by it which numbers of connections belong together: those of this namespace.
        let node = transom_system::node_guid(0);
        let mut config = Config::new(slot, node, u128::from_ne_bytes(seed));
        config.flush = true;
        config.waits = rehearsal::refuses_early().is_none();
        if let Some(milliseconds) = device.options().connect_timeout {
            config.timing = Timing::giving_up_after(milliseconds);
        }
        let mut manager = Self {
            engine: Engine::new(config),
            ports: SharedPorts::new(device.clone(), table),
            exchange,
            files: Files::default(),
            memberships: Memberships::default(),
            announcements: HashMap::new(),
            records: Records::default(),
            stand_ins: StandIns::default(),
            complaints: Complaints::new(device.clone()),
            rehearsed: Rehearsed::default(),
            phase: Phase::Serving,
            device,
        };
        let ended = manager.exchange.take_ended();
        manager.reap(&ended);
        manager.settle();
        Ok(manager)
    }

    pub(super) fn descriptors(&self) -> Vec<Arc<OwnedFd>> {
        self.exchange.descriptors()
    }

    /// Takes a message that has come over the wire.
    pub(super) fn deliver(&mut self, datagram: ManagementDatagram) {
        if let Some(datagram) = self.exchange.hand_on(datagram, Interface::Wire, &self.ports.table)
        {
            self.handle(&datagram);
        }
    }

    /// Takes messages that other processes of this host have sent, and checks whether they are alive. Others wait for
    /// the lock meanwhile, so a long queue is left for the next call.
    pub(super) fn look(&mut self) {
        for _ in 0..TOGETHER {
            let Some(datagram) = self.exchange.take() else { break };
            self.handle(&datagram);
        }
        let ended = self.exchange.take_ended();
        if !ended.is_empty() {
            self.reap(&ended);
        }
    }

    /// A message to this address reached nobody.
    pub(super) fn undelivered(&mut self, to: IpAddr, why: Obstacle, message: &[u8; MAD_BYTES]) {
        let (nobody, errno) = match why {
            // The process that has the port handles messages for a process that has ended.
            Obstacle::NoPort | Obstacle::NoProcess => (Nobody::NoProcess, None),
            Obstacle::NoWay(errno) => (Nobody::NoWay, Some(errno)),
            Obstacle::TooLong(_) => (Nobody::NoWay, Some(libc::EMSGSIZE)),
        };
        let handled = self.engine.undelivered(clock::steady(), to, message, nobody);
        let Handled::Taken(id) = handled else { return };
        self.records.touch(id);
        if let Some(errno) = errno {
            let ends = (self.engine.source(id), self.engine.destination(id));
            self.complaints.of_way(ends, errno);
        }
    }

    pub(super) fn on_deadline(&mut self, now: u64) {
        // The answer that is waited for may have been handed on to this process.
        self.look();
        self.exchange.send_rest();
        for request in self.exchange.take_started(&self.ports.table) {
            self.handle(&request);
        }
        for late in self.rehearsed.take_due(now, None) {
            self.handle_in_time(&late, now);
        }
        for (id, coming) in self.rehearsed.take_coming(now) {
            // Its device may have gone meanwhile, and it has been told so.
            let _ = self.come(id, coming);
        }
        for id in self.rehearsed.gone.take_due(now) {
            self.engine.give_up(id, now);
        }
        for late in self.exchange.faults.take_due(now) {
            self.handle_in_time(&late, now);
        }
        let due = self.engine.handle_timeout(now);
        self.records.touch_all(due);
    }

    /// The device goes, or the last one of the program after it. Tells everybody concerned while messages can still be
    /// sent.
    pub(super) fn device_removed(&mut self) {
        let any_is_left = self.any_is_left();
        match (self.phase, any_is_left) {
            (Phase::Serving, true) => self.phase = Phase::Removed,
            (Phase::Serving | Phase::Removed, false) => self.phase = Phase::AllRemoved,
            _ => return,
        }
        let told = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(test)]
            assert!(!self.device.work.panics.load(Acquire), "a test wants it");
            self.leave_to_stand_ins(any_is_left);
            self.announcements.clear();
            self.records.touch_all(self.engine.ids());
            self.engine.device_removed(clock::steady(), &mut self.ports, any_is_left);
            self.settle();
            self.exchange.send_rest();
        }));
        if let Err(panic) = told {
            // A panic here may be the reason why the device failed, and it may come again. Programs wait for the news
            // all the same.
            std::mem::forget(panic);
            self.phase = Phase::Broken;
            let stays = |id| any_is_left && self.engine.unbound(id).is_some();
            self.files.device_removed(stays);
        }
    }

    /// Whether the program has a device, of those that it has been given, that was not removed.
    pub(super) fn any_is_left(&self) -> bool {
        failure::any_is_left(self.device.options().others)
    }

    /// These addresses belong to other interfaces now, or have other hardware addresses.
    pub(super) fn addresses_changed(&mut self, addresses: &[IpAddr]) {
        addresses.iter().for_each(|address| self.engine.address_changed(*address));
    }

    /// The peers of all connections are gone, in a rehearsal.
    pub(super) fn lose_peers(&mut self, number: u64) {
        let engine = &self.engine;
        let connections = engine.ids().filter_map(|id| Some((id, engine.peer(id)?)));
        self.rehearsed.lose_peers(connections, number, clock::steady());
    }

    fn handle(&mut self, datagram: &ManagementDatagram) {
        if self.hand_to_stand_in(datagram) {
            return;
        }
        let now = clock::steady();
        match self.exchange.faults.meet(datagram, now) {
            Fate::Handled => {
                for earlier in self.rehearsed.take_due(now, Some(datagram)) {
                    self.handle_in_time(&earlier, now);
                }
                if self.rehearsed.gone.sent(datagram) {
                    return;
                }
                if let Some(id) = self.rehearsed.loses(datagram) {
                    return self.engine.give_up(id, now);
                }
                let state = |id| self.engine.connection_state(id);
                if !self.rehearsed.delays(datagram, state, now) {
                    self.handle_in_time(datagram, now);
                }
            }
            Fate::Lost => {}
            Fate::Refused(reason) => {
                self.engine.refuse(arrival(datagram), &datagram.mad, reason);
            }
        }
    }

    fn handle_in_time(&mut self, datagram: &ManagementDatagram, now: u64) {
        let handled = self.engine.handle(now, arrival(datagram), &datagram.mad, &mut self.ports);
        if self.engine.has_refused_early() {
            rehearsal::refuses_early().inspect(|it| it.note());
        }
        self.note(datagram, handled);
    }

    /// Notes the fate of a message.
    fn note(&mut self, datagram: &ManagementDatagram, handled: Handled) {
        debug!(from = %datagram.source, to = %datagram.destination, ?handled, "message");
        match handled {
            Handled::Taken(id) | Handled::Duplicate(id) => self.records.touch(id),
            Handled::Refused(reason) => {
                let code = reason.code().into();
                self.complaints.of_request(datagram, ConnectionFault::Refused, code, &self.ports);
            }
            Handled::NotServed(status) => {
                let code = match status {
                    SidrStatus::NotSupported => RejectReason::InvalidServiceId.code().into(),
                    status => status.code().into(),
                };
                self.complaints.of_request(datagram, ConnectionFault::Refused, code, &self.ports);
            }
            Handled::BacklogFull(_) => {
                let fault = ConnectionFault::BacklogFull;
                self.complaints.of_request(datagram, fault, 0, &self.ports);
            }
            Handled::Waits | Handled::Unknown | Handled::Ignored(_) => {}
        }
    }

    /// Ends the connections of processes that have died.
    pub(super) fn reap(&mut self, ended: &[Announcer]) {
        let Ok(mut table) = self.ports.table.lock() else { return };
        let mut left = Vec::new();
        table.reap(ended, |connection| left.push(connection));
        drop(table);
        for connection in left {
            debug!(?connection, "its process has died");
            let last = connection.record.final_message();
            if let Some(datagram) = self.exchange.send_last(last, &self.ports.table) {
                self.handle(&datagram);
            }
        }
    }

    /// Acts on everything that has happened: sends messages, raises events at their files, keeps the records for other
    /// processes, and sets the background thread's deadline.
    pub(super) fn settle(&mut self) {
        if self.phase == Phase::Broken {
            return;
        }
        while let Some(Answered { arrival, request, handled }) = self.engine.poll_answered() {
            let Arrival { source, destination } = arrival;
            let mad = request.write();
            self.note(&ManagementDatagram { source, destination, mad }, handled);
        }
        let mut own = VecDeque::new();
        loop {
            // Keep them before anybody hears of the change: this process may end at once.
            self.records.keep(&self.engine, &self.ports.table);
            while let Some(transmit) = self.engine.poll_transmit() {
                self.rehearsed.gone.note(&transmit, clock::steady());
                own.extend(self.exchange.send(transmit, &self.ports.table));
            }
            let Some(datagram) = own.pop_front() else { break };
            self.handle(&datagram);
        }
        while let Some(id) = self.engine.poll_displaced() {
            self.files.remove(id);
            self.records.touch(id);
        }
        let events: Vec<Event> = std::iter::from_fn(|| self.engine.poll_event()).collect();
        self.records.touch_all(events.iter().map(|event| event.id));
        self.records.keep(&self.engine, &self.ports.table);
        let now = clock::steady();
        for Event { id, happened } in events {
            if let Some(happened) = self.rehearsed.follow(id, happened, now) {
                self.raise(id, happened);
            }
        }
        let deadline = self.engine.poll_timeout().into_iter().chain(self.exchange.deadline());
        let deadline = deadline.chain(self.rehearsed.deadline()).min();
        self.device.work.deadlines.schedule_connections(deadline);
    }

    fn raise(&mut self, id: CommId, happened: Happened) {
        let ends = (self.engine.source(id), self.engine.destination(id));
        let space = self.engine.service(id).map(|service| service.space());
        self.complaints.of_event(ends, space, &happened, &self.ports);
        let gid_index = match &happened {
            Happened::MulticastJoin(group) => self.source_of_group(id, group.address),
            _ => 0,
        };
        let counted = match &happened {
            Happened::ConnectRequest { listener, .. } => {
                let listener = *listener;
                let Some((file, uid)) = self.files.file_of(listener) else { return };
                self.files.add(id, file, 0);
                self.trace(id, &happened);
                let delivered = Delivered { id: id.0, uid, gid_index, happened };
                return self.files.raise(listener, delivered);
            }
            Happened::MulticastJoin(group) | Happened::MulticastError(group, _) => {
                self.memberships.tell(id, *group)
            }
            // The program knows the listener only for which it stands in.
            Happened::DeviceRemoval if self.files.is_told_nothing(id) => None,
            // The program does not know the id of a request that it has not accepted yet.
            _ => self.files.file_of(id).map(|(_, uid)| (id.0, uid)).filter(|(_, uid)| *uid != 0),
        };
        if let Some((number, uid)) = counted {
            self.trace(id, &happened);
            self.files.raise(id, Delivered { id: number, uid, gid_index, happened });
        }
    }

    fn trace(&self, id: CommId, happened: &Happened) {
        if tools::any() {
            traced::happened(self.device.process(), &self.engine, id, happened);
        }
    }

    /// Ends all ids, and tells their peers.
    pub(super) fn end(mut self: Box<Self>) {
        let ids: Vec<CommId> = self.engine.ids().collect();
        for id in ids {
            let _ = self.engine.destroy(id, clock::steady(), &mut self.ports);
            self.records.touch(id);
        }
        self.settle();
        self.exchange.finish();
    }
}
