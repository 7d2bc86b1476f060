//! The protocol between two stream sockets: the private data of a connection, the buffers that they grant to each
//! other, and the messages in immediate data.
//!
//! The layouts are those of rdma-core's rsockets, so that the peer may be one of these. All data read here comes from
//! the peer, and may be anything.

use transom_abi::ibv_wc;

/// A peer's buffer, as in messages and in lists of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) length: u32,
}

/// The length of a [`Buffer`] in bytes.
pub(crate) const BUFFER: usize = 16;
/// The length of a [`Mapping`] in bytes.
pub(crate) const MAPPING: usize = 8 + BUFFER;
/// The most buffers that may be granted to a socket at a time.
pub(crate) const GRANTS: u32 = 2;

/// The byte order of data written to a host's memory. It is that host's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    /// This host's order.
    pub(crate) const HERE: Self =
        if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    fn four(self, value: u32) -> [u8; 4] {
        if self == Self::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn eight(self, value: u64) -> [u8; 8] {
        if self == Self::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

impl Buffer {
    /// The bytes to write.
    pub(crate) fn bytes(&self, order: Order) -> [u8; BUFFER] {
        let mut bytes = [0; BUFFER];
        bytes[..8].copy_from_slice(&order.eight(self.address));
        bytes[8..12].copy_from_slice(&order.four(self.key));
        bytes[12..].copy_from_slice(&order.four(self.length));
        bytes
    }

    /// Reads it from private data.
    fn read(bytes: &[u8; BUFFER]) -> Self {
        let (address, rest) = bytes.split_first_chunk().expect("a buffer is longer");
        let (key, rest) = rest.split_first_chunk().expect("a buffer is longer");
        let length = rest.first_chunk().expect("a buffer is longer");
        Self {
            address: u64::from_be_bytes(*address),
            key: u32::from_be_bytes(*key),
            length: u32::from_be_bytes(*length),
        }
    }
}

/// A buffer that the peer may write to, by an offset that its program knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) offset: u64,
    pub(crate) buffer: Buffer,
}

impl Mapping {
    /// The bytes to write.
    pub(crate) fn bytes(&self, order: Order) -> [u8; MAPPING] {
        let mut bytes = [0; MAPPING];
        bytes[..8].copy_from_slice(&order.eight(self.offset));
        bytes[8..].copy_from_slice(&self.buffer.bytes(order));
        bytes
    }
}

/// The private data of a request and of its answer. It introduces a socket to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Introduction {
    /// The byte order of its memory.
    pub(crate) order: Order,
    /// The number of messages that it can receive until it grants more.
    pub(crate) credits: u16,
    /// The number of mappings that it has room for, after its list of buffers.
    pub(crate) mappings: u16,
    /// Its list for granted buffers. The length counts the entries.
    pub(crate) grants: Buffer,
    /// Its first buffer.
    pub(crate) buffer: Buffer,
}

/// The length of an [`Introduction`] in bytes.
pub(crate) const INTRODUCTION: usize = 8 + 2 * BUFFER;
const VERSION: u8 = 1;
/// Flag: the sender's memory is big endian.
const BIG_ENDIAN: u8 = 1;
/// Flag: the sender has room for mappings.
const HAS_MAPPINGS: u8 = 2;

/// A count in a byte: exact up to 128, and in steps of 256 above.
pub(crate) fn scaled(count: u16) -> u8 {
    if count <= 128 { count as u8 } else { 128 | (count >> 8) as u8 & 127 }
}

/// The count that a byte stands for.
pub(crate) fn unscaled(byte: u8) -> u16 {
    if byte <= 128 { byte.into() } else { u16::from(byte & 127) << 8 }
}

impl Introduction {
    /// The bytes to send.
    pub(crate) fn bytes(&self) -> [u8; INTRODUCTION] {
        let mut bytes = [0; INTRODUCTION];
        bytes[0] = VERSION;
        bytes[1] = if self.order == Order::Big { BIG_ENDIAN } else { 0 }
            | if self.mappings > 0 { HAS_MAPPINGS } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = scaled(self.mappings);
        bytes[8..24].copy_from_slice(&self.grants.bytes(Order::Big));
        bytes[24..].copy_from_slice(&self.buffer.bytes(Order::Big));
        bytes
    }

    /// Reads the peer's introduction. `None` if it is of another protocol, or has no room for granted buffers.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; INTRODUCTION] = bytes.first_chunk()?;
        let [version, flags, high, low, _, _, _, mappings, buffers @ ..] = bytes;
        let (grants, buffer) = buffers.split_first_chunk()?;
        let introduction = Self {
            order: if flags & BIG_ENDIAN == 0 { Order::Little } else { Order::Big },
            credits: u16::from_be_bytes([*high, *low]),
            mappings: if flags & HAS_MAPPINGS == 0 { 0 } else { unscaled(*mappings) },
            grants: Buffer::read(grants),
            buffer: Buffer::read(buffer.first_chunk()?),
        };
        (*version == VERSION && introduction.grants.length > 0).then_some(introduction)
    }
}

