//! Objects that C holds by pointer and we know by handle.
//!
//! The C struct of an object belongs to the program as much as to us, and ours behind it is used by
//! several threads at once. So there is no reference to the C struct, only a pointer, and never a
//! `&mut` to ours while it can be found. Fields of the C struct that change are written under the
//! table's lock; what of ours changes has a lock of its own.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::ptr::NonNull;

use parking_lot::Mutex;
use transom_abi::{
    ibv_ah, ibv_comp_cntr, ibv_context, ibv_cq_ex, ibv_dm, ibv_mr, ibv_mw, ibv_pd, ibv_srq,
};
use transom_check::ledger::Thing;
use transom_host::objects::Busy;

use crate::check;
use crate::context::Context;

/// A C struct with a `handle` field.
pub(crate) trait Handled {
    /// What `transom check` calls it.
    const THING: Thing;
    /// The field.
    ///
    /// # Safety
    /// `abi` is readable.
    unsafe fn handle(abi: *const Self) -> u32;
    /// Sets the field.
    fn set_handle(&mut self, handle: u32);
    /// The number or key that programs know it by, or 0.
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

/// The C struct, and ours behind it.
#[repr(C)]
struct Object<A, I> {
    abi: A,
    /// Gone once the object is destroyed; its memory stays readable.
    inner: Option<I>,
}

impl<A, I> Object<A, I> {
    /// Takes ours out.
    ///
    /// # Safety
    /// `object` is of a table and not in it, and nobody but the caller uses the object.
    unsafe fn take_inner(object: NonNull<Self>) -> Option<I> {
        // SAFETY: by the contract of this function.
        unsafe { &mut (*object.as_ptr()).inner }.take()
    }
}

/// Ours, straight from a live pointer: what posts and polls trusts it, as C demands, and takes no
/// lock.
///
/// # Safety
/// `abi` is null or from a table of these types, and nobody destroys the object while the answer is
/// used.
#[inline]
pub(crate) unsafe fn trusted<'a, A, I: Sync>(abi: *const A) -> Option<&'a I> {
    if abi.is_null() {
        return None;
    }
    // SAFETY: by the contract of this function.
    unsafe { &(*abi.cast::<Object<A, I>>()).inner }.as_ref()
}

/// A live object while its table is locked: to look at, and to take clones of.
pub(crate) struct Live<'t, A, I> {
    /// The C struct. Programs read it whenever they like.
    pub(crate) abi: *mut A,
    pub(crate) inner: &'t I,
}

/// All live objects of one kind.
pub(crate) struct Table<A, I> {
    inner: Mutex<Entries<A, I>>,
}

struct Entries<A, I> {
    live: BTreeMap<u32, NonNull<Object<A, I>>>,
    /// Memory of destroyed objects, the longest dead first.
    dead: VecDeque<NonNull<Object<A, I>>>,
    last: u32,
}

// SAFETY: the pointers are to boxes that only this table frees (never). What is in them is reached
// under the table's lock, or by `trusted`, which asks for more.
unsafe impl<A, I: Send> Send for Entries<A, I> {}

/// Destroyed objects rest before their memory is used again, so that a stale pointer finds a dead
/// handle rather than somebody else's object.
const REST: usize = 256;
/// In a checked process a stale pointer is to be recognized much longer.
const CHECKED_REST: usize = 1 << 16;

impl<A: Handled + InContext, I> Table<A, I> {
    pub(crate) const fn new() -> Self {
        let entries = Entries { live: BTreeMap::new(), dead: VecDeque::new(), last: 0 };
        Self { inner: Mutex::new(entries) }
    }

    /// Sets a handle aside, for objects that must know theirs before they are whole.
    pub(crate) fn reserve(&self) -> u32 {
        let mut entries = self.inner.lock();
        loop {
            entries.last = entries.last.wrapping_add(1);
            if entries.last != 0 && !entries.live.contains_key(&entries.last) {
                return entries.last;
            }
        }
    }

    /// Adds an object; answers the pointer for C.
    pub(crate) fn insert(&self, abi: A, inner: impl FnOnce(u32) -> I) -> *mut A {
        let handle = self.reserve();
        self.insert_reserved(handle, abi, inner(handle))
    }

