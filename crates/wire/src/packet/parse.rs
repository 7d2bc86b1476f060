//! Bytes to packets.

use super::opcode::{BTH_BYTES, CONGESTION, CONGESTION_BYTES, Opcode, has_xrceth};
use super::{Aeth, Ending, ICRC_BYTES, Malformed, Operation, Packet, Reth, Transport};
use crate::Psn;

/// Where in the BTH the PSN begins.
const PSN_AT: usize = 9;

impl<'a> Packet<'a> {
    /// Reads a UDP payload, from the BTH to the ICRC. It does not check the ICRC.
    ///
    /// Reserved bits are ignored (rule PK-15). If the service does not have the opcode, the operation is
    /// [`Operation::Reserved`], and everything after the service's header is payload.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if !bytes.len().is_multiple_of(4) {
            return Err(Malformed::Length);
        }
        let (bytes, _) = bytes.split_last_chunk::<ICRC_BYTES>().ok_or(Malformed::Short)?;
        let mut rest = Rest(bytes);
        let [opcode, flags, p0, p1, congestion, q0, q1, q2, ack_request, n0, n1, n2] =
            rest.take()?;
        if flags & 0x0f != 0 {
            return Err(Malformed::Version);
        }
        let (transport, operation) = rest.extension(opcode)?;
        let pad = usize::from(flags >> 4 & 3);
        let length = rest.0.len().checked_sub(pad).ok_or(Malformed::Short)?;
        Ok(Self {
            transport,
            operation,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pkey: u16::from_be_bytes([p0, p1]),
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            to: u32::from_be_bytes([0, q0, q1, q2]),
            ack_request: ack_request & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([0, n0, n1, n2])),
            payload: &rest.0[..length],
        })
    }
}

impl Packet<'_> {
    /// The payload of the packet in `bytes` if it continues the message of this one, which was read from `before`: all
    /// headers are the same, but for the next PSN. Most packets of a long message do, so they need not be read one by
    /// one.
    ///
    /// `None` says that [`Packet::parse`] has to read it.
    #[inline]
    pub fn continued<'b>(&self, before: &[u8], bytes: &'b [u8]) -> Option<&'b [u8]> {
        use Operation::{ReadResponseMiddle, SendMiddle, WriteMiddle};
        // These have no header of their own.
        if !matches!(self.operation, SendMiddle | WriteMiddle | ReadResponseMiddle) {
            return None;
        }
        let headers = self.header_length();
        let (was, is) = (before.first_chunk::<BTH_BYTES>()?, bytes.first_chunk::<BTH_BYTES>()?);
        let [_, number @ ..] = self.psn.plus(1).value().to_be_bytes();
        let goes_on = bytes.len() == before.len()
            && is[..PSN_AT] == was[..PSN_AT]
            && is[PSN_AT..] == number
            && bytes.get(BTH_BYTES..headers) == before.get(BTH_BYTES..headers);
        bytes.get(headers..headers + self.payload.len()).filter(|_| goes_on)
    }
}

/// The bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u24(&mut self) -> Result<u32, Malformed> {
        let [high, middle, low] = self.take()?;
        Ok(u32::from_be_bytes([0, high, middle, low]))
    }

    /// Four bytes of which the first is reserved.
    fn low_u24(&mut self) -> Result<u32, Malformed> {
        let [_reserved] = self.take()?;
        self.u24()
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_be_bytes)
    }

    /// All headers after the BTH, in the order of rule PK-07.
    fn extension(&mut self, opcode: u8) -> Result<(Transport, Operation), Malformed> {
        let code = opcode & 0x1f;
        let known = Opcode::from_code(code);
        let transport = match opcode >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            3 => Transport::Ud { qkey: self.u32()?, source: self.low_u24()? },
            5 if has_xrceth(known) => Transport::Xrc { srq: self.low_u24()? },
            5 => Transport::Xrc { srq: 0 },
            _ if opcode == CONGESTION => {
                let _reserved: [u8; CONGESTION_BYTES] = self.take()?;
                return Ok((Transport::Rc, Operation::Congestion));
            }
            _ => return Err(Malformed::Transport),
        };
        let operation = match known {
            Some(known) if transport.has(known) => self.operation(known)?,
            _ => Operation::Reserved(code),
        };
        Ok((transport, operation))
    }

    fn operation(&mut self, opcode: Opcode) -> Result<Operation, Malformed> {
        Ok(match opcode {
            Opcode::SendFirst => Operation::SendFirst,
            Opcode::SendMiddle => Operation::SendMiddle,
            Opcode::SendLast => Operation::SendLast(Ending::Plain),
            Opcode::SendLastImmediate => Operation::SendLast(Ending::Immediate(self.u32()?)),
            Opcode::SendOnly => Operation::SendOnly(Ending::Plain),
            Opcode::SendOnlyImmediate => Operation::SendOnly(Ending::Immediate(self.u32()?)),
            Opcode::WriteFirst => Operation::WriteFirst(self.reth()?),
            Opcode::WriteMiddle => Operation::WriteMiddle,
            Opcode::WriteLast => Operation::WriteLast { immediate: None },
            Opcode::WriteLastImmediate => Operation::WriteLast { immediate: Some(self.u32()?) },
            Opcode::WriteOnly => Operation::WriteOnly { reth: self.reth()?, immediate: None },
            Opcode::WriteOnlyImmediate => {
                Operation::WriteOnly { reth: self.reth()?, immediate: Some(self.u32()?) }
            }
            Opcode::ReadRequest => Operation::ReadRequest(self.reth()?),
            Opcode::ReadResponseFirst => Operation::ReadResponseFirst(self.aeth()?),
            Opcode::ReadResponseMiddle => Operation::ReadResponseMiddle,
            Opcode::ReadResponseLast => Operation::ReadResponseLast(self.aeth()?),
            Opcode::ReadResponseOnly => Operation::ReadResponseOnly(self.aeth()?),
            Opcode::Acknowledge => Operation::Acknowledge(self.aeth()?),
            Opcode::AtomicAcknowledge => {
                Operation::AtomicAcknowledge { aeth: self.aeth()?, old: self.u64()? }
            }
            Opcode::CompareSwap => Operation::CompareSwap {
                address: self.u64()?,
                key: self.u32()?,
                swap: self.u64()?,
                compare: self.u64()?,
            },
            Opcode::FetchAdd => {
                let (address, key, add) = (self.u64()?, self.u32()?, self.u64()?);
                let _compare = self.u64()?;
                Operation::FetchAdd { address, key, add }
            }
            Opcode::SendLastInvalidate => Operation::SendLast(Ending::Invalidate(self.u32()?)),
            Opcode::SendOnlyInvalidate => Operation::SendOnly(Ending::Invalidate(self.u32()?)),
            Opcode::Flush => {
                let [.., feth] = self.take::<4>()?;
                let (selectivity, placement) = (feth >> 4 & 3, feth & 0x0f);
                Operation::Flush { placement, selectivity, reth: self.reth()? }
            }
            Opcode::AtomicWrite => Operation::AtomicWrite(self.reth()?),
        })
    }

    fn reth(&mut self) -> Result<Reth, Malformed> {
        Ok(Reth { address: self.u64()?, key: self.u32()?, length: self.u32()? })
    }

    fn aeth(&mut self) -> Result<Aeth, Malformed> {
        let [byte] = self.take()?;
        Ok(Aeth { byte, msn: self.u24()? })
    }
}
