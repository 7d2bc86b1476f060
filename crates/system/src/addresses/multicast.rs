//! Which GIDs name groups.

use super::ip;

/// A multicast GID.
pub type GroupGid = [u8; 16];

/// Whether a GID names a group.
pub fn is_multicast(gid: &GroupGid) -> bool {
    ip(gid).is_multicast()
}

/// Whether a group may have members on other hosts. All may, except IPv6 groups of interface scope (RFC 4291, section
/// 2.7).
pub fn leaves_host(group: &GroupGid) -> bool {
    group[0] != 0xff || group[1] & 0xf > 1
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
