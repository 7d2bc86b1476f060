//! Requests and completions, as the program sees them.

use super::buffer::{Pieces, PiecesMut};
use super::{Bind, Buffers, Piece, Sample};
use crate::Call;

/// The program's request for a queue pair, before the device rounded it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// `cap.max_send_wr`
    pub sends: u32,
    /// `cap.max_recv_wr`
    pub receives: u32,
    /// `cap.max_send_sge`
    pub send_sges: u32,
    /// `cap.max_recv_sge`
    pub receive_sges: u32,
    /// `cap.max_inline_data`
    pub inline: u32,
    /// `sq_sig_all`
    pub signals_all: bool,
    /// It is of a service whose queue pairs still receive after a request has failed: UD or UC.
    pub receives_on: bool,
    /// It is the receiving end of an XRC connection. Its messages go to shared receive queues that they name.
    pub is_xrc_target: bool,
    /// The device.
    pub device: usize,
    /// The address of the shared receive queue, or 0.
    pub shared: usize,
    /// The address of the completion queue of sends, or 0.
    pub send_queue: usize,
    /// The address of the completion queue of receives, or 0.
    pub receive_queue: usize,
}

impl Asked {
    /// The completion queues, and the number of requests that may complete into each. Receives of a shared receive
    /// queue are not counted.
    pub(super) fn completions(&self) -> [(usize, u64); 2] {
        let receives = if self.shared == 0 { self.receives } else { 0 };
        [(self.send_queue, self.sends.into()), (self.receive_queue, receives.into())]
    }
}

/// The times that a queue pair had no receive for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RanDry {
    /// The number of times.
    pub times: u64,
    /// The total wait that the peer was asked for, in nanoseconds.
    pub waits: u64,
}

/// A work request that was posted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// The program's number for it.
    pub wr_id: u64,
    /// The name of its operation, such as "SEND".
    pub what: &'static str,
    /// The total length of its buffers in bytes.
    pub bytes: u64,
    /// The number of its buffers.
    pub sges: u32,
    /// The buffers that the device uses until the completion is polled. Empty if the post copied the data.
    pub buffers: Buffers,
    /// The device writes to them.
    pub is_target: bool,
    /// It is a receive.
    pub is_receive: bool,
    /// The R_Key and the address that a READ reads at, or a WRITE writes to.
    pub remote: Option<(u32, u64)>,
    /// The number that a fetch-and-add adds.
    pub adds: Option<u64>,
    /// The content of its buffers that only the device may change, if they are watched.
    pub sample: Sample,
    /// The post copied the data.
    pub is_inline: bool,
    /// It asks for a completion.
    pub is_signaled: bool,
    /// Its bind, if it binds a window.
    pub binds: Option<Bind>,
    /// The call that posted it.
    pub call: Call,
}

impl Posted {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.wr_id, self.call) == (other.wr_id, other.call)
    }

    pub(super) fn here(&self) -> (String, Call) {
        let Self { wr_id, what, bytes, .. } = self;
        let of = match *what {
            "bind" | "LOCAL_INV" => String::new(),
            _ => format!(" of {bytes} bytes"),
        };
        (format!("posted here: {what}{of}, wr_id {wr_id:#x}"), self.call)
    }

    /// The pieces of its sample.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<&[u8]>> {
        Pieces::of(&self.buffers, &self.sample)
    }

    /// The same, with room for what is there now.
    pub fn pieces_mut(&mut self) -> impl Iterator<Item = Piece<&mut [u8]>> {
        PiecesMut::of(&self.buffers, &mut self.sample)
    }
}

/// A request that has ended, by the poll of its completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The address of its queue pair.
    pub pair: usize,
    /// The queue pair's number.
    pub number: u32,
    /// The request.
    pub posted: Posted,
}

/// A completion that was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The completion queue that it came from.
    pub queue: usize,
    /// The queue pair's number.
    pub number: u32,
    /// The `wr_id` of the work request.
    pub wr_id: u64,
    /// It belongs to a receive.
    pub is_receive: bool,
    /// It belongs to a tagged buffer, whose message is there. Of one that has failed it may be that of any receive.
    pub is_tagged: bool,
    /// The number of bytes that it tells of.
    pub bytes: u64,
    /// It succeeded.
    pub is_success: bool,
    /// It failed for its own reason: it was not flushed.
    pub has_failed: bool,
    /// The name of its status, if the status says that the device or the peer does not allow the request.
    pub refused: Option<&'static str>,
}

/// A completion that nobody polled, with an error other than a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The `wr_id` of the work request.
    pub wr_id: u64,
    /// The name of the status.
    pub status: &'static str,
}
