//! New ids, their options, and their addresses and ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use transom_wire::Psn;
use transom_wire::cm::{CommId, Ece, TimeCode};

use super::{Engine, Entry, State};
use crate::event::Happened;
use crate::host::{Claim, Host, Route};
use crate::options::{Kind, Options, Service};
use crate::refused::{Errno, Refused};

impl Engine {
    /// A new id.
    pub fn create(&mut self, service: Service) -> Result<CommId, Refused> {
        let id = self.new_id().ok_or(Refused::NoIds)?;
        let psn = self.shared.numbers.psn();
        self.ids.insert(id, Entry::new(service, psn));
        Ok(id)
    }

    // Options (rule CM-38).

    /// Sets the type of service.
    pub fn set_tos(&mut self, id: CommId, tos: u8) -> Result<(), Refused> {
        self.entry(id)?.options.tos = Some(tos);
        Ok(())
    }

    /// Sets whether other ids with this option may have the same port.
    pub fn set_reuse_address(
        &mut self,
        id: CommId,
        reuse: bool,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        let idle = matches!(entry.state, State::Idle) && entry.claim.is_none();
        if !idle && (!reuse || matches!(entry.state, State::Listening { .. })) {
            let takes = "RDMA_OPTION_ID_REUSEADDR is set before rdma_bind_addr and rdma_listen";
            return Err(entry.not_now(takes));
        }
        entry.change_claim(host, |claim| claim.reuse = reuse)?;
        entry.options.reuse_address = reuse;
        Ok(())
    }

    /// Sets whether an IPv6 wildcard excludes IPv4.
    pub fn set_v6_only(
        &mut self,
        id: CommId,
        only: bool,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Idle) {
            return Err(entry.not_now("RDMA_OPTION_ID_AFONLY is set before rdma_listen"));
        }
        entry.change_claim(host, |claim| claim.v6_only = only)?;
        entry.options.v6_only = Some(only);
        Ok(())
    }

    /// Sets the ACK timeout of the connection's queue pair.
    pub fn set_ack_timeout(&mut self, id: CommId, timeout: TimeCode) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.service.kind(), Kind::Rc | Kind::Xrc) {
            return Err(Refused::Service(
                "RDMA_OPTION_ID_ACK_TIMEOUT is for connections, not for datagrams",
            ));
        }
        entry.options.ack_timeout = Some(timeout);
        Ok(())
    }

    /// Sets the adapter's offer, or answer, of enhanced connection establishment (rule CM-40).
    pub fn set_ece(&mut self, id: CommId, ece: Ece) -> Result<(), Refused> {
        self.entry(id)?.ece = ece;
        Ok(())
    }

    // Addresses.

    /// Binds an id to an address and a port. Port 0 means any free one.
    pub fn bind(
        &mut self,
        id: CommId,
        address: SocketAddr,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Idle) || entry.claim.is_some() {
            return Err(entry.not_now("rdma_bind_addr takes an id without an address, once"));
        }
        entry.bind(id, address, host)
    }

    /// Begins to look for the route to a destination. The route begins at the id's bound address, or else at `source`,
    /// or else at any address. The host finds it and calls [`Engine::address_resolved`].
    pub fn resolve_address(
        &mut self,
        id: CommId,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::Idle) {
            return Err(entry.not_now("rdma_resolve_addr takes an id that is new or only bound"));
        }
        let bound = entry.source.or(source);
        if bound.is_some_and(|source| source.is_ipv4() != destination.is_ipv4()) {
            return Err(Refused::Family);
        }
        if entry.claim.is_none() {
            let any = match destination {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            entry.bind(id, source.unwrap_or(SocketAddr::new(any, 0)), host)?;
        }
        entry.destination = Some(destination);
        entry.state = State::ResolvingAddress;
        Ok(())
    }

    /// The host has found the route to the destination, or not. After an error, the program can try again.
    pub fn address_resolved(
        &mut self,
        id: CommId,
        found: Result<Route, Errno>,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if !matches!(entry.state, State::ResolvingAddress) {
            return Err(entry.not_now("an address is resolved once"));
        }
        let happened = match found {
            Ok(route) => {
                // For a loopback destination, the id's own address is a loopback address too, whatever device carries
                // it (rule CM-67).
                let own = match entry.destination.map(|it| it.ip()) {
                    Some(IpAddr::V4(ip)) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
                    Some(IpAddr::V6(ip)) if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
                    _ => route.source,
                };
                if let Some(source) = &mut entry.source {
                    source.set_ip(own);
                    share_interface(source, entry.destination);
                }
                entry.state = State::AddressResolved(route);
                Happened::AddressResolved
            }
            Err(errno) => {
                entry.state = State::Idle;
                Happened::AddressError(errno)
            }
        };
        self.shared.happened(id, happened);
        Ok(())
    }

    /// The host says at once that no route leads to the destination, and with it the call is refused. The id stays
    /// bound.
    pub fn has_no_route(&mut self, id: CommId, errno: Errno) -> Refused {
        let Some(entry) = self.ids.get_mut(&id) else { return Refused::NoSuchId };
        let (State::ResolvingAddress, Some(destination)) = (&entry.state, entry.destination) else {
            return entry.not_now("an address is resolved once");
        };
        entry.state = State::Idle;
        Refused::NoRoute { to: destination.ip(), errno }
    }

    /// The path that a connection needs was found, or not.
    pub fn resolve_route(&mut self, id: CommId, found: Result<(), Errno>) -> Result<(), Refused> {
        let route = self.takes_route(id)?;
        let entry = self.entry(id)?;
        let happened = match found {
            Ok(()) => {
                entry.state = State::RouteResolved(route);
                Happened::RouteResolved
            }
            Err(errno) => Happened::RouteError(errno),
        };
        self.shared.happened(id, happened);
        Ok(())
    }

    /// The route of an id whose address is resolved. Others cannot resolve a route.
    pub fn takes_route(&mut self, id: CommId) -> Result<Route, Refused> {
        let entry = self.entry(id)?;
        match entry.state {
            State::AddressResolved(route) => Ok(route),
            _ => Err(entry.not_now("rdma_resolve_route comes after ADDR_RESOLVED, once")),
        }
    }

    /// An address has moved to another interface, or its interface has another hardware address. The ids that are bound
    /// to it get an event (rule CM-55).
    pub fn address_changed(&mut self, address: IpAddr) {
        for (id, entry) in &self.ids {
            let has_it = entry.source.is_some_and(|source| source.ip() == address);
            if has_it && !matches!(entry.state, State::Removed) {
                self.shared.happened(*id, Happened::AddressChange);
            }
        }
    }
}

