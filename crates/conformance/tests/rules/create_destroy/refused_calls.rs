//! Calls that are refused at once leave a record of which it was and why, which `transom explain` prints.

use std::net::IpAddr;
use std::process::Command;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::datagrams::to_gid;
use transom_conformance::harness::*;
use transom_conformance::programs::command;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_host::{Adapter, Options};
use transom_ibverbs::*;
use transom_system::addresses::gid;
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
    assert!(open.contains("\"alive\":true,\"device\":\"open\""), "{open}");
    end.close();
    let closed = told();
    assert!(closed.contains("\"alive\":false,\"device\":\"closed\""), "{closed}");
    let printed = explain(&[]);
    let (before, _) = printed.split_once(&wanted).expect("it is told to people too");
    let who = before.lines().rev().nth(1).expect("a line of its own");
    assert!(who.ends_with("(device closed)"), "{who}");
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
        told.contains(": 6 older refusals are lost; each process keeps its last 64."),
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
    told("ibv_create_qp answered EINVAL: recv_cq names nothing that is there (rule CR-06)");
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
    told("ibv_create_ah answered EINVAL: grh.sgid_index cannot be 0xff (rule ST-09)");
    // SAFETY: as above.
    assert!(unsafe { ibv_create_ah(end.pd, &mut to("0.0.0.0")) }.is_null());
    told(
        "ibv_create_ah answered EINVAL: nothing can be sent to 0.0.0.0: it is the address of no host \
         (rule ST-29)",
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
    told("ibv_modify_qp {on} answered EINVAL: no queue pair goes from RESET to RTS (rule ST-01)");
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
    told("ibv_post_recv {on} answered EINVAL: the queue pair is in RESET (rule ST-21)");
    let send = |wr: &mut ibv_send_wr| assert_eq!(try_post(qp, wr), libc::EINVAL);
    send(&mut with_sges(wr(IBV_WR_SEND), &mut sges[..1]));
    told("ibv_post_send {on} answered EINVAL: the queue pair is in RESET (rule ST-20)");
    take_to(end, qp, IBV_QPS_RTS);
    recv(&mut sges);
    told("ibv_post_recv {on} answered EINVAL: num_sge is 5, and may be at most 4 (rule PS-03)");
    send(&mut with_sges(wr(IBV_WR_SEND), &mut sges));
    told("ibv_post_send {on} answered EINVAL: num_sge is 5, and may be at most 4 (rule PS-03)");
    let inline = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    let mut long = [sge(buffer.addr(), 257, mr)];
    send(&mut ibv_send_wr { send_flags: inline, ..with_sges(wr(IBV_WR_SEND), &mut long) });
    told(
        "ibv_post_send {on} answered EINVAL: the inline length is 257, and may be at most 256 (rule PS-04)",
    );
    let read = with_sges(wr(IBV_WR_RDMA_READ), &mut sges[..1]);
    send(&mut ibv_send_wr { send_flags: inline, ..read });
    told("ibv_post_send {on} answered EINVAL: send_flags cannot be 0x8 (rule PS-05)");
    send(&mut with_sges(wr(77), &mut sges[..1]));
    told("ibv_post_send {on} answered EINVAL: opcode cannot be 0x4d (rule PS-07)");
    assert_eq!(try_srq_recv(srq(end.pd, 8), 1, &mut sges), libc::EINVAL);
    told("ibv_post_srq_recv answered EINVAL: num_sge is 5, and may be at most 4 (rule PS-03)");
    let mw = end.mw(IBV_MW_TYPE_2);
    let mut bind = ibv_mw_bind::default();
    // SAFETY: live objects.
    let answer = unsafe { (*end.context).ops.bind_mw.expect("never null")(qp, mw, &mut bind) };
    assert_eq!(answer, libc::EINVAL);
    told("ibv_bind_mw {on} answered EINVAL: mw->type cannot be 0x2 (rule T1-01)");

    // A queue that is full is an answer, not a mistake: it is told once.
    for wr_id in 0..64 {
        assert_eq!(try_recv(qp, wr_id, &mut []), 0);
    }
    assert_eq!(try_recv(qp, 64, &mut []), libc::ENOMEM);
    let full = refusals.told();
    let words = "ibv_post_recv on QP {:#x} answered ENOMEM: all 64 places of the receive queue are taken, 64 by work that waits";
    let words = words.replace("on QP {:#x}", &on);
    assert!(full[number].starts_with(&words), "{full:#?}");
    assert_eq!(try_recv(qp, 64, &mut []), libc::ENOMEM);
    assert_eq!(refusals.told().len(), number + 1);
}
