//! Compare-and-swap and fetch-and-add (rules E.4).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::processes::{Way, alone};
use transom_conformance::{on_each_link, path_of};
use transom_system::memory::{begin_sharing, is_shared};

const CAS: ibv_wr_opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
const FAA: ibv_wr_opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;

/// A key nobody has.
const JUNK: u32 = 0xdead_beef;

/// An atomic on the target's word at `at`, its result to the origin's at 0; the completion.
fn atomic(
    both: &MemoryPair,
    opcode: ibv_wr_opcode,
    at: u64,
    compare_add: u64,
    swap: u64,
) -> ibv_wc {
    let mut sges = [sge(both.near.addr(), 8, both.ma)];
    let (remote, key) = (both.far.addr() + at, both.key());
    post(both.pair.qa, &mut atomic_wr(opcode, &mut sges, remote, key, compare_add, swap));
    both.pair.a.wait()
}

/// The same, expecting success: what it returned, and what is there now.
fn outcome(both: &MemoryPair, opcode: ibv_wr_opcode, compare_add: u64, swap: u64) -> (u64, u64) {
    both.near.set_word(0, 0x5555_5555);
    let wc = atomic(both, opcode, 64, compare_add, swap);
    assert_eq!((wc.status, wc.byte_len), (IBV_WC_SUCCESS, 8));
    let expected = if opcode == CAS { IBV_WC_COMP_SWAP } else { IBV_WC_FETCH_ADD };
    assert_eq!(wc.opcode, expected);
    (both.near.word(0), both.far.word(64))
}

