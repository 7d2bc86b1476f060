//! Calls that are refused at once leave a record of which it was and why, which `transom explain` prints.

use std::ffi::c_int;
use std::net::IpAddr;
use std::process::Command;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::datagrams::to_gid;
use transom_conformance::explained::on_one_line;
use transom_conformance::extended::verbs;
use transom_conformance::harness::*;
use transom_conformance::programs::command;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_host::{Adapter, Limits, Options};
use transom_ibverbs::*;
use transom_system::addresses::{Addresses, gid};
use transom_system::registry::Registry;

/// An end, and where its refusals are kept.
struct Refusals {
    end: End,
    slot: u8,
}

impl Refusals {
    fn new() -> Self {
        let adapter = Adapter::open(Options::default()).expect("a device opens");
        let slot = adapter.device().process().announcer().slot;
        Self { end: End::of_device(adapter), slot }
    }

    /// The refusals until now, newest last.
    fn told(&self) -> Vec<String> {
        let registry = Registry::open().expect("the registry");
        let records = registry.refused_calls(self.slot);
        records.iter().map(|record| record.call.to_string()).collect()
    }

    /// One more was told, and in these words.
    fn expect(&self, before: usize, words: &str) {
        let told = self.told();
        assert_eq!(told.len(), before + 1, "{words}: {told:#?}");
        assert_eq!(told[before], words);
    }
}

/// An address vector to a host.
fn to(address: &str) -> ibv_ah_attr {
    let address: IpAddr = address.parse().expect("an address");
    to_gid(gid(address))
}

/// A process that has closed its device and runs on has not ended, and its refusals are still told.
#[test]
fn a_device_that_was_closed_is_no_process_that_has_ended() {
    // No other test asks for so many.
    const SENDS: u32 = 40_321;
    let mut end = Refusals::new().end;
    let cap = ibv_qp_cap { max_send_wr: SENDS, ..end.init(IBV_QPT_RC).cap };
    // SAFETY: live objects.
    let qp =
        unsafe { ibv_create_qp(end.pd, &mut ibv_qp_init_attr { cap, ..end.init(IBV_QPT_RC) }) };
    assert!(qp.is_null());
    let explain = |options: &[&str]| {
        let [transom, ..] = command();
        let mut command = Command::new(transom);
        command.args(["explain", "--limit", "100000", "--pid", &std::process::id().to_string()]);
        let output = command.args(options).output().expect("a program");
        String::from_utf8(output.stdout).expect("text")
    };
    let wanted = format!("cap.max_send_wr is {SENDS}");
    let told = || {
        let printed = explain(&["--json"]);
        printed.lines().find(|line| line.contains(&wanted)).expect("it was refused").to_owned()
    };
    let open = told();
    assert!(open.contains("\"device_state\":\"open\""), "{open}");
    end.close();
    let closed = told();
    assert!(closed.contains("\"device_state\":\"closed\""), "{closed}");
    let printed = on_one_line(&explain(&[]));
    let (before, _) = printed.split_once(&wanted).expect("it is told to people too");
    let whose = before.rsplit(" ago) ").next().expect("the time comes before it");
    assert!(whose.contains("(device closed)"), "{whose}");
}

/// The same thing is told once, with how often it was. Each process keeps its last 64 refusals.
#[test]
fn what_is_refused_again_and_again_is_counted_and_what_is_lost_is_said() {
    let refusals = Refusals::new();
    for _ in 0..70 {
        assert!(alloc_mw(refusals.end.pd, 3).is_err());
    }
    let [transom, ..] = command();
    let explain = |options: &[&str]| {
        let mut command = Command::new(transom);
        command.args(["explain", "--pid", &std::process::id().to_string()]).args(options);
        String::from_utf8(command.output().expect("a program").stdout).expect("text")
    };
    // Other tests of this process have devices too.
    let told = explain(&["--limit", "1000"]);
    assert!(told.contains("\n  64 times, the first at "), "{told}");
    assert!(
        on_one_line(&told).contains(": 6 older refusals are lost; each process keeps its last 64."),
        "{told}"
    );
    let lines = explain(&["--json", "--limit", "100000"]);
    let of_it =
        |line: &&str| line.contains("\"verb\":\"ibv_alloc_mw\"") && line.contains("\"lost\":6,");
    assert_eq!(lines.lines().filter(of_it).count(), 64, "{lines}");
}

