//! Results of work requests.

use crate::moment::Moment;
use std::fmt;
use std::time::SystemTime;
use transom_abi::*;

/// A work request that succeeded; see `ibv_poll_cq(3)`.
///
/// It is evidence of the device's work, and [`Window::revoked_by`](crate::Window::revoked_by) relies on it. So only a
/// completion queue can make one:
///
/// ```compile_fail,E0451
/// # fn forged(genuine: transom::Completion) -> transom::Completion {
/// transom::Completion { invalidated_rkey: Some(0x1234), ..genuine } // its fields are private
/// # }
/// ```
///
/// ```compile_fail,E0616
/// # fn forged(mut genuine: transom::Completion) -> transom::Completion {
/// genuine.invalidated_rkey = Some(0x1234); // nor can they be changed
/// # genuine
/// # }
/// ```
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// # let builder = transom::QueuePair::builder(&pd, &cq);
/// # let (a, b) = (builder.build()?, builder.build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// use transom::Operation;
///
/// let received = b.receive(&[])?;
/// a.send_immediate(b"", 42)?.wait()?;
/// let completion = received.wait()?;
/// assert_eq!((completion.operation(), completion.immediate()), (Operation::Receive, Some(42)));
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    operation: Operation,
    length: usize,
    immediate: Option<u32>,
    invalidated_rkey: Option<u32>,
    queue_pair: u32,
    source: Option<Source>,
    timestamp: Option<SystemTime>,
    taken: Moment,
}

impl Completion {
    /// The operation that was done. For a receive, it tells the kinds of message apart.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The number of bytes that arrived, for receives, reads and atomics. 0 otherwise.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Immediate data that the peer sent along.
    pub fn immediate(&self) -> Option<u32> {
        self.immediate
    }

    /// The key of this side that the peer invalidated, for receives.
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.invalidated_rkey
    }

    /// The number of this side's queue pair. For a receive posted to a shared receive queue, it is the queue pair that
    /// took the receive (rule SQ-08).
    pub fn queue_pair(&self) -> u32 {
        self.queue_pair
    }

    /// The sender, for datagrams.
    pub fn source(&self) -> Option<Source> {
        self.source
    }

    /// The time when it was added to its completion queue, if the queue keeps
    /// [times](crate::CompletionQueue::with_timestamps).
    pub fn timestamp(&self) -> Option<SystemTime> {
        self.timestamp
    }

    /// The moment when it was taken from its completion queue.
    pub(crate) fn taken(&self) -> Moment {
        self.taken
    }
}

/// The sender of a datagram, as its completion reports it (rule UD-07).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The number of the sending queue pair.
    pub queue_pair: u32,
    /// Whether the first 40 bytes of the buffer are its global routing header. On Ethernet (RoCE) they always
    /// are.
    pub has_header: bool,
    /// The LID of the sender. 0 on Ethernet.
    pub lid: u16,
    /// Its service level.
    pub service_level: u8,
    /// The low bits of the LID that it was sent to.
    pub path_bits: u8,
}

/// A work request that failed.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// # let builder = transom::QueuePair::builder(&pd, &cq);
/// # let (a, b) = (builder.build()?, builder.build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// use transom::{Error, RemoteSlice, Status};
///
/// let nowhere = RemoteSlice { addr: 0, rkey: 0x1234, length: 4 };
/// match a.write(b"lost", nowhere)?.wait() {
///     Err(Error::Work(error)) => {
///         assert_eq!(error.status, Status::RemoteAccess);
///         println!("{error}"); // what was to be done, what came of it, and what to do about it
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{operation} on queue pair {queue_pair:#x} ended with {status:?}: {} (vendor error {vendor_error:#x}); \
     {}",
    status.reason(),
    status.advice()
)]
pub struct WorkError {
    /// What was to be done.
    pub operation: Operation,
    /// How it ended.
    pub status: Status,
    /// The device's own error code.
    pub vendor_error: u32,
    /// The number of this side's queue pair.
    pub queue_pair: u32,
}