on_each_link! {
    /// Any address that is no multiple of 8 is an invalid request and changes nothing, before the
    /// remote and the local key are looked at.
    /// Rules: AT-01, AT-02, AT-03
    fn misaligned_is_invalid_before_any_key(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        for opcode in [CAS, FAA] {
            for offset in 1..8 {
                for (lkey, rkey) in [
                    (keys(both.ma).0, both.key()),
                    (keys(both.ma).0, JUNK),
                    (JUNK, both.key()),
                ] {
                    let (qa, qb) = both.pair.another(IBV_QPT_RC);
                    let mut sges = [ibv_sge { addr: both.near.addr(), length: 8, lkey }];
                    let remote = both.far.addr() + offset;
                    post(qa, &mut atomic_wr(opcode, &mut sges, remote, rkey, 1, 2));
                    both.pair.a.expect(IBV_WC_REM_INV_REQ_ERR);
                    assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
                    assert!(both.bytes() == before);
                }
            }
        }
    }

    /// Both the address of the request and the byte it stands for must be aligned.
    /// Rules: AT-04
    fn the_mapped_byte_must_be_aligned_too(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        let b = &both.pair.b;
        let zero = IBV_ACCESS_ZERO_BASED;
        for opcode in [CAS, FAA] {
            for (start, offset) in [(4, 0), (4, 4), (1, 8), (1, 7), (0, 4)] {
                for windows in [true, false] {
                    let (qa, qb) = both.pair.another(IBV_QPT_RC);
                    let key = if windows {
                        let addr = both.far.addr() + start;
                        let range =
                            Range { mr: both.mb, addr, length: 64, access: REMOTE | zero };
                        bind(b, qb, b.mw(IBV_MW_TYPE_2), range)
                    } else {
                        keys(both.part(start as usize, 64, ALL | zero as i32)).1
                    };
                    let wc = both.op_on(qa, opcode, offset, key, 8);
                    assert_eq!(wc.status, IBV_WC_REM_INV_REQ_ERR, "{start} + {offset}");
                    assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
                    assert!(both.bytes() == before);
                }
            }
        }
        let (qa, _) = both.pair.another(IBV_QPT_RC);
        let key = keys(both.part(16, 64, ALL | zero as i32)).1;
        assert_eq!(both.op_on(qa, FAA, 8, key, 8).status, IBV_WC_SUCCESS);
    }

    /// Compare-and-swap stores if equal, and answers the old value either way.
    /// Rules: AT-05
    fn compare_and_swap(link: Link) {
        let both = MemoryPair::new(link, 4096);
        both.far.set_word(64, 2);
        let around = (both.far.word(56), both.far.word(72));
        assert_eq!(outcome(&both, CAS, 1, 3), (2, 2));
        assert_eq!(outcome(&both, CAS, 2, 3), (2, 3));
        assert_eq!(outcome(&both, CAS, 2, 4), (3, 3));
        // All 64 bits are compared.
        both.far.set_word(64, 1 << 63 | 1);
        assert_eq!(outcome(&both, CAS, 1, 9), (1 << 63 | 1, 1 << 63 | 1));
        assert_eq!(outcome(&both, CAS, 1 << 63, 9), (1 << 63 | 1, 1 << 63 | 1));
        assert_eq!(outcome(&both, CAS, 1 << 63 | 1, u64::MAX), (1 << 63 | 1, u64::MAX));
        assert_eq!((both.far.word(56), both.far.word(72)), around);
    }

    /// Fetch-and-add adds all 64 bits, wraps, and answers the old value.
    /// Rules: AT-06
    fn fetch_and_add(link: Link) {
        let both = MemoryPair::new(link, 4096);
        both.far.set_word(64, 5);
        let around = (both.far.word(56), both.far.word(72));
        assert_eq!(outcome(&both, FAA, 0, 0), (5, 5));
        assert_eq!(outcome(&both, FAA, 1 << 63, 0), (5, 5 + (1 << 63)));
        assert_eq!(outcome(&both, FAA, 1 << 63, 0), (5 + (1 << 63), 5));
        assert_eq!(outcome(&both, FAA, u64::MAX, 0), (5, 4));
        assert_eq!(outcome(&both, FAA, u32::MAX.into(), 0), (4, 0x1_0000_0003));
        assert_eq!((both.far.word(56), both.far.word(72)), around);
    }

    /// The result is stored in host order, over as many SGEs as are given.
    /// Rules: AT-07
    fn the_result_may_be_split(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (base, value) = (both.near.addr(), 0x0102_0304_0506_0708_u64);
        for lengths in [&[8][..], &[2, 6], &[1, 0, 3, 4], &[7, 1]] {
            let (mut expected, _) = both.bytes();
            both.far.set_word(64, value);
            let (mut sges, mut taken) = (Vec::new(), 0);
            for (n, length) in lengths.iter().enumerate() {
                let at = 100 * (n + 1);
                sges.push(sge(base + at as u64, *length as u32, both.ma));
                let part = &value.to_ne_bytes()[taken..taken + length];
                expected[at..at + length].copy_from_slice(part);
                taken += length;
            }
            let (remote, key) = (both.far.addr() + 64, both.key());
            post(both.pair.qa, &mut atomic_wr(FAA, &mut sges, remote, key, 1, 0));
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).byte_len, 8);
            assert!(both.bytes().0 == expected, "{lengths:?}");
            assert_eq!(both.far.word(64), value + 1);
            both.near.write(0, &[0; 4096]);
        }
    }

    /// Room for other than eight bytes is accepted when posted, fails as the origin's own mistake,
    /// and nothing is sent.
    /// Rules: AT-08
    fn room_for_other_than_eight_bytes(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        for opcode in [CAS, FAA] {
            for lengths in [&[][..], &[4], &[7], &[9], &[16], &[4, 2], &[8, 8]] {
                let (qa, qb) = both.pair.another(IBV_QPT_RC);
                let mut sges: Vec<_> =
                    lengths.iter().map(|n| sge(both.near.addr(), *n, both.ma)).collect();
                let (remote, old) = (both.far.addr() + 64, both.far.word(64));
                post(qa, &mut atomic_wr(opcode, &mut sges, remote, both.key(), old, 1));
                both.pair.a.expect(IBV_WC_LOC_LEN_ERR);
                assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_RTS), "{lengths:?}");
                assert!(both.bytes() == before, "{lengths:?}");
            }
        }
        assert!(!both.pair.b.has_event());
    }

    /// Two origins add to one word at once, from threads of their own: no addition is lost, and no
    /// two get the same answer. A compare-and-swap loop mixed in is as exact.
    /// Rules: AT-09
    fn atomics_are_atomic_among_queue_pairs(link: Link) {
        const TIMES: u64 = 2000;
        let both = MemoryPair::new(link, 4096);
        both.far.set_word(64, 0);
        let origins: Vec<_> = (0..2)
            .map(|n| {
                // SAFETY: the context is open; each thread gets an end of its own in it.
                let end = End::on(unsafe { (*both.pair.qa).context });
                let (qa, qb) = (end.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
                connect(qa, qb);
                let buffer = Buffer::new(8);
                let mr = end.reg(&buffer, ALL);
                let (remote, key) = (both.far.addr() + 64, both.key());
                Adder { end, qa, buffer, mr, remote, key, swaps: n == 1 }
            })
            .collect();
        let mut seen: Vec<u64> = thread::scope(|scope| {
            let threads: Vec<_> =
                origins.into_iter().map(|adder| scope.spawn(move || adder.run(TIMES))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("it adds")).collect()
        });
        assert_eq!(both.far.word(64), 2 * TIMES);
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..2 * TIMES));
    }

    /// An atomic always has a key to check: there is none of zero length.
    /// Rules: AT-12
    fn atomics_always_check_the_key(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        for opcode in [CAS, FAA] {
            for key in [JUNK, 0, both.key() ^ 1] {
                let (qa, qb) = both.pair.another(IBV_QPT_RC);
                let mut sges = [sge(both.near.addr(), 8, both.ma)];
                // An addition of nothing, an exchange that would not happen.
                let mut wr = atomic_wr(opcode, &mut sges, both.far.addr(), key, 0, 0);
                post(qa, &mut wr);
                both.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
                assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            }
        }
        assert!(both.bytes() == before);
    }
}

