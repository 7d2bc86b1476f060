//! Revocation against a writer in another process: after the completion of LOCAL_INV the page is the
//! target's alone. It is filled with a canary and watched while the writer goes on writing; the page
//! must not change. Over and over; `TRANSOM_LONG=1` runs a million rounds.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Instant;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_system::memory::{begin_sharing, is_shared};

/// What is granted: one page.
const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
/// What the target fills a revoked page with, and the round.
const CANARY: u64 = 0xca9a_0000_0000_0000;

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("steady writer", steady_writer), ("refused writer", refused_writer)]);
}

fn rounds(short: u64, long: u64) -> u64 {
    if is_long() { long } else { short }
}

/// A page that two processes see: where the target tells the writer what is granted now. It is
/// fast, so that the writer never pauses.
struct Notes {
    page: *mut AtomicU64,
}

/// What is noted.
#[derive(Clone, Copy)]
enum Note {
    /// The key that is granted; zero for the end.
    Key,
    /// How many connections the target has made ready.
    TargetReady,
    /// How many the writer has.
    WriterReady,
    /// How often the writer has been refused.
    Refused,
}

impl Notes {
    /// Makes one; the descriptor by which others find it.
    fn create() -> (Self, u64) {
        // SAFETY: a name that ends in zero; a size for a new file.
        let file = unsafe {
            let file = libc::memfd_create(c"notes".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(file, PAGE as i64), 0);
            file
        };
        (Self::map(file), file as u64)
    }

    /// Opens that of another process.
    fn open(pid: u64, file: u64) -> Self {
        let path = format!("/proc/{pid}/fd/{file}");
        let file = std::fs::File::options().read(true).write(true).open(path).expect("the notes");
        Self::map(std::os::fd::AsRawFd::as_raw_fd(&file))
    }

    fn map(file: i32) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh shared mapping of the whole file, kept to the end of the process.
        let page =
            unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, libc::MAP_SHARED, file, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        Self { page: page.cast() }
    }

    fn at(&self, note: Note) -> &AtomicU64 {
        // SAFETY: within the page, aligned, and atomics only.
        unsafe { &*self.page.add(note as usize * 8) }
    }

    fn read(&self, note: Note) -> u64 {
        self.at(note).load(SeqCst)
    }

    fn set(&self, note: Note, value: u64) {
        self.at(note).store(value, SeqCst);
    }
}

/// What all writers begin with: an end, a connected queue pair, the notes, a page to write from,
/// and where to write.
struct Writer {
    end: End,
    qp: *mut ibv_qp,
    notes: Notes,
    near: Buffer,
    mr: *mut ibv_mr,
    addr: u64,
}

impl Writer {
    fn begin(channel: &mut Channel, kind: ibv_qp_type) -> Self {
        let end = open();
        let qp = end.qp(kind);
        meet(channel, qp);
        let [pid, file, addr] = channel.hear();
        let near = Buffer::new(PAGE);
        let mr = end.reg(&near, 0);
        Self { end, qp, notes: Notes::open(pid, file), near, mr, addr }
    }

    /// Fills the page to write from with the key, so that the target knows what it sees.
    fn fill(&self, key: u64) {
        (0..WORDS).for_each(|at| self.near.set_word(at * 8, key));
    }

    fn write(&self, key: u64) -> ibv_wc {
        let mut sges = [sge(self.near.addr(), PAGE as u32, self.mr)];
        post(self.qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, self.addr, key as u32));
        self.end.wait()
    }
}

/// Writes without a pause with the key it was told last, however dead that is: over UC nobody
/// objects.
fn steady_writer(channel: &mut Channel) {
    let writer = Writer::begin(channel, IBV_QPT_UC);
    let mut filled = 0;
    loop {
        let key = writer.notes.read(Note::Key);
        if key == 0 {
            return;
        }
        if key != filled {
            writer.fill(key);
            filled = key;
        }
        assert_eq!(writer.write(key).status, IBV_WC_SUCCESS);
    }
}

