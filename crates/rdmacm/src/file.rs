//! The file that makes connections: `/dev/infiniband/rdma_cm`, or Transom's replacement for it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::size_of;

use libloading::Library;
use transom_abi::rdma_ucm_cmd_hdr;

use crate::wrong::{Wrong, last_errno};

/// The kernel's file.
const KERNELS: &CStr = c"/dev/infiniband/rdma_cm";

/// The calls that open, use and close the file: those of the C library for the kernel's file, or those of Transom's
/// libibverbs for its own device. A thread may be cancelled while it waits in `write`.
#[derive(Clone, Copy, Debug)]
pub struct FileCalls {
    /// Opens the file. Returns its descriptor, or -1.
    pub open: unsafe extern "C" fn() -> c_int,
    /// Writes a command, as `write(2)` does.
    pub write: unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize,
    /// Closes the file.
    pub close: unsafe extern "C" fn(c_int) -> c_int,
    /// Only Transom's file: the reasons of errors, for `transom explain`.
    pub explain: Option<ExplainCalls>,
    /// Only Transom's file: the functions to tell of ids and events.
    pub check: Option<CheckCalls>,
}

/// The calls of Transom's libibverbs that give the reasons of errors.
#[derive(Clone, Copy, Debug)]
pub struct ExplainCalls {
    /// Writes the reason for the refusal of this thread's last command into a buffer of this length. Returns the length
    /// of the text in bytes.
    pub why: unsafe extern "C" fn(*mut c_char, usize) -> usize,
    /// Records the result of a function, and the reason.
    pub refused: unsafe extern "C" fn(*const c_char, c_int, *const c_char),
}

/// The calls of Transom's libibverbs that tell `transom check` and sanitizers of ids and events.
#[derive(Clone, Copy, Debug)]
pub struct CheckCalls {
    /// Returns 0 if nobody is to be told, 1 if somebody is, and 2 if ended ids and events are to be kept as well. The
    /// argument is an address in the code of librdmacm.
    pub watched: extern "C" fn(*const c_void) -> c_int,
    /// An id is made.
    pub id_made: extern "C" fn(*const c_void),
    /// An id has ended.
    pub id_ended: extern "C" fn(*const c_void),
    /// The program gets an event of an id, and perhaps of a group. The second argument is its size in bytes.
    pub event_got: extern "C" fn(*const c_void, usize, *const c_void, *const c_void),
    /// The program acknowledges an event.
    pub event_acked: extern "C" fn(*const c_void),
    /// The memory of an event or an id that has ended is about to be freed.
    pub event_freed: extern "C" fn(*const c_void),
    /// A function is about to use these bytes for the program. Returns 1 if they belong to something that has ended.
    pub used: extern "C" fn(*const c_void, usize) -> c_int,
    /// A function got a pointer to something that has ended. The arguments are its name and the pointer.
    pub given: unsafe extern "C" fn(*const c_char, *const c_void),
    /// A function waits until events of an id or a group are acknowledged. The arguments are its name, the owner,
    /// whether that is a group, and whether it has waited for long. Returns 1 if the check reports that it waits for
    /// ever.
    pub waits: unsafe extern "C" fn(*const c_char, *const c_void, c_int, c_int) -> c_int,
    /// Says whether this thread now does librdmacm's own work.
    pub own_work: extern "C" fn(c_int),
}

impl CheckCalls {
    /// The calls of a libibverbs, if it has them.
    ///
    /// # Safety
    /// The library is a libibverbs.
    unsafe fn of(library: &Library) -> Option<Self> {
        // SAFETY: these names are Transom's, and have these types.
        unsafe {
            Some(Self {
                watched: *library.get("transom_rdma_cm_watched\0").ok()?,
                id_made: *library.get("transom_rdma_cm_id_made\0").ok()?,
                id_ended: *library.get("transom_rdma_cm_id_ended\0").ok()?,
                event_got: *library.get("transom_rdma_cm_event_got\0").ok()?,
                event_acked: *library.get("transom_rdma_cm_event_acked\0").ok()?,
                event_freed: *library.get("transom_rdma_cm_event_freed\0").ok()?,
                used: *library.get("transom_rdma_cm_used\0").ok()?,
                given: *library.get("transom_rdma_cm_given\0").ok()?,
                waits: *library.get("transom_rdma_cm_waits\0").ok()?,
                own_work: *library.get("transom_rdma_cm_own_work\0").ok()?,
            })
        }
    }
}

