//! A peer killed in the middle of operations: its survivor gets the right completions, is not held
//! up, keeps nothing of it, and goes on serving others.

use std::sync::atomic::{AtomicU64, Ordering::*};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::processes::*;
use transom_conformance::{on_each_way, path_of};
use transom_host::Options;

const MIB: usize = 1 << 20;

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("streamer", streamer), ("bystander", bystander)]);
}

/// Connects, hears what to do where, and does it until it is killed; says so after the first few.
fn streamer(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    let near = Buffer::filled(MIB, 7);
    let mr = end.reg(&near, ALL);
    let [opcode, addr, key, length] = channel.hear();
    for round in 0.. {
        let mut sges = [sge(near.addr(), length as u32, mr)];
        let mut wr = match opcode as ibv_wr_opcode {
            IBV_WR_SEND => with_sges(wr(IBV_WR_SEND), &mut sges),
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sges, addr, key as u32, 1, 0)
            }
            opcode => rdma_wr(opcode, &mut sges, addr, key as u32),
        };
        post(qp, &mut wr);
        // Once the survivor has revoked the window, all that is left is to be killed.
        if end.wait().status != IBV_WC_SUCCESS {
            break;
        }
        if round == 8 {
            channel.tell(&[]);
        }
    }
    let [] = channel.hear();
}

/// Connects, grants its memory, and waits to be killed.
fn bystander(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    let memory = Buffer::new(MIB);
    let mr = end.reg(&memory, ALL);
    meet(channel, qp);
    channel.tell(&[memory.addr(), u64::from(keys(mr).1)]);
    let [] = channel.hear();
}

/// A survivor: an end, and memory to grant.
struct Survivor {
    end: End,
    memory: Buffer,
    mr: *mut ibv_mr,
}

impl Survivor {
    fn new() -> Self {
        let end = open();
        let memory = Buffer::new(MIB);
        let mr = end.reg(&memory, ALL);
        Self { end, memory, mr }
    }

    /// A peer in this role, connected.
    fn peer(&self, role: &str) -> (Child, *mut ibv_qp) {
        let mut child = Child::start(role);
        let qp = self.end.qp(IBV_QPT_RC);
        meet_to_lose(&mut child.channel, qp);
        (child, qp)
    }

    /// A peer that streams into a window over all the memory; the key of the window.
    fn stream(&self, opcode: ibv_wr_opcode, length: usize) -> (Child, *mut ibv_qp, u32) {
        let (mut child, qp) = self.peer(path_of!("streamer"));
        let access = REMOTE;
        let range = Range { mr: self.mr, addr: self.memory.addr(), length: MIB as u64, access };
        let key = bind(&self.end, qp, self.end.mw(IBV_MW_TYPE_2), range);
        child.tell(&[u64::from(opcode), self.memory.addr(), u64::from(key), length as u64]);
        (child, qp, key)
    }

    /// Revokes a window by its key.
    fn revoke(&self, qp: *mut ibv_qp, key: u32) {
        post(qp, &mut local_inv_wr(key));
        assert_eq!(self.end.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
    }

    /// The peer is dead: the next request gets no answer, the one behind it is flushed, and so is a
    /// posted receive.
    fn expect_loss(&self, qp: *mut ibv_qp) {
        assert!(self.is_lost(qp), "the request did not fail by itself");
    }

    /// As [`Survivor::expect_loss`], or everything is flushed, because the last that the dead peer
    /// had sent came after its window was revoked: true for the former.
    fn is_lost(&self, qp: *mut ibv_qp) -> bool {
        recv(qp, 9, &mut []);
        for wr_id in [1, 2] {
            post(qp, &mut ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) });
        }
        let mut found = [(); 3].map(|()| self.end.wait()).map(|wc| (wc.wr_id, wc.status));
        found.sort_unstable();
        assert_eq!(found[1..], [(2, IBV_WC_WR_FLUSH_ERR), (9, IBV_WC_WR_FLUSH_ERR)]);
        assert_eq!(state(qp), IBV_QPS_ERR);
        match found[0] {
            (1, IBV_WC_RETRY_EXC_ERR) => true,
            (1, IBV_WC_WR_FLUSH_ERR) => {
                assert_eq!(self.end.event(), (IBV_EVENT_QP_ACCESS_ERR, qp.cast()));
                false
            }
            other => panic!("{other:?}"),
        }
    }

    fn destroy(&self, qp: *mut ibv_qp) {
        // SAFETY: a queue pair of this test that nobody uses any more.
        assert_eq!(unsafe { transom_ibverbs::ibv_destroy_qp(qp) }, 0);
    }
}

fn registry() -> &'static transom_system::registry::Registry {
    transom_system::registry::Registry::open().expect("the registry of this user")
}

/// The registry slot of a process that runs a device.
fn slot_of(pid: u32) -> u8 {
    let processes = registry().processes();
    let found = processes.iter().find(|process| process.pid == pid && process.alive);
    found.expect("a process with a device is in the registry").announcer.slot
}

