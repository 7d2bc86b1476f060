//! Events that a program waits for on a real file descriptor.
//!
//! Raised events are counted in memory; the descriptor only signals. An object is attached before it raises events, and
//! the room for them is taken then. So raising an event allocates nothing and loses nothing, however many there are and
//! however late the program takes them.

mod late;

use std::collections::{TryReserveError, VecDeque};
use std::ffi::{c_int, c_void};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;
use transom_system::{ThisProcess, fork};

use self::late::Lateness;
pub use self::late::MayBeLate;
pub(crate) use self::late::{Alarm, HoldsEvents};

unsafe extern "C-unwind" {
    /// The C library's `read`: a thread that is cancelled in it unwinds from here. It is linked under its other name,
    /// because all other code promises the compiler that `read` does not unwind.
    #[link_name = "__read"]
    fn read(file: c_int, to: *mut c_void, size: usize) -> isize;
}

/// The kind of an asynchronous event, with the values of `enum ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AsyncEvent {
    /// A completion queue overran.
    CqError = 0,
    /// A queue pair failed, and no work request was at fault.
    QpFatal = 1,
    /// An invalid request arrived.
    QpRequestError = 2,
    /// A request was refused access.
    QpAccessError = 3,
    /// The first request arrived before RTS.
    Established = 4,
    /// The send queue drained.
    SendQueueDrained = 5,
    /// The device is of no use any more.
    DeviceFatal = 8,
    /// The port has a network again.
    PortActive = 9,
    /// The port has lost its last address that other hosts reach.
    PortError = 10,
    /// A shared receive queue ran low.
    SrqLimitReached = 15,
    /// A queue pair in error takes no more receives from its shared receive queue.
    LastWqeReached = 16,
    /// The port's addresses changed.
    GidChange = 18,
}

/// The event of a completion channel: a completion queue has completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionEvent;

/// How many signals a queue has that no more events come to.
const ENDLESS: u64 = 1 << 62;

/// Events of one or several kinds, and a descriptor that is readable while there are any. Its reader decides whether
/// the descriptor blocks.
#[derive(Debug)]
pub struct EventQueue<K: 'static> {
    /// A semaphore: one unit for every event.
    signals: OwnedFd,
    /// The process that the queue belongs to, as [`fork::depth`] counts.
    depth: u64,
    raised: Mutex<Raised<K>>,
    /// No more events come than those that wait.
    closed: AtomicBool,
    sleepers: Sleepers,
    /// In a rehearsal events may come late.
    lateness: Option<Lateness>,
}

/// Threads that sleep until there is an event, but not at the descriptor: peers can wake them too.
#[derive(Default)]
struct Sleepers {
    count: AtomicU32,
    /// The process of these threads, if there may be any.
    process: Option<Arc<ThisProcess>>,
}

/// Events that were raised and not taken.
#[derive(Debug)]
struct Raised<K: 'static> {
    /// One entry for each kind of event of each object that has some. The longest waiting comes first.
    waiting: VecDeque<Entry<K>>,
    /// How many entries there can be.
    attached: usize,
    /// Events that come late. None overtakes the one before.
    late: Vec<Entry<K>>,
}

#[derive(Debug)]
struct Entry<K: 'static> {
    object: Arc<Object<K>>,
    /// Which one of its kinds.
    kind: usize,
}

/// An object that raises events.
#[derive(Debug)]
struct Object<K: 'static> {
    id: u64,
    kinds: &'static [K],
    /// How many of each kind wait. Written with the queue locked.
    counts: Box<[AtomicU64]>,
}

impl<K: Copy + PartialEq> EventQueue<K> {
    /// Makes an empty queue whose descriptor blocks.
    pub fn new() -> io::Result<Self> {
        Self::with(Sleepers::default())
    }

    /// As [`Self::new`], for threads that peers of the process may wake.
    pub(crate) fn of(process: &Arc<ThisProcess>) -> io::Result<Self> {
        Self::with(Sleepers { process: Some(process.clone()), ..Sleepers::default() })
    }

