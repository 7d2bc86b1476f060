//! A command in the program's memory, and the place for its answer.

use std::borrow::Cow;
use std::ffi::c_int;

use transom_abi::*;
use transom_cm::Refused;
use transom_host::Adapter;
use transom_host::connections::manager::Manager;
use transom_system::memory::{Destination, Readable, Source, Writable};

/// The reason why a command is refused: the errno, and a sentence that librdmacm's function passes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    errno: c_int,
    said: Cow<'static, str>,
}

impl Refusal {
    pub(super) const fn new(errno: c_int, said: &'static str) -> Self {
        Self { errno, said: Cow::Borrowed(said) }
    }

    /// An argument is invalid.
    pub(super) const fn invalid(said: &'static str) -> Self {
        Self::new(libc::EINVAL, said)
    }

    pub(super) const fn errno(&self) -> c_int {
        self.errno
    }

    pub(super) fn said(&self) -> &str {
        &self.said
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self { errno: refused.errno().0, said: refused.to_string().into() }
    }
}

/// An address is not mapped in the program.
const FAULT: Refusal =
    Refusal::new(libc::EFAULT, "a pointer does not point into the program's memory");

/// Structs of plain numbers. Any bytes are a valid value.
///
/// # Safety
/// All bit patterns of the type are valid.
pub(super) unsafe trait Plain: Copy + Default {}

macro_rules! plain {
    ($($name:ty)+) => {
        $(
            // SAFETY: it has only numbers, and arrays and unions of numbers.
            unsafe impl Plain for $name {}
        )+
    };
}

plain! {
    u8 u32
    ib_uverbs_qp_attr
    rdma_ucm_accept rdma_ucm_bind rdma_ucm_bind_ip rdma_ucm_cmd_hdr rdma_ucm_connect
    rdma_ucm_create_id rdma_ucm_create_id_resp rdma_ucm_destroy_id rdma_ucm_destroy_id_resp
    rdma_ucm_disconnect rdma_ucm_event_resp rdma_ucm_get_event rdma_ucm_init_qp_attr
    rdma_ucm_join_ip_mcast rdma_ucm_join_mcast rdma_ucm_listen rdma_ucm_migrate_id
    rdma_ucm_migrate_resp rdma_ucm_notify rdma_ucm_query rdma_ucm_query_addr_resp
    rdma_ucm_query_path_resp rdma_ucm_query_route_resp rdma_ucm_reject rdma_ucm_resolve_addr
    rdma_ucm_resolve_ip rdma_ucm_resolve_route rdma_ucm_set_option rdma_ucm_write_cm_event
    ib_path_rec_data
}

/// A command of a file.
pub(super) struct Command<'a> {
    pub(super) adapter: &'a Adapter,
    /// The file's descriptor.
    pub(super) file: c_int,
    header: rdma_ucm_cmd_hdr,
    /// The address of the bytes after the header.
    body: u64,
}

impl<'a> Command<'a> {
    /// Reads the header of a command of `n` bytes.
    pub(super) fn read(
        adapter: &'a Adapter,
        file: c_int,
        address: u64,
        n: usize,
    ) -> Result<Self, Refusal> {
        let mut command =
            Self { adapter, file, header: rdma_ucm_cmd_hdr::default(), body: address };
        let header = size_of::<rdma_ucm_cmd_hdr>();
        let short = Refusal::invalid("the command is shorter than its header says");
        if n < header {
            return Err(short);
        }
        command.header = command.get(address)?;
        if header + usize::from(command.header.in_) > n {
            return Err(short);
        }
        command.body = address.checked_add(header as u64).ok_or(FAULT)?;
        Ok(command)
    }

    /// The number of the command.
    pub(super) fn number(&self) -> u32 {
        self.header.cmd
    }

    /// Makes a call of the connection manager.
    pub(super) fn call<T, E: From<Refused> + Into<Refusal>>(
        &self,
        call: impl FnOnce(&mut Manager) -> Result<T, E>,
    ) -> Result<T, Refusal> {
        self.adapter.connections().call(call).map_err(Into::into)
    }

    /// The struct after the header. `EINVAL` if the command is too short for it.
    pub(super) fn body<T: Plain>(&self) -> Result<T, Refusal> {
        self.body_of(size_of::<T>())
    }

    /// The same for a struct that has grown. `least` bytes must be there; missing ones after that are zero.
    pub(super) fn body_of<T: Plain>(&self, least: usize) -> Result<T, Refusal> {
        let there = usize::from(self.header.in_);
        if there < least {
            return Err(Refusal::invalid("the command is too short for its number"));
        }
        self.get_part(self.body, there.min(size_of::<T>()))
    }

    /// A value in the program's memory.
    pub(super) fn get<T: Plain>(&self, address: u64) -> Result<T, Refusal> {
        self.get_part(address, size_of::<T>())
    }

    /// The first bytes of a value. The rest is zero.
    fn get_part<T: Plain>(&self, address: u64, length: usize) -> Result<T, Refusal> {
        let mut value = T::default();
        // SAFETY: the value belongs to this function, and any bytes are a valid `T`.
        let to = unsafe { Writable::shared((&raw mut value).cast(), size_of::<T>() as u64) };
        self.copy(Destination::Own(to), Source::Program(address), length)?;
        Ok(value)
    }

    /// The room for the answer, in bytes.
    pub(super) fn room(&self) -> usize {
        self.header.out.into()
    }

    /// Checks the room for the answer. `ENOSPC` if it has less than `least` bytes.
    pub(super) fn check_room(&self, least: usize) -> Result<(), Refusal> {
        let refusal = Refusal::new(libc::ENOSPC, "the command has no room for its answer");
        if self.room() < least { Err(refusal) } else { Ok(()) }
    }

    /// Writes the answer, or the part of it that there is room for.
    pub(super) fn answer<T: Plain>(&self, response: u64, answer: &T) -> Result<(), Refusal> {
        self.answer_at(response, 0, answer)
    }

    /// Writes a part of the answer that begins at `offset`.
    pub(super) fn answer_at<T: Plain>(
        &self,
        response: u64,
        offset: usize,
        answer: &T,
    ) -> Result<(), Refusal> {
        let length = self.room().saturating_sub(offset).min(size_of::<T>());
        let to = response.checked_add(offset as u64).ok_or(FAULT)?;
        let from = std::ptr::from_ref(answer).cast();
        // SAFETY: it is borrowed for longer than this call.
        let from = unsafe { Readable::shared(from, size_of::<T>() as u64) };
        self.copy(Destination::Program(to), Source::Own(from), length)
    }

    fn copy(&self, to: Destination<'_>, from: Source<'_>, length: usize) -> Result<(), Refusal> {
        if length == 0 {
            return Ok(());
        }
        let copier = self.adapter.device().process().copier();
        // No region holds this memory, so the kernel must check the address.
        copier.copy(to, from, length as u64).map_err(|_| FAULT)
    }
}