fn assert_not_alive(pid: u32) {
    let processes = registry().processes();
    let mut of_pid = processes.iter().filter(|process| process.pid == pid);
    assert!(of_pid.all(|process| !process.alive && !process.closed), "{pid}");
}

/// How many mappings of segments, and open descriptors, this process has.
fn holdings() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    let segments = maps.lines().filter(|line| line.contains("memfd:transom")).count();
    (segments, std::fs::read_dir("/proc/self/fd").expect("the list of descriptors").count())
}

on_each_way! {
    /// A peer is killed while it writes to a window, reads it or counts in it. The revocation that
    /// follows is not held up by what it announced, whatever it was in the middle of.
    fn revocation_is_not_held_up_by_the_dead() {
        let survivor = Survivor::new();
        let streams = [
            (IBV_WR_RDMA_WRITE, MIB),
            (IBV_WR_RDMA_READ, MIB),
            (IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
        ];
        for (opcode, length) in streams.into_iter().cycle().take(9) {
            let (mut child, qp, key) = survivor.stream(opcode, length);
            let [] = child.hear();
            let pid = child.pid();
            child.kill();
            survivor.revoke(qp, key);
            survivor.is_lost(qp);
            assert_not_alive(pid);
            survivor.destroy(qp);
        }
    }

    /// A process forks when a peer has been killed in the middle of a copy to its memory: the child has all of
    /// that, and the memory is what it was.
    fn a_fork_is_not_held_up_by_the_dead() {
        let survivor = Survivor::new();
        let words = |at: usize| survivor.memory.word(at * 4096);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ].into_iter().cycle().take(6) {
            let (mut child, qp, key) = survivor.stream(opcode, MIB);
            let [] = child.hear();
            child.kill();
            let known = words(0);
            // SAFETY: the child reads memory and ends.
            let forked = unsafe { libc::fork() };
            if forked == 0 {
                let all = (0..MIB / 4096).fold(0, |all, at| all | words(at));
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(all & known != known)) };
            }
            let mut status = 0;
            // SAFETY: the status is this test's own.
            assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
            survivor.revoke(qp, key);
            survivor.is_lost(qp);
            survivor.destroy(qp);
        }
    }

    /// A region is deregistered while a killed peer was in the middle of a copy to it.
    /// Rules: DR-01
    fn deregistration_is_not_held_up_by_the_dead() {
        let end = open();
        let memory = Buffer::new(MIB);
        for round in 0..6 {
            let mr = end.reg(&memory, ALL);
            let mut child = Child::start(path_of!("streamer"));
            let qp = end.qp(IBV_QPT_RC);
            meet(&mut child.channel, qp);
            let opcode = [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ][round % 2];
            let key = u64::from(keys(mr).1);
            child.tell(&[u64::from(opcode), memory.addr(), key, MIB as u64]);
            let [] = child.hear();
            child.kill();
            assert_eq!(dereg(mr), 0);
            // Its memory is the program's alone now: nothing of the dead may arrive.
            memory.write(0, &[0xca; 4096]);
            assert!(memory.read(0, 4096) == [0xca; 4096]);
        }
    }

    /// A peer is killed while it sends: what arrived whole completed, the rest of the receives are
    /// flushed once the queue pair is in error.
    fn a_stream_of_sends_ends_with_its_sender() {
        let survivor = Survivor::new();
        let (child, qp) = survivor.peer(path_of!("streamer"));
        let mut child = Some(child);
        let received = |wr_id| {
            recv(qp, wr_id, &mut [sge(survivor.memory.addr(), MIB as u32, survivor.mr)]);
        };
        (0..8).for_each(received);
        child.as_mut().unwrap().tell(&[u64::from(IBV_WR_SEND), 0, 0, MIB as u64]);
        for count in 0..32 {
            let wc = survivor.end.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.opcode, wc.byte_len as usize), (IBV_WC_RECV, MIB));
            received(100 + count);
            if count == 20 {
                child.take().unwrap().kill();
                break;
            }
        }
        post(qp, &mut wr(IBV_WR_SEND));
        let mut whole = 0;
        let wc = until("the end", || match poll(survivor.end.cq)? {
            wc if wc.opcode == IBV_WC_RECV && wc.status == IBV_WC_SUCCESS => {
                whole += 1;
                None
            }
            wc => Some(wc),
        });
        assert_eq!((wc.status, wc.wr_id), (IBV_WC_RETRY_EXC_ERR, 1));
        for _ in whole..8 {
            let wc = survivor.end.expect(IBV_WC_WR_FLUSH_ERR);
            assert_ne!(wc.wr_id, 1);
        }
        survivor.end.expect_nothing();
    }

    /// A peer is killed while the survivor has requests under way to it: the oldest fails with
    /// "retry exceeded", the others are flushed.
    /// Rules: RN-07
    fn requests_to_a_peer_that_dies_fail() {
        let survivor = Survivor::new();
        // Waiting for a receive that the peer will never post.
        let (mut child, qp) = survivor.peer(path_of!("bystander"));
        let [_, _] = child.hear();
        for wr_id in 1..=4 {
            post(qp, &mut ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) });
        }
        survivor.end.expect_nothing();
        child.kill();
        assert_eq!(survivor.end.expect(IBV_WC_RETRY_EXC_ERR).wr_id, 1);
        for wr_id in 2..=4 {
            assert_eq!(survivor.end.expect(IBV_WC_WR_FLUSH_ERR).wr_id, wr_id);
        }
        assert_eq!(state(qp), IBV_QPS_ERR);

        // In the middle of a stream of one-sided operations.
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            let (mut child, qp) = survivor.peer(path_of!("bystander"));
            let [addr, key] = child.hear();
            let done = AtomicU64::new(0);
            let done = &done;
            let last = std::thread::scope(|scope| {
                scope.spawn(move || {
                    until("the stream", || (done.load(Acquire) > 16).then_some(()));
                    child.kill();
                });
                until("the end of the stream", || {
                    let mut sges = [sge(survivor.memory.addr(), MIB as u32, survivor.mr)];
                    post(qp, &mut rdma_wr(opcode, &mut sges, addr, key as u32));
                    let wc = survivor.end.wait();
                    done.fetch_add(1, Release);
                    (wc.status != IBV_WC_SUCCESS).then_some(wc)
                })
            });
            assert_eq!(last.status, IBV_WC_RETRY_EXC_ERR);
        }
    }

    /// A peer is killed while it holds nothing and nothing is under way: the survivor learns it from
    /// its next request, and keeps neither memory nor descriptors of the dead. The place in the
    /// registry goes to the next who wants one.
    fn nothing_of_the_dead_stays() {
        let survivor = Survivor::new();
        let _ = registry();
        let before = holdings();
        for _ in 0..3 {
            let (mut child, qp) = survivor.peer(path_of!("bystander"));
            let [_, _] = child.hear();
            let (pid, slot) = (child.pid(), slot_of(child.pid()));
            assert!(holdings().0 > before.0, "the peer's segment is mapped");
            child.kill();
            survivor.expect_loss(qp);
            survivor.destroy(qp);
            until("the dead to be let go", || (holdings() == before).then_some(()));
            assert_not_alive(pid);
            // It is this process's, unless a device of another test was faster.
            let successor = (0..4096).find_map(|_| {
                let adapter = open_adapter(Options::default());
                let here = registry().process(slot).filter(|process| process.alive)?;
                Some((adapter, here.pid))
            });
            let successor = successor.expect("the slot is free again");
            assert_ne!(successor.1, pid);
            drop(successor);
            until("the devices to close", || (holdings() == before).then_some(()));
        }
    }

    /// Those that wait for room at a stopped peer go on when it is killed: nobody would have answered them.
    /// Rules: UC-02
    fn those_that_nobody_answers_do_not_wait_for_the_dead() {
        let survivor = Survivor::new();
        let end = &survivor.end;
        for (service, length) in [(IBV_QPT_UC, MIB), (IBV_QPT_UD, 256)] {
            let (child, connected) = survivor.peer(path_of!("bystander"));
            let peer = query(connected).dest_qp_num;
            child.stop();
            let mut sges = [sge(survivor.memory.addr(), length as u32, survivor.mr)];
            let mut request = with_sges(wr(IBV_WR_SEND), &mut sges);
            let qp = end.qp(service);
            if service == IBV_QPT_UC {
                bring_up(qp, &attr_to(u64::from(peer)));
            } else {
                bring_up_ud(qp, QKEY);
                request = addressed(request, ah(end.pd, &here()), peer, QKEY);
            }
            loop {
                post(qp, &mut request);
                let Some(completed) = poll(end.cq) else { break };
                assert_eq!(completed.status, IBV_WC_SUCCESS);
            }
            post(qp, &mut request);
            end.expect_nothing();
            child.kill();
            for _ in 0..2 {
                end.expect(IBV_WC_SUCCESS);
            }
            post(qp, &mut request);
            end.expect(IBV_WC_SUCCESS);
            survivor.destroy(qp);
            survivor.destroy(connected);
        }
    }

    /// One of two peers that write to the same region is killed: the other is served as before.
    fn others_are_served_on() {
        let survivor = Survivor::new();
        let (mut first, qp, key) = survivor.stream(IBV_WR_RDMA_WRITE, MIB);
        let (mut second, other) = survivor.peer(path_of!("streamer"));
        let [] = first.hear();
        first.kill();
        survivor.revoke(qp, key);
        survivor.is_lost(qp);
        survivor.memory.write(0, &[0; 4096]);
        let rkey = u64::from(keys(survivor.mr).1);
        second.tell(&[u64::from(IBV_WR_RDMA_WRITE), survivor.memory.addr(), rkey, 4096]);
        let [] = second.hear();
        let expected: Vec<u8> = (0..4096).map(|at| pattern(at, 7)).collect();
        assert!(survivor.memory.read(0, 4096) == expected);
        assert_eq!(state(other), IBV_QPS_RTS);
        second.kill();
        survivor.expect_loss(other);
    }
}
