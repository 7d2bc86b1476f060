//! The engine, between files, ports and messages: runs every call, message and deadline.

mod groups;
mod kept;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::Ordering::Acquire;

use tracing::debug;
use transom_cm::refused::Errno;
use transom_cm::{
    Answered, Arrival, Config, Engine, Event, Handled, Happened, Nobody, Refused, Service, Timing,
};
use transom_device::protection::Announcer;
use transom_net::management::ManagementDatagram;
use transom_net::udp::{Announcement, Obstacle};
use transom_system::addresses::gid;
use transom_system::clock;
use transom_system::registry::ConnectionFault;
use transom_system::registry::connections::{Connections, Kept};
use transom_wire::cm::{CommId, MAD_BYTES, RejectReason, ServiceId, SidrStatus};

use self::groups::Membership;
use super::complaints::Complaints;
use super::exchange::{Exchange, arrival};
use super::faults::Fate;
use super::files::{Delivered, Files};
use super::ports::SharedPorts;
use super::routes;
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
    memberships: HashMap<u32, Membership>,
    /// The announcements of listeners whose port another user has.
    announcements: HashMap<CommId, Announcement>,
    /// The records of connections that other processes read if this one dies.
    kept: HashMap<CommId, Kept>,
    /// Requests that wait for an answer, readable for `transom explain` and others.
    waiting: HashMap<CommId, Kept>,
    /// Ids that may have changed.
    touched: Vec<CommId>,
    /// When the background thread has to call.
    deadline: Option<u64>,
    complaints: Complaints,
    /// The device has gone.
    removed: bool,
    /// A panic has left things half done. Nothing acts on them any more.
    is_broken: bool,
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
        let mut config = Config::new(slot, transom_system::node_guid(), u128::from_ne_bytes(seed));
        config.flush = true;
        if let Some(milliseconds) = device.options().connect_timeout {
            config.timing = Timing::giving_up_after(milliseconds);
        }
        let mut manager = Self {
            engine: Engine::new(config),
            ports: SharedPorts::new(device.clone(), table),
            exchange,
            files: Files::default(),
            memberships: HashMap::new(),
            announcements: HashMap::new(),
            kept: HashMap::new(),
            waiting: HashMap::new(),
            touched: Vec::new(),
            deadline: None,
            complaints: Complaints::new(device.clone()),
            removed: false,
            is_broken: false,
            device,
        };
        manager.reap(&[]);
        manager.settle();
        Ok(manager)
    }

    // Files.

    /// Opens a new file. Its descriptor is readable while an event waits.
    ///
    /// # Errors
    ///
    /// `EMFILE` if no descriptor is left.
    pub fn open_file(&mut self) -> Result<RawFd, Refused> {
        let (file, ids) = self.files.open().map_err(|_| Refused::NoDescriptor)?;
        // The kernel ends such ids when the program closes the file's descriptor.
        for id in ids {
            let _ = self.destroy(file, id);
        }
        Ok(file)
    }

    /// Ends a file and its ids.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is none.
    pub fn close_file(&mut self, file: RawFd) -> Result<(), Refused> {
        for id in self.files.ids_of(file) {
            // A request may have gone together with its listener.
            let _ = self.destroy(file, id);
        }
        if self.files.close(file) { Ok(()) } else { Err(Refused::NoFile) }
    }

    /// Takes the oldest event of a file.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such file.
    pub fn next_event(&mut self, file: RawFd) -> Result<Option<Delivered>, Refused> {
        if !self.files.has(file) {
            return Err(Refused::NoFile);
        }
        let event = self.files.take(file);
        match &event {
            Some(Delivered { id, happened: Happened::ConnectRequest { .. }, .. }) => {
                let _ = self.engine.fetched(CommId(*id));
            }
            // The event counts for the membership as well as for its id (rule CM-52).
            Some(Delivered {
                id: number,
                happened: Happened::MulticastJoin(_) | Happened::MulticastError(..),
                ..
            }) => {
                if let Some(it) = self.memberships.get_mut(number) {
                    it.reported = it.reported.wrapping_add(1);
                }
            }
            _ => {}
        }
        Ok(event)
    }

    // Ids.

    /// Makes a new id in a file. The program calls it `uid`.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such file, `ENOMEM` if no id is left.
    pub fn create(&mut self, file: RawFd, uid: u64, service: Service) -> Result<CommId, Refused> {
        if !self.files.has(file) {
            return Err(Refused::NoFile);
        }
        let id = self.engine.create(service)?;
        self.files.add(id, file, uid);
        Ok(id)
    }

    /// Ends an id, and says how many of its events have been taken.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is no such id, `EINVAL` if it is another file's.
    pub fn destroy(&mut self, file: RawFd, id: CommId) -> Result<u32, Refused> {
        self.check_file(file, id)?;
        let groups = self.engine.destroy(id, clock::steady(), &mut self.ports)?;
        if !groups.is_empty() {
            self.memberships.retain(|_, it| it.of != id);
        }
        self.announcements.remove(&id);
        let (reported, requests) = self.files.remove(id);
        self.touched.extend(requests);
        self.touched.push(id);
        Ok(reported)
    }

    /// Moves an id to another file, and says how many of its events have been taken.
    ///
    /// # Errors
    ///
    /// As for [`Manager::with_id`]; `EBADF` if there is no such file.
    pub fn migrate(&mut self, file: RawFd, id: CommId, to: RawFd) -> Result<u32, Refused> {
        self.check(file, id)?;
        self.files.migrate(id, to).ok_or(Refused::NoFile)
    }

    /// Sets the program's own value for an id. For a request for a connection, this happens when the program accepts
    /// it.
    pub fn set_uid(&mut self, id: CommId, uid: u64) {
        self.files.set_uid(id, uid);
    }

    /// Calls the engine about an id of a file, with the time.
    ///
    /// # Errors
    ///
    /// The call's error; `ENOENT` if there is no such id, `EINVAL` if it is another file's, `ENXIO` if its device is
    /// gone.
    pub fn with_id<T>(
        &mut self,
        file: RawFd,
        id: CommId,
        call: impl FnOnce(&mut Engine, u64) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.check(file, id)?;
        self.touched.push(id);
        call(&mut self.engine, clock::steady())
    }

    /// Gives an id an address and a port.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn bind(&mut self, file: RawFd, id: CommId, address: SocketAddr) -> Result<(), Refused> {
        self.check(file, id)?;
        self.engine.bind(id, address, &mut self.ports)
    }

    /// Makes an id listen, also for requests from other hosts.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn listen(&mut self, file: RawFd, id: CommId, backlog: i32) -> Result<(), Refused> {
        self.check(file, id)?;
        self.engine.listen(id, backlog, clock::steady(), &mut self.ports)?;
        let bound = self.engine.source(id);
        if bound.is_some_and(|source| !source.ip().is_loopback()) {
            self.device.port().expect_datagrams();
            self.announce(id);
        }
        Ok(())
    }

    /// Arranges that requests for a listener are handed on to it, when another user has the port.
    fn announce(&mut self, id: CommId) {
        let service = self.engine.service(id).zip(self.engine.source(id));
        let service = service.map(|(service, at)| ServiceId::of(service.space(), at.port()));
        let wire = self.device.port().wire();
        let announcement = wire.zip(service).and_then(|(wire, service)| wire.announce(service));
        self.announcements.extend(announcement.map(|announcement| (id, announcement)));
    }

    /// Finds the route to a destination, and reports the result by an event.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn resolve_address(
        &mut self,
        file: RawFd,
        id: CommId,
        source: Option<SocketAddr>,
        mut destination: SocketAddr,
    ) -> Result<(), Refused> {
        self.check(file, id)?;
        let bound = self.engine.source(id).or(source);
        let interface = routes::interface(&destination);
        let interface = interface.or_else(|| bound.as_ref().and_then(routes::interface));
        let bound = bound.map(|source| source.ip()).filter(|bound| !bound.is_unspecified());
        if destination.ip().is_unspecified() {
            destination.set_ip(bound.unwrap_or(routes::reached_by(destination.ip())));
        }
        let (engine, ports) = (&mut self.engine, &mut self.ports);
        engine.resolve_address(id, source, destination, ports)?;
        let port = self.device.port();
        let found = routes::find(port, bound, destination.ip(), interface).and_then(|route| {
            let here = port.is_here(&gid(route.destination));
            match here && !self.device.options().wire_only {
                true => Ok(route),
                false => port.open_wire().map(|()| route).map_err(Errno),
            }
        });
        self.engine.address_resolved(id, found)
    }

    /// Appends an event of the program's own to those of an id.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn write_event(
        &mut self,
        file: RawFd,
        id: CommId,
        code: u32,
        status: i32,
        argument: u64,
    ) -> Result<(), Refused> {
        self.check(file, id)?;
        self.raise(id, Happened::Written { code, status, argument });
        Ok(())
    }

    /// The service of an id.
    pub fn service(&self, id: CommId) -> Option<Service> {
        self.engine.service(id)
    }

    /// Refuses an id that is another file's, or whose device is gone, or that would look for a device when there is
    /// none.
    fn check(&self, file: RawFd, id: CommId) -> Result<(), Refused> {
        self.check_file(file, id)?;
        if self.engine.is_removed(id) {
            return Err(Refused::Removed);
        }
        // An id that was made since then is never told, and it would get no other event.
        self.device.check().map_err(|_| Refused::DeviceFailed)
    }

    fn check_file(&self, file: RawFd, id: CommId) -> Result<(), Refused> {
        match self.files.file_of(id) {
            Some((of, _)) if of == file => Ok(()),
            Some(_) => Err(Refused::OtherFile),
            None => Err(Refused::NoSuchId),
        }
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
        self.touched.push(id);
        if let Some(errno) = errno {
            let ends = (self.engine.source(id), self.engine.destination(id));
            self.complaints.of_way(ends, errno);
        }
    }

    pub(super) fn on_deadline(&mut self, now: u64) {
        self.deadline = None;
        self.exchange.send_rest();
        for request in self.exchange.take_started(&self.ports.table) {
            self.handle(&request);
        }
        for late in self.exchange.faults.take_due(now) {
            self.handle_in_time(&late, now);
        }
        let due = self.engine.handle_timeout(now);
        self.touched.extend(due);
    }

    /// The device goes. Tells everybody concerned while messages can still be sent.
    pub(super) fn device_removed(&mut self) {
        if std::mem::replace(&mut self.removed, true) {
            return;
        }
        let told = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(test)]
            assert!(!self.device.work.panics.load(Acquire), "a test wants it");
            self.touched.extend(self.engine.ids());
            self.engine.device_removed(clock::steady(), &mut self.ports);
            self.settle();
            self.exchange.send_rest();
        }));
        if let Err(panic) = told {
            // A panic here may be the reason why the device failed, and it may come again. Programs wait for the news
            // all the same.
            std::mem::forget(panic);
            self.is_broken = true;
            self.files.device_removed();
        }
    }

    /// These addresses belong to other interfaces now, or have other hardware addresses.
    pub(super) fn addresses_changed(&mut self, addresses: &[IpAddr]) {
        addresses.iter().for_each(|address| self.engine.address_changed(*address));
    }

    fn handle(&mut self, datagram: &ManagementDatagram) {
        let now = clock::steady();
        match self.exchange.faults.meet(datagram, now) {
            Fate::Handled => self.handle_in_time(datagram, now),
            Fate::Lost => {}
            Fate::Refused(reason) => {
                self.engine.refuse(arrival(datagram), &datagram.mad, reason);
            }
        }
    }

    fn handle_in_time(&mut self, datagram: &ManagementDatagram, now: u64) {
        let handled = self.engine.handle(now, arrival(datagram), &datagram.mad, &mut self.ports);
        self.note(datagram, handled);
    }

    /// Notes the fate of a message.
    fn note(&mut self, datagram: &ManagementDatagram, handled: Handled) {
        debug!(from = %datagram.source, to = %datagram.destination, ?handled, "message");
        match handled {
            Handled::Taken(id) | Handled::Duplicate(id) => self.touched.push(id),
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
        if self.is_broken {
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
            self.keep_records();
            while let Some(transmit) = self.engine.poll_transmit() {
                own.extend(self.exchange.send(transmit, &self.ports.table));
            }
            let Some(datagram) = own.pop_front() else { break };
            self.handle(&datagram);
        }
        while let Some(id) = self.engine.poll_displaced() {
            self.files.remove(id);
            self.touched.push(id);
        }
        let events: Vec<Event> = std::iter::from_fn(|| self.engine.poll_event()).collect();
        self.touched.extend(events.iter().map(|event| event.id));
        self.keep_records();
        for Event { id, happened } in events {
            self.raise(id, happened);
        }
        let deadline = self.engine.poll_timeout().into_iter().chain(self.exchange.deadline()).min();
        if deadline != self.deadline {
            self.device.work.schedule_connections(deadline);
            self.deadline = deadline;
        }
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
                let delivered = Delivered { id: id.0, uid, gid_index, happened };
                return self.files.raise(listener, delivered);
            }
            Happened::MulticastJoin(group) | Happened::MulticastError(group, _) => {
                let of = |(_, it): &(&u32, &mut Membership)| {
                    !it.is_told && (it.of, it.group) == (id, *group)
                };
                self.memberships.iter_mut().find(of).map(|(number, it)| {
                    it.is_told = true;
                    (*number, it.uid)
                })
            }
            // The program does not know the id of a request that it has not accepted yet.
            _ => self.files.file_of(id).map(|(_, uid)| (id.0, uid)).filter(|(_, uid)| *uid != 0),
        };
        if let Some((number, uid)) = counted {
            self.files.raise(id, Delivered { id: number, uid, gid_index, happened });
        }
    }

    /// Ends all ids, and tells their peers.
    pub(super) fn end(mut self: Box<Self>) {
        let ids: Vec<CommId> = self.engine.ids().collect();
        for id in ids {
            let _ = self.engine.destroy(id, clock::steady(), &mut self.ports);
            self.touched.push(id);
        }
        self.settle();
        self.exchange.finish();
    }
}
