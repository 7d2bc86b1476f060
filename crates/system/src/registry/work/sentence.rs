//! The sentence for work that came to nothing.

use std::fmt;

use transom_device::execution::Unheard;
use transom_device::operation::Opcode;
use transom_device::protection::Reason;
use transom_device::qp::QpState;
use transom_device::queue::Status;

use super::super::named::{Age, Bytes, ServiceName, State};
use super::{Fate, Found, Work, WorkRecord};
use crate::addresses::path_mtu;

/// The name of a status in C.
pub fn status_name(status: Status) -> &'static str {
    match status {
        Status::Success => "IBV_WC_SUCCESS",
        Status::LocalLength => "IBV_WC_LOC_LEN_ERR",
        Status::LocalQpOperation => "IBV_WC_LOC_QP_OP_ERR",
        Status::LocalProtection => "IBV_WC_LOC_PROT_ERR",
        Status::Flushed => "IBV_WC_WR_FLUSH_ERR",
        Status::WindowBind => "IBV_WC_MW_BIND_ERR",
        Status::BadResponse => "IBV_WC_BAD_RESP_ERR",
        Status::LocalAccess => "IBV_WC_LOC_ACCESS_ERR",
        Status::RemoteInvalidRequest => "IBV_WC_REM_INV_REQ_ERR",
        Status::RemoteAccess => "IBV_WC_REM_ACCESS_ERR",
        Status::RemoteOperation => "IBV_WC_REM_OP_ERR",
        Status::RetryExceeded => "IBV_WC_RETRY_EXC_ERR",
        Status::RnrRetryExceeded => "IBV_WC_RNR_RETRY_EXC_ERR",
        Status::TagMatching => "IBV_WC_TM_ERR",
        _ => "another status",
    }
}

fn opcode_name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Send => "SEND",
        Opcode::Write => "WRITE",
        Opcode::Read => "READ",
        Opcode::CompareSwap => "compare and swap",
        Opcode::FetchAdd => "fetch and add",
        Opcode::BindWindow => "bind",
        Opcode::LocalInvalidate => "LOCAL_INV",
        Opcode::Flush => "FLUSH",
        Opcode::AtomicWrite => "ATOMIC WRITE",
        Opcode::Receive | Opcode::ReceiveWriteImmediate | Opcode::TagReceive | Opcode::TagNone => {
            "receive"
        }
        Opcode::TagAdd => "tagged buffer",
        Opcode::TagRemove => "removal of a tagged buffer",
        Opcode::TagSync => "count of unexpected messages",
    }
}

/// The sentence for a person.
impl fmt::Display for WorkRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { qp, peer, .. } = *self;
        match self.fate {
            Fate::Flushed { count, by_program, receives } => {
                let what = if receives { "receive" } else { "send" };
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "{count} {what} work request{plural} of QP {qp:#x} ended with ")?;
                write!(f, "IBV_WC_WR_FLUSH_ERR, for the queue pair is in ERR: ")?;
                match by_program {
                    true => write!(f, "its program, or the end of its connection, moved it there"),
                    false => write!(f, "what failed on it before says why"),
                }?;
                return write!(f, " (rule ST-19)");
            }
            Fate::Overrun { capacity, asked } => {
                write!(f, "a completion queue with room for {capacity}")?;
                if asked != capacity {
                    write!(f, " ({asked} were asked for)")?;
                }
                return write!(
                    f,
                    " overran: a completion of QP {qp:#x} came while so many waited to be polled. All its queue \
                     pairs are in ERR. Poll more often, or ask ibv_create_cq for as many as all its queues may \
                     have at once (rule CQ-05)"
                );
            }
            Fate::Dropped(why) => {
                match peer {
                    0 => write!(f, "a message ")?,
                    peer => write!(f, "a message of QP {peer:#x} ")?,
                }
                write!(f, "for QP {qp:#x} was dropped: ")?;
                if (qp, why) == (0, Unheard::NoQueuePair) {
                    return write!(
                        f,
                        "no queue pair that a program makes has number 0: was wr.ud.remote_qpn set?"
                    );
                }
                return unheard(f, why);
            }
            _ => {}
        }
        if let Some(Work { wr_id, opcode, status }) = self.work {
            let name = match (self.fate, opcode) {
                // Without immediate data it takes no receive.
                (Fate::NotReady { .. }, Opcode::Write) => "WRITE with immediate data",
                // It has no opcode of a completion.
                (Fate::Unfit { reason: Reason::WrongService, .. }, _) => "a request",
                _ => opcode_name(opcode),
            };
            write!(f, "{name} (wr_id {wr_id})")?;
            if qp != 0 {
                write!(f, " by QP {qp:#x}")?;
            }
            if peer != 0 {
                write!(f, " to QP {peer:#x}")?;
            }
            write!(f, " ended with {}: ", status_name(status))?;
        }
        self.fate.why(f)
    }
}