    fn with(sleepers: Sleepers) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
        Ok(Self {
            signals: rustix::event::eventfd(0, flags)?,
            depth: fork::depth(),
            raised: Mutex::new(Raised::default()),
            closed: AtomicBool::new(false),
            sleepers,
            lateness: None,
        })
    }

    /// In a rehearsal its events may come late.
    pub(crate) fn with_alarm(self, alarm: &Arc<impl Alarm + 'static>) -> Self
    where
        K: MayBeLate,
    {
        Self { lateness: Lateness::of::<K>(alarm), ..self }
    }

    /// Takes the room for the events of one more object. Its events have these kinds and name it `id`.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub fn attach(
        self: &Arc<Self>,
        id: u64,
        kinds: &'static [K],
    ) -> Result<EventSource<K>, TryReserveError> {
        let counts = kinds.iter().map(|_| AtomicU64::new(0)).collect();
        let object = Arc::new(Object { id, kinds, counts });
        let mut raised = self.raised.lock();
        let attached = raised.attached + kinds.len();
        let more = attached - raised.waiting.len();
        raised.waiting.try_reserve(more)?;
        raised.attached = attached;
        drop(raised);
        Ok(EventSource { queue: self.clone(), object })
    }

    /// Takes the next event; blocks if the descriptor does.
    ///
    /// C programs end threads that wait here with `pthread_cancel(3)`, as rdma-core's library allows. So the read is
    /// the C library's, and no frame between it and the program has anything to drop.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is none and the descriptor does not block, `EINTR` if a signal ends the wait, `EIO` if no more
    /// come, `EPERM` in a forked child of the queue's process.
    pub fn take(&self) -> io::Result<(K, u64)> {
        loop {
            if self.is_inherited() {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            }
            let mut signal = [0_u8; 8];
            // SAFETY: the kernel writes as many bytes as there is room for.
            let count =
                unsafe { read(self.signals.as_raw_fd(), signal.as_mut_ptr().cast(), signal.len()) };
            if count < 0 {
                return Err(io::Error::last_os_error());
            }
            // There is none if the object ended after the signal was taken.
            if let Some(event) = self.raised.lock().take() {
                return Ok(event);
            }
            self.check_open()?;
        }
    }

    /// Takes the next event if there is one. It makes no call in which a thread can be cancelled.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is none; `EIO` if no more come; another error where the kernel cannot read without blocking
    /// from a descriptor that blocks.
    pub(crate) fn take_at_once(&self) -> io::Result<(K, u64)> {
        loop {
            self.take_signal()?;
            if let Some(event) = self.raised.lock().take() {
                return Ok(event);
            }
            self.check_open()?;
        }
    }

    /// No more events come: the device has gone (rule AE-09). Those that wait can be taken. Whoever asks for another one
    /// gets `EIO`, also if it sleeps now. The descriptor stays readable, because an eventfd has no other way to wake
    /// who polls it.
    pub(crate) fn close(&self) {
        if self.is_inherited() || self.closed.swap(true, SeqCst) {
            return;
        }
        // More signals than anybody takes. There is room for them: each event has one.
        let _ = rustix::io::write(&self.signals, &ENDLESS.to_ne_bytes());
        self.sleepers.wake();
    }

    fn check_open(&self) -> rustix::io::Result<()> {
        if self.closed.load(SeqCst) { Err(rustix::io::Errno::IO) } else { Ok(()) }
    }

    /// How many events wait or come late.
    pub fn to_come(&self) -> usize {
        let raised = self.raised.lock();
        let counts = raised.waiting.iter().map(|it| it.object.counts[it.kind].load(Relaxed));
        counts.sum::<u64>() as usize + raised.late.len()
    }

    /// The events that wait, each as often as it does: the kind, and how the object is named.
    pub fn waiting(&self) -> Vec<(K, u64)> {
        self.raised.lock().each()
    }

    /// The same, unless the queue is busy for so long.
    pub fn waiting_within(&self, patience: Duration) -> Option<Vec<(K, u64)>> {
        Some(self.raised.try_lock_for(patience)?.each())
    }

    /// Whether who wants one has to wait: there is none to take, and one may come.
    pub(crate) fn has_to_come(&self) -> bool {
        !self.closed.load(SeqCst) && self.raised.lock().waiting.is_empty()
    }

    /// Whether a reader waits until there is an event.
    pub fn blocks(&self) -> bool {
        !rustix::fs::fcntl_getfl(&self.signals).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// Announces that a thread is about to sleep until somebody calls `Header::wake_sleepers`. After this call the
    /// thread has to look once more for an event.
    pub(crate) fn add_sleeper(&self) {
        self.sleepers.count.fetch_add(1, SeqCst);
    }

    /// It sleeps no more.
    pub(crate) fn remove_sleeper(&self) {
        self.sleepers.count.fetch_sub(1, SeqCst);
    }

    /// Whether a thread sleeps so.
    #[cfg(test)]
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.count.load(SeqCst) > 0
    }

    /// Makes the background thread look for the work that its sleepers would have done.
    pub(crate) fn wake_background(&self) {
        self.sleepers.process.iter().for_each(|process| process.wake());
    }

    /// The descriptor that signals.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Whether this is a forked child's copy. The events in it are the child's own, but it shares the descriptor with
    /// its parent.
    fn is_inherited(&self) -> bool {
        self.depth != fork::depth()
    }

    /// Takes back up to `count` signals of events that nobody may take any more.
    fn take_back(&self, count: u64) {
        for _ in 0..count {
            // Where the kernel cannot do that, a reader takes the signal and finds no event for it.
            if self.take_signal().is_err() {
                return;
            }
        }
    }

    /// Takes a signal if there is one, even if the descriptor blocks.
    fn take_signal(&self) -> rustix::io::Result<()> {
        let mut signal = [0; 8];
        let mut slices = [IoSliceMut::new(&mut signal)];
        let (here, now) = (u64::MAX, ReadWriteFlags::NOWAIT);
        rustix::io::preadv2(&self.signals, &mut slices, here, now).map(drop)
    }
}

