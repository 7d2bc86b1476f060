//! Address handles: making and ending them, and answering the sender of a datagram.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_ibverbs::*;
use transom_system::addresses::{Addresses, gid, ip};
use transom_wire::grh::Route;

/// The address of the sender of this; the errno if it is refused.
fn answer(
    context: *mut ibv_context,
    port: u8,
    mut wc: ibv_wc,
    area: *const u8,
) -> Result<ibv_ah_attr, c_int> {
    let mut attr = ibv_ah_attr { sl: 99, ..ibv_ah_attr::default() };
    // SAFETY: an open context, and an area of 40 bytes or null.
    match unsafe { ibv_init_ah_from_wc(context, port, &mut wc, area.cast_mut().cast(), &mut attr) }
    {
        0 => Ok(attr),
        code => {
            assert_eq!((code, attr.sl), (-1, 99), "nothing is written");
            Err(errno())
        }
    }
}

on_each_link! {
    /// With its completion and its first 40 bytes a datagram is answered: both verbs make the
    /// address, and the answer comes.
    /// Rules: UD-02, UD-07
    fn a_datagram_can_be_answered(link: Link) {
        let both = DatagramPair::new(link);
        let (a, b, qa, qb) = (&both.pair.a, &both.pair.b, both.pair.qa, both.pair.qb);
        for traffic_class in [0, 0x60] {
            both.recv(1, 200);
            let mut to = here();
            (to.grh.traffic_class, to.grh.hop_limit) = (traffic_class, 7);
            let there = ah(a.pd, &to);
            let request = addressed(wr(IBV_WR_SEND), there, number(qb), QKEY);
            post(qa, &mut { request });
            both.sent();
            let mut wc = b.expect(IBV_WC_SUCCESS);
            let area = both.far.addr() as *mut u8;
            let attr = answer(b.context, 1, wc, area).expect("an address");
            // SAFETY: plain bytes.
            assert_eq!((attr.is_global, unsafe { attr.grh.dgid.raw }), (1, LOOPBACK_GID));
            assert_eq!((attr.port_num, attr.grh.sgid_index), (1, 0));
            assert_eq!((attr.grh.traffic_class, attr.grh.hop_limit), (traffic_class, 7));
            let by_attr = ah(b.pd, &attr);
            // SAFETY: a live domain, and the receive's first bytes.
            let by_wc = unsafe { ibv_create_ah_from_wc(b.pd, &mut wc, area.cast(), 1) };
            assert!(!by_wc.is_null());
            // There and back again.
            let mine = a.reg(&both.near, ALL);
            for back in [by_attr, by_wc] {
                recv(qa, 5, &mut [sge(both.near.addr(), 64, mine)]);
                post(qb, &mut addressed(wr(IBV_WR_SEND), back, wc.src_qp, QKEY));
                b.expect(IBV_WC_SUCCESS);
                let wc = a.expect(IBV_WC_SUCCESS);
                assert_eq!((wc.wr_id, wc.opcode, wc.src_qp), (5, IBV_WC_RECV, number(qb)));
                assert!(answer(a.context, 1, wc, both.near.addr() as *const u8).is_ok());
                assert_eq!(destroy_ah(back), 0);
            }
        }
    }

    /// What was posted with an address handle goes, be it destroyed since.
    fn posted_datagrams_outlive_their_handle(link: Link) {
        let both = DatagramPair::new(link);
        both.recv(1, 200);
        let there = ah(both.pair.a.pd, &here());
        let mut sges = [sge(both.near.addr(), 8, both.ma)];
        let request = with_sges(wr(IBV_WR_SEND), &mut sges);
        // In SQD it waits in the queue.
        assert_eq!(set_state(both.pair.qa, IBV_QPS_SQD), 0);
        post(both.pair.qa, &mut addressed(request, there, number(both.pair.qb), QKEY));
        assert_eq!(destroy_ah(there), 0);
        both.nothing_came();
        assert_eq!(set_state(both.pair.qa, IBV_QPS_RTS), 0);
        both.sent();
        both.came(1, 8);
    }

    /// An address elsewhere is a good address; what is sent there does not come back.
    /// Rules: RN-15
    fn an_address_elsewhere_swallows_datagrams(link: Link) {
        let mut both = DatagramPair::new(link);
        both.recv(1, 200);
        // Of documents, so nobody's; a host without a way there refuses the handle.
        for ip in ["192.0.2.1", "2001:db8::1"] {
            let mut to = to_gid(gid(ip.parse().expect("an address")));
            // SAFETY: a live domain and an address of this test's own.
            let there = unsafe { ibv_create_ah(both.pair.a.pd, &mut to) };
            if there.is_null() {
                continue;
            }
            both.ah = there;
            both.send(8);
            both.nothing_came();
        }
    }
}