/// An origin of [`atomics_are_atomic_among_queue_pairs`].
struct Adder {
    end: End,
    qa: *mut ibv_qp,
    buffer: Buffer,
    mr: *mut ibv_mr,
    remote: u64,
    key: u32,
    swaps: bool,
}

// SAFETY: verbs objects may be used from any thread; each adder has its own.
unsafe impl Send for Adder {}

impl Adder {
    /// Adds 1 that many times; the values it found.
    fn run(self, times: u64) -> Vec<u64> {
        let ask = |opcode, compare_add, swap| {
            let mut sges = [sge(self.buffer.addr(), 8, self.mr)];
            let mut wr = atomic_wr(opcode, &mut sges, self.remote, self.key, compare_add, swap);
            post(self.qa, &mut wr);
            self.end.expect(IBV_WC_SUCCESS);
            self.buffer.word(0)
        };
        let swap = || {
            let mut expected = 0;
            // Only the other adder's progress makes a round fail.
            until("a swap that succeeds", || {
                let found = ask(CAS, expected, expected + 1);
                let old = std::mem::replace(&mut expected, found);
                (found == old).then_some(found)
            })
        };
        (0..times).map(|_| if self.swaps { swap() } else { ask(FAA, 1, 0) }).collect()
    }
}

/// Memory that cannot be written cannot be registered for atomics, so none can meet it.
/// Rules: AT-14
#[test]
fn at_14_read_only_memory_takes_no_atomics() {
    let pair = Pair::unconnected(Link::Loopback, IBV_QPT_RC);
    let buffer = Buffer::new(4096);
    buffer.protect(libc::PROT_READ);
    let atomic = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC) as i32;
    assert_eq!(try_reg(pair.b.pd, buffer.addr(), 4096, atomic), Err(libc::EFAULT));
    let unwritable = IBV_ACCESS_REMOTE_ATOMIC as i32;
    assert_eq!(try_reg(pair.b.pd, buffer.addr(), 4096, unwritable), Err(libc::EINVAL));
    buffer.protect(libc::PROT_READ | libc::PROT_WRITE);
    assert!(try_reg(pair.b.pd, buffer.addr(), 4096, atomic).is_ok());
}

/// In shared memory an atomic is one step also among the instructions of the target's program.
#[test]
fn shared_atomics_count_with_the_programs_own() {
    const COUNT: u64 = 5000;
    alone(path_of!("shared_atomics_count_with_the_programs_own"), Way::Shared, || {
        let both = MemoryPair::granting(Link::Shared, 4096, ALL);
        if !is_shared(both.far.addr(), 4096) {
            assert!(begin_sharing().is_err(), "memory is not shared");
            return eprintln!("skipped: there is no shared memory here");
        }
        let address = both.far.addr() as usize + 64;
        // SAFETY: within the buffer, which lives longer, aligned, and any bytes make a number.
        let word = unsafe { &*(address as *const AtomicU64) };
        word.store(0, SeqCst);
        let stop = AtomicBool::new(false);
        let own = thread::scope(|scope| {
            let own = scope.spawn(|| {
                let mut own = 0;
                while !stop.load(Acquire) {
                    word.fetch_add(1, Relaxed);
                    own += 1;
                }
                own
            });
            let over = Over(&stop);
            for _ in 0..COUNT {
                assert_eq!(atomic(&both, FAA, 64, 1, 0).status, IBV_WC_SUCCESS);
            }
            drop(over);
            own.join().expect("it ends")
        });
        assert_eq!(word.load(SeqCst), own + COUNT);
    });
}
