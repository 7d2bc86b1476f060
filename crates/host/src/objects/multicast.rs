//! Multicast groups: which queue pairs of this process receive the messages for a multicast GID
//! (`ibv_attach_mcast(3)`). A group is the IP group with the same address. It is joined on every network on which this
//! host has an address of its family, unless IPv6 says that the group does not leave its host.

use std::collections::HashMap;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use transom_net::DevicePort;
use transom_system::ThisProcess;
use transom_system::addresses::GroupGid;

use super::QueuePair;
use crate::device::Limits;

/// The members in this process. A list is replaced as a whole, so delivering needs no copy and no lock.
///
/// Lock order: this lock comes before that of the addresses.
pub(crate) struct Groups {
    process: Arc<ThisProcess>,
    members: RwLock<HashMap<GroupGid, Members>>,
}

type Members = Arc<[Weak<QueuePair>]>;

/// Why a queue pair cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No more groups, here or in the kernel, no more members, or no memory for one: `ENOMEM`.
    #[error("no more groups, no more members, or no memory for one")]
    Full,
    /// The device belongs to the process that this one was forked from: `EIO`.
    #[error("the device is of the process that this one was forked from")]
    Inherited,
}

/// The queue pair is not a member: `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue pair is not a member of the group")]
pub struct NotAMember;

impl Groups {
    /// None yet.
    pub(crate) fn new(process: Arc<ThisProcess>) -> Self {
        Self { process, members: RwLock::default() }
    }

    /// Makes a queue pair a member. A member stays one.
    pub(crate) fn join(
        &self,
        port: &DevicePort,
        group: GroupGid,
        qp: &Arc<QueuePair>,
    ) -> Result<(), JoinError> {
        if self.process.is_inherited() {
            return Err(JoinError::Inherited);
        }
        let mut groups = self.members.write();
        if !groups.contains_key(&group) && groups.len() >= Limits::here().multicast_groups as usize
        {
            return Err(JoinError::Full);
        }
        groups.try_reserve(1).map_err(|_| JoinError::Full)?;
        let before = groups.get(&group).cloned().unwrap_or_default();
        if before.iter().any(|member| is(member, qp)) {
            return Ok(());
        }
        if before.len() >= Limits::here().multicast_members as usize {
            return Err(JoinError::Full);
        }
        let new = Arc::downgrade(qp);
        groups.insert(group, before.iter().cloned().chain([new]).collect());
        qp.holds.memberships.fetch_add(1, AcqRel);
        self.count(groups.len());
        port.add_group(group);
        drop(groups);
        port.join_group(&group).map_err(|_| {
            // Another thread may have taken it out again.
            let _ = self.leave(port, group, qp);
            JoinError::Full
        })
    }

    /// Ends a membership.
    pub(crate) fn leave(
        &self,
        port: &DevicePort,
        group: GroupGid,
        qp: &Arc<QueuePair>,
    ) -> Result<(), NotAMember> {
        let mut groups = self.members.write();
        let members = groups.get_mut(&group).ok_or(NotAMember)?;
        if !remove(members, qp) {
            return Err(NotAMember);
        }
        if members.is_empty() {
            groups.remove(&group);
            port.remove_group(&group);
        }
        qp.holds.memberships.fetch_sub(1, AcqRel);
        self.count(groups.len());
        Ok(())
    }

    /// Ends all memberships of a queue pair that ends with its context.
    pub(crate) fn leave_all(&self, port: &DevicePort, qp: &QueuePair) {
        let mut groups = self.members.write();
        groups.retain(|group, members| {
            if remove(members, qp) && members.is_empty() {
                port.remove_group(group);
            }
            !members.is_empty()
        });
        qp.holds.memberships.store(0, Release);
        self.count(groups.len());
    }

    /// Tells the other processes whether there are groups here. In a forked child nothing is told, because they would
    /// take it for the parent's.
    fn count(&self, count: usize) {
        if !self.process.is_inherited() {
            self.process.segment().header().groups.store(count as u32, Release);
        }
    }

    /// The members of a group in this process.
    #[inline]
    pub(crate) fn members(&self, group: &GroupGid) -> impl Iterator<Item = Arc<QueuePair>> {
        let members = self.members.read().get(group).cloned();
        let member = move |at| members.as_deref()?.get(at).map(Weak::upgrade);
        (0..).map_while(member).flatten()
    }
}

fn is(member: &Weak<QueuePair>, qp: &QueuePair) -> bool {
    std::ptr::eq(member.as_ptr(), qp)
}

/// Takes a queue pair off a list, if it is on it.
fn remove(members: &mut Members, qp: &QueuePair) -> bool {
    let before = members.len();
    *members = members.iter().filter(|member| !is(member, qp)).cloned().collect();
    members.len() < before
}
