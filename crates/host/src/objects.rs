//! The objects that a program makes on a device, and the device with all of them. They find each other through it.

mod completion_counter;
mod cq;
mod deferred;
mod dependents;
mod device_memory;
mod dma_buf;
mod empty_polls;
mod foreign_target;
mod holders;
mod link;
mod multicast;
mod pd;
mod prefetch;
mod qp;
mod queue_pairs;
mod recipient;
mod region;
mod scribbled;
mod seldom;
mod srq;
mod td;
mod window;
mod xrc;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info;
use transom_net::Peer;
use transom_system::addresses::GroupGid;
use transom_system::failure;

use self::queue_pairs::QueuePairs;
use self::scribbled::Scribbled;
use crate::connections::Connections;
use crate::device::Device;
pub use completion_counter::{AttachError, CompletionCounter, CounterUnit};
pub use cq::{Cq, CqConfig, Outlook};
pub(crate) use deferred::Deferred;
pub use dependents::Busy;
pub use device_memory::{AllocateError, DeviceMemory};
pub use dma_buf::{DmaBuf, DmaBufError};
pub(crate) use foreign_target::ForeignTargets;
pub use holders::BoundWindows;
pub(crate) use link::Link;
pub(crate) use multicast::Groups;
pub use multicast::{JoinError, NotAMember};
pub use pd::ProtectionDomain;
pub use prefetch::{Prefetch, PrefetchError};
pub(crate) use qp::Taken;
pub use qp::{
    ModifyFailure, More, PostOne, QpAttributes, QpConfig, QpReceives, QueuePair, Unpolled,
};
pub(crate) use recipient::Recipient;
pub use region::{Backing, MemoryRegion, RegisterError, Registration};
pub(crate) use srq::SharedQueues;
pub use srq::{SharedReceiveQueue, SrqAttributes, SrqConfig, TagMatchingConfig, XrcConfig};
pub use td::ThreadDomain;
pub use window::MemoryWindow;
pub(crate) use xrc::XrcDomains;
pub use xrc::{XrcDomain, XrcFile, XrcOpenError};

/// Carries out the work that objects leave, and the requests that arrive for them.
pub(crate) trait Driver: Sync {
    /// Carries out everything that has arrived until now, over the wire and from this peer.
    fn take_all(&self, adapter: &Adapter, from: Option<&Arc<Peer>>);
}

/// A device with its objects. All contexts of this process share it.
pub struct Adapter {
    device: Arc<Device>,
    pub(crate) queue_pairs: QueuePairs,
    pub(crate) shared_queues: SharedQueues,
    pub(crate) xrc_domains: XrcDomains,
    pub(crate) groups: Groups,
    pub(crate) foreign_targets: ForeignTargets,
    scribbled: Scribbled,
    connections: Connections,
    driver: &'static dyn Driver,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Adapter {
    /// Makes one without objects; `first` is the first index to try for a queue pair. `driver` does the work that
    /// objects leave.
    pub(crate) fn new(device: Device, driver: &'static dyn Driver, first: u16) -> Self {
        let process = device.process().clone();
        let device = Arc::new(device);
        Self {
            connections: Connections::new(device.clone()),
            device,
            queue_pairs: QueuePairs::starting_at(process.clone(), first),
            shared_queues: SharedQueues::default(),
            xrc_domains: XrcDomains::default(),
            groups: Groups::new(process),
            foreign_targets: ForeignTargets::default(),
            scribbled: Scribbled::default(),
            driver,
        }
    }

    /// The device that they are on.
    #[inline]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its connection manager.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Makes a queue pair a member of a group. A member stays one.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if the queue pair cannot join.
    pub fn join_group(&self, group: GroupGid, qp: &Arc<QueuePair>) -> Result<(), JoinError> {
        self.groups.join(self.device.port(), group, qp)
    }

    /// Ends a membership.
    ///
    /// # Errors
    ///
    /// [`NotAMember`] if it is none.
    pub fn leave_group(&self, group: GroupGid, qp: &Arc<QueuePair>) -> Result<(), NotAMember> {
        self.groups.leave(self.device.port(), group, qp)
    }

    /// Carries out everything that has arrived until now, over the wire and from this peer.
    pub(crate) fn take_all(&self, from: Option<&Arc<Peer>>) {
        self.driver.take_all(self, from);
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        let process = self.device.process();
        if process.is_inherited() {
            return;
        }
        self.connections.end_all(Instant::now() + Duration::from_secs(1));
        self.let_peers_take_the_rest();
        self.device.depart();
        self.device.port().send_rest();
        failure::forget_removed();
        info!(slot = process.announcer().slot, "device closed");
    }
}
