//! The ICRC of any bytes on any path: an identification that is solved for is the right one.
//!
//! The input is a path (source and destination as GIDs, source port), an identification, and what the
//! datagram carries.

use std::net::Ipv6Addr;

use transom_wire::icrc::{Path, Verdict};

/// Takes an input of these parts.
pub fn icrc(input: &[u8]) {
    let Some((source, rest)) = input.split_first_chunk::<16>() else { return };
    let Some((destination, rest)) = rest.split_first_chunk::<16>() else { return };
    let Some((&[p0, p1, i0, i1], datagram)) = rest.split_first_chunk() else { return };
    let (port, identification) = (u16::from_be_bytes([p0, p1]), u16::from_be_bytes([i0, i1]));
    let address = |gid: &[u8; 16]| Ipv6Addr::from(*gid).into();
    let Some(path) = Path::new(address(source), port, address(destination)) else { return };
    let verdict = path.check(identification, datagram);
    // The check computes it another way.
    if let Some((packet, icrc)) = datagram.split_last_chunk().filter(|it| it.0.len() >= 12) {
        assert_eq!(verdict == Verdict::Right, path.icrc(identification, packet) == *icrc);
    }
    if let Verdict::Identified(found) = verdict {
        assert_ne!(found, identification);
        assert_eq!(path.check(found, datagram), Verdict::Right);
    }
}
