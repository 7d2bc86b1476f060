//! Forked children: whatever one does to what it inherited, its parent and its parent's peers do not
//! notice; and it can have a device of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use transom_abi::*;
use transom_conformance::address_handles::here;
use transom_conformance::extended::verbs;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::processes::*;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::destroy_srq;
use transom_conformance::xrc::*;
use transom_conformance::{on_each_way, path_of};
use transom_host::Options;
use transom_ibverbs::*;
use transom_system::registry::Registry;

const MIB: usize = 1 << 20;

#[test]
fn role() {
    play(&[("partner", partner), ("streamer", streamer)]);
}

/// Grants a page, and then checks what the parent wrote there, and writes back, as often as told.
fn partner(channel: &mut Channel) {
    let end = open();
    let memory = Buffer::new(4096);
    let mr = end.reg(&memory, ALL);
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    channel.tell(&[memory.addr(), u64::from(keys(mr).1)]);
    let [there, key] = channel.hear();
    loop {
        let told = channel.hear_all();
        let [round] = told[..] else { return };
        assert_eq!(memory.word(0), round, "what the parent wrote");
        memory.set_word(8, !round);
        let mut sges = [sge(memory.addr() + 8, 8, mr)];
        post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, there + 8, key as u32));
        end.expect(IBV_WC_SUCCESS);
        channel.tell(&[]);
    }
}

/// Writes to the parent all the time, until told to stop.
fn streamer(channel: &mut Channel) {
    let end = open();
    let memory = Buffer::new(MIB);
    let mr = end.reg(&memory, ALL);
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    let [there, key] = channel.hear();
    let (stop, stopped) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let [] = channel.hear();
            stop.send(()).expect("the stream is going on");
        });
        while stopped.try_recv().is_err() {
            let mut sges = [sge(memory.addr(), MIB as u32 / 2, mr)];
            post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, there, key as u32));
            end.expect(IBV_WC_SUCCESS);
        }
    });
}

/// A process that forks, connected with a partner.
struct Family {
    end: End,
    memory: Buffer,
    mr: *mut ibv_mr,
    qp: *mut ibv_qp,
    partner: Child,
    /// The partner's page.
    there: (u64, u32),
    round: u64,
}

impl Family {
    fn new() -> Self {
        let end = open();
        let memory = Buffer::new(4096);
        let mr = end.reg(&memory, ALL);
        let qp = end.qp(IBV_QPT_RC);
        let mut partner = Child::start(path_of!("partner"));
        meet(&mut partner.channel, qp);
        let [there, key] = partner.hear();
        partner.tell(&[memory.addr(), u64::from(keys(mr).1)]);
        Self { end, memory, mr, qp, partner, there: (there, key as u32), round: 0 }
    }

    /// The connection carries data both ways.
    fn is_well(&mut self) {
        self.round += 1;
        self.memory.set_word(0, self.round);
        let mut sges = [sge(self.memory.addr(), 8, self.mr)];
        let (there, key) = self.there;
        post(self.qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, there, key));
        self.end.expect(IBV_WC_SUCCESS);
        self.partner.tell(&[self.round]);
        let [] = self.partner.hear();
        assert_eq!(self.memory.word(8), !self.round, "what the partner wrote");
        assert_eq!(state(self.qp), IBV_QPS_RTS);
    }

    fn end(mut self) {
        self.partner.tell(&[]);
        self.partner.finish();
    }

    /// Ends every object, as destructors do.
    fn destroy_all(&self) {
        // SAFETY: objects of this test that this process does not use any more.
        unsafe {
            assert_eq!(ibv_destroy_qp(self.qp), 0);
            assert_eq!(dereg(self.mr), 0);
            assert_eq!(ibv_destroy_cq(self.end.cq), 0);
            assert_eq!(dealloc_pd(self.end.pd), 0);
            assert_eq!(ibv_close_device(self.end.context), 0);
        }
    }
}

/// Forks; the child does this and exits as programs do, with all exit handlers.
fn fork(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: no other thread of this process is inside a verb or holds a lock of the standard
    // library's.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: ends this process.
        unsafe { libc::exit(i32::from(done.is_err())) };
    }
    pid
}