/// Each says which call, which argument, what it was and may be, what was answered, and the rule.
/// Rules: CR-03, CR-05, CR-06, CR-13, CR-15, CR-19, MR-04, MR-08, MR-18, MR-21, MR-29, MWA-03, ST-09, ST-29
#[test]
fn what_is_not_made_is_told() {
    let refusals = Refusals::new();
    let end = &refusals.end;
    let mut number = 0;
    let mut told = |words: &str| {
        refusals.expect(number, words);
        number += 1;
    };
    let refused = |init: ibv_qp_init_attr| {
        // SAFETY: live objects, or null, which is refused.
        assert!(unsafe { ibv_create_qp(end.pd, &mut { init }) }.is_null());
    };
    let usual = end.init(IBV_QPT_RC);
    refused(ibv_qp_init_attr {
        cap: ibv_qp_cap { max_send_wr: 40_000, ..usual.cap },
        ..end.init(IBV_QPT_RC)
    });
    told(
        "ibv_create_qp answered EINVAL: cap.max_send_wr is 40000, and may be at most 32768 (rule CR-03)",
    );
    refused(end.init(IBV_QPT_RAW_PACKET));
    told(
        "ibv_create_qp answered EOPNOTSUPP: this device does not do what qp_type asks for with 0x8 \
         (rule CR-05)",
    );
    refused(end.init(99));
    told("ibv_create_qp answered EINVAL: qp_type cannot be 0x63 (rule CR-05)");
    refused(ibv_qp_init_attr { recv_cq: null_mut(), ..end.init(IBV_QPT_RC) });
    told(
        "ibv_create_qp answered EINVAL: recv_cq names nothing that is there: is it NULL, or destroyed? (rule CR-06)",
    );
    assert!(try_cq(end.context, 0, null_mut()).is_err());
    told("ibv_create_cq answered EINVAL: cqe is 0, and must be 1 at least (rule CR-13)");
    // SAFETY: an open context.
    let cq = unsafe { ibv_create_cq(end.context, 5, null_mut(), null_mut(), 3) };
    assert!(cq.is_null());
    told("ibv_create_cq answered EINVAL: comp_vector cannot be 0x3 (rule CR-15)");
    let mut init = ibv_srq_init_attr::default();
    init.attr.max_sge = 1;
    // SAFETY: a live domain.
    assert!(unsafe { ibv_create_srq(end.pd, &mut init) }.is_null());
    told("ibv_create_srq answered EINVAL: attr.max_wr is 0, and must be 1 at least (rule CR-19)");

    let reg = |addr: u64, length, access: u32| {
        assert!(try_reg(end.pd, addr, length, access as i32).is_err());
    };
    let buffer = Buffer::new(4096);
    reg(buffer.addr(), 4096, 1 << 15);
    told("ibv_reg_mr answered EINVAL: access cannot be 0x8000 (rule MR-08)");
    reg(buffer.addr(), 4096, IBV_ACCESS_REMOTE_WRITE);
    told(
        "ibv_reg_mr answered EINVAL: access has REMOTE_WRITE without LOCAL_WRITE, which goes with it (rule MR-04)",
    );
    reg(u64::MAX - 4095, 8192, 0);
    told("ibv_reg_mr answered EINVAL: length cannot be 0x2000 (rule MR-18)");
    assert!(try_reg_iova(end.pd, buffer.addr(), 4096, 3, ALL).is_err());
    told("ibv_reg_mr_iova answered EINVAL: iova cannot be 0x3 (rule MR-29)");
    buffer.protect(libc::PROT_READ);
    reg(buffer.addr(), 4096, IBV_ACCESS_LOCAL_WRITE);
    told(&format!(
        "ibv_reg_mr answered EFAULT: not all of the 4096 bytes from {:#x} on are mapped, or not \
         writable though the access asks for it (rule MR-21)",
        buffer.addr()
    ));

    // SAFETY: a live domain.
    assert!(unsafe { ibv_reg_dmabuf_mr(end.pd, 0, 4096, 0, -1, 0) }.is_null());
    told("ibv_reg_dmabuf_mr answered EBADF: fd names nothing that is there");
    assert!(alloc_mw(end.pd, 3).is_err());
    told("ibv_alloc_mw answered EINVAL: type cannot be 0x3 (rule MWA-03)");
    let mut attr = usual_attr(null_mut()).ah_attr;
    attr.grh.sgid_index = 255;
    // SAFETY: a live domain.
    assert!(unsafe { ibv_create_ah(end.pd, &mut attr) }.is_null());
    told(&beyond(255, Addresses::read().expect("addresses").table().len()));
    // SAFETY: as above.
    assert!(unsafe { ibv_create_ah(end.pd, &mut to("0.0.0.0")) }.is_null());
    told(
        "ibv_create_ah answered EINVAL: nothing can be sent to 0.0.0.0: it is the address of no host \
         (rule ST-29)",
    );
    // SAFETY: as above.
    assert!(unsafe { ibv_create_ah(end.pd, &mut to("::")) }.is_null());
    told("ibv_create_ah answered EINVAL: the GID is all zero (grh.dgid): was it set? (rule ST-29)");
}

