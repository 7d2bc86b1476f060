//! The calls that make a connection. In a rehearsal they may come to nothing.

use std::os::fd::RawFd;

use transom_cm::refused::Errno;
use transom_cm::{Accept, Arrival, Connect, ConnectionState, Refused, Transmit};
use transom_net::management::ManagementDatagram;
use transom_system::{clock, tools};
use transom_wire::cm::{CommId, Ece, Message, RejectReason};

use super::super::rehearsed::Coming;
use super::super::traced;
use super::Manager;

impl Manager {
    /// Looks for a path. On RoCE the address is enough.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn resolve_route(&mut self, file: RawFd, id: CommId) -> Result<(), Refused> {
        self.check(file, id)?;
        self.engine.takes_route(id)?;
        if self.rehearsed.awaits_route(id) {
            let takes = "rdma_resolve_route comes after ADDR_RESOLVED, once";
            return Err(Refused::State { is: "is resolving its route", takes });
        }
        let found = self.rehearsed.refuses(id).map_or(Ok(()), |_| Err(Errno::ETIMEDOUT));
        self.resolved(id, Coming::Route(found))
    }

    /// An address or a route of an id is found. The id is told, perhaps later.
    pub(super) fn resolved(&mut self, id: CommId, found: Coming) -> Result<(), Refused> {
        match self.rehearsed.resolve(id, found, clock::steady()) {
            Some(found) => self.come(id, found),
            None => Ok(()),
        }
    }

    /// What may be late comes.
    pub(super) fn come(&mut self, id: CommId, coming: Coming) -> Result<(), Refused> {
        match coming {
            Coming::Address(found) => self.engine.address_resolved(id, found),
            Coming::Route(found) => self.engine.resolve_route(id, found),
            Coming::Event(happened) => {
                self.raise(id, happened);
                Ok(())
            }
        }
    }

    /// Asks for a connection, or for the queue pair of a datagram service. In a rehearsal that may fail. `keep_back`
    /// arranges that the queue pair cannot be made ready to receive; it is false if that cannot be.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`].
    pub fn connect(
        &mut self,
        file: RawFd,
        id: CommId,
        ece: Ece,
        with: &Connect<'_>,
        keep_back: impl FnOnce() -> bool,
    ) -> Result<(), Refused> {
        self.with_id(file, id, |engine, now| {
            engine.set_ece(id, ece)?;
            engine.connect(id, with, now)
        })?;
        if tools::any() {
            // The request leaves when this call ends.
            traced::connects(self.device.process(), &self.engine, id, with.qpn.get());
        }
        if let Some(number) = self.rehearsed.refuses(id) {
            let is_connected = self.engine.connection_state(id).is_some();
            if !(number % 4 == 3 && is_connected && keep_back()) {
                self.come_to_nothing(id, number);
            }
        }
        Ok(())
    }

    /// Accepts a request. The program calls its id `uid`.
    ///
    /// # Errors
    ///
    /// As [`Manager::with_id`]; in a rehearsal `ENOMEM`, and the request is refused. Or nobody confirms the connection.
    pub fn accept(
        &mut self,
        file: RawFd,
        id: CommId,
        uid: u64,
        ece: Ece,
        with: &Accept<'_>,
    ) -> Result<(), Refused> {
        self.check(file, id)?;
        if let Some(number) = self.rehearsed.refuses(id) {
            if number % 2 == 1 {
                self.rehearsed.lose_confirmation(id);
            } else if self.reject_unaccepted(file, id).is_ok() {
                return Err(Refused::NoMemory);
            }
        }
        self.with_id(file, id, |engine, now| {
            engine.set_ece(id, ece)?;
            engine.accept(id, with, now)
        })?;
        self.set_uid(id, uid);
        Ok(())
    }

    /// Refuses a request that cannot be accepted, as the kernel does then.
    fn reject_unaccepted(&mut self, file: RawFd, id: CommId) -> Result<(), Refused> {
        self.with_id(file, id, |engine, now| match engine.connection_state(id) {
            Some(ConnectionState::RequestReceived) | None => {
                engine.reject(id, RejectReason::Consumer, &[], now)
            }
            Some(_) => Err(Refused::Connected),
        })
    }

    /// The request that a call has just sent is lost, with its repetitions, or somebody refuses it.
    fn come_to_nothing(&mut self, id: CommId, number: u64) {
        // Every call ends with nothing left to send, so this is the request.
        let Some(Transmit { source, destination, mad, .. }) = self.engine.poll_transmit() else {
            return;
        };
        let reason = match (&mad.message, number % 4) {
            (Message::Req(_), 0) => RejectReason::InvalidServiceId,
            (Message::Req(_), 1) => RejectReason::StaleConnection,
            _ => return self.engine.give_up(id, clock::steady()),
        };
        // The answer that the peer would send.
        self.engine.refuse(Arrival { source, destination }, &mad.write(), reason);
        if let Some(Transmit { source, destination, mad, .. }) = self.engine.poll_transmit() {
            let answer = ManagementDatagram { source, destination, mad: mad.write() };
            self.handle_in_time(&answer, clock::steady());
        }
    }
}