/// A protection domain is not freed while an address handle is in it.
/// Rules: PD-06
#[test]
fn a_handle_keeps_its_domain() {
    let end = End::new(Default::default());
    let pd = end.another_pd();
    let (one, two) = (ah(pd, &here()), ah(pd, &here()));
    assert_eq!(dealloc_pd(pd), libc::EBUSY);
    assert_eq!(destroy_ah(one), 0);
    assert_eq!(dealloc_pd(pd), libc::EBUSY);
    assert_eq!(destroy_ah(two), 0);
    assert_eq!(dealloc_pd(pd), 0);
    assert_eq!(try_ah(pd, &here()).unwrap_err(), libc::ENOENT);
}

/// A handle knows where it belongs, and goes once.
#[test]
fn a_handle_goes_once() {
    let end = End::new(Default::default());
    let handle = ah(end.pd, &here());
    // SAFETY: a live handle.
    unsafe { assert_eq!(((*handle).context, (*handle).pd), (end.context, end.pd)) };
    assert_eq!(destroy_ah(handle), 0);
    assert_eq!(destroy_ah(handle), libc::ENOENT);
    assert_ne!(destroy_ah(null_mut()), 0);
}

/// Addresses that make no sense are refused: the port, the source GID, the service level, no route at
/// all.
/// Rules: ST-09, NET-15
#[test]
fn senseless_addresses_are_refused() {
    let end = End::new(Default::default());
    let refused = |change: fn(&mut ibv_ah_attr)| {
        let mut attr = here();
        change(&mut attr);
        try_ah(end.pd, &attr).map(destroy_ah)
    };
    assert_eq!(refused(|_| ()), Ok(0));
    for change in [
        (|attr| attr.port_num = 0) as fn(&mut ibv_ah_attr),
        |attr| attr.port_num = 2,
        |attr| attr.port_num = 255,
        |attr| attr.grh.sgid_index = 127,
        |attr| attr.grh.sgid_index = 255,
        |attr| attr.is_global = 0,
        |attr| (attr.is_global, attr.dlid) = (0, 1),
        |attr| attr.sl = 8,
        |attr| attr.sl = 15,
        |attr| attr.sl = 255,
        |attr| *attr = from_the_other_family("192.0.2.77"),
        |attr| *attr = from_the_other_family("2001:db8::9"),
    ] {
        assert_eq!(refused(change), Err(libc::EINVAL));
    }
    assert_eq!(refused(|attr| attr.sl = 7), Ok(0));
    // SAFETY: nulls, which are refused.
    unsafe {
        assert!(ibv_create_ah(end.pd, null_mut()).is_null());
        assert_eq!(errno(), libc::EINVAL);
        assert!(ibv_create_ah(null_mut(), &mut here()).is_null());
        assert_ne!(errno(), 0);
    }
}