/// Forks with no memory to be had until both are there.
fn fork_without_memory(child: impl FnOnce()) -> libc::pid_t {
    let limit_memory = |limited, rlim_cur| {
        let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a limit of this call's own.
        assert_eq!(unsafe { libc::setrlimit(limited, &limit) }, 0);
    };
    let limit_all = |to| {
        for limited in [libc::RLIMIT_AS, libc::RLIMIT_DATA] {
            limit_memory(limited, to);
        }
    };
    limit_all(4096);
    let pid = fork(|| {
        limit_all(libc::RLIM_INFINITY);
        child();
    });
    limit_all(libc::RLIM_INFINITY);
    pid
}

/// Waits for the good end of a child.
fn join(pid: libc::pid_t) {
    join_with(0, pid);
}

/// Waits for the end of a child.
fn join_with(expected: i32, pid: libc::pid_t) {
    let status = until("the child's end", || {
        let mut status = 0;
        // SAFETY: our own child; the status is this call's own.
        (unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid).then_some(status)
    });
    let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == expected;
    assert!(ended, "the child: {status:#x}");
}

on_each_way! {
    /// A child that does nothing, while it lives and when it has exited.
    fn a_child_that_exits_harms_nobody() {
        let mut family = Family::new();
        let (mut ours, mut theirs) = Channel::pair();
        let child = fork(|| {
            let [] = theirs.hear();
        });
        family.is_well();
        ours.tell(&[]);
        join(child);
        family.is_well();
        family.end();
    }

    /// A child whose destructors end everything that it inherited, for itself.
    fn a_child_ends_its_own_copy_only() {
        let mut family = Family::new();
        for _ in 0..3 {
            join(fork(|| family.destroy_all()));
            family.is_well();
        }
        family.end();
    }

    /// So does one that ends a shared receive queue of XRC, which its parent's peers look up.
    fn a_child_ends_its_own_copy_of_an_xrc_queue() {
        let xrc = Xrc::new(Link::Loopback, 4096);
        let (srqn, key) = (srq_number(xrc.srq), keys(xrc.mb).1);
        join(fork(|| assert_eq!(destroy_srq(xrc.srq), 0)));
        assert_eq!(xrc.op(IBV_WR_RDMA_WRITE, srqn, key), IBV_WC_SUCCESS);
        assert_eq!(destroy_srq(xrc.srq), 0);
        assert_eq!(xrc.op(IBV_WR_RDMA_WRITE, srqn, key), IBV_WC_REM_INV_REQ_ERR);
    }

    /// What a child posts goes nowhere, and its parent's queue pair is as it was.
    fn what_a_child_posts_is_flushed() {
        let mut family = Family::new();
        join(fork(|| {
            let (there, key) = family.there;
            family.memory.fill(0xff);
            let mut sges = [sge(family.memory.addr(), 8, family.mr)];
            post(family.qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, there, key));
            family.end.expect(IBV_WC_WR_FLUSH_ERR);
        }));
        family.end.expect_nothing();
        family.is_well();
        family.end();
    }

    /// A child that gets no memory, and ends everything that it inherited all the same.
    fn a_child_without_memory_harms_nobody() {
        let mut family = Family::new();
        let (mut ours, mut theirs) = Channel::pair();
        for _ in 0..3 {
            let child = fork_without_memory(|| {
                let [] = theirs.hear();
                post(family.qp, &mut wr(IBV_WR_SEND));
                family.end.expect(IBV_WC_WR_FLUSH_ERR);
                family.destroy_all();
            });
            family.is_well();
            ours.tell(&[]);
            // There is no memory for its copy of what is shared.
            if has_shared_memory() { join_with(125, child) } else { join(child) }
            family.is_well();
        }
        family.end.expect_nothing();
        family.end();
    }

    /// Nothing is made on a device that is inherited, and its queue pairs stay in error.
    fn an_inherited_device_answers_eio() {
        let mut family = Family::new();
        let (pd, memory) = (family.end.pd, Buffer::new(4096));
        join(fork(|| {
            let refused = |made: bool| assert_eq!((made, errno()), (false, libc::EIO));
            // SAFETY: live objects, and memory of this test.
            refused(unsafe { !ibv_reg_mr(pd, memory.addr() as *mut _, 4096, 0).is_null() });
            refused(alloc_mw(pd, IBV_MW_TYPE_1).is_ok());
            let mut init = family.end.init(IBV_QPT_RC);
            // SAFETY: as above.
            refused(unsafe { !ibv_create_qp(pd, &mut init).is_null() });
            // SAFETY: as above.
            refused(unsafe {
                let context = (*pd).context;
                !ibv_create_cq(context, 8, std::ptr::null_mut(), std::ptr::null_mut(), 0).is_null()
            });
            let attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
            let mut init = ibv_srq_init_attr { srq_context: std::ptr::null_mut(), attr };
            // SAFETY: as above.
            refused(unsafe { !ibv_create_srq(pd, &mut init).is_null() });
            for qp_state in [IBV_QPS_RESET, IBV_QPS_ERR] {
                let mut attr = ibv_qp_attr { qp_state, ..Default::default() };
                // SAFETY: as above.
                let errno = unsafe { ibv_modify_qp(family.qp, &mut attr, IBV_QP_STATE as i32) };
                assert_eq!(errno, libc::EIO);
            }
            assert_eq!(state(family.qp), IBV_QPS_ERR);
        }));
        family.is_well();
        family.end();
    }

    /// So it is with everything that takes nothing of what processes share, and with second names.
    fn whatever_is_made_on_an_inherited_device_answers_eio() {
        let mut family = Family::new();
        let (context, pd, mr) = (family.end.context, family.end.pd, family.mr);
        let td = alloc_td(context);
        let dm = alloc_dm(context, 4096);
        let domain = xrcd(context);
        let mut wc = ibv_wc::default();
        join(fork(|| {
            let refused = |what: &str, made: bool| {
                assert_eq!((made, errno()), (false, libc::EIO), "{what}");
            };
            let mut by_number = ibv_qp_open_attr {
                comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
                // SAFETY: its struct stays readable.
                qp_num: unsafe { (*family.qp).qp_num },
                xrcd: domain,
                qp_type: IBV_QPT_XRC_RECV,
                ..Default::default()
            };
            let mut buffer = std::ptr::null_mut();
            // SAFETY: live objects, and attributes of this test.
            unsafe {
                refused("domain", !ibv_alloc_pd(context).is_null());
                refused("its name", !ibv_import_pd(context, (*pd).handle).is_null());
                refused("name of memory", !ibv_import_dm(context, (*dm).handle).is_null());
                refused("name of a region", !ibv_import_mr(pd, (*mr).handle).is_null());
                refused("channel", !ibv_create_comp_channel(context).is_null());
                let mut init = ibv_comp_cntr_init_attr::default();
                refused("counter", !ibv_create_comp_cntr(context, &mut init).is_null());
                refused("handle", !ibv_create_ah(pd, &mut here()).is_null());
                let answer = ibv_create_ah_from_wc(pd, &mut wc, std::ptr::null_mut(), 1);
                refused("handle of a completion", !answer.is_null());
                refused("buffer", !ibv_alloc_buf(pd, 4096, &mut buffer).is_null());
                let open = verbs(context).open_qp.expect("it is there");
                refused("name of a queue pair", !open(context, &mut by_number).is_null());
                let alloc = verbs(context).alloc_td.expect("it is there");
                let made = alloc(context, &mut ibv_td_init_attr::default());
                refused("thread domain", !made.is_null());
            }
            refused("parent domain", try_parent(context, parent_attr(pd, td)).is_ok());
            // Device memory is its own, as rdma-core's tests have it.
            let attr = ibv_alloc_dm_attr { length: 64, ..Default::default() };
            assert_eq!(free_dm(try_dm(context, attr).expect("memory")), 0);
            refused("region of memory", try_reg_dm(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED).is_ok());
            refused("null region", try_null_mr(pd).is_ok());
            refused("XRC domain", try_xrcd(context, -1, libc::O_CREAT).is_ok());
            // What there is ends all the same.
            assert_eq!((free_dm(dm), dealloc_td(context, td)), (0, 0));
            assert_eq!(close_xrcd(context, domain), 0);
        }));
        assert_eq!((free_dm(dm), dealloc_td(context, td)), (0, 0));
        assert_eq!(close_xrcd(context, domain), 0);
        family.is_well();
        family.end();
    }

    /// A child opens the device anew, and is a process like any other: here its parent's peer.
    fn a_child_has_a_device_of_its_own() {
        let mut family = Family::new();
        let (mut ours, mut theirs) = Channel::pair();
        let child = fork(|| {
            let end = open();
            let memory = Buffer::new(4096);
            let mr = end.reg(&memory, ALL);
            let qp = end.qp(IBV_QPT_RC);
            meet(&mut theirs, qp);
            theirs.tell(&[memory.addr(), u64::from(keys(mr).1)]);
            let [] = theirs.hear();
            assert_eq!(memory.word(0), 42);
        });
        let qp = family.end.qp(IBV_QPT_RC);
        meet(&mut ours, qp);
        let [there, key] = ours.hear();
        family.memory.set_word(0, 42);
        let mut sges = [sge(family.memory.addr(), 8, family.mr)];
        post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, there, key as u32));
        family.end.expect(IBV_WC_SUCCESS);
        ours.tell(&[]);
        join(child);
        family.is_well();
        family.end();
    }

    /// Forks while messages arrive, so that the background thread is at work at any moment of them.
    fn forks_under_load_neither_hang_nor_harm() {
        let mut family = Family::new();
        let target = Buffer::new(MIB);
        let mr = family.end.reg(&target, ALL);
        let qp = family.end.qp(IBV_QPT_RC);
        let mut streamer = Child::start(path_of!("streamer"));
        meet(&mut streamer.channel, qp);
        streamer.tell(&[target.addr(), u64::from(keys(mr).1)]);
        for _ in 0..20 {
            let child = fork(|| {
                // SAFETY: objects of this test that this process does not use any more.
                assert_eq!(unsafe { ibv_destroy_qp(qp) }, 0);
                assert_eq!(dereg(mr), 0);
                family.destroy_all();
            });
            join(child);
            family.is_well();
        }
        streamer.tell(&[]);
        streamer.finish();
        family.end();
    }
}

