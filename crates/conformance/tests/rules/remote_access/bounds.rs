//! How far a key reaches: bounds of regions and windows, zero-based or not, for every operation
//! (rules E.2).

use std::sync::atomic::AtomicU32;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_device::Access;
use transom_device::execution::one_sided::{KeyDomain, Stop, Target};
use transom_device::execution::{CopyError, MAX_MESSAGE, Part, Source};
use transom_device::protection::{
    Announcer, Grant, Hazards, Key, KeyEntry, KeyTable, Reason, RecentSlots, RemoteAddress,
    Scramble, Waiter,
};
use transom_device::qp::{Bypass, Gate, QpNumber, QpState, QpSummary, Service};
use transom_wire::NakCode;

/// Where the object lies in the target's buffer. Its length is no multiple of 8, so that an aligned
/// atomic can reach one byte too far.
const AT: usize = 1024;
const LENGTH: usize = 127;

/// What a key may stand for.
#[derive(Clone, Copy, Debug)]
enum Object {
    Region,
    ZeroBasedRegion,
    Window1,
    Window2,
    ZeroBasedWindow,
    /// A window with addresses of its region, which is zero-based.
    WindowInZeroBasedRegion,
    /// Both zero-based.
    ZeroBasedWindowInZeroBasedRegion,
}

const OBJECTS: [Object; 7] = [
    Object::Region,
    Object::ZeroBasedRegion,
    Object::Window1,
    Object::Window2,
    Object::ZeroBasedWindow,
    Object::WindowInZeroBasedRegion,
    Object::ZeroBasedWindowInZeroBasedRegion,
];

const ZERO: u32 = IBV_ACCESS_ZERO_BASED;

impl Object {
    /// Makes the object over [`LENGTH`] bytes from [`AT`] on, for the owner `qb`: the key, and the
    /// address by which requests name its first byte.
    fn make(self, both: &MemoryPair, qb: *mut ibv_qp) -> (u32, u64) {
        let first = both.far.addr() + AT as u64;
        let window = |kind, mr, addr, zero| {
            let range = Range { mr, addr, length: LENGTH as u64, access: REMOTE | zero };
            bind(&both.pair.b, qb, both.pair.b.mw(kind), range)
        };
        // A zero-based region that begins before the window, whose place in it is `AT - 512`.
        let zero_based = || both.part(512, 2048, ALL | ZERO as i32);
        let place = AT as u64 - 512;
        match self {
            Self::Region => (keys(both.part(AT, LENGTH, ALL)).1, first),
            Self::ZeroBasedRegion => (keys(both.part(AT, LENGTH, ALL | ZERO as i32)).1, 0),
            Self::Window1 => (window(IBV_MW_TYPE_1, both.mb, first, 0), first),
            Self::Window2 => (window(IBV_MW_TYPE_2, both.mb, first, 0), first),
            Self::ZeroBasedWindow => (window(IBV_MW_TYPE_2, both.mb, first, ZERO), 0),
            Self::WindowInZeroBasedRegion => (window(IBV_MW_TYPE_2, zero_based(), place, 0), place),
            Self::ZeroBasedWindowInZeroBasedRegion => {
                (window(IBV_MW_TYPE_2, zero_based(), place, ZERO), 0)
            }
        }
    }
}

/// A range relative to the object's first byte, and whether it lies within.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// From the first byte; negative is before it.
    from: i64,
    length: u32,
    within: bool,
}

const fn reach(from: i64, length: u32, within: bool) -> Reach {
    Reach { from, length, within }
}

