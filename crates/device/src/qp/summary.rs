//! The state of a target queue pair that an initiator must know. It lies in the target's segment beside the key table.

use transom_wire::{Psn, RnrTimer};

use super::{QpNumber, QpState, Service};
use crate::Access;
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};

/// Whether a queue pair admits requests, and which, read in one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The state of the queue pair.
    pub state: QpState,
    /// Its transport service.
    pub service: Service,
    /// `qp_access_flags`: rights of the peer only.
    pub access: Access,
    /// `max_dest_rd_atomic`.
    pub read_resources: u8,
    /// The protection domain's number.
    pub pd: u32,
    /// Whether its peer's WRITEs, READs and atomics may go around the responder.
    pub bypass: Bypass,
}

/// Whether initiators that can reach the memory themselves may go around the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// They may.
    Free,
    /// They may, if they log each access in the [`AccessLog`](crate::execution::AccessLog) of the process.
    Logged,
    /// Each request comes as a message, because something here is to see it first.
    Forbidden,
}

impl Bypass {
    const fn pack(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Logged => LOGGED,
            Self::Forbidden => FORBIDDEN,
        }
    }

    const fn unpack(word: u64) -> Self {
        match (word & FORBIDDEN, word & LOGGED) {
            (0, 0) => Self::Free,
            (0, _) => Self::Logged,
            _ => Self::Forbidden,
        }
    }
}

/// The rights to flush do not fit beside the others; they go where the service leaves room.
const FLUSH_BITS: u32 = (Access::FLUSH_GLOBAL.bits() | Access::FLUSH_PERSISTENT.bits()) >> 8;

/// The bit of a gate's word that says that there is a queue pair.
const HERE: u64 = 1 << 15;

/// The bits of a gate's word that count the lives of the queue pair: how often it has gone to RESET, as far as they
/// count. They lie above the state.
const LIFE: u64 = 31 << 3;

/// The bit of [`Bypass::Logged`].
const LOGGED: u64 = 1 << 11;
/// The bit of [`Bypass::Forbidden`]. The other one does not count beside it.
const FORBIDDEN: u64 = 1 << 14;

impl Gate {
    fn pack(self) -> u64 {
        self.state as u64
            | (self.service as u64) << 8
            | u64::from(self.access.bits() >> 8 & FLUSH_BITS) << 12
            | self.bypass.pack()
            | HERE
            | u64::from(self.access.bits() as u8) << 16
            | u64::from(self.read_resources) << 24
            | u64::from(self.pd) << 32
    }

    fn unpack(word: u64) -> Self {
        Self {
            state: QpState::from_code(word as u8 & 7),
            // We did not write any other value. UD admits the least.
            service: Service::from_code((word >> 8) as u8 & 7).unwrap_or(Service::Ud),
            access: Access::from_bits_retain(
                (word >> 16) as u32 & 0xff | ((word >> 12) as u32 & FLUSH_BITS) << 8,
            ),
            read_resources: (word >> 24) as u8,
            pd: (word >> 32) as u32,
            bypass: Bypass::unpack(word),
        }
    }

    /// Whether requests are served in this state (rule RA-04).
    pub const fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }
}

/// The peer that a queue pair accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peering {
    /// The queue pair at the other end.
    pub from: QpNumber,
    /// The PSN its first request must carry (rule PSN-02).
    pub first: Psn,
    /// `path_mtu`, as `enum ibv_mtu` counts; zero on UD, which has none.
    pub mtu_code: u8,
    /// The first request has been seen, or is not waited for (rule RA-05).
    pub established: bool,
}

/// The bit of a peering's word that says so.
const ESTABLISHED: u64 = 1 << 63;

impl Peering {
    /// The longest payload of a packet, in bytes.
    pub const fn path_mtu(&self) -> u64 {
        128 << self.mtu_code
    }

    fn pack(self) -> u64 {
        u64::from(self.from.bits())
            | u64::from(self.first.value()) << 24
            | u64::from(self.mtu_code & 7) << 48
            | if self.established { ESTABLISHED } else { 0 }
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        Self {
            from: QpNumber::from_bits(word as u32),
            first: Psn::new((word >> 24) as u32),
            mtu_code: (word >> 48) as u8 & 7,
            established: word & ESTABLISHED != 0,
        }
    }
}

/// Gate and peering as they were at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    gate: u64,
    peering: u64,
}

