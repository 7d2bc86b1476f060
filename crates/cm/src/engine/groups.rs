//! The multicast groups of ids.

use std::net::IpAddr;

use transom_wire::cm::CommId;

use super::{Engine, State};
use crate::attributes::DEFAULT_QKEY;
use crate::event::{Group, Happened};
use crate::options::Kind;
use crate::refused::{Errno, Refused};

impl Engine {
    /// Joins a multicast group. `joined` is the result of the host's join (rule CM-39).
    pub fn join(
        &mut self,
        id: CommId,
        address: IpAddr,
        send_only: bool,
        joined: Result<(), Errno>,
    ) -> Result<(), Refused> {
        let entry = self.entry(id)?;
        if entry.service.kind() != Kind::Ud {
            return Err(Refused::Service("groups are for datagrams: RDMA_PS_UDP or RDMA_PS_IPOIB"));
        }
        if matches!(entry.state, State::Removed) {
            return Err(Refused::Removed);
        }
        let Some(source) = entry.source else {
            return Err(entry.state.not_now("rdma_join_multicast comes after rdma_bind_addr"));
        };
        if source.is_ipv4() != address.is_ipv4() {
            return Err(Refused::Address(
                "one of the id's address and the group's is IPv4, the other IPv6",
            ));
        }
        if !address.is_multicast() {
            return Err(Refused::Address("the address is not a multicast address"));
        }
        let group = Group { address, send_only, qkey: DEFAULT_QKEY };
        let happened = match joined {
            Ok(()) => {
                entry.groups.push(group);
                Happened::MulticastJoin(group)
            }
            Err(errno) => Happened::MulticastError(group, errno),
        };
        self.shared.happened(id, happened);
        Ok(())
    }

    /// Leaves a group. No event of it comes any more.
    pub fn leave(&mut self, id: CommId, address: IpAddr) -> Result<Group, Refused> {
        let entry = self.entry(id)?;
        let place = entry.groups.iter().position(|group| group.address == address);
        let group = entry.groups.swap_remove(place.ok_or(Refused::NotJoined)?);
        let of_group = |happened: &Happened| matches!(happened, Happened::MulticastJoin(other) if *other == group);
        self.shared.events.retain(|event| event.id != id || !of_group(&event.happened));
        Ok(group)
    }
}
