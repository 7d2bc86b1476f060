//! Windows that end while they are in use: freed under load, or with their whole process
//! (rules MWA-14, MWA-15, MWA-22).

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::thread;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::processes::again;
use transom_conformance::{on_each_link, path_of};
use transom_host::Options;
use transom_ibverbs::{ibv_dealloc_pd, ibv_destroy_cq};
use transom_system::registry::Registry;

/// What each operation of the load moves: as much as is copied under one announcement.
const SIZE: usize = 256 << 10;
const PAGE: usize = 4096;
/// More operations than come before the window is freed.
const MOST: usize = 100_000;
/// A byte that no load writes and no buffer begins with. It is even, because the rubbish of a rehearsal is odd.
const MARK: u8 = 0xa6;

/// An origin that repeats one operation; plain numbers, so that a thread can have it.
#[derive(Clone, Copy)]
struct Load {
    qp: usize,
    cq: usize,
    op: Op,
    sge: ibv_sge,
    addr: u64,
    key: u32,
}

impl Load {
    /// Works until the operation fails, and answers how it did.
    fn run(self, done: &AtomicU32) -> ibv_wc_status {
        for _ in 0..MOST {
            post(self.qp as *mut ibv_qp, &mut op_wr(self.op, &mut [self.sge], self.addr, self.key));
            let status = wait(self.cq as *mut ibv_cq).status;
            if status != IBV_WC_SUCCESS {
                return status;
            }
            done.fetch_add(1, AcqRel);
        }
        panic!("{MOST} operations and no end");
    }
}

/// The last byte of each page, from the last page to the first: an operation under way comes
/// towards it.
fn last_bytes() -> impl Iterator<Item = usize> {
    (0..SIZE / PAGE).rev().map(|page| page * PAGE + PAGE - 1)
}