impl Look {
    /// Whether the queue pair admits requests, and which.
    #[inline]
    pub fn gate(&self) -> Gate {
        Gate::unpack(self.gate)
    }

    /// The peer that it accepts.
    #[inline]
    pub fn peering(&self) -> Peering {
        Peering::unpack(self.peering)
    }

    /// Whether a gate is of the same life of the queue pair.
    fn is_of_life(&self, gate: u64) -> bool {
        (self.gate ^ gate) & LIFE == 0
    }
}

/// Whether there is a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There has never been one.
    Never,
    /// It has been destroyed.
    Gone,
    /// There is one.
    Here,
}

/// Where a queue pair's receives come from, as far as not from itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedQueue {
    /// It has its own, or receives nothing.
    None,
    /// From the shared queue of this number.
    Number(u32),
    /// From the one that each message names (XRC).
    EachMessageNames,
}

/// One queue pair, as other processes of the user see it. All zeros means no queue pair.
#[derive(Default)]
#[repr(C, align(64))]
pub struct QpSummary {
    gate: AtomicU64,
    peering: AtomicU64,
    /// Type 2 windows bound through it (rules T2-04, T2-06).
    windows: AtomicU32,
    /// The receiving end of XRC: the PSN of the next message, above it the code of its RNR timer and some bits of the
    /// life. A message may name a shared receive queue of another process, which then carries it out. So all of them
    /// must know the next PSN.
    reception: AtomicU32,
    /// The receiving end of XRC: the file of its domain; zero is a domain without one.
    domain: [AtomicU64; 2],
    /// The receiving end of XRC: the number of its domain in its process; zero is none.
    own_domain: AtomicU32,
    /// The number of the shared queue that its receives come from, plus one; all ones for those of XRC, which each
    /// message names; zero for none.
    shared_queue: AtomicU32,
    /// Where its process counts what it carries.
    place: AtomicU32,
    /// The PSN it began to send with.
    first_sent: AtomicU32,
    /// The completion queues of its sends and of its receives, by the numbers that its process has given them.
    completes_to: [AtomicU32; 2],
}

impl QpSummary {
    /// Whether it admits requests, and which.
    #[inline]
    pub fn gate(&self) -> Gate {
        Gate::unpack(self.gate.load(SeqCst))
    }

    /// Sets all of the gate; the caller alone may change this queue pair now.
    pub fn set_gate(&self, gate: Gate) {
        self.gate.store(next_gate(self.gate.load(SeqCst), gate), SeqCst);
    }

    /// The same, unless the queue pair has fallen into error meanwhile: the receiving end of XRC falls by another process
    /// too, which has no lock of it. From there it only goes to RESET.
    pub fn open_gate(&self, gate: Gate) {
        let ends = matches!(gate.state, QpState::Reset | QpState::Error);
        let open = |word| {
            let stays = !ends && Gate::unpack(word).state == QpState::Error;
            (!stays).then(|| next_gate(word, gate))
        };
        // It stays as it is then.
        let _ = self.gate.fetch_update(SeqCst, SeqCst, open);
    }

    /// From now on initiators may do no more than this, until the gate is opened anew.
    pub fn restrict(&self, bypass: Bypass) {
        self.gate.fetch_or(bypass.pack(), SeqCst);
    }

    /// The queue pair does not exist any more: everyone who looks sees one in error.
    pub fn leave(&self) {
        let gone = |word| Some(word & LIFE | QpState::Error as u64);
        let _ = self.gate.fetch_update(SeqCst, SeqCst, gone);
        self.peering.store(0, SeqCst);
    }

    /// Whether there is a queue pair, or has been one; for explanations.
    pub fn presence(&self) -> Presence {
        match self.gate.load(SeqCst) {
            0 => Presence::Never,
            word if word & HERE == 0 => Presence::Gone,
            _ => Presence::Here,
        }
    }

    /// Moves to the state unless the queue pair has left `receives` meanwhile; true if it moved.
    /// Both halves of a queue pair use this to fall into error, whichever comes first.
    pub fn fall(&self, to: QpState) -> bool {
        self.gate.fetch_update(SeqCst, SeqCst, |word| fallen(word, to)).is_ok()
    }

