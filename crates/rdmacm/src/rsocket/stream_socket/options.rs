//! The options that a socket's id knows, and that accepted sockets inherit.

use std::ffi::c_int;

use transom_abi::*;

use super::{Phase, StreamSocket};
use crate::id::Id;
use crate::wrong::Wrong;
use crate::{migrate, query};

impl StreamSocket {
    /// An option has changed. Sockets accepted from now on have it.
    pub(crate) fn pass_on_options(&self) {
        if let Phase::Listening(_, inherited) = &self.phase {
            *inherited.lock() = (self.settings, self.options.clone());
        }
    }

    /// Sets the program's paths.
    pub(crate) fn set_route(&mut self, paths: &[u8]) -> Result<(), Wrong> {
        if !matches!(self.phase, Phase::Idle) {
            return Err(Wrong::invalid("set RDMA_ROUTE before the socket is connected"));
        }
        let mut route = Vec::new();
        route.try_reserve_exact(paths.len()).map_err(|_| Wrong::no_memory())?;
        route.extend_from_slice(paths);
        self.route = route;
        Ok(())
    }

    /// The MTU of its path in bytes, or the smallest MTU.
    pub(crate) fn mtu(&self) -> c_int {
        let path = query::first_path(self.id()).ok().flatten();
        path.map_or(256, |path| 128 << (path.path.mtu & 0x3F).clamp(1, 5))
    }

    /// Keeps the value of an option, and sets it on the id too if the id has it.
    pub(crate) fn keep(&mut self, option: (c_int, c_int), value: c_int) -> Result<(), Wrong> {
        tell(self.id(), option, value)?;
        self.options.kept.retain(|(kept, _)| *kept != option);
        self.options.kept.push((option, value));
        Ok(())
    }

    /// The kept value of an option.
    pub(crate) fn kept(&self, option: (c_int, c_int)) -> Option<c_int> {
        self.options.kept.iter().find(|(kept, _)| *kept == option).map(|(_, value)| *value)
    }

    /// Sets the kept options on a new id.
    pub(super) fn tell_options(&self, id: &Id) -> Result<(), Wrong> {
        self.options.kept.iter().try_for_each(|(option, value)| tell(id, *option, *value))
    }
}

/// Sets an option on an id, if ids have it.
fn tell(id: &Id, option: (c_int, c_int), value: c_int) -> Result<(), Wrong> {
    let (name, length) = match option {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => (RDMA_OPTION_ID_REUSEADDR, 4),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => (RDMA_OPTION_ID_AFONLY, 4),
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            (RDMA_OPTION_ID_TOS, 1)
        }
        _ => return Ok(()),
    };
    let bytes = if length == 1 { [value as u8, 0, 0, 0] } else { value.to_ne_bytes() };
    migrate::set_option(id, RDMA_OPTION_ID as c_int, name as c_int, bytes.as_ptr().cast(), length)
}
