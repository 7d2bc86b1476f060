//! What a UDP datagram carries: no packet, or one that is written as it was read.

use transom_wire::packet::{ICRC_BYTES, Packet};

/// Takes what a UDP datagram carries.
pub fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    assert_eq!(packet.length(), bytes.len());
    assert_eq!(packet.opcode(), bytes[0]);
    let mut written = vec![0xaa; bytes.len()];
    let end = packet.write(&mut written);
    assert_eq!(end + ICRC_BYTES, written.len());
    assert_eq!(Packet::parse(&written), Ok(packet));
    // What differs is reserved, and was ignored: the second time nothing does.
    let mut again = vec![0xaa; written.len()];
    Packet::parse(&written).unwrap().write(&mut again);
    assert_eq!(again, written);
}