    /// The same, of the connection that was looked at: the receiving end of XRC may have another by now, for
    /// another process decides about it too, and has no lock of it.
    pub fn fall_of(&self, look: &Look, to: QpState) -> bool {
        // A look may be so old that its life has come round: its peering is not here again then.
        let falls = |word| {
            let same = look.is_of_life(word) && self.is_peering_of(look);
            fallen(word, to).filter(|_| same)
        };
        self.gate.fetch_update(SeqCst, SeqCst, falls).is_ok()
    }

    /// Whether it is still in the same life as at `look`, so that everything read of it since then belongs to one
    /// connection.
    pub fn is_still(&self, look: &Look) -> bool {
        look.is_of_life(self.gate.load(SeqCst)) && self.is_peering_of(look)
    }

    fn is_peering_of(&self, look: &Look) -> bool {
        (self.peering.load(SeqCst) ^ look.peering) & !ESTABLISHED == 0
    }

    /// The peer that it accepts.
    #[inline]
    pub fn peering(&self) -> Peering {
        Peering::unpack(self.peering.load(Acquire))
    }

    /// Both.
    #[inline]
    pub fn look(&self) -> Look {
        Look { gate: self.gate.load(SeqCst), peering: self.peering.load(SeqCst) }
    }

    /// Sets the peer that it accepts.
    pub fn set_peering(&self, peering: Peering) {
        self.peering.store(peering.pack(), SeqCst);
    }

    /// The first request of this peer has been seen (rule RA-05). True if nobody has reported it before. The report is
    /// about this peer alone. The receiving end of XRC may accept another one by now, because the process of a shared
    /// receive queue sees requests too, and does not have its lock.
    pub fn establish(&self, peering: Peering) -> bool {
        let [unseen, seen] = [false, true].map(|established| Peering { established, ..peering });
        self.peering.compare_exchange(unseen.pack(), seen.pack(), SeqCst, Relaxed).is_ok()
    }

    /// The PSN of the next message of an XRC connection, and how long its sender must wait when no receive is posted.
    pub fn reception(&self) -> (Psn, RnrTimer) {
        reception_in(self.reception.load(Acquire))
    }

    /// Sets what [`QpSummary::reception`] answers.
    pub fn set_reception(&self, next: Psn, timer: RnrTimer) {
        let life = reception_life(self.gate.load(SeqCst));
        self.reception.store(reception_word(next, timer) | life, Release);
    }

    /// The message of this number has been carried out. The next one may come, if this was the expected one. The queue
    /// pair may have begun a new life in another process meanwhile; then the message belongs to the connection that was
    /// looked at.
    pub fn count_message(&self, done: Psn, of: Option<&Look>) {
        let counted = |word| {
            let (next, timer) = reception_in(word);
            let same = of.is_none_or(|look| word & RECEPTION_LIFE == reception_life(look.gate));
            let life = word & RECEPTION_LIFE;
            (same && next == done).then(|| reception_word(next.plus(1), timer) | life)
        };
        // It stays as it is otherwise.
        let _ = self.reception.fetch_update(AcqRel, Acquire, counted);
    }

    /// Changes what [`QpSummary::reception`] answers. One process may count a message while another
    /// changes the timer.
    pub fn change_reception(&self, change: impl Fn(Psn, RnrTimer) -> (Psn, RnrTimer)) {
        let changed = |word| {
            let (next, timer) = reception_in(word);
            let (next, timer) = change(next, timer);
            Some(reception_word(next, timer) | word & RECEPTION_LIFE)
        };
        let _ = self.reception.fetch_update(AcqRel, Acquire, changed);
    }

    /// The file of the XRC domain, as two numbers.
    pub fn xrc_domain(&self) -> Option<[u64; 2]> {
        let domain = self.domain.each_ref().map(|word| word.load(Acquire));
        (domain != [0, 0]).then_some(domain)
    }

    /// Sets what [`QpSummary::xrc_domain`] answers.
    pub fn set_xrc_domain(&self, domain: Option<[u64; 2]>) {
        for (word, value) in self.domain.iter().zip(domain.unwrap_or_default()) {
            word.store(value, Release);
        }
    }

    /// Sets the number that the XRC domain has in this process; zero is none.
    pub fn set_own_domain(&self, number: u32) {
        self.own_domain.store(number, SeqCst);
    }

