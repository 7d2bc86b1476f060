//! The blocks of a pcapng file, as draft-ietf-opsawg-pcapng has them, in the byte order of little-endian
//! machines.
//!
//! They are written here and not by a library. We append single blocks with comments to a file that has its header; the
//! libraries write a file from its beginning to its end.

use crate::device::{Direction, Interface};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Packets begin with their IP header.
const LINKTYPE_RAW: u16 = 101;

const COMMENT: u16 = 1;
const PACKET_FLAGS: u16 = 2;
const INTERFACE_NAME: u16 = 2;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_RESOLUTION: u16 = 9;
/// Times are in nanoseconds: 10^-9 seconds.
const NANOSECONDS: u8 = 9;

/// The longest comment, in bytes. An option's length has 16 bits.
const MAX_COMMENT: usize = 60_000;

/// The blocks that a file begins with.
pub(super) fn header() -> Vec<u8> {
    let mut bytes = Vec::new();
    let section = Block::begin(&mut bytes, SECTION_HEADER);
    section.bytes.extend(BYTE_ORDER_MAGIC.to_le_bytes());
    section.bytes.extend([1, 0, 0, 0]);
    // The length of the section is not known in advance.
    section.bytes.extend(u64::MAX.to_le_bytes());
    section
        .option(SECTION_APPLICATION, concat!("transom ", env!("CARGO_PKG_VERSION")).as_bytes())
        .end();
    for interface in Interface::ALL {
        let block = Block::begin(&mut bytes, INTERFACE_DESCRIPTION);
        block.bytes.extend(LINKTYPE_RAW.to_le_bytes());
        // Two reserved bytes, and no limit on the length of packets.
        block.bytes.extend([0; 6]);
        block
            .option(INTERFACE_NAME, interface.name().as_bytes())
            .option(INTERFACE_RESOLUTION, &[NANOSECONDS])
            .end();
    }
    bytes
}

/// Appends the block of a packet, an IP packet, to `bytes`.
pub(super) fn packet(
    bytes: &mut Vec<u8>,
    interface: Interface,
    direction: Direction,
    time: u64,
    packet: &[u8],
    comment: Option<&str>,
) {
    let block = Block::begin(bytes, ENHANCED_PACKET);
    let length = packet.len() as u32;
    for word in [interface as u32, (time >> 32) as u32, time as u32, length, length] {
        block.bytes.extend(word.to_le_bytes());
    }
    block.bytes.extend(packet);
    pad(block.bytes);
    let mut block = block.option(PACKET_FLAGS, &(direction as u32).to_le_bytes());
    if let Some(comment) = comment {
        let end = comment.floor_char_boundary(MAX_COMMENT);
        block = block.option(COMMENT, &comment.as_bytes()[..end]);
    }
    block.end();
}

/// A block being written. Its length stands at both ends.
struct Block<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Block<'a> {
    fn begin(bytes: &'a mut Vec<u8>, kind: u32) -> Self {
        let start = bytes.len();
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0; 4]);
        Self { bytes, start }
    }

    fn option(self, code: u16, value: &[u8]) -> Self {
        self.bytes.extend(code.to_le_bytes());
        self.bytes.extend((value.len() as u16).to_le_bytes());
        self.bytes.extend(value);
        pad(self.bytes);
        self
    }

    /// Every block here has options, so an end of options is needed.
    fn end(self) {
        self.bytes.extend([0; 4]);
        let length = (self.bytes.len() - self.start + 4) as u32;
        self.bytes.extend(length.to_le_bytes());
        self.bytes[self.start + 4..][..4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Pads to a multiple of four bytes, where everything in a file begins. The first block of a buffer begins there too.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