/// Takes a completion apart, given what had been posted.
pub(crate) fn judge(
    wc: &ibv_wc,
    posted: Operation,
    timestamp: Option<SystemTime>,
    taken: Moment,
) -> Result<Completion, WorkError> {
    if wc.status != IBV_WC_SUCCESS {
        // In an error completion the opcode is not valid.
        return Err(WorkError {
            operation: posted,
            status: Status::from(wc.status),
            vendor_error: wc.vendor_err,
            queue_pair: wc.qp_num,
        });
    }
    let operation = match (posted, wc.opcode) {
        (Operation::Receive, IBV_WC_RECV_RDMA_WITH_IMM) => Operation::ReceiveWrite,
        _ => posted,
    };
    let has = |flag| wc.wc_flags & flag != 0;
    // SAFETY: both members of the union are plain integers of the same size.
    let (immediate, rkey) = unsafe { (wc.imm.imm_data, wc.imm.invalidated_rkey) };
    Ok(Completion {
        operation,
        length: if operation.brings_bytes() { wc.byte_len as usize } else { 0 },
        immediate: has(IBV_WC_WITH_IMM).then(|| u32::from_be(immediate)),
        // A peer's doing; of what was posted here the flag says nothing.
        invalidated_rkey: (operation == Operation::Receive && has(IBV_WC_WITH_INV)).then_some(rkey),
        queue_pair: wc.qp_num,
        source: (operation == Operation::ReceiveDatagram).then(|| Source {
            queue_pair: wc.src_qp,
            has_header: has(IBV_WC_GRH),
            lid: wc.slid,
            service_level: wc.sl,
            path_bits: wc.dlid_path_bits,
        }),
        timestamp,
        taken,
    })
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A send, with or without immediate data or a key to invalidate.
    Send,
    /// An RDMA write, with or without immediate data.
    Write,
    /// An RDMA read.
    Read,
    /// An atomic compare and swap.
    CompareSwap,
    /// An atomic fetch and add.
    FetchAdd,
    /// An atomic write of eight bytes.
    AtomicWrite,
    /// The bind of a memory window.
    BindWindow,
    /// A local invalidation.
    LocalInvalidate,
    /// A receive.
    Receive,
    /// A receive that an RDMA write with immediate data consumed: its bytes are where the writer
    /// put them, not in the receive's slices.
    ReceiveWrite,
    /// A receive of a datagram. Its length counts the 40 bytes of the header too (rule UD-01).
    ReceiveDatagram,
}

impl Operation {
    fn brings_bytes(self) -> bool {
        match self {
            Self::Read
            | Self::CompareSwap
            | Self::FetchAdd
            | Self::Receive
            | Self::ReceiveWrite
            | Self::ReceiveDatagram => true,
            Self::Send
            | Self::Write
            | Self::AtomicWrite
            | Self::BindWindow
            | Self::LocalInvalidate => false,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "a send",
            Self::Write => "a write",
            Self::Read => "a read",
            Self::CompareSwap => "a compare and swap",
            Self::FetchAdd => "a fetch and add",
            Self::AtomicWrite => "an atomic write",
            Self::BindWindow => "a window bind",
            Self::LocalInvalidate => "a local invalidation",
            Self::Receive => "a receive",
            Self::ReceiveDatagram => "a receive of a datagram",
            Self::ReceiveWrite => "a receive of immediate data",
        })
    }
}