/// Writes over RC until it is refused, then connects again and waits for another key.
fn refused_writer(channel: &mut Channel) {
    let writer = Writer::begin(channel, IBV_QPT_RC);
    let attr = attr_to(u64::from(query(writer.qp).dest_qp_num));
    for round in 1.. {
        let mut key = 0;
        until("another key", || {
            // In this order: the target sets the key first.
            let [ready, now] = [Note::TargetReady, Note::Key].map(|note| writer.notes.read(note));
            key = now;
            (now == 0 || ready == round).then_some(())
        });
        if key == 0 {
            return;
        }
        writer.fill(key);
        loop {
            let wc = writer.write(key);
            if wc.status != IBV_WC_SUCCESS {
                assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
                break;
            }
        }
        writer.notes.set(Note::Refused, round);
        assert_eq!(set_state(writer.qp, IBV_QPS_RESET), 0);
        bring_up(writer.qp, &attr);
        writer.notes.set(Note::WriterReady, round);
    }
}

/// The other side: a page with a window.
struct Revoker {
    end: End,
    qp: *mut ibv_qp,
    notes: Notes,
    page: Buffer,
    mr: *mut ibv_mr,
    mw: *mut ibv_mw,
    writer: Child,
}

impl Revoker {
    fn begin(role: &str, kind: ibv_qp_type) -> Self {
        let end = open();
        let page = Buffer::new(PAGE);
        let mr = end.reg(&page, ALL);
        if std::env::var_os("TRANSOM_MEMORY").is_some_and(|it| it == "shared") {
            assert!(is_shared(page.addr(), PAGE as u64) || begin_sharing().is_err());
        }
        let (qp, mw) = (end.qp(kind), end.mw(IBV_MW_TYPE_2));
        let mut writer = Child::start(role);
        meet(&mut writer.channel, qp);
        let (notes, file) = Notes::create();
        let mut target = Self { end, qp, notes, page, mr, mw, writer };
        // The first key comes before the notes, so that the writer does not take its absence for the
        // end.
        target.grant();
        target.writer.tell(&[u64::from(std::process::id()), file, target.page.addr()]);
        target
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < WORDS);
        // SAFETY: within the page, aligned; the test reaches its words only so.
        unsafe { &*(self.page.addr() as *const AtomicU64).add(at) }
    }

    /// Binds the window anew and tells the writer.
    fn grant(&self) -> u64 {
        let range = Range {
            mr: self.mr,
            addr: self.page.addr(),
            length: PAGE as u64,
            access: IBV_ACCESS_REMOTE_WRITE,
        };
        let key = u64::from(bind(&self.end, self.qp, self.mw, range));
        self.notes.set(Note::Key, key);
        key
    }

    /// Waits until the writer is in full swing.
    fn wait_for_writes(&self, key: u64) {
        until("the writer to write", || {
            assert!(poll(self.end.cq).is_none());
            (self.word(WORDS - 1).load(SeqCst) == key).then_some(())
        });
    }

    /// Revokes the window and takes the page.
    fn revoke(&self, key: u64, canary: u64) {
        post(self.qp, &mut local_inv_wr(key as u32));
        let wc = self.end.expect(IBV_WC_SUCCESS);
        assert_eq!(wc.opcode, IBV_WC_LOCAL_INV);
        (0..WORDS).for_each(|at| self.word(at).store(canary, SeqCst));
    }

    /// The page is still as it was taken.
    fn look(&self, canary: u64) {
        for at in 0..WORDS {
            let found = self.word(at).load(SeqCst);
            assert_eq!(found, canary, "a stale write to word {at} of the revoked page");
        }
    }

    fn end(self) {
        self.notes.set(Note::Key, 0);
        self.writer.finish();
    }
}

/// On a busy machine it takes minutes, and who started this process waits no longer than that without a word.
fn note_now_and_then(round: u64) {
    if round.is_multiple_of(1000) {
        note(round);
    }
}

fn report(rounds: u64, start: Instant) {
    if is_long() {
        let rate = rounds as f64 / start.elapsed().as_secs_f64();
        eprintln!("{rounds} rounds without a stale write, {rate:.0} in a second");
    }
}