on_each_link! {
    /// One byte too low, exact, one byte too high, far off, around the end of all addresses: every
    /// kind of object, READ and WRITE. Inside its region, outside itself is outside for a window.
    /// Rules: RA-32, RA-33
    fn reads_and_writes_stay_within(link: Link) {
        let length = LENGTH as u32;
        let reaches = [
            reach(0, length, true),
            reach(0, 1, true),
            reach(LENGTH as i64 - 1, 1, true),
            reach(-1, length, false),
            reach(-1, 1, false),
            reach(-1, length + 2, false),
            reach(0, length + 1, false),
            reach(1, length, false),
            reach(LENGTH as i64, 1, false),
            reach(1 << 40, 1, false),
        ];
        grid(link, &[IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE], &reaches);
    }

    /// The same for atomics, whose eight bytes must all lie within.
    /// Rules: RA-32, RA-33
    fn atomics_stay_within(link: Link) {
        let reaches = [
            reach(0, 8, true),
            reach(LENGTH as i64 - 15, 8, true),
            reach(-8, 8, false),
            reach(LENGTH as i64 - 7, 8, false),
            reach(LENGTH as i64 + 1, 8, false),
            reach(1 << 40, 8, false),
        ];
        grid(link, &[IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP], &reaches);
    }

    /// No bytes are within everything: before, at, behind and far from the object.
    /// Rules: RA-21
    fn no_bytes_are_within_everything(link: Link) {
        let ends = LENGTH as i64;
        let reaches = [-1, 0, ends - 1, ends, ends + 1, 1 << 40].map(|from| reach(from, 0, true));
        grid(link, &[IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE], &reaches);
    }

    /// A range that passes 2^64 does not come back at the bottom, where a zero-based object lies.
    /// Rules: RA-34
    fn ranges_do_not_wrap(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for object in OBJECTS {
            for (opcode, address, length) in [
                (IBV_WR_RDMA_READ, u64::MAX - 7, 16),
                (IBV_WR_RDMA_WRITE, u64::MAX - 7, 16),
                (IBV_WR_RDMA_READ, u64::MAX, 2),
                (IBV_WR_RDMA_WRITE, u64::MAX, 2),
                (IBV_WR_RDMA_WRITE, u64::MAX, 1),
                (IBV_WR_ATOMIC_FETCH_AND_ADD, u64::MAX - 7, 8),
            ] {
                let (qa, qb) = both.pair.another(IBV_QPT_RC);
                let (key, _) = object.make(&both, qb);
                let before = both.bytes();
                let wc = both.op_on(qa, opcode, address, key, length);
                assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR, "{object:?} {opcode} {address:#x}");
                assert!(both.bytes() == before, "{object:?} {opcode} {address:#x}");
            }
        }
    }

    /// A range that would wrap in the middle of a long message: the part before 2^64 is not written
    /// either.
    /// Rules: RA-34, RA-35
    fn long_ranges_do_not_wrap(link: Link) {
        const LONG: u32 = 1 << 20;
        let both = MemoryPair::new(link, LONG as usize);
        let key = keys(both.part(0, LONG as usize, ALL | ZERO as i32)).1;
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
            let (qa, _) = both.pair.another(IBV_QPT_RC);
            let before = both.bytes();
            let wc = both.op_on(qa, opcode, u64::MAX - u64::from(LONG / 2), key, LONG);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            assert!(both.bytes() == before);
        }
    }

    /// A long message that only its last byte takes out of bounds changes nothing at all: the whole
    /// length is judged before the first byte moves.
    /// Rules: RA-35
    fn the_whole_length_is_judged_first(link: Link) {
        const LONG: usize = 1 << 20;
        let both = MemoryPair::new(link, LONG);
        let (b, addr) = (&both.pair.b, both.far.addr());
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM] {
            for windows in [false, true] {
                let (qa, qb) = both.pair.another(IBV_QPT_RC);
                let length = LONG - 1;
                let key = if windows {
                    let range =
                        Range { mr: both.mb, addr, length: length as u64, access: REMOTE };
                    bind(b, qb, b.mw(IBV_MW_TYPE_2), range)
                } else {
                    keys(both.part(0, length, ALL)).1
                };
                if link == Link::Wire && opcode == IBV_WR_RDMA_READ {
                    // It asks for its bytes part by part, and each part is judged as a whole.
                    continue;
                }
                let before = both.bytes();
                let wc = both.op_on(qa, opcode, addr, key, LONG as u32);
                assert_eq!((wc.status, state(qb)), (IBV_WC_REM_ACCESS_ERR, IBV_QPS_ERR));
                assert!(both.bytes() == before);
            }
        }
    }

    /// The byte an address names: of a region `va - iova`, of a zero-based one the address itself,
    /// of a zero-based window the address from the window's start on.
    /// Rules: RA-37
    fn addresses_name_the_right_byte(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (near, far) = (&both.near, &both.far);
        let check = |qa, key, first: u64| {
            for at in [0, 5, LENGTH - 10] {
                let wc = both.op_on(qa, IBV_WR_RDMA_READ, first + at as u64, key, 10);
                assert_eq!(wc.status, IBV_WC_SUCCESS);
                assert_eq!(near.read(0, 10), far.read(AT + at, 10));
                let mut expected = far.read(0, 4096);
                near.write(0, &[at as u8 ^ 0xa5; 10]);
                expected[AT + at..AT + at + 10].fill(at as u8 ^ 0xa5);
                let wc = both.op_on(qa, IBV_WR_RDMA_WRITE, first + at as u64, key, 10);
                assert_eq!(wc.status, IBV_WC_SUCCESS);
                assert!(far.read(0, 4096) == expected);
            }
            let old = far.word(AT + 8);
            let wc = both.op_on(qa, IBV_WR_ATOMIC_FETCH_AND_ADD, first + 8, key, 8);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
            assert_eq!(far.word(AT + 8), old.wrapping_add(1));
        };
        for object in OBJECTS {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            let (key, first) = object.make(&both, qb);
            check(qa, key, first);
        }
        // Registered under addresses of the program's own choice.
        let (qa, qb) = both.pair.another(IBV_QPT_RC);
        let iova = 0x7000_0000_0000;
        // SAFETY: registering touches no memory.
        let mr = unsafe {
            transom_ibverbs::ibv_reg_mr_iova(both.pair.b.pd, far.addr() as *mut _, 4096, iova, ALL)
        };
        assert!(!mr.is_null());
        check(qa, keys(mr).1, iova + AT as u64);
        let addr = iova + AT as u64;
        let range = Range { mr, addr, length: LENGTH as u64, access: REMOTE };
        let key = bind(&both.pair.b, qb, both.pair.b.mw(IBV_MW_TYPE_1), range);
        check(qa, key, addr);
    }
}

