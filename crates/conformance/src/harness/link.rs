//! The links that a test runs over, and two ends connected by one.

use std::cell::RefCell;
use std::fs::File;

use transom_abi::*;
use transom_host::{Copying, Options};

use super::{End, bring_up, connect, open_adapter, post, recv, usual_attr, with_sges, wr};

/// How the two ends are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// One device.
    Loopback,
    /// Two devices, copying straight.
    Local,
    /// Two devices, copying through rings.
    Rings,
    /// Two devices, copying straight, with shared memory.
    Shared,
    /// Two devices that send each other packets.
    Wire,
}

/// Two connected queue pairs: requests go from `a`, the origin, to `b`, the target.
pub struct Pair {
    /// The origin's end.
    pub a: End,
    /// The target's end. On loopback it is another context of the same device.
    pub b: End,
    /// The origin queue pair.
    pub qa: *mut ibv_qp,
    /// The target queue pair.
    pub qb: *mut ibv_qp,
}

impl Pair {
    /// Two ends over a link, with queue pairs in RTS.
    pub fn new(link: Link, kind: ibv_qp_type) -> Self {
        let pair = Self::unconnected(link, kind);
        connect(pair.qa, pair.qb);
        pair
    }

    /// Two ends over a link, with RC queue pairs in RTS.
    pub fn rc(link: Link) -> Self {
        Self::new(link, IBV_QPT_RC)
    }

    /// Two ends over a link, with queue pairs in RESET.
    pub fn unconnected(link: Link, kind: ibv_qp_type) -> Self {
        let (a, b) = ends(link, Options::default());
        let (qa, qb) = (a.qp(kind), b.qp(kind));
        Self { a, b, qa, qb }
    }

    /// Another queue pair of each end, connected.
    pub fn another(&self, kind: ibv_qp_type) -> (*mut ibv_qp, *mut ibv_qp) {
        let (qa, qb) = (self.a.qp(kind), self.b.qp(kind));
        connect(qa, qb);
        (qa, qb)
    }

    /// Another RC queue pair of each end, connected. The attributes of each may differ from the usual.
    pub fn another_with(
        &self,
        origin: impl FnOnce(&mut ibv_qp_attr),
        target: impl FnOnce(&mut ibv_qp_attr),
    ) -> (*mut ibv_qp, *mut ibv_qp) {
        let (qa, qb) = (self.a.qp(IBV_QPT_RC), self.b.qp(IBV_QPT_RC));
        let (mut to_b, mut to_a) = (usual_attr(qb), usual_attr(qa));
        origin(&mut to_b);
        target(&mut to_a);
        bring_up(qa, &to_b);
        bring_up(qb, &to_a);
        (qa, qb)
    }

    /// Carries out one request on RC queue pairs of its own, so that earlier failures do not matter. Returns the status
    /// of its completion.
    pub fn request(&self, wr: &mut ibv_send_wr) -> ibv_wc_status {
        let (qa, _) = self.another(IBV_QPT_RC);
        post(qa, wr);
        self.a.wait().status
    }

    /// Sends a message from these SGEs into a receive of those. Returns the status at each end.
    pub fn message(
        &self,
        from: &mut [ibv_sge],
        to: &mut [ibv_sge],
    ) -> (ibv_wc_status, ibv_wc_status) {
        let (qa, qb) = self.another(IBV_QPT_RC);
        recv(qb, 9, to);
        post(qa, &mut with_sges(wr(IBV_WR_SEND), from));
        // Even on loopback each end has a queue of its own.
        (self.a.wait().status, self.b.wait().status)
    }
}

// SAFETY: only pointers to verbs objects, which any thread may use at any time.
unsafe impl Sync for Pair {}

/// Two ends over a link, on devices opened with `options`, except that the link decides how they copy.
pub fn ends(link: Link, options: Options) -> (End, End) {
    take_turn(link);
    let copying = if link == Link::Rings { Copying::Rings } else { Copying::Best };
    let options = Options { copying, wire_only: link == Link::Wire, ..options };
    let adapter = open_adapter(options);
    let a = End::of_device(adapter.clone());
    let b = match link {
        Link::Loopback => End::of_device(adapter),
        Link::Local | Link::Rings | Link::Shared | Link::Wire => End::new(options),
    };
    (a, b)
}

/// Waits for the turn of this thread's test, which lasts until the thread ends. A test over the wire has the turn
/// alone. Other tests share it with others of their network namespace.
///
/// Devices share one UDP port. When one opens or closes, datagrams of others may be late or lost, as in any network. So
/// a test of datagrams must run while no other test opens or closes a device, in this process or another.
pub fn take_turn(link: Link) {
    thread_local! {
        static HELD: RefCell<Option<(Link, File)>> = const { RefCell::new(None) };
    }
    HELD.with_borrow_mut(|held| match held {
        Some((Link::Wire, _)) => {}
        Some(_) if link != Link::Wire => {}
        _ => {
            drop(held.take());
            let file = File::open("/proc/self/ns/net").expect("there is a network namespace");
            if link == Link::Wire { file.lock() } else { file.lock_shared() }.expect("a turn");
            *held = Some((link, file));
        }
    });
}