/// Declares the statuses: name, C name, reason and advice.
macro_rules! statuses {
    ($($name:ident = $code:ident: $reason:literal, $advice:ident;)*) => {
        /// How a failed work request ended: `enum ibv_wc_status` but for success.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Status {
            $(
                #[doc = concat!("`", stringify!($code), "`: ", $reason, ".")]
                $name,
            )*
            /// A status this crate does not know.
            Other(u32),
        }

        impl From<ibv_wc_status> for Status {
            fn from(status: ibv_wc_status) -> Self {
                match status {
                    $($code => Self::$name,)*
                    other => Self::Other(other),
                }
            }
        }

        impl Status {
            /// What it means, in a few words.
            pub fn reason(self) -> &'static str {
                match self {
                    $(Self::$name => $reason,)*
                    Self::Other(_) => "the device gave a status that is not known here",
                }
            }

            /// What to do about it.
            fn advice(self) -> &'static str {
                match self {
                    $(Self::$name => $advice,)*
                    Self::Other(_) => EARLIER,
                }
            }
        }
    };
}

const LOCAL: &str = "check the request's slices: their rights, their domain and their lengths";
const REMOTE: &str = "ask the peer for a grant that covers it; where the peer runs on the \
                      software device, `transom explain` there says why it was refused";
const BIND: &str = "check the region's MW_BIND and LOCAL_WRITE, the window's state, and that all \
                    are of one domain; on the software device, `transom explain` says which";
const EARLIER: &str = "make a new queue pair; the first failed request on this one says why";
const PEER: &str = "see that the peer is alive and connected to this queue pair";
const RECEIVE: &str = "let the peer post receives, and large enough ones";

statuses! {
    LocalLength = IBV_WC_LOC_LEN_ERR: "a local buffer's length does not suit the message", LOCAL;
    LocalQueuePair = IBV_WC_LOC_QP_OP_ERR: "the queue pair found the request inconsistent", LOCAL;
    LocalContext = IBV_WC_LOC_EEC_OP_ERR: "the end-to-end context found it inconsistent", LOCAL;
    LocalProtection = IBV_WC_LOC_PROT_ERR: "a local buffer is not covered by its key", LOCAL;
    Flushed = IBV_WC_WR_FLUSH_ERR: "it was flushed, since the queue pair is in error", EARLIER;
    WindowBind = IBV_WC_MW_BIND_ERR: "the window could not be bound or invalidated", BIND;
    BadResponse = IBV_WC_BAD_RESP_ERR: "the responder sent something unexpected", PEER;
    LocalAccess = IBV_WC_LOC_ACCESS_ERR: "the peer's write was refused here", REMOTE;
    RemoteInvalidRequest = IBV_WC_REM_INV_REQ_ERR: "the peer found the request invalid", RECEIVE;
    RemoteAccess = IBV_WC_REM_ACCESS_ERR: "the remote key does not permit the access", REMOTE;
    RemoteOperation = IBV_WC_REM_OP_ERR: "the peer could not complete the operation", RECEIVE;
    RetryExceeded = IBV_WC_RETRY_EXC_ERR: "the peer did not answer", PEER;
    ReceiverNotReady = IBV_WC_RNR_RETRY_EXC_ERR: "the peer had no receive posted", RECEIVE;
    LocalDatagramDomain = IBV_WC_LOC_RDD_VIOL_ERR: "reliable datagram domains differ", LOCAL;
    RemoteDatagram = IBV_WC_REM_INV_RD_REQ_ERR: "a reliable datagram request is invalid", PEER;
    RemoteAborted = IBV_WC_REM_ABORT_ERR: "the peer aborted the operation", PEER;
    ContextNumber = IBV_WC_INV_EECN_ERR: "the end-to-end context number is invalid", LOCAL;
    ContextState = IBV_WC_INV_EEC_STATE_ERR: "the end-to-end context is in a wrong state", LOCAL;
    Fatal = IBV_WC_FATAL_ERR: "the transport met a fatal error", EARLIER;
    ResponseTimeout = IBV_WC_RESP_TIMEOUT_ERR: "the responder took too long", PEER;
    General = IBV_WC_GENERAL_ERR: "the transport met another error", EARLIER;
    TagMatching = IBV_WC_TM_ERR: "tag matching failed", LOCAL;
    RendezvousIncomplete = IBV_WC_TM_RNDV_INCOMPLETE: "a rendezvous is not complete", LOCAL;
}
