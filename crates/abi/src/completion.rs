//! Work completions as `ibv_poll_cq(3)` returns them.

use core::ffi::c_uint;

c_enum! {
    /// How a work request ended; `ibv_wc_status_str(3)` names it.
    ibv_wc_status: c_uint {
        /// It succeeded.
        IBV_WC_SUCCESS = 0,
        /// A local buffer's length does not suit the message.
        IBV_WC_LOC_LEN_ERR = 1,
        /// The QP found the request inconsistent.
        IBV_WC_LOC_QP_OP_ERR = 2,
        /// The end-to-end context found the request inconsistent.
        IBV_WC_LOC_EEC_OP_ERR = 3,
        /// A local buffer is not covered by its key.
        IBV_WC_LOC_PROT_ERR = 4,
        /// Flushed, since the QP is in error.
        IBV_WC_WR_FLUSH_ERR = 5,
        /// A memory window could not be bound.
        IBV_WC_MW_BIND_ERR = 6,
        /// The responder sent something unexpected.
        IBV_WC_BAD_RESP_ERR = 7,
        /// A write with immediate data met a local protection error.
        IBV_WC_LOC_ACCESS_ERR = 8,
        /// The responder found the request invalid.
        IBV_WC_REM_INV_REQ_ERR = 9,
        /// The remote key does not permit the access.
        IBV_WC_REM_ACCESS_ERR = 10,
        /// The responder could not complete the operation.
        IBV_WC_REM_OP_ERR = 11,
        /// The transport retries were used up.
        IBV_WC_RETRY_EXC_ERR = 12,
        /// The receiver-not-ready retries were used up.
        IBV_WC_RNR_RETRY_EXC_ERR = 13,
        /// The reliable datagram domains differ.
        IBV_WC_LOC_RDD_VIOL_ERR = 14,
        /// The responder found a reliable datagram request invalid.
        IBV_WC_REM_INV_RD_REQ_ERR = 15,
        /// The other side aborted the operation.
        IBV_WC_REM_ABORT_ERR = 16,
        /// The end-to-end context number is invalid.
        IBV_WC_INV_EECN_ERR = 17,
        /// The end-to-end context is in the wrong state.
        IBV_WC_INV_EEC_STATE_ERR = 18,
        /// The transport met a fatal error.
        IBV_WC_FATAL_ERR = 19,
        /// The responder took too long.
        IBV_WC_RESP_TIMEOUT_ERR = 20,
        /// Some other error.
        IBV_WC_GENERAL_ERR = 21,
        /// An error in tag matching.
        IBV_WC_TM_ERR = 22,
        /// A rendezvous the software must complete.
        IBV_WC_TM_RNDV_INCOMPLETE = 23,
    }
}

c_enum! {
    /// Which operation completed.
    ibv_wc_opcode: c_uint {
        /// A send.
        IBV_WC_SEND = 0,
        /// An RDMA write.
        IBV_WC_RDMA_WRITE = 1,
        /// An RDMA read.
        IBV_WC_RDMA_READ = 2,
        /// A compare and swap.
        IBV_WC_COMP_SWAP = 3,
        /// A fetch and add.
        IBV_WC_FETCH_ADD = 4,
        /// A memory window bind.
        IBV_WC_BIND_MW = 5,
        /// A local invalidation.
        IBV_WC_LOCAL_INV = 6,
        /// A segmented TCP send.
        IBV_WC_TSO = 7,
        /// An atomic write.
        IBV_WC_ATOMIC_WRITE = 9,
        /// A receive; this bit is set in all that consume a receive request.
        IBV_WC_RECV = 1 << 7,
        /// A receive request consumed by an RDMA write with immediate data.
        IBV_WC_RECV_RDMA_WITH_IMM = 129,
        /// A tag was added.
        IBV_WC_TM_ADD = 130,
        /// A tag was removed.
        IBV_WC_TM_DEL = 131,
        /// The tag list was synchronised.
        IBV_WC_TM_SYNC = 132,
        /// A tagged message was received.
        IBV_WC_TM_RECV = 133,
        /// A message without a tag was received.
        IBV_WC_TM_NO_TAG = 134,
        /// Left to the driver.
        IBV_WC_DRIVER1 = 135,
        /// Left to the driver.
        IBV_WC_DRIVER2 = 136,
        /// Left to the driver.
        IBV_WC_DRIVER3 = 137,
    }
}

/// Number of the bit [`IBV_WC_IP_CSUM_OK`].
pub const IBV_WC_IP_CSUM_OK_SHIFT: c_uint = 2;

c_enum! {
    /// Bits of [`ibv_wc::wc_flags`].
    ibv_wc_flags: c_uint {
        /// The buffer begins with a global routing header.
        IBV_WC_GRH = 1 << 0,
        /// Immediate data is present.
        IBV_WC_WITH_IMM = 1 << 1,
        /// The IP and transport checksums were right.
        IBV_WC_IP_CSUM_OK = 1 << IBV_WC_IP_CSUM_OK_SHIFT,
        /// A remote key was invalidated.
        IBV_WC_WITH_INV = 1 << 3,
        /// The software must synchronise the tag list.
        IBV_WC_TM_SYNC_REQ = 1 << 4,
        /// The message matched a tag.
        IBV_WC_TM_MATCH = 1 << 5,
        /// The data of a tagged message has arrived.
        IBV_WC_TM_DATA_VALID = 1 << 6,
    }
}

/// Immediate data or invalidated key of an [`ibv_wc`]; its flags say which.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_wc_imm {
    /// Immediate data, network byte order, with [`IBV_WC_WITH_IMM`].
    pub imm_data: u32,
    /// Invalidated remote key, host byte order, with [`IBV_WC_WITH_INV`].
    pub invalidated_rkey: u32,
}
plain_union!(ibv_wc_imm, imm_data = 0);

/// A work completion, see `ibv_poll_cq(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wc {
    /// The identifier the work request was posted with.
    pub wr_id: u64,
    /// How it ended; otherwise only `wr_id`, `qp_num` and `vendor_err` are valid.
    pub status: ibv_wc_status,
    /// Which operation it was.
    pub opcode: ibv_wc_opcode,
    /// The vendor's error code.
    pub vendor_err: u32,
    /// Bytes transferred, for receives, reads and atomics.
    pub byte_len: u32,
    /// Immediate data or invalidated key (anonymous in C).
    pub imm: ibv_wc_imm,
    /// The local QP.
    pub qp_num: u32,
    /// The sending QP, for datagrams.
    pub src_qp: u32,
    /// Bits of [`ibv_wc_flags`].
    pub wc_flags: c_uint,
    /// Index of the partition key, for GSI QPs.
    pub pkey_index: u16,
    /// Source LID, for datagrams.
    pub slid: u16,
    /// Service level, for datagrams.
    pub sl: u8,
    /// Low bits of the destination LID, for datagrams.
    pub dlid_path_bits: u8,
}
