//! Objects that C holds by pointer and this library finds by handle.
//!
//! An object has two parts: a C struct, which the program uses too, and our part behind it, which several threads use
//! at once. So there is never a reference to the C struct, only a pointer, and never a `&mut` to our part while it can
//! be found. Changing fields of the C struct are written under the table's lock. Changing fields of our part have a
//! lock of their own.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::ptr::NonNull;

use transom_abi::{
    ibv_ah, ibv_comp_cntr, ibv_context, ibv_cq_ex, ibv_dm, ibv_mr, ibv_mw, ibv_pd, ibv_srq,
};
use transom_check::ledger::Thing;
use transom_host::objects::Busy;
use transom_system::fork::HeldOverForks;
use transom_system::lock::SleepingMutex;

use crate::context::Context;
use crate::{check, told};

/// A C struct with a `handle` field.
pub(crate) trait Handled {
    /// The kind of object, for `transom check`.
    const THING: Thing;
    /// The field.
    ///
    /// # Safety
    /// `abi` is readable.
    unsafe fn handle(abi: *const Self) -> u32;
    /// Sets the field.
    fn set_handle(&mut self, handle: u32);
    /// The number or key that programs see, or 0.
    fn number(&self) -> u32 {
        0
    }
}

/// A C struct with a `context` field.
pub(crate) trait InContext {
    /// The field.
    ///
    /// # Safety
    /// `abi` is readable.
    unsafe fn context(abi: *const Self) -> *mut ibv_context;
}

macro_rules! handled {
    ($($name:ident $thing:ident $($number:ident)?),+) => {
        $(impl InContext for $name {
            unsafe fn context(abi: *const Self) -> *mut ibv_context {
                // SAFETY: by the contract of this function.
                unsafe { (*abi).context }
            }
        }

        impl Handled for $name {
            const THING: Thing = Thing::$thing;

            unsafe fn handle(abi: *const Self) -> u32 {
                // SAFETY: by the contract of this function.
                unsafe { (*abi).handle }
            }

            fn set_handle(&mut self, handle: u32) {
                self.handle = handle;
            }

            $(fn number(&self) -> u32 {
                self.$number
            })?
        })+
    };
}

handled!(
    ibv_pd Domain,
    ibv_mr Region lkey,
    ibv_mw Window rkey,
    ibv_dm DeviceMemory,
    ibv_cq_ex CompletionQueue handle,
    ibv_srq SharedReceiveQueue handle,
    ibv_ah AddressHandle,
    ibv_comp_cntr CompletionCounter
);

/// The C struct, and our part behind it.
#[repr(C)]
struct Object<A, I> {
    abi: A,
    /// `None` once the object is destroyed. The memory stays readable.
    inner: Option<I>,
}

impl<A, I> Object<A, I> {
    /// Takes our part out.
    ///
    /// # Safety
    /// A table made `object`, it is not in the table now, and only the caller uses it.
    unsafe fn take_inner(object: NonNull<Self>) -> Option<I> {
        // SAFETY: by the contract of this function.
        unsafe { &mut (*object.as_ptr()).inner }.take()
    }
}

/// Our part, directly from a live pointer. Posts and polls trust the pointer, as C allows, and take no lock.
///
/// # Safety
/// `abi` is null or from a table of these types, and nobody destroys the object while the result is used.
#[inline]
pub(crate) unsafe fn trusted<'a, A, I: Sync>(abi: *const A) -> Option<&'a I> {
    if abi.is_null() {
        return None;
    }
    // SAFETY: by the contract of this function.
    unsafe { &(*abi.cast::<Object<A, I>>()).inner }.as_ref()
}

/// A live object while its table is locked, to look at and to clone from.
pub(crate) struct Live<'t, A, I> {
    /// The C struct. Programs may read it at any time.
    pub(crate) abi: *mut A,
    pub(crate) inner: &'t I,
}

/// All live objects of one kind.
pub(crate) struct Table<A, I> {
    inner: SleepingMutex<Entries<A, I>>,
}

impl<A, I: Send> HeldOverForks for Table<A, I> {
    fn try_hold(&self) -> bool {
        self.inner.try_hold()
    }

    fn is_held_here(&self) -> bool {
        self.inner.is_held_here()
    }

    unsafe fn release(&self) {
        // SAFETY: by the contract of this function.
        unsafe { self.inner.release() };
    }
}

struct Entries<A, I> {
    live: BTreeMap<u32, NonNull<Object<A, I>>>,
    /// Memory of destroyed objects, the oldest first.
    dead: VecDeque<NonNull<Object<A, I>>>,
    last: u32,
}

