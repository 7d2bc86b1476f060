//! The headers in front of messages to a shared receive queue with tag matching, as
//! `<infiniband/tm_types.h>` has them. They are data to the transport: a sender writes them itself.

/// Bytes of the tag matching header.
pub const TMH_BYTES: usize = 16;
/// Bytes of the rendezvous header, which follows it in a rendezvous request.
pub const RVH_BYTES: usize = 16;

/// The kinds of messages, with the values of `enum ibv_tmh_op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TagOperation {
    /// A message whose tag is not matched.
    NoTag = 0,
    /// A request to read the data from the sender.
    Rendezvous = 1,
    /// The answer to that: the data has been read.
    Finished = 2,
    /// The data follows.
    Eager = 3,
}

/// The tag matching header, `struct ibv_tmh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagHeader {
    /// The kind of message.
    pub operation: TagOperation,
    /// The sender's own data (`app_ctx`).
    pub context: u32,
    /// The tag.
    pub tag: u64,
}

impl TagHeader {
    /// Reads a header; `None` if the operation is unknown. Reserved bytes are ignored.
    pub fn read(bytes: &[u8; TMH_BYTES]) -> Option<Self> {
        let [operation, _, _, _, context @ .., t0, t1, t2, t3, t4, t5, t6, t7] = *bytes;
        let operation = match operation {
            0 => TagOperation::NoTag,
            1 => TagOperation::Rendezvous,
            2 => TagOperation::Finished,
            3 => TagOperation::Eager,
            _ => return None,
        };
        let tag = u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        Some(Self { operation, context: u32::from_be_bytes(context), tag })
    }

    /// The header's bytes.
    pub fn write(&self) -> [u8; TMH_BYTES] {
        let mut bytes = [0; TMH_BYTES];
        bytes[0] = self.operation as u8;
        bytes[4..8].copy_from_slice(&self.context.to_be_bytes());
        bytes[8..].copy_from_slice(&self.tag.to_be_bytes());
        bytes
    }
}

/// The rendezvous header, `struct ibv_rvh`: where to read the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RendezvousHeader {
    /// First remote address.
    pub address: u64,
    /// R_Key.
    pub key: u32,
    /// Bytes.
    pub length: u32,
}

impl RendezvousHeader {
    /// Reads a header.
    pub fn read(bytes: &[u8; RVH_BYTES]) -> Self {
        let [address @ .., k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        Self {
            address: u64::from_be_bytes(address),
            key: u32::from_be_bytes([k0, k1, k2, k3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 16] = [1, 0, 0, 0, 0xa, 0xb, 0xc, 0xd, 1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn a_header_reads_as_it_was_written() {
        let (context, tag) = (0x0a0b_0c0d, 0x0102_0304_0506_0708);
        let header = TagHeader { operation: TagOperation::Rendezvous, context, tag };
        assert_eq!(header.write(), BYTES);
        assert_eq!(TagHeader::read(&BYTES), Some(header));
        for operation in 0..=255 {
            let mut bytes = BYTES;
            bytes[0] = operation;
            let read = TagHeader::read(&bytes);
            assert_eq!(read.map(|read| read.operation as u8), (operation < 4).then_some(operation));
        }
    }

    #[test]
    fn a_rendezvous_header_is_in_network_order() {
        let header = RendezvousHeader::read(&BYTES);
        assert_eq!((header.address, header.key), (0x0100_0000_0a0b_0c0d, 0x0102_0304));
        assert_eq!(header.length, 0x0506_0708);
    }
}
