//! Packets that this host's own kernel refuses for their length, because a queue pair's path MTU is longer than the
//! path carries. They cannot be made shorter: all packets of a message but the last have that length. So they are lost,
//! as on any network (rule PK-12). But here we know why.

use std::net::IpAddr;
use std::sync::Once;

use parking_lot::Mutex;
use transom_system::{addresses, say};

use super::Path;
use crate::udp;

/// Packets that were too long for their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Where they were sent to.
    pub destination: IpAddr,
    /// The length of an IP packet, in bytes.
    pub packet: u32,
    /// The longest that is carried, in bytes.
    pub carried: u32,
}

/// The last of them.
#[derive(Default)]
pub(super) struct LastTooLong(Mutex<Option<TooLong>>);

impl LastTooLong {
    /// Notes that packets with so many bytes in a UDP datagram were too long. Tells the program the first time.
    #[cold]
    pub(super) fn note(&self, path: &Path, datagram: usize) {
        // Whatever the limit was, it is different now.
        let Ok(carried) = udp::path_mtu(&path.way()) else { return };
        let headers = if path.destination.is_ipv4() { 28 } else { 48 };
        let packet = u32::try_from(datagram).unwrap_or(u32::MAX).saturating_add(headers);
        let destination = path.destination;
        *self.0.lock() = Some(TooLong { destination, packet, carried });
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            let fits = addresses::path_mtu(carried);
            say(format_args!(
                "packets of {packet} bytes are too long for the way to {destination}, which carries \
                 {carried}: give queue pairs a path_mtu of {fits} at most, at both ends"
            ));
        });
    }

    /// The last refusal for length, if it was on the way to this address.
    pub(super) fn towards(&self, destination: IpAddr) -> Option<TooLong> {
        self.0.lock().filter(|it| it.destination == destination)
    }
}