/// A message in the immediate data of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// This many bytes have been written after the earlier ones.
    Data(u32),
    /// The receiver may send messages up to this number, modulo 2^16. Perhaps another buffer has been granted.
    Credits(u16),
    /// The mapping of this number has changed.
    Mapped(u32),
    /// The sender will neither send nor receive any more.
    Disconnect,
    /// A test whether the receiver is alive.
    KeepAlive,
    /// The sender will send no more.
    Shutdown,
}

/// The most bytes that one message can announce.
pub(crate) const MOST: u32 = (1 << 29) - 1;
const DATA: u32 = 0;
const CREDITS: u32 = 4;
const MAPPED: u32 = 6;
const CONTROL: u32 = 7;

impl Message {
    /// The immediate data, in host byte order.
    pub(crate) fn number(self) -> u32 {
        let (operation, value) = match self {
            Self::Data(length) => (DATA, length),
            Self::Credits(up_to) => (CREDITS, up_to.into()),
            Self::Mapped(index) => (MAPPED, index),
            Self::Disconnect => (CONTROL, 0),
            Self::KeepAlive => (CONTROL, 1),
            Self::Shutdown => (CONTROL, 2),
        };
        operation << 29 | value & MOST
    }

    /// Reads a peer's message. `None` if it has no meaning.
    pub(crate) fn read(number: u32) -> Option<Self> {
        let value = number & MOST;
        match (number >> 29, value) {
            (DATA, length) => Some(Self::Data(length)),
            (CREDITS, up_to) => Some(Self::Credits(up_to as u16)),
            (MAPPED, index) => Some(Self::Mapped(index)),
            (CONTROL, 0) => Some(Self::Disconnect),
            (CONTROL, 1) => Some(Self::KeepAlive),
            (CONTROL, 2) => Some(Self::Shutdown),
            _ => None,
        }
    }

    /// The message of a completion.
    pub(crate) fn of(completion: &ibv_wc) -> Option<Self> {
        // SAFETY: any bytes are a number. The caller has checked that there is immediate data.
        Self::read(u32::from_be(unsafe { completion.imm.imm_data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: CM-59
    #[test]
    fn an_introduction_is_read_as_written() {
        let written = Introduction {
            order: Order::HERE,
            credits: 384,
            mappings: 100,
            grants: Buffer { address: 0x1122_3344_5566_7788, key: 0x99AA_BBCC, length: 2 },
            buffer: Buffer { address: 0x7F00_0000_1000, key: 0x0102_0304, length: 65536 },
        };
        let bytes = written.bytes();
        assert_eq!(Introduction::read(&bytes), Some(written));
        assert_eq!(bytes[..8], [1, 2, 1, 128, 0, 0, 0, 100]);
        assert_eq!(bytes[8..24], *b"\x11\x22\x33\x44\x55\x66\x77\x88\x99\xAA\xBB\xCC\0\0\0\x02");
        // The rest of the private data is zeros.
        assert_eq!(Introduction::read(&[&bytes[..], &[0; 16]].concat()), Some(written));
        assert_eq!(Introduction::read(&bytes[..INTRODUCTION - 1]), None);
    }

    /// Rules: CM-64
    #[test]
    fn any_bytes_are_an_introduction_or_none() {
        let mut state = 1_u64;
        for _ in 0..10_000 {
            let mut bytes = [0; INTRODUCTION];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            bytes[0] &= 1;
            if let Some(read) = Introduction::read(&bytes) {
                assert!(read.grants.length > 0);
                assert_eq!(Introduction::read(&read.bytes()), Some(read));
            }
        }
    }

    /// Rules: CM-59, CM-64
    #[test]
    fn every_number_is_a_message_or_none() {
        for operation in 0..8_u32 {
            for value in [0, 1, 2, 3, 4, 0xFFFF, 0x1_0000, MOST - 1, MOST] {
                let number = operation << 29 | value;
                match Message::read(number) {
                    // Credits are a number modulo 2^16.
                    Some(Message::Credits(up_to)) => assert_eq!(up_to, value as u16),
                    Some(message) => assert_eq!(message.number(), number),
                    None => assert!(![DATA, CREDITS, MAPPED].contains(&operation)),
                }
            }
        }
        assert_eq!(Message::Disconnect.number(), 0xE000_0000);
        assert_eq!(Message::Credits(384).number(), 0x8000_0180);
    }

    #[test]
    fn what_is_written_to_a_host_is_in_its_order() {
        let mapping =
            Mapping { offset: 1, buffer: Buffer { address: 0x0203, key: 4, length: 0x0506 } };
        let bytes = mapping.bytes(Order::Little);
        assert_eq!(bytes[..11], [1, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0]);
        let bytes = mapping.bytes(Order::Big);
        assert_eq!(bytes[14..], [2, 3, 0, 0, 0, 4, 0, 0, 5, 6]);
        for count in 0..=128 {
            assert_eq!(unscaled(scaled(count)), count);
        }
        assert_eq!(unscaled(scaled(1000)), 768);
    }
}