/// What an address vector is told whose index is behind the end of the table.
fn beyond(index: u8, entries: usize) -> String {
    let entries = format!("{entries} {}", if entries == 1 { "entry" } else { "entries" });
    format!(
        "ibv_create_ah answered EINVAL: grh.sgid_index is {index}, and the table has {entries}, from 0 on \
         (rule ST-09)"
    )
}

/// Rules: EX-04, ST-09
#[test]
fn of_gids_is_told_how_many_there_are_and_of_which_family() {
    let refusals = Refusals::new();
    let end = &refusals.end;
    let mut gid = ibv_gid { raw: [0; 16] };
    let mut query = |port, index, words: &str| {
        let before = refusals.told().len();
        // SAFETY: an open context; the GID is ours.
        assert_eq!(unsafe { ibv_query_gid(end.context, port, index, &mut gid) }, -1);
        refusals.expect(before, &format!("ibv_query_gid answered EINVAL: {words}"));
    };
    query(1, 128, "index is 128, and the table has 128 entries, from 0 on");
    query(1, -1, "index cannot be 0xffffffff");
    query(0, 0, "port_num is 0, and the device has port 1 only: it is left out easily");
    query(2, 0, "port_num is 2, and may be at most 1");

    let addresses = Addresses::read().expect("addresses");
    for (index, address) in addresses.iter() {
        let (own, other, there) = match address.ip() {
            IpAddr::V4(_) => ("IPv4", "IPv6", "fd00::77"),
            IpAddr::V6(_) => ("IPv6", "IPv4", "10.77.1.2"),
        };
        let mut attr = to(there);
        attr.grh.sgid_index = index as u8;
        let before = refusals.told().len();
        // SAFETY: a live domain.
        assert!(unsafe { ibv_create_ah(end.pd, &mut attr) }.is_null());
        let words = format!(
            "ibv_create_ah answered EINVAL: grh.sgid_index is {index}, a GID of {own}, and grh.dgid is of \
             {other}: `transom devices` lists the GIDs (rule ST-09)"
        );
        refusals.expect(before, &words);
    }
}

