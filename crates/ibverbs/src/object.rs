//! Objects that C holds by pointer and we know by handle.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::ptr::NonNull;

use parking_lot::Mutex;
use transom_abi::{ibv_ah, ibv_context, ibv_cq_ex, ibv_dm, ibv_mr, ibv_mw, ibv_pd, ibv_srq};
use transom_host::objects::Busy;

/// A C struct with a `handle` field.
pub(crate) trait Handled {
    /// The field.
    fn handle(&self) -> u32;
    /// Sets the field.
    fn set_handle(&mut self, handle: u32);
}

/// A C struct with a `context` field.
pub(crate) trait InContext {
    /// The field.
    fn context(&self) -> *mut ibv_context;
}

macro_rules! handled {
    ($($name:ident),+) => {
        $(impl InContext for $name {
            fn context(&self) -> *mut ibv_context {
                self.context
            }
        }

        impl Handled for $name {
            fn handle(&self) -> u32 {
                self.handle
            }

            fn set_handle(&mut self, handle: u32) {
                self.handle = handle;
            }
        })+
    };
}

handled!(ibv_pd, ibv_mr, ibv_mw, ibv_dm, ibv_cq_ex, ibv_srq, ibv_ah);

/// The C struct, and ours behind it.
#[repr(C)]
pub(crate) struct Object<A, I> {
    pub(crate) abi: A,
    /// Gone once the object is destroyed; its memory stays readable.
    pub(crate) inner: Option<I>,
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

// SAFETY: the pointers are to boxes that only this table frees (never), and contents are reached
// under the locks and rules of each verb.
unsafe impl<A, I: Send> Send for Entries<A, I> {}

/// Destroyed objects rest before their memory is used again, so that a stale pointer finds a dead
/// handle rather than somebody else's object.
const REST: usize = 256;

impl<A: Handled, I> Table<A, I> {
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
        let object = Object { abi, inner: Some(inner) };
        let mut entries = self.inner.lock();
        let place = if entries.dead.len() > REST {
            let place = entries.dead.pop_front().expect("more than none");
            // SAFETY: memory of a destroyed object, made by a box below and owned by this table.
            unsafe { place.write(object) };
            place
        } else {
            NonNull::from(Box::leak(Box::new(object)))
        };
        entries.live.insert(handle, place);
        place.as_ptr().cast()
    }

    /// Finds the object that a C pointer names by its handle and runs `with` on it.
    ///
    /// # Safety
    /// `abi` is null or points to a readable struct of its type; the verb's caller sees to it that
    /// nobody else changes or destroys the object meanwhile, as C demands.
    pub(crate) unsafe fn with<T>(
        &self,
        abi: *const A,
        with: impl FnOnce(&mut Object<A, I>) -> T,
    ) -> Result<T, c_int> {
        if abi.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this function.
        let handle = unsafe { (*abi).handle() };
        self.by_handle(handle, with).ok_or(libc::ENOENT)
    }

    /// Runs `with` on the live object with this handle. The table is not locked meanwhile, for
    /// some verbs wait.
    pub(crate) fn by_handle<T>(
        &self,
        handle: u32,
        with: impl FnOnce(&mut Object<A, I>) -> T,
    ) -> Option<T> {
        let mut place = *self.inner.lock().live.get(&handle)?;
        // SAFETY: a live object's box; whoever destroys an object in use elsewhere breaks C's rules.
        Some(with(unsafe { place.as_mut() }))
    }

    /// Runs `with` on the live object with this handle while nobody can destroy it.
    pub(crate) fn with_locked<T>(
        &self,
        handle: u32,
        with: impl FnOnce(&mut Object<A, I>) -> T,
    ) -> Option<T> {
        let entries = self.inner.lock();
        let mut place = *entries.live.get(&handle)?;
        // SAFETY: as in `by_handle`.
        Some(with(unsafe { place.as_mut() }))
    }

    /// Refuses to destroy an object that is in use: `EBUSY`.
    ///
    /// # Safety
    /// As [`Table::with`].
    pub(crate) unsafe fn check_unused(
        &self,
        abi: *const A,
        check: impl FnOnce(&I) -> Result<(), Busy>,
    ) -> Result<(), c_int> {
        if abi.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this function.
        let handle = unsafe { (*abi).handle() };
        let checked = self.with_locked(handle, |object| object.inner.as_ref().map(check));
        checked.flatten().ok_or(libc::ENOENT)?.map_err(|_| libc::EBUSY)
    }

    /// Takes the object out of the live ones, before it is destroyed: of two who try, one succeeds.
    /// What is in use must not be taken out even for a moment, for its users would not find it: it is
    /// refused by [`Table::check_unused`] before.
    ///
    /// # Safety
    /// As [`Table::with`].
    pub(crate) unsafe fn take(&self, abi: *const A) -> Result<Taken<'_, A, I>, c_int> {
        if abi.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this function.
        let handle = unsafe { (*abi).handle() };
        let mut place = self.inner.lock().live.remove(&handle).ok_or(libc::ENOENT)?;
        // SAFETY: out of the table, so this is the only way to it but for users who break C's rules.
        let inner = unsafe { place.as_mut() }.inner.take();
        Ok(Taken { table: self, handle, place, inner })
    }
}

impl<A: Handled + InContext, I> Table<A, I> {
    /// Takes out all objects made in a context that is closed.
    pub(crate) fn take_all(&self, context: *mut ibv_context) -> Vec<Taken<'_, A, I>> {
        let mut entries = self.inner.lock();
        // SAFETY: live objects' boxes; their `context` does not change.
        let ours =
            |place: &NonNull<Object<A, I>>| unsafe { place.as_ref() }.abi.context() == context;
        let taken: Vec<_> = entries.live.extract_if(.., |_, place| ours(place)).collect();
        drop(entries);
        let taken = taken.into_iter().map(|(handle, mut place)| {
            // SAFETY: out of the table, as in `take`.
            let inner = unsafe { place.as_mut() }.inner.take();
            Taken { table: self, handle, place, inner }
        });
        taken.collect()
    }
}

/// An object on its way out: destroyed for good, or put back.
pub(crate) struct Taken<'t, A: Handled, I> {
    table: &'t Table<A, I>,
    handle: u32,
    place: NonNull<Object<A, I>>,
    pub(crate) inner: Option<I>,
}

impl<A: Handled, I> Taken<'_, A, I> {
    /// It cannot be destroyed after all.
    pub(crate) fn put_back(mut self, inner: I) {
        // SAFETY: the box is still ours.
        unsafe { self.place.as_mut() }.inner = Some(inner);
        self.table.inner.lock().live.insert(self.handle, self.place);
        std::mem::forget(self);
    }
}

impl<A: Handled, I> Drop for Taken<'_, A, I> {
    fn drop(&mut self) {
        self.table.inner.lock().dead.push_back(self.place);
    }
}