/// What a child is refused is not noted as its parent's.
#[test]
fn a_childs_refused_calls_are_not_its_parents() {
    let adapter = open_adapter(Options::default());
    let slot = adapter.device().process().announcer().slot;
    let end = End::on(open_context(adapter));
    let noted = || Registry::open().expect("the registry").refused_calls(slot).len();
    let refuse = || assert!(alloc_mw(end.pd, 3).is_err());
    refuse();
    assert_eq!(noted(), 1);
    join(fork(refuse));
    assert_eq!(noted(), 1);
}

#[test]
fn nothing_needs_to_be_prepared() {
    assert_eq!(ibv_fork_init(), 0);
    assert_eq!(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

/// A child's copy of a channel signals nothing to its parent, and takes nothing from it.
#[test]
fn a_childs_events_are_not_its_parents() {
    let end = open();
    let channel = channel(end.context);
    let flushing = || {
        let cq = try_cq(end.context, 16, channel).unwrap();
        let qp = end.qp_with(&mut ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) });
        take_to(&end, qp, IBV_QPS_ERR);
        (cq, qp)
    };
    let ((cq, qp), (quiet, its_qp)) = (flushing(), flushing());
    assert_eq!((arm(cq, false), arm(quiet, false)), (0, 0));
    recv(qp, 1, &mut []);
    join(fork(|| {
        // It completes in the child alone.
        recv(its_qp, 1, &mut []);
        let (mut found, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live channel, and places for the answers.
        assert_eq!(unsafe { ibv_get_cq_event(channel, &mut found, &mut context) }, -1);
        assert_eq!(errno(), libc::EPERM);
        assert_eq!((destroy_qp(qp), destroy_cq(cq)), (0, 0));
    }));
    assert_eq!(cq_event(channel), cq);
    assert!(!has_cq_event(channel));
    recv(its_qp, 1, &mut []);
    assert_eq!(cq_event(channel), quiet);
}