/// Rules: INV-23, RA-48
#[test]
fn no_write_lands_after_the_revocation() {
    alone(path_of!("no_write_lands_after_the_revocation"), Way::Direct, against_a_steady_writer);
}

/// Rules: INV-23
#[test]
fn no_message_lands_after_the_revocation() {
    alone(path_of!("no_message_lands_after_the_revocation"), Way::Rings, against_a_steady_writer);
}

/// A store needs no kernel, so nothing but the hazard cells stands between it and the canary.
#[test]
fn no_write_lands_in_shared_memory_after_the_revocation() {
    const THIS: &str = path_of!("no_write_lands_in_shared_memory_after_the_revocation");
    alone(THIS, Way::Shared, against_a_steady_writer);
}

/// A child gets a copy of the page meanwhile.
#[test]
fn no_write_lands_in_memory_of_a_process_that_forks_after_the_revocation() {
    const THIS: &str =
        path_of!("no_write_lands_in_memory_of_a_process_that_forks_after_the_revocation");
    alone(THIS, Way::Shared, || against_a_steady_writer_and(|_| fork_once(|| true)));
}

#[test]
fn a_late_write_is_refused() {
    alone(path_of!("a_late_write_is_refused"), Way::Direct, against_a_refused_writer);
}

#[test]
fn a_late_write_to_shared_memory_is_refused() {
    const THIS: &str = path_of!("a_late_write_to_shared_memory_is_refused");
    alone(THIS, Way::Shared, against_a_refused_writer);
}

#[test]
fn a_late_message_is_refused() {
    alone(path_of!("a_late_message_is_refused"), Way::Rings, against_a_refused_writer);
}

/// The writer does not pause and does not care: over UC, what is refused is dropped.
fn against_a_steady_writer() {
    against_a_steady_writer_and(|_| ());
}

/// As [`against_a_steady_writer`]; now and then something is done while it writes, and when it may not.
fn against_a_steady_writer_and(act: impl Fn(&Revoker)) {
    let target = Revoker::begin(path_of!("steady writer"), IBV_QPT_UC);
    let mut key = target.notes.read(Note::Key);
    let (rounds, start) = (rounds(2_000, 1_000_000), Instant::now());
    for round in 0..rounds {
        note_now_and_then(round);
        target.wait_for_writes(key);
        let canary = CANARY | round;
        if round % 16 == 0 {
            act(&target);
        }
        target.revoke(key, canary);
        for _ in 0..3 {
            target.look(canary);
            assert!(poll(target.end.cq).is_none());
        }
        if round % 16 == 8 {
            act(&target);
            target.look(canary);
        }
        key = target.grant();
    }
    report(rounds, start);
    target.end();
}

/// Over RC the late write is either done before the revocation or refused, and then both connect
/// again.
fn against_a_refused_writer() {
    let target = Revoker::begin(path_of!("refused writer"), IBV_QPT_RC);
    let attr = attr_to(u64::from(query(target.qp).dest_qp_num));
    let mut key = target.notes.read(Note::Key);
    let (rounds, start) = (rounds(1_000, 50_000), Instant::now());
    for round in 1..=rounds {
        note_now_and_then(round);
        target.notes.set(Note::TargetReady, round);
        target.wait_for_writes(key);
        let canary = CANARY | round;
        target.revoke(key, canary);
        until("the refusal", || {
            target.look(canary);
            assert!(poll(target.end.cq).is_none());
            (target.notes.read(Note::Refused) == round).then_some(())
        });
        assert_eq!(state(target.qp), IBV_QPS_ERR);
        assert_eq!(target.end.event(), (IBV_EVENT_QP_ACCESS_ERR, target.qp.cast()));
        assert_eq!(set_state(target.qp, IBV_QPS_RESET), 0);
        bring_up(target.qp, &attr);
        until("the writer", || (target.notes.read(Note::WriterReady) == round).then_some(()));
        target.look(canary);
        key = target.grant();
    }
    report(rounds, start);
    target.end();
}