/// Nothing is made of an area that holds no header, of a port that is not there, or of nothing.
#[test]
fn garbage_is_no_address() {
    let end = End::new(Default::default());
    let with_grh = ibv_wc { wc_flags: IBV_WC_GRH, ..ibv_wc::default() };
    for byte in [0, 0x11, 0xff] {
        let area = [byte; GRH];
        assert_eq!(answer(end.context, 1, with_grh, area.as_ptr()).unwrap_err(), libc::EINVAL);
        let mut wc = with_grh;
        // SAFETY: a live domain and an area of 40 bytes.
        let made =
            unsafe { ibv_create_ah_from_wc(end.pd, &mut wc, area.as_ptr().cast_mut().cast(), 1) };
        assert!(made.is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
    // A good header but for one bit.
    let both = DatagramPair::new(Link::Loopback);
    both.recv(1, 200);
    both.send(8);
    let wc = both.came(1, 8);
    let context = both.pair.b.context;
    let good = both.far.read(0, GRH);
    assert!(answer(context, 1, wc, good.as_ptr()).is_ok());
    for port in [0, 2, 255] {
        assert_eq!(answer(context, port, wc, good.as_ptr()).unwrap_err(), libc::EINVAL);
    }
    for at in 20..GRH {
        let mut bad = good.clone();
        bad[at] ^= 4;
        assert_eq!(answer(context, 1, wc, bad.as_ptr()).unwrap_err(), libc::EINVAL, "byte {at}");
    }
    assert_eq!(answer(context, 1, wc, null_mut()).unwrap_err(), libc::EINVAL);
    // SAFETY: nulls, which are refused.
    unsafe {
        let area = good.as_ptr().cast_mut().cast();
        let (mut attr, mut wc) = (ibv_ah_attr::default(), wc);
        assert_eq!(ibv_init_ah_from_wc(context, 1, null_mut(), area, &mut attr), -1);
        assert_eq!(ibv_init_ah_from_wc(context, 1, &mut wc, area, null_mut()), -1);
        assert!(ibv_create_ah_from_wc(null_mut(), &mut wc, area, 1).is_null());
        assert!(ibv_create_ah_from_wc(both.pair.b.pd, null_mut(), area, 1).is_null());
    }
}

/// What was sent to a host is answered from the address that it was sent to, so there must be such a one; a group's
/// is nobody's, and answered from one that leads to the sender.
/// Rules: UD-02
#[test]
fn only_datagrams_of_this_port_are_answered() {
    let end = End::new(Default::default());
    let with_grh = ibv_wc { wc_flags: IBV_WC_GRH, ..ibv_wc::default() };
    let address = |text: &str| gid(text.parse().expect("an address"));
    let addresses = Addresses::read().expect("the addresses of this host");
    for (from, to) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "192.0.2.1"),
        ("127.0.0.1", "239.1.2.3"),
        ("::1", "2001:db8::1"),
        ("::1", "ff02::1234"),
    ] {
        let (source, destination) = (address(from), address(to));
        let route = Route { source, destination, traffic_class: 0, hop_limit: 9, flow_label: 0 };
        let mut area = route.write(8);
        let answered = answer(end.context, 1, with_grh, area.as_ptr());
        let expected = if ip(&destination).is_loopback() {
            addresses.own()
        } else {
            addresses.iter().find(|(_, address)| address.gid == destination)
        };
        let mut wc = with_grh;
        // SAFETY: a live domain and an area of 40 bytes.
        let made = unsafe { ibv_create_ah_from_wc(end.pd, &mut wc, area.as_mut_ptr().cast(), 1) };
        let Some((expected, _)) = expected else {
            assert_eq!(answered.unwrap_err(), libc::EINVAL, "{to}");
            assert!(made.is_null() && errno() == libc::EINVAL, "{to}");
            continue;
        };
        let attr = answered.unwrap_or_else(|errno| panic!("{to}: {errno}"));
        assert_eq!(usize::from(attr.grh.sgid_index), expected, "{to}");
        // SAFETY: plain bytes.
        assert_eq!((unsafe { attr.grh.dgid.raw }, attr.grh.hop_limit), (source, 9));
        assert_eq!(destroy_ah(made), 0, "{to}");
    }
}

/// Without an address handle, or with one that is gone, nothing is posted.
#[test]
fn a_datagram_needs_a_live_handle() {
    let both = DatagramPair::new(Link::Loopback);
    let gone = ah(both.pair.a.pd, &here());
    assert_eq!(destroy_ah(gone), 0);
    for handle in [null_mut(), gone] {
        let mut request = addressed(wr(IBV_WR_SEND), handle, number(both.pair.qb), QKEY);
        assert_eq!(try_post(both.pair.qa, &mut request), libc::EINVAL);
    }
    both.recv(1, 200);
    both.send(8);
    both.came(1, 8);
}

/// A context takes its address handles along when it is closed.
#[test]
fn a_context_takes_its_handles_along() {
    let mut end = End::new(Default::default());
    let handle = ah(end.pd, &here());
    end.close();
    assert_eq!(destroy_ah(handle), libc::ENOENT);
}
