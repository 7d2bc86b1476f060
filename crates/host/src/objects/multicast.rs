//! Multicast groups: which queue pairs of this process receive what is sent to a multicast GID
//! (`ibv_attach_mcast(3)`). A group is that of IP with the same address, on every network that this
//! host has an address of its family on, unless IPv6 says that it does not leave its host.

use std::collections::HashMap;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use transom_device::execution::Request;
use transom_device::queue::Remote;

use super::QueuePair;
use crate::adapter::{Adapter, Limits};
use crate::addresses::ip;

/// A multicast GID.
pub type GroupGid = [u8; 16];

/// Whether a GID names a group.
pub fn is_multicast(gid: &GroupGid) -> bool {
    ip(gid).is_multicast()
}

/// Whether a group may have members on other hosts: all but those of IPv6 whose scope is the interface
/// (RFC 4291, section 2.7).
pub(crate) fn leaves_host(group: &GroupGid) -> bool {
    group[0] != 0xff || group[1] & 0xf > 1
}

/// Whether a request is a datagram to a group.
pub(crate) fn is_to_group(request: &Request) -> bool {
    matches!(&request.remote, Remote::Datagram(it) if is_multicast(&it.address.gid))
}

/// The members in this process.
#[derive(Default)]
pub(crate) struct Groups(RwLock<HashMap<GroupGid, Vec<Weak<QueuePair>>>>);

/// Why a queue pair does not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// No more groups, or no more members: `ENOMEM`.
    Full,
}

/// The queue pair is not a member: `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMember;

impl Adapter {
    /// Makes a queue pair a member; one that is one already stays one.
    pub fn join_group(&self, group: GroupGid, qp: &Arc<QueuePair>) -> Result<(), JoinError> {
        let mut groups = self.groups.0.write();
        if !groups.contains_key(&group) && groups.len() >= Limits::DEVICE.multicast_groups as usize
        {
            return Err(JoinError::Full);
        }
        let members = groups.entry(group).or_default();
        let same = |member: &Weak<QueuePair>| std::ptr::eq(member.as_ptr(), Arc::as_ptr(qp));
        if members.iter().any(same) {
            return Ok(());
        }
        if members.len() >= Limits::DEVICE.multicast_members as usize {
            return Err(JoinError::Full);
        }
        members.push(Arc::downgrade(qp));
        qp.memberships.fetch_add(1, AcqRel);
        self.segment().header().groups.store(groups.len() as u32, Release);
        drop(groups);
        self.join_networks();
        Ok(())
    }

    /// Ends a membership.
    pub fn leave_group(&self, group: GroupGid, qp: &Arc<QueuePair>) -> Result<(), NotAMember> {
        let mut groups = self.groups.0.write();
        let members = groups.get_mut(&group).ok_or(NotAMember)?;
        let same = |member: &Weak<QueuePair>| std::ptr::eq(member.as_ptr(), Arc::as_ptr(qp));
        let at = members.iter().position(same).ok_or(NotAMember)?;
        members.swap_remove(at);
        if members.is_empty() {
            groups.remove(&group);
            self.leave_networks(&group);
        }
        qp.memberships.fetch_sub(1, AcqRel);
        self.segment().header().groups.store(groups.len() as u32, Release);
        Ok(())
    }

    /// Ends all memberships of a queue pair that goes with its context.
    pub(crate) fn leave_all_groups(&self, qp: &QueuePair) {
        let mut groups = self.groups.0.write();
        for members in groups.values_mut() {
            members.retain(|member| !std::ptr::eq(member.as_ptr(), qp));
        }
        groups.retain(|group, members| {
            if members.is_empty() {
                self.leave_networks(group);
            }
            !members.is_empty()
        });
        qp.memberships.store(0, Release);
        self.segment().header().groups.store(groups.len() as u32, Release);
    }

    /// Has the networks bring what is sent to the groups of this process: when there is a new group, a
    /// new address, or the wire link at last.
    pub(crate) fn join_networks(&self) {
        let Some(wire) = self.wire() else { return };
        let addresses = self.addresses();
        for group in self.groups.0.read().keys().filter(|group| leaves_host(group)).map(ip) {
            addresses.networks(group.is_ipv4()).for_each(|network| wire.join(group, network));
        }
    }

    fn leave_networks(&self, group: &GroupGid) {
        let Some(wire) = self.wire().filter(|_| leaves_host(group)) else { return };
        let group = ip(group);
        self.addresses().networks(group.is_ipv4()).for_each(|it| wire.leave(group, it));
    }

    /// The members of a group in this process.
    pub(crate) fn members(&self, group: &GroupGid) -> Vec<Arc<QueuePair>> {
        let groups = self.groups.0.read();
        groups.get(group).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::gid;

    #[test]
    fn the_address_says_what_is_a_group_and_how_far_it_goes() {
        let of = |address: &str| gid(address.parse().expect("an address"));
        for (address, goes) in [("ff01::1", false), ("ff11::9", false), ("ff02::1", true)] {
            assert_eq!((is_multicast(&of(address)), leaves_host(&of(address))), (true, goes));
        }
        for address in ["ff0e::1", "239.1.2.3", "224.0.0.1"] {
            assert!(is_multicast(&of(address)) && leaves_host(&of(address)), "{address}");
        }
        for address in ["fd00::1", "10.0.0.1", "fe80::ff01", "::1"] {
            assert!(!is_multicast(&of(address)), "{address}");
        }
    }
}