/// Every object, operation and reach: what lies within is carried out there and nowhere else, what
/// does not fails remotely and changes nothing.
fn grid(link: Link, opcodes: &[ibv_wr_opcode], reaches: &[Reach]) {
    let both = MemoryPair::new(link, 4096);
    for object in OBJECTS {
        for opcode in opcodes {
            for reach in reaches {
                cell(&both, object, *opcode, *reach);
            }
        }
    }
}

fn cell(both: &MemoryPair, object: Object, opcode: ibv_wr_opcode, reach: Reach) {
    let what = format!("{object:?}, opcode {opcode}, {reach:?}");
    let (qa, qb) = both.pair.another(IBV_QPT_RC);
    let (key, first) = object.make(both, qb);
    let address = first.wrapping_add_signed(reach.from);
    // So that every change shows.
    let pattern: Vec<u8> = (0..4096).map(|at| pattern(at, 55)).collect();
    both.near.write(0, &pattern);
    let (mut near, mut far) = both.bytes();
    far[AT..AT + 8].copy_from_slice(&1_u64.to_ne_bytes());
    both.far.write(0, &far);
    let wc = both.op_on(qa, opcode, address, key, reach.length);
    if !reach.within {
        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR, "{what}");
        assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR), "{what}");
        assert!(both.bytes() == (near, far), "{what}");
        return;
    }
    assert_eq!(wc.status, IBV_WC_SUCCESS, "{what}");
    assert_eq!(state(qb), IBV_QPS_RTS, "{what}");
    let length = reach.length as usize;
    let at = (AT as i64).saturating_add(reach.from) as usize;
    if length > 0 {
        let old = far[at..at + length].to_vec();
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        match opcode {
            IBV_WR_RDMA_WRITE => far[at..at + length].copy_from_slice(&near[..length]),
            IBV_WR_RDMA_READ => near[..length].copy_from_slice(&old),
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                far[at..at + 8].copy_from_slice(&word(&old).wrapping_add(1).to_ne_bytes());
                near[..8].copy_from_slice(&old);
            }
            _ => {
                if word(&old) == 1 {
                    far[at..at + 8].fill(0);
                }
                near[..8].copy_from_slice(&old);
            }
        }
    }
    assert!(both.bytes() == (near, far), "{what}");
}

/// Bytes that nobody may ask for.
struct Untouched;

impl Source for Untouched {
    fn read(&mut self, _offset: u64, _bytes: &mut [u8]) -> Result<(), CopyError> {
        panic!("no byte may move");
    }

    fn copy_to(&mut self, _offset: u64, _at: &Grant<'_>) -> Result<(), CopyError> {
        panic!("no byte may move");
    }
}

/// Waits for nobody.
struct Alone;

impl Waiter for Alone {
    fn pause(&self, _round: u32, _on: Option<Announcer>) {
        panic!("nobody to wait for");
    }

    fn resumed(&self) {}

    fn is_gone(&self, _process: Announcer) -> bool {
        false
    }
}

/// A target refuses a message of more than 2^31 bytes as invalid, before it looks at the key. Asked
/// of the device itself, for a requester of this device never sends one.
/// Rules: RA-39
#[test]
fn ra_39_too_long_a_message_is_invalid() {
    let entries: [KeyEntry; 1] = Default::default();
    let (open, scramble, hazards) =
        (AtomicU32::new(1), Scramble::for_simulation(1), Hazards::default());
    let recent = RecentSlots::default();
    let summary = QpSummary::default();
    summary.set_gate(Gate {
        state: QpState::Rts,
        service: Service::Rc,
        access: Access::REMOTE,
        read_resources: 1,
        pd: 1,
        bypass: Bypass::Free,
    });
    let target = Target {
        keys: KeyTable::new(&entries, &open, &scramble, &recent, &hazards),
        summary: &summary,
        number: QpNumber::from_bits(7),
        announcer: Announcer { slot: 0, generation: 1 },
        waiter: &Alone,
        initiator: None,
        domain: KeyDomain::QueuePair,
    };
    let to = RemoteAddress { address: 0, key: Key(5) };
    let part = |total| Part { offset: 0, length: 1024, total };
    let refused = |total| match target.write(to, part(total), &mut Untouched) {
        Err(Stop::Refused(refusal)) => refusal.reason,
        other => panic!("{other:?}"),
    };
    assert_ne!(refused(MAX_MESSAGE), Reason::TooLong);
    assert_eq!(refused(MAX_MESSAGE).nak(), NakCode::RemoteAccess);
    assert_eq!(refused(MAX_MESSAGE + 1), Reason::TooLong);
    assert_eq!(refused(MAX_MESSAGE + 1).nak(), NakCode::InvalidRequest);
    assert_eq!(MAX_MESSAGE, 1 << 31);
}