// SAFETY: the pointers point to boxes that only this table may free, and it never does. Their content is reached under
// the table's lock, or by `trusted`, whose contract covers it.
unsafe impl<A, I: Send> Send for Entries<A, I> {}

/// How many destroyed objects there must be before the oldest one's memory is used again. So a stale pointer finds a
/// dead handle and not another object.
const REST: usize = 256;
/// The same for a process under `transom check`, which must recognize a stale pointer for much longer.
const CHECKED_REST: usize = 1 << 16;

impl<A: Handled + InContext, I> Table<A, I> {
    pub(crate) const fn new() -> Self {
        let entries = Entries { live: BTreeMap::new(), dead: VecDeque::new(), last: 0 };
        Self { inner: SleepingMutex::new(entries) }
    }

    /// Reserves a handle, for objects that need it before they are complete.
    pub(crate) fn reserve(&self) -> u32 {
        let mut entries = self.inner.lock();
        loop {
            entries.last = entries.last.wrapping_add(1);
            if entries.last != 0 && !entries.live.contains_key(&entries.last) {
                return entries.last;
            }
        }
    }

    /// Adds an object. Returns the pointer for C.
    pub(crate) fn insert(&self, abi: A, inner: impl FnOnce(u32) -> I) -> *mut A {
        let handle = self.reserve();
        self.insert_reserved(handle, abi, inner(handle))
    }

    /// Adds an object under a reserved handle. Returns the pointer for C.
    pub(crate) fn insert_reserved(&self, handle: u32, mut abi: A, inner: I) -> *mut A {
        abi.set_handle(handle);
        let number = abi.number();
        let new = Object { abi, inner: Some(inner) };
        let rest = if check::on().is_some() { CHECKED_REST } else { REST };
        let mut entries = self.inner.lock();
        let object = if entries.dead.len() > rest {
            let object = entries.dead.pop_front().expect("more than none");
            // SAFETY: this is memory of a destroyed object, made by the box below and owned by this table.
            unsafe { object.write(new) };
            object
        } else {
            NonNull::from(Box::leak(Box::new(new)))
        };
        entries.live.insert(handle, object);
        drop(entries);
        let abi = object.as_ptr().cast();
        if let Some(checker) = check::on() {
            // SAFETY: the struct was just made, and its `context` does not change.
            let context = unsafe { A::context(abi) };
            checker.made(A::THING, abi.addr(), context.addr(), number);
        }
        abi
    }

    /// Finds the object of a C pointer by its handle, and runs `with` on it. The table is locked meanwhile, so nobody
    /// destroys the object. Work that waits, or that uses this table again, must come afterwards, on clones that `with`
    /// has made.
    ///
    /// # Safety
    /// `abi` is null or points to a readable struct of its type.
    pub(crate) unsafe fn with<T>(
        &self,
        abi: *const A,
        with: impl FnOnce(Live<'_, A, I>) -> T,
    ) -> Result<T, c_int> {
        if abi.is_null() {
            return Err(libc::EINVAL);
        }
        let entries = self.inner.lock();
        // SAFETY: by the contract of this function.
        let handle = unsafe { A::handle(abi) };
        let found = entries.get(handle).ok_or_else(|| gone(abi))?;
        // If the running verb is refused, the refusal is noted at this object's device.
        // SAFETY: the object is live, and its context lives as long as the object.
        let context = unsafe { A::context(found.abi) };
        // SAFETY: as above.
        match unsafe { Context::of(context) } {
            Some(ours) => check::uses(told::verb, ours.device(), Some((A::THING, abi.addr()))),
            // A buffer has none, as objects of tests.
            None if context.is_null() => {}
            None => return Err(libc::EIO),
        }
        Ok(with(found))
    }

    /// Like [`Table::with`], for the live object with this handle.
    pub(crate) fn by_handle<T>(
        &self,
        handle: u32,
        with: impl FnOnce(Live<'_, A, I>) -> T,
    ) -> Option<T> {
        self.inner.lock().get(handle).map(with)
    }

    /// Refuses to destroy an object that is in use. The errno comes from `busy`, which also notes what holds the
    /// object.
    ///
    /// # Safety
    /// As [`Table::with`].
    pub(crate) unsafe fn check_unused(
        &self,
        abi: *const A,
        check: impl FnOnce(&I) -> Result<(), Busy>,
        busy: impl FnOnce(&I) -> c_int,
    ) -> Result<(), c_int> {
        // SAFETY: by the contract of this function.
        let answer = unsafe {
            self.with(abi, |object| check(object.inner).map_err(|Busy| busy(object.inner)))
        };
        if let (Ok(Err(_)), Some(checker)) = (&answer, check::on()) {
            checker.busy(A::THING, abi.addr());
        }
        answer?
    }

    /// Takes the object out of the live ones, before it is destroyed. Of two threads that try, one succeeds. An object
    /// in use must not be taken out even for a moment, because its users would not find it. So [`Table::check_unused`]
    /// refuses it first.
    ///
    /// # Safety
    /// As [`Table::with`].
    pub(crate) unsafe fn take(&self, abi: *const A) -> Result<Taken<'_, A, I>, c_int> {
        // SAFETY: by the contract of this function.
        unsafe { self.take_if(abi, |_| true) }?.ok_or(libc::ENOENT)
    }

    /// The same if `applies` is true while the table is locked. `None` if it is not.
    ///
    /// # Safety
    /// As [`Table::with`].
    pub(crate) unsafe fn take_if(
        &self,
        abi: *const A,
        applies: impl FnOnce(&I) -> bool,
    ) -> Result<Option<Taken<'_, A, I>>, c_int> {
        if abi.is_null() {
            return Err(libc::EINVAL);
        }
        let mut entries = self.inner.lock();
        // SAFETY: by the contract of this function.
        let handle = unsafe { A::handle(abi) };
        if !applies(entries.get(handle).ok_or_else(|| gone(abi))?.inner) {
            return Ok(None);
        }
        let object = entries.live.remove(&handle).ok_or(libc::ENOENT)?;
        drop(entries);
        // SAFETY: the object is out of the table, so only the caller can reach it, unless the program breaks C's rules.
        let inner = unsafe { Object::take_inner(object) };
        Ok(Some(Taken { table: self, handle, object, inner }))
    }
}

