//! Where a queue pair's requests go.
//!
//! | link | between | how |
//! |---|---|---|
//! | loopback | queue pairs of one process | executed at once, on the caller's thread |
//! | local | processes of one user on one host, in the same namespaces | one-sided operations straight into the target's memory; the rest as messages in shared rings |
//! | wire | anything else | RoCEv2 packets over UDP |

use std::net::IpAddr;
use std::sync::Arc;

use transom_device::execution::Segmentation;
use transom_device::qp::Service;
use transom_net::{DevicePort, MAX_COPIED, MAX_PAYLOAD, Path, Peer};
use transom_system::addresses::gid;

/// Where a queue pair's requests go.
#[derive(Clone, Default)]
pub(crate) enum Link {
    /// To nobody: it is not connected, or its address is not here.
    #[default]
    None,
    /// To a queue pair of this process.
    Loopback,
    /// To a queue pair of another process of this user.
    Local(Arc<Peer>),
    /// To a queue pair anywhere, by packets.
    Wire(Path),
}

impl Link {
    /// Whether this link carries packets to this address.
    pub(crate) fn leads_to(&self, address: IpAddr) -> bool {
        matches!(self, Self::Wire(path) if path.destination == address)
    }

    /// Whether the other end is of this host.
    pub(crate) fn is_within_host(&self, port: &DevicePort) -> bool {
        match self {
            Self::None => false,
            Self::Loopback | Self::Local(_) => true,
            Self::Wire(path) => port.is_here(&gid(path.destination)),
        }
    }

    /// The way that this link splits messages for queue pairs of a service.
    pub(crate) fn segmentation(&self, service: Service) -> Segmentation {
        match self {
            // A message may name a shared receive queue of another process, or of this one, wherever the receiving end
            // is. So the messages of one queue pair may take either link.
            Self::Loopback | Self::Local(_) if service == Service::XrcInitiator => {
                Segmentation::of_messages(MAX_PAYLOAD)
            }
            Self::None | Self::Loopback => Segmentation::default(),
            Self::Local(_) => {
                Segmentation { copied: MAX_COPIED, ..Segmentation::of_messages(MAX_PAYLOAD) }
            }
            Self::Wire(path) => path.segmentation(),
        }
    }
}