impl std::fmt::Debug for Sleepers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleepers").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Sleepers {
    /// Wakes all sleepers of the process, because they are not told apart.
    fn wake(&self) {
        if let Some(process) = &self.process
            && self.count.load(SeqCst) > 0
        {
            process.segment().header().wake_sleepers(i32::MAX as u32);
        }
    }
}

impl<K: MayBeLate> HoldsEvents for EventQueue<K> {
    /// The late events come, all at once.
    fn end_period(self: Arc<Self>, _now: u64) {
        let mut raised = self.raised.lock();
        let late = std::mem::take(&mut raised.late);
        if late.is_empty() || self.is_inherited() {
            return;
        }
        let count = late.len() as u64;
        late.iter().for_each(|entry| raised.add(&entry.object, entry.kind));
        let _ = rustix::io::write(&self.signals, &count.to_ne_bytes());
        drop(raised);
        self.sleepers.wake();
    }
}

impl<K> Default for Raised<K> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), attached: 0, late: Vec::new() }
    }
}

impl<K> Raised<K> {
    /// Adds an event to those that wait.
    fn add(&mut self, object: &Arc<Object<K>>, kind: usize) {
        let count = &object.counts[kind];
        let before = count.load(Relaxed);
        count.store(before + 1, Relaxed);
        if before == 0 {
            self.waiting.push_back(Entry { object: object.clone(), kind });
        }
    }
}

impl<K: Copy> Raised<K> {
    /// Those that wait, each as often as it does.
    fn each(&self) -> Vec<(K, u64)> {
        let each = self.waiting.iter().flat_map(|entry| {
            let Entry { object, kind } = entry;
            let count = object.counts[*kind].load(Relaxed) as usize;
            std::iter::repeat_n((object.kinds[*kind], object.id), count)
        });
        each.collect()
    }

    fn take(&mut self) -> Option<(K, u64)> {
        let entry = self.waiting.pop_front()?;
        let event = (entry.object.kinds[entry.kind], entry.object.id);
        let count = &entry.object.counts[entry.kind];
        let left = count.load(Relaxed) - 1;
        count.store(left, Relaxed);
        // Put it behind the others, so that alternating events are taken in the order they came.
        if left > 0 {
            self.waiting.push_back(entry);
        }
        Some(event)
    }
}

/// An object's right to raise events. Dropping it takes back events that nobody has taken.
#[derive(Debug)]
pub struct EventSource<K: Copy + PartialEq + 'static> {
    queue: Arc<EventQueue<K>>,
    object: Arc<Object<K>>,
}

impl<K: MayBeLate> EventSource<K> {
    /// Adds an event of a kind that the object was attached with.
    pub fn raise(&self, kind: K) {
        let queue = &self.queue;
        let Some(kind) = self.object.kinds.iter().position(|known| *known == kind) else {
            debug_assert!(false, "an event that no room was taken for");
            return;
        };
        // A child must not signal its parent.
        if queue.is_inherited() {
            return;
        }
        let mut raised = queue.raised.lock();
        if let Some(lateness) = &queue.lateness
            && self.is_late(lateness, !raised.late.is_empty())
        {
            return raised.late.push(Entry { object: self.object.clone(), kind });
        }
        raised.add(&self.object, kind);
        // Under the lock, so that a reader who finds the event finds its signal too. The write fails only beyond 2^64
        // events.
        let _ = rustix::io::write(&queue.signals, &1_u64.to_ne_bytes());
        drop(raised);
        queue.sleepers.wake();
    }

    /// Whether the next event comes late. If another does, it comes with that one.
    #[cold]
    fn is_late(&self, lateness: &Lateness, is_another: bool) -> bool {
        let queue: Weak<EventQueue<K>> = Arc::downgrade(&self.queue);
        is_another || lateness.delays::<K>(self.object.id, queue)
    }
}

