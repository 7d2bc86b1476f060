//! A queue pair connected to that of the other end, and waits for its completions.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_conformance::harness::{End, bring_up, poll, post, usual_attr, wr};
use transom_conformance::processes::{number, open};
use transom_ibverbs::*;

use crate::meeting::Meeting;

/// If no completion comes for this long, something is stuck.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The message when the process at the other end has ended too early.
const GONE: &str = "the other end is gone, and a request to it fails";

/// A connected queue pair whose completions raise events.
pub(crate) struct Connection {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
}

impl Connection {
    /// Connects.
    pub(crate) fn new(
        meeting: &mut Meeting,
        gid: u8,
        mtu: u32,
        timeout: u8,
    ) -> Result<Self, String> {
        let end = open();
        // SAFETY: the context is open, and everything made here lives as long as the process.
        let (channel, cq) = unsafe {
            let channel = ibv_create_comp_channel(end.context);
            (channel, ibv_create_cq(end.context, 256, null_mut(), channel, 0))
        };
        assert!(!channel.is_null() && !cq.is_null());
        let mut init = end.init(IBV_QPT_RC);
        (init.send_cq, init.recv_cq) = (cq, cq);
        let qp = end.qp_with(&mut init);
        let peer = Peer::meet(meeting, qp, own_gid(&end, gid)?)?;
        let mut attr = ibv_qp_attr {
            path_mtu: match mtu {
                256 => IBV_MTU_256,
                512 => IBV_MTU_512,
                1024 => IBV_MTU_1024,
                2048 => IBV_MTU_2048,
                4096 => IBV_MTU_4096,
                _ => return Err(format!("there is no MTU of {mtu}")),
            },
            dest_qp_num: peer.qp,
            rq_psn: peer.psn,
            sq_psn: first_psn(number(qp)),
            min_rnr_timer: 12,
            timeout,
            retry_cnt: 7,
            ..usual_attr(null_mut())
        };
        attr.ah_attr.grh.dgid = ibv_gid { raw: peer.gid };
        attr.ah_attr.grh.sgid_index = gid;
        attr.ah_attr.grh.hop_limit = 64;
        bring_up(qp, &attr);
        Ok(Self { pd: end.pd, qp, cq, channel })
    }

    /// The number of its queue pair.
    pub(crate) fn number(&self) -> u64 {
        number(self.qp)
    }

    /// Waits for the next completion, which must be a success. If the process at the other end is gone, a request to it
    /// must fail because no answer comes.
    pub(crate) fn completion(&self, meeting: &Meeting) -> Result<ibv_wc, String> {
        let start = Instant::now();
        let (mut armed, mut is_over) = (false, false);
        loop {
            if let Some(wc) = poll(self.cq) {
                match (wc.status, is_over) {
                    (IBV_WC_SUCCESS, false) => return Ok(wc),
                    (IBV_WC_SUCCESS, true) => continue,
                    (status, false) => return Err(format!("{}: {}", wc.wr_id, text(status))),
                    (status, true) => return Err(format!("{GONE}: {}", text(status))),
                }
            }
            if !is_over && meeting.is_over() {
                is_over = true;
                post(self.qp, &mut wr(IBV_WR_RDMA_WRITE));
            }
            if start.elapsed() > TIMEOUT {
                return Err(format!("no completion for {TIMEOUT:?}"));
            }
            if armed {
                self.wait_for_event(meeting, is_over);
            } else {
                self.arm();
            }
            armed = !armed;
        }
    }

    /// Asks for an event at the next completion.
    fn arm(&self) {
        // SAFETY: the queue is live.
        unsafe {
            let arm = (*(*self.cq).context).ops.req_notify_cq.expect("never null");
            assert_eq!(arm(self.cq, 0), 0);
        }
    }

    /// Sleeps until there is a completion, the other end is gone, or a second has passed.
    fn wait_for_event(&self, meeting: &Meeting, is_over: bool) {
        // `poll` ignores a descriptor of -1.
        let other = if is_over { -1 } else { meeting.descriptor() };
        // SAFETY: the channel is live. The entries are this call's own. An event is taken only if there is one.
        unsafe {
            let mut waited = [(*self.channel).fd, other].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            libc::poll(waited.as_mut_ptr(), 2, 1000);
            if waited[0].revents & libc::POLLIN != 0 {
                let (mut cq, mut context) = (null_mut(), null_mut());
                assert_eq!(ibv_get_cq_event(self.channel, &mut cq, &mut context), 0);
                ibv_ack_cq_events(cq, 1);
            }
        }
    }
}

/// The facts about the other end's queue pair that an end needs.
struct Peer {
    qp: u32,
    psn: u32,
    gid: [u8; 16],
}

impl Peer {
    fn meet(meeting: &mut Meeting, qp: *mut ibv_qp, gid: [u8; 16]) -> Result<Self, String> {
        let gid = u128::from_be_bytes(gid);
        let [qp, high, low] = meeting.swap([number(qp), (gid >> 64) as u64, gid as u64])?;
        let gid = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Ok(Self { qp: qp as u32, psn: first_psn(qp), gid })
    }
}

/// The first PSN of a queue pair. It is near the largest number, so that PSNs wrap to zero.
fn first_psn(qp: u64) -> u32 {
    0xFF_FFFF - (qp as u32 & 0x3FF)
}

fn own_gid(end: &End, index: u8) -> Result<[u8; 16], String> {
    let mut gid = ibv_gid { raw: [0; 16] };
    // SAFETY: the context is open.
    match unsafe { ibv_query_gid(end.context, 1, index.into(), &mut gid) } {
        // SAFETY: 16 bytes, and any bytes are valid.
        0 => Ok(unsafe { gid.raw }),
        _ => Err(format!("no GID with index {index}")),
    }
}

fn text(status: ibv_wc_status) -> String {
    // SAFETY: the verb returns a static string for every number.
    unsafe { CStr::from_ptr(ibv_wc_status_str(status)) }.to_string_lossy().into_owned()
}
