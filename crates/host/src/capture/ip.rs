//! The IP and UDP headers around a RoCEv2 packet.

use std::net::IpAddr;

use transom_net::Path;
use transom_wire::packet::PORT;

const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const DONT_FRAGMENT: u16 = 0x4000;

/// Appends the headers for `payload` on its path, then the payload itself. `None` if the two addresses are of different
/// families, or if the payload is too long for a datagram.
pub(super) fn write(
    path: &Path,
    identification: u16,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    let length = u16::try_from(payload.len() + UDP_BYTES).ok()?;
    let (source, destination) = (path.source.to_canonical(), path.destination.to_canonical());
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let start = out.len();
            out.extend([0x45, path.traffic_class]);
            out.extend(length.checked_add(IPV4_BYTES as u16)?.to_be_bytes());
            out.extend(identification.to_be_bytes());
            out.extend(DONT_FRAGMENT.to_be_bytes());
            out.extend([path.hop_limit, UDP, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
            let checksum = !fold(sum(&out[start..]));
            out[start + 10..][..2].copy_from_slice(&checksum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            out.extend((6 << 28 | u32::from(path.traffic_class) << 20).to_be_bytes());
            out.extend(length.to_be_bytes());
            out.extend([UDP, path.hop_limit]);
            out.extend(source.octets());
            out.extend(destination.octets());
        }
        _ => return None,
    }
    let udp = out.len();
    out.extend(path.port.to_be_bytes());
    out.extend(PORT.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend([0; 2]);
    out.extend(payload);
    if let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) {
        // RoCE allows a checksum of zero in IPv6, but readers show it as a mistake.
        let addresses = sum(&source.octets()) + sum(&destination.octets());
        let all = addresses + u64::from(UDP) + u64::from(length) + sum(&out[udp..]);
        let checksum = match !fold(all) {
            0 => u16::MAX,
            checksum => checksum,
        };
        out[udp + 6..][..2].copy_from_slice(&checksum.to_be_bytes());
    }
    Some(())
}

/// The sum of 16-bit words. An odd last byte is the upper half of a word.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u64::from(high) << 8 | u64::from(low),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    words.sum()
}

/// A sum in ones' complement.
fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