impl Fate {
    fn why(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unanswered { found: found @ Found::Deserted(_), .. } => {
                write!(f, "no answer came: {found} (rule RN-20)")
            }
            Self::Unanswered { found, retries, timeout } => {
                write!(f, "no answer came, though it was sent {} times", u32::from(retries) + 1)?;
                match timeout {
                    0 => {}
                    code => write!(f, ", {} apart (timeout {code})", Age(4_096 << code.min(31)))?,
                }
                write!(f, ". {found} (rule RN-07)")
            }
            Self::NotReady { retries, shared } => {
                let queue = match shared {
                    Some(true) => "shared receive queue of the peer",
                    Some(false) | None => "peer's receive queue",
                };
                write!(
                    f,
                    "the {queue} was empty each of the {} times it came",
                    u32::from(retries) + 1
                )?;
                write!(
                    f,
                    ". Have the peer post receives before this side sends, or wait longer for one: \
                     rnr_retry is {retries}, and 7 waits for ever (rule RN-03)"
                )
            }
            Self::BadResponse => {
                write!(f, "the peer's answer does not fit the request (rule PSN-30)")
            }
            Self::RefusedThere => write!(
                f,
                "the peer's device refused it, and a NAK does not say why; `transom explain` does there"
            ),
            Self::Unfit { reason, value, limit } => unfit(f, reason, value, limit),
            Self::NoTag => write!(
                f,
                "the buffer is not in the list: a message has taken it, or it was removed before (rule \
                 WC-22)"
            ),
            Self::Rehearsed => write!(
                f,
                "`transom rehearse` made it fail, as an adapter may at any time (rules REH-34 to REH-36)"
            ),
            // Told without a work request.
            Self::Flushed { .. } | Self::Overrun { .. } | Self::Dropped(_) => Ok(()),
        }
    }
}