/// One round: the window is freed while the operation is repeated; from then on no byte of its
/// memory is read or written.
fn free_under_load(both: &MemoryPair, origin: &End, kind: ibv_mw_type, op: Op) {
    let qps = (origin.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
    connect(qps.0, qps.1);
    let mw = both.pair.b.mw(kind);
    let key = bind(&both.pair.b, qps.1, mw, both.range(0, SIZE as u64, REMOTE));
    let ma = origin.reg(&both.near, ALL);
    last_bytes().for_each(|at| {
        both.near.write(at, &[1]);
        both.far.write(at, &[2]);
    });
    let load = Load {
        qp: qps.0 as usize,
        cq: origin.cq as usize,
        op,
        sge: sge(both.near.addr(), SIZE as u32, ma),
        addr: both.far.addr(),
        key,
    };
    let done = AtomicU32::new(0);
    let status = thread::scope(|scope| {
        let worker = scope.spawn(|| load.run(&done));
        until("the load", || (done.load(Acquire) >= 2 || worker.is_finished()).then_some(()));
        assert!(!worker.is_finished(), "the load has failed: {:?}", worker.join());
        assert_eq!(dealloc_mw(mw), 0);
        last_bytes().for_each(|at| both.far.write(at, &[MARK]));
        worker.join().expect("the load ends")
    });
    assert_eq!(status, IBV_WC_REM_ACCESS_ERR);
    for at in last_bytes() {
        assert_eq!(both.far.read(at, 1), [MARK], "written after the window was freed");
        assert_ne!(both.near.read(at, 1), [MARK], "read after the window was freed");
    }
    assert_eq!(both.pair.b.event().0, IBV_EVENT_QP_ACCESS_ERR);
    end_qps(qps);
    assert_eq!(dereg(ma), 0);
}

on_each_link! {
    /// Once a window is freed, what was under way through it is over, READ and WRITE alike.
    /// Rules: MWA-14
    fn no_byte_moves_after_a_window_is_freed(link: Link) {
        let both = MemoryPair::granting(link, SIZE, ALL);
        let origin = End::on(both.pair.a.context);
        for round in 0..60 {
            let kind = if round % 2 == 0 { IBV_MW_TYPE_1 } else { IBV_MW_TYPE_2 };
            let op = if round / 2 % 2 == 0 { Op::Write } else { Op::Read };
            free_under_load(&both, &origin, kind, op);
        }
    }

    /// All who read through a window when it is freed are refused in the same way.
    /// Rules: MWA-15
    fn every_reader_of_a_freed_window_is_refused(link: Link) {
        const READERS: usize = 4;
        let both = MemoryPair::granting(link, SIZE, ALL);
        let origins: Vec<_> = (0..READERS).map(|_| End::on(both.pair.a.context)).collect();
        for _ in 0..10 {
            let (mw, key) = both.bound(IBV_MW_TYPE_1, both.range(0, SIZE as u64, REMOTE));
            let pairs: Vec<_> = origins
                .iter()
                .map(|origin| {
                    let qps = (origin.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
                    connect(qps.0, qps.1);
                    qps
                })
                .collect();
            let loads: Vec<_> = (0..READERS)
                .map(|reader| {
                    let mr = origins[reader].reg(&both.near, ALL);
                    let at = (reader * SIZE / READERS) as u64;
                    Load {
                        qp: pairs[reader].0 as usize,
                        cq: origins[reader].cq as usize,
                        op: Op::Read,
                        sge: sge(both.near.addr() + at, (SIZE / READERS) as u32, mr),
                        addr: both.far.addr() + at,
                        key,
                    }
                })
                .collect();
            let counts: [AtomicU32; READERS] = Default::default();
            let statuses: Vec<_> = thread::scope(|scope| {
                let workers: Vec<_> = loads
                    .iter()
                    .zip(&counts)
                    .map(|(load, count)| scope.spawn(|| load.run(count)))
                    .collect();
                until("all readers", || {
                    counts.iter().all(|count| count.load(Acquire) > 0).then_some(())
                });
                assert_eq!(dealloc_mw(mw), 0);
                workers.into_iter().map(|worker| worker.join().expect("it ends")).collect()
            });
            assert_eq!(statuses, [IBV_WC_REM_ACCESS_ERR; READERS]);
            assert!(both.near.read(0, SIZE) == both.far.read(0, SIZE));
            // An event of a queue pair that is gone is nobody's, so all events come first.
            for qps in &pairs {
                assert_eq!(state(qps.1), IBV_QPS_ERR);
                assert_eq!(both.pair.b.event().0, IBV_EVENT_QP_ACCESS_ERR);
            }
            pairs.into_iter().for_each(end_qps);
        }
        both.pair.b.expect_nothing();
    }
}

const PEER: &str = "TRANSOM_TEST_PEER";

/// The other process of [`a_process_ends_with_its_windows`]; nothing when that did not start it.
#[test]
fn in_another_process() {
    let Some(peer) = env::var(PEER).ok().and_then(|number| number.parse().ok()) else { return };
    let (end, buffer) = (End::new(Options::default()), Buffer::filled(PAGE, 3));
    let (qp, mr) = (end.qp(IBV_QPT_RC), end.reg(&buffer, ALL));
    bring_up(qp, &ibv_qp_attr { dest_qp_num: peer, ..usual_attr(std::ptr::null_mut()) });
    let range = Range { mr, addr: buffer.addr(), length: buffer.len() as u64, access: REMOTE };
    let bound = [IBV_MW_TYPE_1, IBV_MW_TYPE_2].map(|kind| bind(&end, qp, end.mw(kind), range));
    // SAFETY: a live queue pair.
    let number = unsafe { (*qp).qp_num };
    println!("\nready {number} {} {} {}", buffer.addr(), bound[0], bound[1]);
    std::io::stdout().flush().expect("the other process listens");
    // Until the other process says so; then out, with everything as it is.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

/// A process that ends with windows bound ends without ado, and so do they: peers find nobody
/// there, and its place is free.
/// Rules: MWA-22
#[test]
fn a_process_ends_with_its_windows() {
    for killed in [false, true] {
        let (end, buffer) = (End::new(Options::default()), Buffer::new(PAGE));
        let (qp, mr) = (end.qp(IBV_QPT_RC), end.reg(&buffer, ALL));
        let mut child = again(path_of!("in_another_process"))
            // SAFETY: a live queue pair.
            .env(PEER, unsafe { (*qp).qp_num }.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let told: Vec<u64> = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("ready ")?.to_owned()))
            .expect("the other process is ready")
            .split(' ')
            .map(|number| number.parse().expect("a number"))
            .collect();
        let (number, addr) = (told[0] as u32, told[1]);
        let attr = ibv_qp_attr { dest_qp_num: number, ..usual_attr(std::ptr::null_mut()) };
        bring_up(qp, &attr);
        let mut sges = [sge(buffer.addr(), 64, mr)];
        for key in [told[2] as u32, told[3] as u32] {
            buffer.write(0, &[0; 64]);
            post(qp, &mut op_wr(Op::Read, &mut sges, addr, key));
            end.expect(IBV_WC_SUCCESS);
            assert!(buffer.read(0, 64) == Buffer::filled(PAGE, 3).read(0, 64));
        }
        let slot = (number >> 16) as u8;
        let registry = Registry::open().expect("a registry");
        let there = registry.process(slot).expect("the other process");
        assert!(there.alive && there.pid == child.id());
        if killed {
            child.kill().expect("it can be killed");
        }
        drop(child.stdin.take());
        let status = until("its end", || child.try_wait().expect("a child"));
        assert_eq!(status.success(), !killed);
        assert!(!registry.is_alive(there.announcer));
        post(qp, &mut op_wr(Op::Read, &mut sges, addr, told[2] as u32));
        end.expect(IBV_WC_RETRY_EXC_ERR);
    }
}

/// A program that closes its device first finds its windows, and frees them afterwards in any
/// order: nothing is left of the device.
/// Rules: MWA-22
#[test]
fn closing_with_windows_bound_neither_hangs_nor_leaks() {
    let mut both = MemoryPair::pages(Link::Local);
    let qb = both.pair.qb;
    let windows =
        [IBV_MW_TYPE_1, IBV_MW_TYPE_2].map(|kind| both.bound(kind, both.range(0, 64, REMOTE)));
    // SAFETY: a live queue pair.
    let slot = (unsafe { (*qb).qp_num } >> 16) as u8;
    let registry = Registry::open().expect("a registry");
    let place = registry.process(slot).expect("this device").announcer;
    both.pair.b.close();
    for (mw, _) in windows {
        let freed = dealloc_mw(mw);
        assert!(freed == 0 || freed == libc::ENOENT, "{freed}");
    }
    for gone in [
        dereg(both.mb),
        /* SAFETY: objects of the test, destroyed once. */
        unsafe { transom_ibverbs::ibv_destroy_qp(qb) },
    ] {
        assert!(gone == 0 || gone == libc::ENOENT, "{gone}");
    }
    let b = &both.pair.b;
    // SAFETY: as above.
    for gone in unsafe { [ibv_destroy_cq(b.cq), ibv_dealloc_pd(b.pd)] } {
        assert!(gone == 0 || gone == libc::ENOENT, "{gone}");
    }
    until("the end of the device", || (!registry.holds(place)).then_some(()));
}

/// A context that is closed takes its windows along, freed or not: no peer gets in through them.
/// Rules: MWA-22
#[test]
fn closing_frees_the_windows() {
    let mut both = MemoryPair::pages(Link::Local);
    let range = both.range(0, 64, REMOTE);
    let (_, key) = both.bound(IBV_MW_TYPE_1, range);
    both.pair.b.close();
    let mut sges = [sge(both.near.addr(), 64, both.ma)];
    post(both.pair.qa, &mut op_wr(Op::Read, &mut sges, range.addr, key));
    assert_ne!(both.pair.a.wait().status, IBV_WC_SUCCESS);
}
