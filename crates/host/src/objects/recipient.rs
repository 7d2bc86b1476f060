//! The recipient of a message: a queue pair, or all members of a multicast group.

use transom_device::execution::Request;
use transom_device::qp::QpNumber;
use transom_device::queue::Remote;
use transom_system::addresses::{GroupGid, is_multicast};

/// The queue pair number that stands for all members of a group (rule NET-12).
const MEMBERS: QpNumber = QpNumber::from_bits(0xff_ffff);

/// The recipient of a message for an address and a queue pair number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// The queue pair of that number.
    QueuePair,
    /// All members of the group that has the address.
    Members,
    /// Nobody. A group's address goes only with the members' number, and that number only with such an address (rule
    /// NET-17).
    Nobody,
}

impl Recipient {
    /// The recipient for this address and number.
    pub(crate) fn at(address: &GroupGid, number: QpNumber) -> Self {
        match (is_multicast(address), number == MEMBERS) {
            (false, false) => Self::QueuePair,
            (true, true) => Self::Members,
            (true, false) | (false, true) => Self::Nobody,
        }
    }

    /// Of a request.
    #[inline]
    pub(crate) fn of(request: &Request) -> Self {
        match &request.remote {
            Remote::Datagram(datagram) => Self::at(&datagram.address.gid, request.to),
            Remote::Connected | Remote::Srq(_) => Self::QueuePair,
        }
    }
}

#[cfg(test)]
mod tests {
    use transom_system::addresses::gid;

    use super::*;

    /// Rules: NET-17
    #[test]
    fn an_address_and_a_number_are_both_of_a_group_or_neither_is() {
        let of = |address: &str| gid(address.parse().expect("an address"));
        let one = QpNumber::from_bits(0x01_ffff);
        for (unicast, group) in [("10.0.0.1", "239.1.2.3"), ("fd00::1", "ff0e::1")] {
            assert_eq!(Recipient::at(&of(unicast), one), Recipient::QueuePair);
            assert_eq!(Recipient::at(&of(group), MEMBERS), Recipient::Members);
            assert_eq!(Recipient::at(&of(unicast), MEMBERS), Recipient::Nobody);
            assert_eq!(Recipient::at(&of(group), one), Recipient::Nobody);
        }
    }
}
