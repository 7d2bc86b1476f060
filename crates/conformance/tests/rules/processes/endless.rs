//! A peer that goes on sending. It keeps nobody from going on with something else.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;

/// How many WRITEs are under way at once.
const UNDER_WAY: u64 = 64;
/// After how many the writer says so.
const SAYS: u64 = 5_000;

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("writer", writer)]);
}

/// Writes without end, as messages, and is never without one under way.
fn writer(channel: &mut Channel) {
    let end = open();
    let (qp, other) = (end.qp(IBV_QPT_RC), end.qp(IBV_QPT_RC));
    meet(channel, qp);
    meet(channel, other);
    let [addr, key] = channel.hear();
    let near = Buffer::new(64);
    near.fill(7);
    for posted in 0_u64.. {
        if posted >= UNDER_WAY {
            end.expect(IBV_WC_SUCCESS);
        }
        let mut sges = [sge(near.addr(), 64, null_mut())];
        let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, addr, key as u32);
        write.send_flags |= IBV_SEND_INLINE;
        post(qp, &mut write);
        if posted % SAYS == SAYS - 1 {
            channel.tell(&[posted]);
        }
    }
}

/// Polls return, queue pairs of the same peer change their state, and a program that does not poll serves it all the
/// same.
#[test]
fn a_peer_that_goes_on_sending_stops_nobody() {
    alone(path_of!("a_peer_that_goes_on_sending_stops_nobody"), Way::Rings, || {
        let end = open();
        let mut writer = Child::start(path_of!("writer"));
        let (qp, other) = (end.qp(IBV_QPT_RC), end.qp(IBV_QPT_RC));
        meet(&mut writer.channel, qp);
        meet(&mut writer.channel, other);
        let far = Buffer::new(64);
        let mr = end.reg(&far, ALL);
        writer.tell(&[far.addr(), keys(mr).1.into()]);
        let [_] = writer.hear();
        for _ in 0..1000 {
            end.expect_nothing();
        }
        for state in [IBV_QPS_ERR, IBV_QPS_RESET] {
            assert_eq!(set_state(other, state), 0);
        }
        // Nobody polls here.
        for _ in 0..3 {
            let [_] = writer.hear();
        }
        assert_eq!(far.read(0, 64), [7; 64]);
        writer.kill();
    });
}