impl<K: Copy + PartialEq> Drop for EventSource<K> {
    fn drop(&mut self) {
        let mut raised = self.queue.raised.lock();
        raised.late.retain(|entry| !Arc::ptr_eq(&entry.object, &self.object));
        raised.attached -= self.object.kinds.len();
        let left = self.object.counts.iter().map(|count| count.swap(0, Relaxed)).sum();
        if left > 0 {
            raised.waiting.retain(|entry| !Arc::ptr_eq(&entry.object, &self.object));
        }
        // Under the lock as well. A reader that has taken one of these signals and is about to look must still find the
        // signal of another object's event.
        if left > 0 && !self.queue.is_inherited() {
            self.queue.take_back(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: &[AsyncEvent] = &[AsyncEvent::PortError, AsyncEvent::PortActive];

    fn queue() -> Arc<EventQueue<AsyncEvent>> {
        let queue = EventQueue::new().expect("a queue");
        rustix::io::ioctl_fionbio(queue.descriptor(), true).expect("it does not block");
        Arc::new(queue)
    }

    fn is_readable(queue: &EventQueue<AsyncEvent>) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let descriptor = queue.descriptor();
        let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).expect("it can be asked") == 1
    }

    /// Rule: CHK-09
    #[test]
    fn who_asks_what_waits_does_not_wait_for_ever() {
        let queue = queue();
        let source = queue.attach(1, KINDS).unwrap();
        source.raise(AsyncEvent::PortError);
        let waiting = queue.waiting_within(Duration::ZERO);
        assert_eq!(waiting, Some(vec![(AsyncEvent::PortError, 1)]));
        let held = queue.raised.lock();
        assert_eq!(queue.waiting_within(Duration::ZERO), None);
        drop(held);
    }

    #[test]
    fn events_are_taken_in_the_order_they_came() {
        let queue = queue();
        let (one, other) = (queue.attach(1, KINDS).unwrap(), queue.attach(2, KINDS).unwrap());
        for _ in 0..3 {
            one.raise(AsyncEvent::PortError);
            one.raise(AsyncEvent::PortActive);
            other.raise(AsyncEvent::PortError);
        }
        for _ in 0..3 {
            assert_eq!(queue.take().unwrap(), (AsyncEvent::PortError, 1));
            assert_eq!(queue.take().unwrap(), (AsyncEvent::PortActive, 1));
            assert_eq!(queue.take().unwrap(), (AsyncEvent::PortError, 2));
        }
        assert_eq!(queue.take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_goes_takes_its_events_and_their_signals_along() {
        let queue = queue();
        let (one, other) = (queue.attach(1, KINDS).unwrap(), queue.attach(2, KINDS).unwrap());
        for _ in 0..3 {
            one.raise(AsyncEvent::PortError);
            one.raise(AsyncEvent::PortActive);
        }
        other.raise(AsyncEvent::PortError);
        drop(one);
        assert_eq!(queue.take().unwrap(), (AsyncEvent::PortError, 2));
        assert!(!is_readable(&queue));
        other.raise(AsyncEvent::PortError);
        assert!(is_readable(&queue));
        drop(other);
        assert!(!is_readable(&queue));
    }

    #[test]
    fn the_room_is_there_before_anything_is_raised() {
        let queue = queue();
        let room = || queue.raised.lock().waiting.capacity();
        let sources: Vec<_> = (0..1000).map(|id| queue.attach(id, KINDS).unwrap()).collect();
        let before = room();
        assert!(before >= sources.len() * KINDS.len());
        for _ in 0..2 {
            for source in &sources {
                KINDS.iter().for_each(|kind| source.raise(*kind));
            }
        }
        let taken = std::iter::from_fn(|| queue.take().ok()).count();
        assert_eq!((taken, room()), (4000, before));
    }

    /// Rule: AE-09
    #[test]
    fn after_the_last_event_everybody_who_waits_has_an_error() {
        let queue = Arc::new(EventQueue::new().expect("a queue"));
        let source = queue.attach(1, KINDS).unwrap();
        let waits = std::thread::spawn({
            let queue = queue.clone();
            move || [(); 2].map(|()| queue.take().map_err(|error| error.raw_os_error()))
        });
        source.raise(AsyncEvent::PortError);
        queue.close();
        let told = waits.join().expect("no panic");
        assert_eq!(told, [Ok((AsyncEvent::PortError, 1)), Err(Some(libc::EIO))]);
        drop(source);
        assert!(is_readable(&queue) && !queue.has_to_come());
        let error = || queue.take_at_once().expect_err("there is none").raw_os_error();
        assert_eq!([error(), error()], [Some(libc::EIO); 2]);
    }

    /// Under the lock there is one signal for each event, and none for those that have gone. Otherwise a thread that is
    /// just taking a signal would leave another object's event without one.
    #[test]
    fn signals_go_with_their_events() {
        let queue = queue();
        std::thread::scope(|scope| {
            let goes = scope.spawn(|| {
                for _ in 0..20_000 {
                    let source = queue.attach(1, KINDS).expect("room");
                    source.raise(KINDS[0]);
                }
            });
            while !goes.is_finished() {
                let raised = queue.raised.lock();
                assert_eq!(is_readable(&queue), !raised.waiting.is_empty());
            }
        });
    }
}