impl FileCalls {
    /// The calls of the C library.
    pub const KERNEL: Self = {
        unsafe extern "C" fn open() -> c_int {
            // SAFETY: the path ends in zero.
            unsafe { libc::open(KERNELS.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }
        }
        unsafe extern "C-unwind" {
            fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize;
        }
        Self { open, write, close: libc::close, explain: None, check: None }
    };

    /// The calls of a libibverbs for its own device, if it has them.
    ///
    /// # Safety
    /// The library is a libibverbs.
    pub(crate) unsafe fn of(library: &Library) -> Option<Self> {
        // SAFETY: these names are Transom's, and have these types.
        unsafe {
            Some(Self {
                open: *library.get("transom_rdma_cm_open\0").ok()?,
                write: *library.get("transom_rdma_cm_write\0").ok()?,
                close: *library.get("transom_rdma_cm_close\0").ok()?,
                explain: Some(ExplainCalls {
                    why: *library.get("transom_rdma_cm_why\0").ok()?,
                    refused: *library.get("transom_rdma_cm_refused\0").ok()?,
                }),
                check: CheckCalls::of(library),
            })
        }
    }

    /// Opens the file.
    pub(crate) fn open(&self) -> Result<c_int, Wrong> {
        // SAFETY: it has no arguments.
        match unsafe { (self.open)() } {
            ..0 => Err(self.why(last_errno())),
            descriptor => Ok(descriptor),
        }
    }

    /// The reason why the last command failed with this errno.
    fn why(&self, errno: c_int) -> Wrong {
        let kernels = || Wrong::of_system("the kernel's rdma_cm", errno);
        let Some(explain) = self.explain else { return kernels() };
        if matches!(errno, libc::EAGAIN | libc::EINTR) {
            return kernels();
        }
        let mut room = [0_u8; 256];
        // SAFETY: the buffer has this length.
        let length = unsafe { (explain.why)(room.as_mut_ptr().cast(), room.len()) };
        Wrong::told(errno, String::from_utf8_lossy(&room[..length.min(room.len())]).into_owned())
    }

    /// Records the result of a function, if the file is Transom's.
    pub(crate) fn note(&self, function: &CStr, errno: c_int, said: &CStr) {
        if let Some(explain) = self.explain {
            // SAFETY: both are strings.
            unsafe { (explain.refused)(function.as_ptr(), errno, said.as_ptr()) };
        }
    }
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) calls: &'static FileCalls,
    pub(crate) descriptor: c_int,
}

/// A command in the form in which it is written.
#[repr(C)]
struct Written<C> {
    header: rdma_ucm_cmd_hdr,
    command: C,
}

impl<C> Written<C> {
    /// `room` is the size of the answer.
    fn new(number: u32, command: C, room: usize) -> Self {
        const { assert!(size_of::<Self>() == size_of::<rdma_ucm_cmd_hdr>() + size_of::<C>()) };
        const { assert!(size_of::<C>() <= u16::MAX as usize) };
        let (in_, out) = (size_of::<C>() as u16, room.min(u16::MAX.into()) as u16);
        Self { header: rdma_ucm_cmd_hdr { cmd: number, in_, out }, command }
    }
}

impl File {
    /// Writes a command that has no answer.
    pub(crate) fn tell<C>(&self, number: u32, command: C) -> Result<(), Wrong> {
        self.tell_with_room(number, command, 0)
    }

    /// Writes a command that itself contains the address for its answer, of `room` bytes.
    pub(crate) fn tell_with_room<C>(
        &self,
        number: u32,
        command: C,
        room: usize,
    ) -> Result<(), Wrong> {
        self.write(&Written::new(number, command, room))
    }

    /// Writes a command, and returns its answer. `command` gets the address for it.
    pub(crate) fn ask<C, A: Default>(
        &self,
        number: u32,
        command: impl FnOnce(u64) -> C,
    ) -> Result<A, Wrong> {
        let mut answer = A::default();
        let at = (&raw mut answer).expose_provenance() as u64;
        self.tell_with_room(number, command(at), size_of::<A>())?;
        Ok(answer)
    }

    /// Writes a command. The thread may be cancelled in it, because nothing here would be left undone.
    fn write<C>(&self, command: &Written<C>) -> Result<(), Wrong> {
        let (bytes, count) = ((&raw const *command).cast(), size_of::<Written<C>>());
        // SAFETY: the command is readable, and its address for the answer has room for its type.
        let answer = unsafe { (self.calls.write)(self.descriptor, bytes, count) };
        if usize::try_from(answer) == Ok(count) {
            Ok(())
        } else if answer < 0 {
            Err(self.calls.why(last_errno()))
        } else {
            Err(Wrong::new(libc::ENODATA, "the file has taken a part of a command only"))
        }
    }
}
