//! A peer of a datagram socket, and the known part of the route to it.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use transom_abi::*;

use super::names;
use super::own_id::OwnId;
use crate::id::Id;
use crate::provider::Provider;
use crate::resolve;
use crate::verbs::{Verbs, made};
use crate::wrong::Wrong;

/// The timeout for addresses and routes, in milliseconds.
const RESOLVE_TIMEOUT: c_int = 2000;
/// A peer's queue pair is trusted for this long after its last datagram. A program that has ended and started again has
/// another queue pair.
const TRUSTED: Duration = Duration::from_secs(1);

/// A peer.
#[derive(Debug, Default)]
pub(crate) struct Destination {
    /// The socket's queue pair that reaches it, once it has been looked up.
    pub(crate) pair: Option<Option<usize>>,
    /// The number of its queue pair.
    qpn: Option<u32>,
    heard: Option<Instant>,
    route: Route,
}

/// The route to a peer.
#[derive(Debug, Default)]
enum Route {
    #[default]
    Unknown,
    Resolving(OwnId),
    Known(AddressHandle),
    /// There is no route.
    None,
}

/// An address handle, and the path MTU in bytes.
#[derive(Debug)]
struct AddressHandle {
    verbs: &'static Verbs,
    ah: *mut ibv_ah,
    mtu: usize,
    /// It keeps the protection domain alive.
    _own: OwnId,
}

// SAFETY: the handle belongs to this value, and any thread may call verbs.
unsafe impl Send for AddressHandle {}
// SAFETY: as for `Send`.
unsafe impl Sync for AddressHandle {}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: the handle belongs to this value, and ends once.
        unsafe { (self.verbs.ibv_destroy_ah)(self.ah) };
    }
}

impl Destination {
    /// The peer has told the number of its queue pair.
    pub(crate) fn heard(&mut self, qpn: u32) {
        if qpn != 0 {
            self.qpn = Some(qpn);
            self.heard = Some(Instant::now());
        }
    }

    /// A datagram from its queue pair has arrived.
    pub(crate) fn heard_again(&mut self) {
        if self.qpn.is_some() {
            self.heard = Some(Instant::now());
        }
    }

    /// Begins or continues to look up the route from a local address. Returns a descriptor to watch if it has just
    /// begun.
    pub(crate) fn resolve(
        &mut self,
        provider: &'static Provider,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<c_int> {
        match &self.route {
            Route::Unknown => match begin(provider, from, to) {
                Ok(own) => {
                    let descriptor = own.descriptor();
                    self.route = Route::Resolving(own);
                    self.advance();
                    return Some(descriptor);
                }
                Err(_) => self.route = Route::None,
            },
            _ => self.advance(),
        }
        None
    }

    /// Continues the look-up of the route.
    pub(crate) fn advance(&mut self) {
        let Route::Resolving(own) = &self.route else { return };
        while let Some(happened) = own.next() {
            let resolved = match happened.event {
                RDMA_CM_EVENT_ADDR_RESOLVED => {
                    resolve::resolve_route(own.id(), RESOLVE_TIMEOUT).map(|()| false)
                }
                RDMA_CM_EVENT_ROUTE_RESOLVED => Ok(true),
                event => Err(Wrong::of_event(event, happened.status)),
            };
            match resolved {
                Ok(false) => {}
                Ok(true) => {
                    let Route::Resolving(own) = std::mem::replace(&mut self.route, Route::None)
                    else {
                        return;
                    };
                    if let Ok(handle) = handle(own) {
                        self.route = Route::Known(handle);
                    }
                    return;
                }
                Err(_) => {
                    self.route = Route::None;
                    return;
                }
            }
        }
    }

    /// The peer's address handle and queue pair, and the path MTU in bytes. `None` if they are unknown, or too old.
    pub(crate) fn reached(&self) -> Option<((*mut ibv_ah, u32), usize)> {
        let Route::Known(handle) = &self.route else { return None };
        let trusted = self.heard.is_some_and(|heard| heard.elapsed() < TRUSTED);
        let qpn = self.qpn.filter(|_| trusted)?;
        Some(((handle.ah, qpn), handle.mtu))
    }
}

fn begin(
    provider: &'static Provider,
    mut from: SocketAddr,
    mut to: SocketAddr,
) -> Result<OwnId, Wrong> {
    let own = OwnId::create(provider, RDMA_PS_UDP, IBV_QPT_UD)?;
    from.set_port(0);
    to.set_ip(to.ip().to_canonical());
    let (from, to) = (names::storage(from), names::storage(to));
    resolve::resolve_address(own.id(), Some(from), to, RESOLVE_TIMEOUT)?;
    Ok(own)
}

/// Makes the handle of an id whose route is resolved.
fn handle(own: OwnId) -> Result<AddressHandle, Wrong> {
    let (id, seen) = (own.id(), own.id().seen());
    let verbs = &id.provider.verbs;
    // SAFETY: the paths live as long as the id.
    let path = unsafe { seen.route.path_rec.as_ref() };
    let path = path.ok_or(Wrong::new(libc::EHOSTUNREACH, "the id has no path"))?;
    let mut attr = ibv_ah_attr {
        grh: ibv_global_route {
            dgid: path.dgid,
            flow_label: u32::from_be(path.flow_label),
            sgid_index: gid_index(id, &seen, &path.sgid)?,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
        },
        dlid: u16::from_be(path.dlid),
        sl: path.sl,
        is_global: 1,
        port_num: seen.port_num,
        ..Default::default()
    };
    // SAFETY: the domain of an id is live.
    let ah = made("ibv_create_ah", unsafe { (verbs.ibv_create_ah)(seen.pd, &mut attr) })?;
    let mtu = 128 << path.mtu.clamp(1, 5);
    Ok(AddressHandle { verbs, ah, mtu, _own: own })
}

/// The index of a GID in the port's table.
fn gid_index(id: &Id, seen: &rdma_cm_id, wanted: &ibv_gid) -> Result<u8, Wrong> {
    for index in 0..=u8::MAX {
        let mut gid = ibv_gid::default();
        let query = id.provider.verbs.ibv_query_gid;
        // SAFETY: the device of an id is open, and there is room for the GID.
        if unsafe { query(seen.verbs, seen.port_num, index.into(), &mut gid) } != 0 {
            break;
        }
        // SAFETY: every GID can be read as bytes.
        if unsafe { gid.raw == wanted.raw } {
            return Ok(index);
        }
    }
    Err(Wrong::new(libc::EADDRNOTAVAIL, "the port's table does not have the GID of the path"))
}