    /// The protection domain of the keys that messages name which come here for a shared receive queue of
    /// the same process; `None` if that is not one of this queue pair's XRC domain.
    #[inline]
    pub fn key_domain(&self, srq: &SrqSummary) -> Option<u32> {
        let word = srq.0.load(SeqCst);
        let (pd, domain) = (word as u32, (word >> 32) as u32);
        (domain != 0 && domain == self.own_domain.load(SeqCst)).then_some(pd)
    }

    /// Where its receives come from; for explanations.
    pub fn shared_queue(&self) -> SharedQueue {
        match self.shared_queue.load(Relaxed) {
            0 => SharedQueue::None,
            u32::MAX => SharedQueue::EachMessageNames,
            number => SharedQueue::Number(number - 1),
        }
    }

    /// Sets what [`QpSummary::shared_queue`] answers.
    pub fn set_shared_queue(&self, queue: SharedQueue) {
        let word = match queue {
            SharedQueue::None => 0,
            SharedQueue::EachMessageNames => u32::MAX,
            SharedQueue::Number(number) => number.wrapping_add(1),
        };
        self.shared_queue.store(word, Relaxed);
    }

    /// The PSN that it began to send with; for those who look on.
    pub fn first_sent(&self) -> Psn {
        Psn::new(self.first_sent.load(Relaxed))
    }

    /// Sets what [`QpSummary::first_sent`] answers.
    pub fn set_first_sent(&self, first: Psn) {
        self.first_sent.store(first.value(), Relaxed);
    }

    /// The completion queues of its sends and of its receives, by the numbers of its process; zero is none.
    pub fn completes_to(&self) -> [u32; 2] {
        self.completes_to.each_ref().map(|number| number.load(Relaxed))
    }

    /// Sets what [`QpSummary::completes_to`] answers.
    pub fn set_completes_to(&self, numbers: [u32; 2]) {
        for (word, number) in self.completes_to.iter().zip(numbers) {
            word.store(number, Relaxed);
        }
    }

    /// Where its process counts what it carries: a number that its process gives out.
    #[inline]
    pub fn place(&self) -> u32 {
        self.place.load(Relaxed)
    }

    /// Sets what [`QpSummary::place`] answers, before anybody can find the queue pair.
    pub fn set_place(&self, place: u32) {
        self.place.store(place, Relaxed);
    }

    /// Type 2 windows bound through it.
    pub fn windows(&self) -> u32 {
        self.windows.load(Acquire)
    }

    pub(crate) fn window_bound(&self) {
        self.windows.fetch_add(1, AcqRel);
    }

    pub(crate) fn window_unbound(&self) {
        self.windows.fetch_sub(1, AcqRel);
    }
}

/// The word of a gate behind another: a queue pair that goes to RESET begins another life.
fn next_gate(before: u64, gate: Gate) -> u64 {
    let resets = gate.state == QpState::Reset && Gate::unpack(before).state != QpState::Reset;
    let life = (before & LIFE) + (u64::from(resets) << LIFE.trailing_zeros());
    gate.pack() | life & LIFE
}

/// The word of a gate in this state, if the queue pair receives before.
fn fallen(word: u64, to: QpState) -> Option<u64> {
    let gate = Gate::unpack(word);
    gate.receives().then(|| Gate { state: to, ..gate }.pack() | word & LIFE)
}

/// The bits of [`QpSummary::reception`] that say which life of the queue pair it is of.
const RECEPTION_LIFE: u32 = 7 << 29;

fn reception_life(gate: u64) -> u32 {
    let life = (gate & LIFE) >> LIFE.trailing_zeros();
    (life as u32) << RECEPTION_LIFE.trailing_zeros()
}

/// Decodes the word of [`QpSummary::reception`].
fn reception_in(word: u32) -> (Psn, RnrTimer) {
    let timer = RnrTimer::new((word >> 24) as u8 & 31).expect("five bits are a timer code");
    (Psn::new(word), timer)
}

fn reception_word(next: Psn, timer: RnrTimer) -> u32 {
    u32::from(timer.code()) << 24 | next.value()
}

/// A shared receive queue of XRC, as other processes of the user see it: the number of its protection
/// domain, and above it that of its XRC domain. All zeros is no queue.
#[derive(Default)]
#[repr(transparent)]
pub struct SrqSummary(AtomicU64);

impl SrqSummary {
    /// There is a queue of these domains; zero for an XRC domain without a number.
    pub fn set(&self, pd: u32, xrc_domain: u32) {
        self.0.store(u64::from(xrc_domain) << 32 | u64::from(pd), SeqCst);
    }