/// Rules: CQ-05, CQ-14, EX-04, SQ-04
#[test]
fn what_a_queue_cannot_be_is_told() {
    let refusals = Refusals::new();
    let end = &refusals.end;
    let told = |words: &str| {
        let told = refusals.told();
        assert_eq!(told.last().map(String::as_str), Some(words), "{told:#?}");
    };
    let cq = try_cq(end.context, 3, null_mut()).expect("a queue");
    let mut init = end.init(IBV_QPT_RC);
    init.send_cq = cq;
    let (origin, target) = (end.qp_with(&mut init), end.qp(IBV_QPT_RC));
    connect(origin, target);
    for wr_id in 0..4 {
        recv(target, wr_id, &mut []);
    }
    let send = || {
        post(origin, &mut wr(IBV_WR_SEND));
        end.expect(IBV_WC_SUCCESS);
    };
    send();
    send();
    // SAFETY: live queues, here and below.
    let resize = |cqe| assert_eq!(unsafe { ibv_resize_cq(cq, cqe) }, libc::EINVAL);
    resize(1);
    told("ibv_resize_cq answered EINVAL: cqe is 1, and must be 2 at least (rule CQ-14)");
    resize(0);
    told("ibv_resize_cq answered EINVAL: cqe is 0, and must be 1 at least (rule CQ-14)");
    resize(c_int::MAX);
    let most = Limits::DEVICE.completions;
    told(&format!(
        "ibv_resize_cq answered EINVAL: cqe is {}, and may be at most {most} (rule CQ-14)",
        c_int::MAX
    ));
    send();
    send();
    let mut wc = ibv_wc::default();
    // SAFETY: an open context.
    let poll = (unsafe { &*end.context }).ops.poll_cq.expect("never null");
    until("it overruns", || (state(origin) == IBV_QPS_ERR).then_some(()));
    let before = refusals.told().len();
    for _ in 0..3 {
        // SAFETY: as above.
        assert_eq!(unsafe { poll(cq, 1, &mut wc) }, -1);
    }
    assert_eq!(refusals.told().len(), before + 1, "it is told once, however often it is asked");
    told(
        "ibv_poll_cq answered EIO: the completion queue has overrun: it gives no more completions, \
         and can only be destroyed (rule CQ-05)",
    );

    let srq = srq(end.pd, 7);
    let mut attr = ibv_srq_attr { srq_limit: 8, ..ibv_srq_attr::default() };
    // SAFETY: as above.
    let answer = unsafe { ibv_modify_srq(srq, &mut attr, IBV_SRQ_LIMIT as c_int) };
    assert_eq!(answer, libc::EINVAL);
    told("ibv_modify_srq answered EINVAL: attr.srq_limit is 8, and may be at most 7 (rule SQ-04)");
}

/// Rules: EX-04
#[test]
fn what_xrc_needs_is_told() {
    let refusals = Refusals::new();
    let end = &refusals.end;
    let told = |words: &str| {
        let told = refusals.told();
        assert_eq!(told.last().map(String::as_str), Some(words), "{told:#?}");
    };
    let verbs = verbs(end.context);
    let open = |comp_mask, fd, oflags| {
        let mut init = ibv_xrcd_init_attr { comp_mask, fd, oflags };
        // SAFETY: an open context.
        assert!(unsafe { verbs.open_xrcd.expect("there")(end.context, &mut init) }.is_null());
    };
    let both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    open(IBV_XRCD_INIT_ATTR_FD, -1, libc::O_CREAT);
    told(
        "ibv_open_xrcd answered EINVAL: comp_mask must be IBV_XRCD_INIT_ATTR_FD | \
         IBV_XRCD_INIT_ATTR_OFLAGS: both are needed",
    );
    open(both, -2, libc::O_CREAT);
    told("ibv_open_xrcd answered EBADF: fd names nothing that is there");
    let mut init = ibv_qp_init_attr_ex {
        qp_type: IBV_QPT_XRC_RECV,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd: end.pd,
        ..Default::default()
    };
    // SAFETY: as above.
    assert!(unsafe { verbs.create_qp_ex.expect("there")(end.context, &mut init) }.is_null());
    told(
        "ibv_create_qp_ex answered EINVAL: IBV_QPT_XRC_RECV needs xrcd, and IBV_QP_INIT_ATTR_XRCD in \
         comp_mask (ibv_create_qp_ex)",
    );
    let mut init = ibv_srq_init_attr_ex {
        attr: ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 },
        srq_type: IBV_SRQT_XRC,
        comp_mask: IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
        pd: end.pd,
        ..Default::default()
    };
    // SAFETY: as above.
    assert!(unsafe { verbs.create_srq_ex.expect("there")(end.context, &mut init) }.is_null());
    told(
        "ibv_create_srq_ex answered EINVAL: IBV_SRQT_XRC needs xrcd and cq, and both in comp_mask",
    );
}