/// The errno for a pointer to no live object.
#[cold]
fn gone<A: Handled>(abi: *const A) -> c_int {
    if let Some(checker) = check::on() {
        checker.not_alive(A::THING, abi.addr());
    }
    libc::ENOENT
}

impl<A, I> Entries<A, I> {
    fn get(&self, handle: u32) -> Option<Live<'_, A, I>> {
        let object = self.live.get(&handle)?.as_ptr();
        // SAFETY: the box is a live object's. A thread that takes it out of the table needs the lock first.
        let inner = unsafe { &(*object).inner }.as_ref()?;
        Some(Live { abi: object.cast(), inner })
    }
}

impl<A: Handled + InContext, I> Table<A, I> {
    /// Takes out all objects made in a context, which is being closed.
    pub(crate) fn take_all(&self, context: *mut ibv_context) -> Vec<Taken<'_, A, I>> {
        let mut entries = self.inner.lock();
        // SAFETY: the boxes are live objects', and their `context` does not change.
        let ours = |object: &NonNull<Object<A, I>>| unsafe {
            A::context(object.as_ptr().cast()) == context
        };
        let taken: Vec<_> = entries.live.extract_if(.., |_, object| ours(object)).collect();
        drop(entries);
        let taken = taken.into_iter().map(|(handle, object)| {
            // SAFETY: the object is out of the table, as in `take_if`.
            let inner = unsafe { Object::take_inner(object) };
            Taken { table: self, handle, object, inner }
        });
        taken.collect()
    }
}

/// An object taken out of its table. It is destroyed, or put back.
pub(crate) struct Taken<'t, A: Handled, I> {
    table: &'t Table<A, I>,
    handle: u32,
    object: NonNull<Object<A, I>>,
    pub(crate) inner: Option<I>,
}

impl<A: Handled, I> Taken<'_, A, I> {
    /// Its handle.
    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    /// Puts the object back, because it cannot be destroyed after all.
    pub(crate) fn put_back(self, inner: I) {
        // SAFETY: the object is not in the table, so only this value reaches it.
        unsafe { (*self.object.as_ptr()).inner = Some(inner) };
        self.table.inner.lock().live.insert(self.handle, self.object);
        std::mem::forget(self);
    }
}