/// Gives a link-local address here the interface that leads to the peer.
fn share_interface(source: &mut SocketAddr, destination: Option<SocketAddr>) {
    if let (SocketAddr::V6(source), Some(SocketAddr::V6(destination))) = (source, destination)
        && source.ip().is_unicast_link_local()
        && source.scope_id() == 0
    {
        source.set_scope_id(destination.scope_id());
    }
}

impl Entry {
    pub(super) fn new(service: Service, psn: Psn) -> Self {
        Self {
            service,
            options: Options::default(),
            psn,
            ece: Ece::default(),
            claim: None,
            source: None,
            destination: None,
            waits_for: None,
            groups: Vec::new(),
            state: State::Idle,
        }
    }

    /// Refuses a call, which takes what `takes` says.
    fn not_now(&self, takes: &'static str) -> Refused {
        match self.state {
            State::Idle if self.claim.is_some() => Refused::State { is: "is bound", takes },
            _ => self.state.not_now(takes),
        }
    }

    pub(super) fn bind(
        &mut self,
        id: CommId,
        mut address: SocketAddr,
        host: &mut impl Host,
    ) -> Result<(), Refused> {
        let Options { v6_only, reuse_address: reuse, .. } = self.options;
        let v6_only = v6_only.unwrap_or_else(|| host.is_v6_only());
        let mut claim = Claim { id, space: self.service.space(), address, v6_only, reuse };
        address.set_port(host.claim(claim)?);
        claim.address = address;
        (self.claim, self.source) = (Some(claim), Some(address));
        Ok(())
    }

    /// Changes its claim, and what others see of it, if it has one.
    fn change_claim(
        &mut self,
        host: &mut impl Host,
        change: impl FnOnce(&mut Claim),
    ) -> Result<(), Refused> {
        let Some(claim) = &mut self.claim else { return Ok(()) };
        let mut changed = *claim;
        change(&mut changed);
        if changed != *claim {
            host.change(changed)?;
            *claim = changed;
        }
        Ok(())
    }

    pub(super) fn unbind(&mut self, host: &mut impl Host) {
        if let Some(claim) = self.claim.take() {
            host.release(claim);
        }
    }
}