/// Rules: ST-01, ST-02, ST-03, ST-07, ST-29, PS-03, PS-04, PS-05, PS-07, ST-20, ST-21, T1-01
#[test]
fn what_is_not_done_is_told() {
    let refusals = Refusals::new();
    let end = &refusals.end;
    let qp = end.qp(IBV_QPT_RC);
    let on = format!("on QP {:#x}", number(qp));
    let mut number = 0;
    let mut told = |words: &str| {
        refusals.expect(number, &words.replace("{on}", &on));
        number += 1;
    };
    assert_eq!(set_state(qp, IBV_QPS_RTS), libc::EINVAL);
    told(
        "ibv_modify_qp {on} answered EINVAL: no queue pair goes from RESET to RTS: it goes to INIT first, then to RTR, then to RTS (rule ST-01)",
    );
    let attr = ibv_qp_attr { qp_state: IBV_QPS_INIT, ..usual_attr(qp) };
    let needed = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    assert_eq!(modify_with(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), libc::EINVAL);
    told(
        "ibv_modify_qp {on} answered EINVAL: a change to INIT needs IBV_QP_ACCESS_FLAGS | \
         IBV_QP_PKEY_INDEX too (rule ST-02)",
    );
    assert_eq!(modify_with(qp, &attr, needed | IBV_QP_SQ_PSN), libc::EINVAL);
    told(
        "ibv_modify_qp {on} answered EINVAL: a change to INIT does not take IBV_QP_SQ_PSN (rule ST-03)",
    );
    let odd = ibv_qp_attr { port_num: 2, ..attr };
    assert_eq!(modify_with(qp, &odd, needed), libc::EINVAL);
    told(
        "ibv_modify_qp {on} answered EINVAL: out of range: IBV_QP_PORT; port_num is 2, and the device has port 1 only (rule ST-07)",
    );
    take_to(end, qp, IBV_QPS_INIT);
    let connect = |address| {
        let attr = ibv_qp_attr { ah_attr: to(address), ..usual_attr(qp) };
        modify(qp, &attr, IBV_QPS_RTR)
    };
    assert_eq!(connect("224.0.0.9"), libc::EINVAL);
    told(
        "ibv_modify_qp {on} answered EINVAL: nothing can be sent to 224.0.0.9: it is a multicast \
         group, which only datagrams can reach (rule ST-29)",
    );
    let local =
        ibv_qp_attr { ah_attr: ibv_ah_attr { is_global: 0, ..to("127.0.0.1") }, ..usual_attr(qp) };
    assert_eq!(modify(qp, &local, IBV_QPS_RTR), libc::EINVAL);
    told(
        "ibv_modify_qp {on} answered EINVAL: ah_attr.is_global is 0, and RoCE needs a GRH: is_global = 1, \
         grh.dgid, grh.sgid_index (ping-pongs: -g INDEX, by the GIDs of `transom devices`) (rule ST-09)",
    );
    assert_eq!(set_state(qp, IBV_QPS_RESET), 0);

    let buffer = Buffer::new(4096);
    let mr = end.reg(&buffer, ALL);
    let mut sges = [sge(buffer.addr(), 8, mr); 5];
    let recv = |sges: &mut [ibv_sge]| assert_eq!(try_recv(qp, 1, sges), libc::EINVAL);
    recv(&mut sges[..1]);
    told(
        "ibv_post_recv {on} answered EINVAL: the queue pair is in RESET, and ibv_post_recv needs INIT, RTR or RTS: ibv_modify_qp to INIT first (rule ST-21)",
    );
    let send = |wr: &mut ibv_send_wr| assert_eq!(try_post(qp, wr), libc::EINVAL);
    send(&mut with_sges(wr(IBV_WR_SEND), &mut sges[..1]));
    told(
        "ibv_post_send {on} answered EINVAL: the queue pair is in RESET, and ibv_post_send needs RTS: ibv_modify_qp to INIT first, then to RTR, then to RTS (rule ST-20)",
    );
    take_to(end, qp, IBV_QPS_RTS);
    recv(&mut sges);
    told(
        "ibv_post_recv {on} answered EINVAL: num_sge is 5, and may be at most 4, the cap.max_recv_sge of the queue: ask ibv_create_qp for more, the device has 32 (rule PS-03)",
    );
    send(&mut with_sges(wr(IBV_WR_SEND), &mut sges));
    told(
        "ibv_post_send {on} answered EINVAL: num_sge is 5, and may be at most 4, the cap.max_send_sge of the queue: ask ibv_create_qp for more, the device has 32 (rule PS-03)",
    );
    let inline = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    let mut long = [sge(buffer.addr(), 257, mr)];
    send(&mut ibv_send_wr { send_flags: inline, ..with_sges(wr(IBV_WR_SEND), &mut long) });
    told(
        "ibv_post_send {on} answered EINVAL: the inline length is 257, and may be at most 256, the cap.max_inline_data of the queue: ask ibv_create_qp for more, the device has 1024 (rule PS-04)",
    );
    let read = with_sges(wr(IBV_WR_RDMA_READ), &mut sges[..1]);
    send(&mut ibv_send_wr { send_flags: inline, ..read });
    told("ibv_post_send {on} answered EINVAL: send_flags cannot be 0x8 (rule PS-05)");
    send(&mut with_sges(wr(77), &mut sges[..1]));
    told("ibv_post_send {on} answered EINVAL: opcode cannot be 0x4d (rule PS-07)");
    assert_eq!(try_srq_recv(srq(end.pd, 8), 1, &mut sges), libc::EINVAL);
    told(
        "ibv_post_srq_recv answered EINVAL: num_sge is 5, and may be at most 4, the attr.max_sge of the queue: ask ibv_create_srq for more, the device has 32 (rule PS-03)",
    );
    let mw = end.mw(IBV_MW_TYPE_2);
    let mut bind = ibv_mw_bind::default();
    // SAFETY: live objects.
    let answer = unsafe { (*end.context).ops.bind_mw.expect("never null")(qp, mw, &mut bind) };
    assert_eq!(answer, libc::EINVAL);
    told(
        "ibv_bind_mw {on} answered EINVAL: mw->type is 2: ibv_post_send binds windows of type 2, ibv_bind_mw those of type 1 (rule T1-01)",
    );
    send(&mut ibv_send_wr { num_sge: 1, sg_list: null_mut(), ..wr(IBV_WR_SEND) });
    told(
        "ibv_post_send {on} answered EINVAL: sg_list is NULL, though num_sge is not 0 (rule PS-03)",
    );
    let patient = ibv_qp_attr { min_rnr_timer: 99, ..ibv_qp_attr::default() };
    assert_eq!(modify_with(qp, &patient, IBV_QP_MIN_RNR_TIMER), libc::EINVAL);
    told(
        "ibv_modify_qp {on} answered EINVAL: min_rnr_timer is 99, and may be at most 31 (rule ST-07)",
    );

    // A queue that is full is an answer, not a mistake: it is told once.
    for wr_id in 0..64 {
        assert_eq!(try_recv(qp, wr_id, &mut []), 0);
    }
    assert_eq!(try_recv(qp, 64, &mut []), libc::ENOMEM);
    let full = refusals.told();
    let words = format!(
        "ibv_post_recv {on} answered ENOMEM: all 64 places of the receive queue are taken, 64 by work that \
         waits, 0 by work that is done. A place is free when a completion at or behind it has been polled"
    );
    assert_eq!(full[number], words);
    assert_eq!(try_recv(qp, 64, &mut []), libc::ENOMEM);
    assert_eq!(refusals.told().len(), number + 1);

    // In ERR, room would not help.
    let qp = end.qp(IBV_QPT_RC);
    take_to(end, qp, IBV_QPS_RTS);
    assert_eq!(set_state(qp, IBV_QPS_ERR), 0);
    until("the send queue is full", || (try_post(qp, &mut wr(IBV_WR_SEND)) != 0).then_some(()));
    let told = refusals.told();
    let full = told.last().expect("it is told");
    assert!(
        full.contains("ibv_post_send on QP ") && full.contains(" answered ENOMEM: all "),
        "{full}"
    );
    let first = " by work that is done. The queue pair is in ERR, where nothing is carried out any more: look";
    assert!(full.contains(first) && !full.contains("signaled"), "{full}");
}
