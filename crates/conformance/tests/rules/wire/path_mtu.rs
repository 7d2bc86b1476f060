//! A way that carries less than the packets of a queue pair.

use std::process::Command;

use transom_abi::*;
use transom_conformance::explained::explained;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_conformance::queues::number;

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
}

/// What this host's own kernel refuses for its length is lost, as on any network, and it is told why.
///
/// Rules: PK-12, EX-01
#[test]
fn packets_that_are_too_long_for_their_way_are_told_of() {
    alone(path_of!("packets_that_are_too_long_for_their_way_are_told_of"), Way::Namespace, || {
        ip("link set lo up");
        let pair = Pair::rc(Link::Wire);
        let (qa, qb) = (pair.a.qp(IBV_QPT_RC), pair.b.qp(IBV_QPT_RC));
        // A quarter of a second: on a busy machine the first message needs some time.
        let soon =
            ibv_qp_attr { path_mtu: IBV_MTU_4096, timeout: 16, retry_cnt: 1, ..usual_attr(qb) };
        bring_up(qa, &soon);
        bring_up(qb, &ibv_qp_attr { path_mtu: IBV_MTU_4096, ..usual_attr(qa) });
        ip("link set lo mtu 1500");
        let (from, to) = (Buffer::new(8192), Buffer::new(8192));
        let (ma, mb) = (pair.a.reg(&from, ALL), pair.b.reg(&to, ALL));
        let send = |length| {
            recv(qb, 1, &mut [sge(to.addr(), 8192, mb)]);
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(from.addr(), length, ma)]));
        };
        // A message of one packet may be shorter.
        send(1024);
        pair.a.expect(IBV_WC_SUCCESS);
        send(8192);
        pair.a.expect(IBV_WC_RETRY_EXC_ERR);
        let told = explained(number(qa), number(qb));
        let why = "and the way to the peer carries 1500: path_mtu is 1024 at most, at both ends";
        assert!(told.iter().any(|sentence| sentence.contains(why)), "{told:#?}");
    });
}
