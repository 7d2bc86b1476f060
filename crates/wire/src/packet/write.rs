//! Packets to bytes.

use super::opcode::{CONGESTION_BYTES, Opcode, has_xrceth};
use super::{Aeth, Ending, ICRC_BYTES, Operation, Packet, Reth, Transport};
use crate::Psn;

/// The offset of the PSN in the BTH (rule PK-01).
const PSN_AT: usize = 9;

impl Packet<'_> {
    /// Bytes of zeros after the payload (rule PK-08).
    pub const fn pad(&self) -> usize {
        self.payload.len().wrapping_neg() & 3
    }

    /// Bytes of the UDP payload, the ICRC included.
    pub const fn length(&self) -> usize {
        self.header_length() + self.payload.len() + self.pad() + ICRC_BYTES
    }

    /// Writes everything from the BTH to the pad, and returns its length: [`Packet::length`] without the ICRC. The ICRC
    /// belongs behind it.
    ///
    /// # Panics
    ///
    /// If `out` is shorter.
    pub fn write(&self, out: &mut [u8]) -> usize {
        let header = self.write_header(out);
        let (payload, pad) = (self.payload.len(), self.pad());
        out[header..][..payload].copy_from_slice(self.payload);
        out[header + payload..][..pad].fill(0);
        header + payload + pad
    }

    /// Writes only the headers, and returns their length. The payload may lie behind them already. The headers hold the
    /// length of its pad.
    ///
    /// Reserved bits are zero (rule PK-15). Bits that do not fit into a field are cut off. An operation that its
    /// service does not have is written all the same, and reads back as reserved.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`Packet::header_length`].
    pub fn write_header(&self, out: &mut [u8]) -> usize {
        let mut header = Writer { out, at: 0 };
        let (solicited, migrated) = (u8::from(self.solicited) << 7, u8::from(self.migrated) << 6);
        header.put([self.opcode(), solicited | migrated | (self.pad() as u8) << 4]);
        header.put(self.pkey.to_be_bytes());
        header.flags_u24(u8::from(self.fecn) << 7 | u8::from(self.becn) << 6, self.to);
        header.flags_u24(u8::from(self.ack_request) << 7, self.psn.value());
        if !matches!(self.operation, Operation::Congestion) {
            header.service(&self.transport, self.operation.opcode());
        }
        header.operation(&self.operation);
        header.at
    }

    /// Changes the PSN in headers that [`Packet::write_header`] has written.
    ///
    /// # Panics
    ///
    /// If they are shorter than a BTH.
    pub fn renumber(headers: &mut [u8], psn: Psn) {
        let [_, number @ ..] = psn.value().to_be_bytes();
        headers[PSN_AT..][..number.len()].copy_from_slice(&number);
    }
}

/// Writes header after header.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.out[self.at..][..N].copy_from_slice(&bytes);
        self.at += N;
    }

    /// A byte and a number of 24 bits.
    fn flags_u24(&mut self, byte: u8, number: u32) {
        self.put((u32::from(byte) << 24 | number & 0xff_ffff).to_be_bytes());
    }

    fn service(&mut self, transport: &Transport, opcode: Option<Opcode>) {
        match *transport {
            Transport::Ud { qkey, source } => {
                self.put(qkey.to_be_bytes());
                self.flags_u24(0, source);
            }
            Transport::Xrc { srq } if has_xrceth(opcode) => self.flags_u24(0, srq),
            Transport::Rc | Transport::Uc | Transport::Xrc { .. } => {}
        }
    }

    fn operation(&mut self, operation: &Operation) {
        match *operation {
            Operation::SendFirst
            | Operation::SendMiddle
            | Operation::WriteMiddle
            | Operation::ReadResponseMiddle
            | Operation::Reserved(_) => {}
            Operation::SendLast(ending) | Operation::SendOnly(ending) => match ending {
                Ending::Plain => {}
                Ending::Immediate(word) | Ending::Invalidate(word) => self.put(word.to_be_bytes()),
            },
            Operation::WriteLast { immediate } => self.immediate(immediate),
            Operation::WriteOnly { reth, immediate } => {
                self.reth(reth);
                self.immediate(immediate);
            }
            Operation::WriteFirst(reth)
            | Operation::ReadRequest(reth)
            | Operation::AtomicWrite(reth) => self.reth(reth),
            Operation::ReadResponseFirst(aeth)
            | Operation::ReadResponseLast(aeth)
            | Operation::ReadResponseOnly(aeth)
            | Operation::Acknowledge(aeth) => self.aeth(aeth),
            Operation::AtomicAcknowledge { aeth, old } => {
                self.aeth(aeth);
                self.put(old.to_be_bytes());
            }
            Operation::CompareSwap { address, key, swap, compare } => {
                self.atomic(address, key, swap, compare);
            }
            Operation::FetchAdd { address, key, add } => self.atomic(address, key, add, 0),
            Operation::Flush { placement, selectivity, reth } => {
                self.put([0, 0, 0, (selectivity & 3) << 4 | placement & 0x0f]);
                self.reth(reth);
            }
            Operation::Congestion => self.put([0; CONGESTION_BYTES]),
        }
    }

    fn immediate(&mut self, immediate: Option<u32>) {
        if let Some(word) = immediate {
            self.put(word.to_be_bytes());
        }
    }

    fn reth(&mut self, Reth { address, key, length }: Reth) {
        self.put(address.to_be_bytes());
        self.put(key.to_be_bytes());
        self.put(length.to_be_bytes());
    }

    fn aeth(&mut self, Aeth { byte, msn }: Aeth) {
        self.flags_u24(byte, msn);
    }

    fn atomic(&mut self, address: u64, key: u32, swap_or_add: u64, compare: u64) {
        self.put(address.to_be_bytes());
        self.put(key.to_be_bytes());
        self.put(swap_or_add.to_be_bytes());
        self.put(compare.to_be_bytes());
    }
}