impl<A: Handled, I> Drop for Taken<'_, A, I> {
    fn drop(&mut self) {
        self.table.inner.lock().dead.push_back(self.object);
        if let Some(checker) = check::on() {
            checker.ended(A::THING, self.object.as_ptr().addr());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::thread;

    use super::*;

    type Things = Table<ibv_cq_ex, Arc<AtomicUsize>>;

    /// A pointer that C passes from thread to thread.
    #[derive(Clone, Copy)]
    struct Pointer(*mut ibv_cq_ex);

    // SAFETY: objects of a table may be used by any thread.
    unsafe impl Send for Pointer {}
    // SAFETY: as for `Send`.
    unsafe impl Sync for Pointer {}

    impl Pointer {
        fn get(self) -> *mut ibv_cq_ex {
            self.0
        }
    }

    fn add(things: &Things) -> Pointer {
        Pointer(things.insert(ibv_cq_ex::default(), |_| Arc::default()))
    }

    /// Runs `run` in two threads at once.
    fn twice(run: impl Fn() + Send + Copy) {
        thread::scope(|scope| [scope.spawn(run), scope.spawn(run)].map(|_| ()));
    }

    #[test]
    fn two_threads_find_one_object_at_once() {
        let things = Things::new();
        let thing = add(&things);
        twice(|| {
            for _ in 0..10 {
                // SAFETY: it is live.
                unsafe { things.with(thing.get(), |found| found.inner.fetch_add(1, Relaxed)) }
                    .unwrap();
            }
        });
        // SAFETY: as above.
        let ours: &Arc<AtomicUsize> = unsafe { trusted(thing.get()) }.unwrap();
        assert_eq!(ours.load(Relaxed), 20);
    }

    #[test]
    fn an_object_is_used_without_a_lock_while_others_look_it_up_and_change_what_c_reads() {
        let things = Things::new();
        let thing = add(&things);
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: it is live.
                let ours: &Arc<AtomicUsize> = unsafe { trusted(thing.get()) }.unwrap();
                for _ in 0..20 {
                    ours.fetch_add(1, Relaxed);
                }
            });
            scope.spawn(|| {
                for size in 0..20 {
                    // SAFETY: as above; the struct is live while the table is locked.
                    unsafe { things.with(thing.get(), |found| (*found.abi).cqe = size) }.unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..20 {
                    // SAFETY: as above.
                    unsafe { things.with(thing.get(), |found| found.inner.clone()) }.unwrap();
                }
            });
        });
    }

    #[test]
    fn of_two_threads_that_destroy_an_object_one_succeeds_and_none_finds_it_half_gone() {
        for _ in 0..10 {
            let things = Things::new();
            let thing = add(&things);
            let destroyed = AtomicUsize::new(0);
            twice(|| {
                // SAFETY: memory of destroyed objects stays readable.
                unsafe {
                    let _ = things.with(thing.get(), |found| found.inner.clone());
                    if let Ok(mut taken) = things.take(thing.get()) {
                        assert!(taken.inner.take().is_some());
                        destroyed.fetch_add(1, Relaxed);
                    }
                }
            });
            assert_eq!(destroyed.into_inner(), 1);
        }
    }

    #[test]
    fn what_is_put_back_is_found_again() {
        let things = Things::new();
        let thing = add(&things);
        // SAFETY: it is live.
        unsafe {
            let mut taken = things.take(thing.get()).unwrap();
            assert!(things.with(thing.get(), |_| ()).is_err());
            let ours = taken.inner.take().unwrap();
            taken.put_back(ours);
            assert!(things.with(thing.get(), |_| ()).is_ok());
            assert_eq!(things.take_all(std::ptr::null_mut()).len(), 1);
            assert!(things.with(thing.get(), |_| ()).is_err());
        }
    }

    /// A destroy that must wait for something first, such as an event, leaves the object where others find it.
    #[test]
    fn what_a_taker_does_not_want_stays_where_it_is() {
        let things = Things::new();
        let thing = add(&things);
        // SAFETY: it is live.
        unsafe {
            let ours = trusted::<_, Arc<AtomicUsize>>(thing.get()).expect("it is live");
            assert!(matches!(things.take_if(thing.get(), |_| false), Ok(None)));
            ours.fetch_add(1, Relaxed);
            assert!(things.with(thing.get(), |_| ()).is_ok());
            assert!(matches!(things.take_if(thing.get(), |it| it.load(Relaxed) > 0), Ok(Some(_))));
            assert!(matches!(things.take_if(thing.get(), |_| false), Err(libc::ENOENT)));
        }
    }

    #[test]
    fn memory_of_the_dead_rests_before_it_is_used_again() {
        let things = Things::new();
        let first = add(&things);
        for at in 0..REST {
            // SAFETY: live the first time, and readable after that.
            assert_eq!(unsafe { things.take(first.get()) }.is_ok(), at == 0);
            let next = add(&things);
            assert_ne!(next.get(), first.get());
            // SAFETY: it is live.
            drop(unsafe { things.take(next.get()) });
        }
        assert_eq!(add(&things).get(), first.get());
    }
}
