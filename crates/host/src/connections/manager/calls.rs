//! The calls of programs: files, and the ids in them.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use transom_cm::refused::Errno;
use transom_cm::{Engine, Happened, Refused, Route, Service};
use transom_system::addresses::gid;
use transom_system::clock;
use transom_wire::cm::{CommId, ServiceId};

use super::Manager;
use crate::connections::files::Delivered;
use crate::connections::rehearsed::Coming;
use crate::connections::routes;

impl Manager {
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

    /// The number of the oldest event of a file, if one waits. Events of all devices are numbered as they come.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such file.
    pub fn oldest_event(&self, file: RawFd) -> Result<Option<u64>, Refused> {
        if self.files.has(file) { Ok(self.files.oldest(file)) } else { Err(Refused::NoFile) }
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
                self.rehearsed.give(CommId(*id));
                let _ = self.engine.fetched(CommId(*id));
            }
            // The event counts for the membership as well as for its id (rule CM-52).
            Some(Delivered {
                id: number,
                happened: Happened::MulticastJoin(_) | Happened::MulticastError(..),
                ..
            }) => {
                self.memberships.note_taken(*number);
            }
            _ => {}
        }
        Ok(event)
    }

    /// Makes a new id in a file. The program calls it `uid`.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such file, `ENOMEM` if no id is left, `ENODEV` if the device is gone and the program has
    /// others: the id is made at one of them, because nobody would find it here when the file gives up its part.
    pub fn create(&mut self, file: RawFd, uid: u64, service: Service) -> Result<CommId, Refused> {
        if !self.files.has(file) {
            return Err(Refused::NoFile);
        }
        if self.any_is_left() {
            self.device.check().map_err(|_| Refused::DeviceFailed)?;
        }
        let id = self.engine.create(service)?;
        self.files.add(id, file, uid);
        self.rehearsed.give(id);
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
            self.memberships.remove_those_of(id);
        }
        self.announcements.remove(&id);
        self.stand_ins.forget(id);
        self.rehearsed.forget(id);
        let (reported, requests) = self.files.remove(id);
        self.records.touch_all(requests);
        self.records.touch(id);
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
        self.records.touch(id);
        call(&mut self.engine, clock::steady())
    }

    /// Gives an id an address and a port.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn bind(&mut self, file: RawFd, id: CommId, address: SocketAddr) -> Result<(), Refused> {
        self.check(file, id)?;
        let taken = if address.port() == 0 { Errno::EADDRNOTAVAIL } else { Errno::EADDRINUSE };
        self.may_take_port(id, taken)?;
        self.engine.bind(id, address, &mut self.ports)
    }

    /// An id is about to listen. In a rehearsal that may fail.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`]; `ENOMEM` or `EADDRINUSE`.
    pub fn may_listen(&mut self, file: RawFd, id: CommId) -> Result<(), Refused> {
        self.check(file, id)?;
        self.may_take_port(id, Errno::EADDRINUSE)
    }

    /// In a rehearsal an id may get no port: it is taken, or the kernel has no memory.
    fn may_take_port(&mut self, id: CommId, taken: Errno) -> Result<(), Refused> {
        match self.rehearsed.refuses(id) {
            Some(number) if number % 2 == 0 => Err(Refused::Rehearsed(Errno::ENOMEM)),
            Some(_) => Err(Refused::Rehearsed(taken)),
            None => Ok(()),
        }
    }

    /// Sets whether other ids with this option may have the same port.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`]; `ENOMEM` if the ports of this host cannot be locked.
    pub fn set_reuse_address(
        &mut self,
        file: RawFd,
        id: CommId,
        reuse: bool,
    ) -> Result<(), Refused> {
        self.check(file, id)?;
        self.engine.set_reuse_address(id, reuse, &mut self.ports)
    }

    /// Sets whether an IPv6 wildcard excludes IPv4.
    ///
    /// # Errors
    ///
    /// As [`Manager::set_reuse_address`].
    pub fn set_v6_only(&mut self, file: RawFd, id: CommId, only: bool) -> Result<(), Refused> {
        self.check(file, id)?;
        self.engine.set_v6_only(id, only, &mut self.ports)
    }

    /// Makes an id listen, also for requests from other hosts.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn listen(&mut self, file: RawFd, id: CommId, backlog: i32) -> Result<(), Refused> {
        self.check(file, id)?;
        self.engine.listen(id, backlog, clock::steady(), &mut self.ports)?;
        self.expect_requests(id);
        Ok(())
    }

    /// Arranges that requests for a listener come from other hosts, also when another user has the port.
    pub(super) fn expect_requests(&mut self, id: CommId) {
        if self.engine.source(id).is_none_or(|source| source.ip().is_loopback()) {
            return;
        }
        self.device.port().expect_datagrams();
        let service = self.engine.service(id).zip(self.engine.source(id));
        let service = service.map(|(service, at)| ServiceId::of(service.space(), at.port()));
        let wire = self.device.port().wire();
        let announcement = wire.zip(service).and_then(|(wire, service)| wire.announce(service));
        self.announcements.extend(announcement.map(|announcement| (id, announcement)));
    }

    /// Finds the route to a destination, and reports it by an event, or that it begins at another device.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`]; the host's error if it has no route. The id is bound then.
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
        let found = match self.rehearsed.refuses(id) {
            Some(_) => Err(Errno::ETIMEDOUT),
            None => match routes::find(port, bound, destination.ip(), interface) {
                Ok(route) => self.open_wire_for(route),
                Err(Errno::ENODEV) => Err(Errno::ENODEV),
                // As Linux does, which looks for the route before it looks for the device.
                Err(errno) => return Err(self.engine.has_no_route(id, errno)),
            },
        };
        self.resolved(id, Coming::Address(found))
    }

    /// The route, when the port is ready for it.
    fn open_wire_for(&self, route: Route) -> Result<Route, Errno> {
        let port = self.device.port();
        let here = port.is_here(&gid(route.destination));
        match here && !self.device.options().wire_only {
            true => Ok(route),
            false => port.open_wire().map(|()| route).map_err(Errno),
        }
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
    pub(super) fn check(&self, file: RawFd, id: CommId) -> Result<(), Refused> {
        self.check_file(file, id)?;
        if self.engine.is_removed(id) {
            return Err(Refused::Removed);
        }
        // An id that was made since then is never told, and it would get no other event.
        self.device.check().map_err(|_| Refused::DeviceFailed)
    }

    pub(super) fn check_file(&self, file: RawFd, id: CommId) -> Result<(), Refused> {
        match self.files.file_of(id) {
            Some((of, _)) if of == file => Ok(()),
            Some(_) => Err(Refused::OtherFile),
            None => Err(Refused::NoSuchId),
        }
    }
}