    /// There is none any more.
    pub fn clear(&self) {
        self.0.store(0, SeqCst);
    }
}

/// The queue pairs of one process, by index.
#[derive(Clone, Copy)]
pub struct QpTable<'m> {
    summaries: &'m [QpSummary],
}

impl<'m> QpTable<'m> {
    /// A table over its entries.
    pub fn new(summaries: &'m [QpSummary]) -> Self {
        Self { summaries }
    }

    /// The summary at an index, if the table reaches that far.
    #[inline]
    pub fn summary(&self, index: u16) -> Option<&'m QpSummary> {
        self.summaries.get(usize::from(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that another process has seen on one connection is not reported for the next one.
    /// Rules: RA-05
    #[test]
    fn the_first_request_is_seen_once_and_of_its_own_peer() {
        let summary = QpSummary::default();
        let peering = |from| Peering {
            from: QpNumber::from_bits(from),
            first: Psn::new(0xff_ffff),
            mtu_code: 5,
            established: false,
        };
        summary.set_peering(peering(0xff_fffe));
        assert!(summary.establish(peering(0xff_fffe)) && !summary.establish(peering(0xff_fffe)));
        assert_eq!(summary.peering(), Peering { established: true, ..peering(0xff_fffe) });
        summary.set_peering(peering(7));
        assert!(!summary.establish(peering(0xff_fffe)));
        assert_eq!(summary.peering(), peering(7));
    }

    fn gate(state: QpState) -> Gate {
        Gate {
            state,
            service: Service::XrcTarget,
            access: Access::empty(),
            read_resources: 0,
            pd: 1,
            bypass: Bypass::Free,
        }
    }

    /// A decision of another process about one connection does not affect the next one, even with the same peer.
    /// Rules: RA-43
    #[test]
    fn a_queue_pair_falls_of_its_own_connection() {
        let summary = QpSummary::default();
        let peering = |first| Peering {
            from: QpNumber::from_bits(9),
            first: Psn::new(first),
            mtu_code: 5,
            established: false,
        };
        let connect = |first| {
            [QpState::Reset, QpState::Init]
                .into_iter()
                .for_each(|state| summary.open_gate(gate(state)));
            summary.set_peering(peering(first));
            [QpState::Rtr, QpState::Rts]
                .into_iter()
                .for_each(|state| summary.open_gate(gate(state)));
        };
        connect(1);
        let timer = RnrTimer::new(12).expect("a code");
        summary.set_reception(Psn::new(1), timer);
        let old = summary.look();
        assert!(summary.establish(peering(1)) && summary.is_still(&old));
        connect(1);
        summary.set_reception(Psn::new(1), timer);
        summary.count_message(Psn::new(1), Some(&old));
        assert_eq!(summary.reception(), (Psn::new(1), timer));
        summary.count_message(Psn::new(1), Some(&summary.look()));
        assert_eq!(summary.reception(), (Psn::new(2), timer));
        assert!(!summary.is_still(&old) && !summary.fall_of(&old, QpState::Error));
        assert_eq!(summary.gate(), gate(QpState::Rts));
        // The count of lives wraps around.
        for first in 0..100 {
            connect(first + 2);
            assert!(!summary.fall_of(&old, QpState::Error));
            assert_eq!(summary.gate(), gate(QpState::Rts));
        }
        let new = summary.look();
        assert!(summary.fall_of(&new, QpState::Error) && summary.is_still(&new));
        assert_eq!(summary.gate(), gate(QpState::Error));
        assert!(!summary.fall_of(&new, QpState::Error));
    }

    /// A thread that changes the state looks at it first, and another process may bring it into error in between.
    /// Rules: RA-43
    #[test]
    fn a_queue_pair_that_has_fallen_is_not_opened_again() {
        let summary = QpSummary::default();
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            summary.open_gate(gate(state));
            assert_eq!(summary.gate().state, state);
        }
        assert!(summary.fall(QpState::Error));
        for state in [QpState::Rts, QpState::Sqd, QpState::Error] {
            summary.open_gate(gate(state));
            assert_eq!(summary.gate().state, QpState::Error);
        }
        for state in [QpState::Reset, QpState::Init] {
            summary.open_gate(gate(state));
            assert_eq!(summary.gate().state, state);
        }
    }
}