    /// Adds an object under a reserved handle; answers the pointer for C.
    pub(crate) fn insert_reserved(&self, handle: u32, mut abi: A, inner: I) -> *mut A {
        abi.set_handle(handle);
        let number = abi.number();
        let new = Object { abi, inner: Some(inner) };
        let rest = if check::on().is_some() { CHECKED_REST } else { REST };
        let mut entries = self.inner.lock();
        let object = if entries.dead.len() > rest {
            let object = entries.dead.pop_front().expect("more than none");
            // SAFETY: memory of a destroyed object, made by a box below and owned by this table.
            unsafe { object.write(new) };
            object
        } else {
            NonNull::from(Box::leak(Box::new(new)))
        };
        entries.live.insert(handle, object);
        drop(entries);
        let abi = object.as_ptr().cast();
        if let Some(checker) = check::on() {
            // SAFETY: just made, and its `context` does not change.
            let context = unsafe { A::context(abi) };
            checker.made(A::THING, abi.addr(), context.addr(), number);
        }
        abi
    }

    /// Finds the object that a C pointer names by its handle and runs `with` on it. The table is
    /// locked meanwhile, so nobody destroys the object; what waits, or asks this table again, is done
    /// afterwards with what `with` has cloned.
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
        // What is noted of the verb that looks is its device's.
        // SAFETY: a live object's struct, whose context is there as long as the object.
        let _ = unsafe { Context::of(A::context(found.abi)) };
        Ok(with(found))
    }

    /// As [`Table::with`], for the live object with this handle.
    pub(crate) fn by_handle<T>(
        &self,
        handle: u32,
        with: impl FnOnce(Live<'_, A, I>) -> T,
    ) -> Option<T> {
        self.inner.lock().get(handle).map(with)
    }

    /// Refuses to destroy an object that is in use, by the errno of `busy`, which says what holds it.
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

    /// Takes the object out of the live ones, before it is destroyed: of two who try, one succeeds.
    /// What is in use must not be taken out even for a moment, for its users would not find it: it is
    /// refused by [`Table::check_unused`] before.
    ///
    /// # Safety
    /// As [`Table::with`].
    pub(crate) unsafe fn take(&self, abi: *const A) -> Result<Taken<'_, A, I>, c_int> {
        // SAFETY: by the contract of this function.
        unsafe { self.take_if(abi, |_| true) }?.ok_or(libc::ENOENT)
    }

    /// The same for an object to which something applies as long as the table is locked; none if it does not.
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
        // SAFETY: out of the table, so this is the only way to it but for users who break C's rules.
        let inner = unsafe { Object::take_inner(object) };
        Ok(Some(Taken { table: self, handle, object, inner }))
    }
}

/// The errno for a pointer to no living object.
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
        // SAFETY: a live object's box; whoever takes it out of the table needs the lock on it first.
        let inner = unsafe { &(*object).inner }.as_ref()?;
        Some(Live { abi: object.cast(), inner })
    }
}

impl<A: Handled + InContext, I> Table<A, I> {
    /// Takes out all objects made in a context that is closed.
    pub(crate) fn take_all(&self, context: *mut ibv_context) -> Vec<Taken<'_, A, I>> {
        let mut entries = self.inner.lock();
        // SAFETY: live objects' boxes; their `context` does not change.
        let ours = |object: &NonNull<Object<A, I>>| unsafe {
            A::context(object.as_ptr().cast()) == context
        };
        let taken: Vec<_> = entries.live.extract_if(.., |_, object| ours(object)).collect();
        drop(entries);
        let taken = taken.into_iter().map(|(handle, object)| {
            // SAFETY: out of the table, as in `take`.
            let inner = unsafe { Object::take_inner(object) };
            Taken { table: self, handle, object, inner }
        });
        taken.collect()
    }
}

/// An object on its way out: destroyed for good, or put back.
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

    /// It cannot be destroyed after all.
    pub(crate) fn put_back(self, inner: I) {
        // SAFETY: not in the table, so still ours alone.
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

    /// A pointer that C hands from thread to thread.
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

    /// Runs it in two threads at once.
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

    /// Whoever has to let something of it be over first, as an event, finds it meanwhile.
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