/// What does not fit the queue pair, in words.
fn unfit(f: &mut fmt::Formatter<'_>, reason: Reason, value: u64, limit: u64) -> fmt::Result {
    match reason {
        Reason::NoReadsSent => write!(
            f,
            "max_rd_atomic of the queue pair is 0, and a READ or an atomic needs 1 at least. Set it in \
             the change to RTS, and max_dest_rd_atomic at the peer in the change to RTR (rule RN-12)"
        ),
        Reason::AtomicLength => write!(
            f,
            "its buffer has {}, and an atomic works on exactly {limit} (rule AT-08)",
            Bytes(value)
        ),
        Reason::TooLong => write!(f, "it has {}, and may have {limit} at most", Bytes(value)),
        Reason::OtherPd => write!(
            f,
            "its address handle belongs to protection domain {value}, the queue pair to {limit}"
        ),
        Reason::WrongService => {
            write!(
                f,
                "this type of queue pair does not have the operation that was posted: UD has SEND only, UC \
                 no READ and no atomics (rule PS-06)"
            )
        }
        Reason::MemoryGone => {
            write!(
                f,
                "the program has unmapped or protected the memory of its buffers (rule MR-40)"
            )
        }
        other => write!(f, "{other}"),
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoProcess => write!(
                f,
                "No process here has a queue pair of that number: its process has ended, or \
                 dest_qp_num is not what the peer has told"
            ),
            Self::Ended => write!(f, "The peer's process has ended, or has closed its device"),
            Self::NoQueuePair => write!(
                f,
                "The peer's process has no queue pair of that number: dest_qp_num is not what the peer \
                 has told"
            ),
            Self::Destroyed => write!(f, "The peer has destroyed that queue pair"),
            Self::Deaf(QpState::Error) => write!(
                f,
                "The peer's queue pair is in ERR: what its own process is told says why. It takes \
                 nothing until its program resets it"
            ),
            Self::Deaf(state) => write!(
                f,
                "The peer's queue pair is in {}, and takes nothing before its program has moved it to \
                 RTR. Tell each other when both are ready",
                State(state)
            ),
            Self::OtherService(service) => {
                write!(f, "The peer's queue pair is of another type ({})", ServiceName(service))
            }
            Self::OtherPeer(0) => write!(f, "The peer's queue pair is connected to none"),
            Self::OtherPeer(peer) => write!(
                f,
                "The peer's queue pair is connected to QP {peer:#x} (its dest_qp_num), not to this one"
            ),
            Self::OtherPsn { awaited, sent } => write!(
                f,
                "The peer's queue pair awaits PSN {awaited:#x} (its rq_psn) first, and this one began \
                 with {sent:#x} (its sq_psn): they must be equal"
            ),
            Self::Ready => write!(
                f,
                "The peer's queue pair is there, connected to this one, and takes requests now"
            ),
            Self::Deserted(address) => write!(
                f,
                "{address} says that nobody takes what comes by UDP port 4791. The peer's process has \
                 ended, or closed its device"
            ),
            Self::TooLong { packet, carried } => write!(
                f,
                "Its packets have {packet} bytes, and the way to the peer carries {carried}: path_mtu is \
                 {} at most, at both ends (rule PK-12)",
                path_mtu(carried)
            ),
            Self::PortDown => write!(
                f,
                "The port of this device is down: `transom run --fault port-down` or `transom rehearse` has \
                 taken it down for a while"
            ),
            Self::Far(address) => write!(
                f,
                "It went to {address} by UDP port 4791: is a process with a device there, does the network \
                 let the port through both ways, and are dest_qp_num and the PSNs those that the peer \
                 has told? `transom explain` there tells what it dropped"
            ),
        }
    }
}

/// Why a message was dropped.
fn unheard(f: &mut fmt::Formatter<'_>, why: Unheard) -> fmt::Result {
    match why {
        Unheard::Deaf(state) => {
            write!(f, "the queue pair is in {}, where it receives nothing", State(state))
        }
        Unheard::OtherService => {
            write!(f, "the queue pair is of another type, or not connected so")
        }
        Unheard::OtherPeer(peer) => {
            write!(f, "the queue pair is connected to QP {:#x} (its dest_qp_num)", peer.bits())
        }
        Unheard::OtherPsn { awaited, came } => write!(
            f,
            "the queue pair awaits PSN {awaited:#x} (its rq_psn) first, and {came:#x} came (the \
             sender's sq_psn): they must be equal"
        ),
        Unheard::OtherQkey { own, came } => {
            write!(f, "it has Q_Key {came:#x}, and the queue pair's is {own:#x} (rule UD-05)")
        }
        Unheard::NoReceive => write!(f, "no receive was posted (rule UD-04)"),
        Unheard::TooSmall { needed, room } => write!(
            f,
            "the receive posted for it has room for {}, and it needs {needed}, with the 40 of the \
             header before it (rule UD-04)",
            Bytes(room)
        ),
        Unheard::NoQueuePair => write!(f, "no queue pair here has that number"),
        Unheard::OtherAddress(address) => write!(
            f,
            "it came from {address}, which is not the address that the queue pair is connected to"
        ),
    }
}
