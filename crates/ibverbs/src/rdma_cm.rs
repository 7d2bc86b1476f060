//! The interface of the kernel's `/dev/infiniband/rdma_cm`, as functions: the commands of `<rdma/rdma_user_cm.h>` over
//! this device's connection manager.
//!
//! If a `librdmacm.so.1` finds these functions in its libibverbs, it uses them in place of the kernel's file. A file's
//! descriptor is readable while an event waits. The kernel copies commands and their answers, as it copies all memory
//! of programs: an unmapped address gives `EFAULT`.
//!
//! | module | holds |
//! |---|---|
//! | `refusal` | why a command is refused |
//! | `command` | a command in the program's memory, and the place for its answer |
//! | `addresses` | addresses in their C form |
//! | `calls` | commands about ids |
//! | `queries` | commands that query |
//! | `events` | fetching events |
//! | `files` | a program's files |
//! | `listening` | listeners at all devices |
//! | `parts` | a file at one device |
//! | `places` | where ids are that have moved to another device |
//! | `removal` | what becomes of files and ids when a device is removed |
//! | `checked` | what librdmacm tells `transom check` and sanitizers |
//! | `why` | the reason why the last command was refused, and refused calls of librdmacm, for `transom explain` |

mod addresses;
mod calls;
mod checked;
mod command;
mod events;
mod files;
mod listening;
mod parts;
mod places;
mod queries;
mod refusal;
mod removal;
mod why;

use std::ffi::{c_int, c_void};

use transom_abi::*;
use transom_cm::Refused;
use transom_system::fork::{HeldOverForks, hold_too};
use transom_system::{rehearsal, sanitizers};
use transom_thread::set_errno;

use crate::entry::{errno_always, number_always};
use crate::rehearse;
pub use checked::{
    transom_rdma_cm_event_acked, transom_rdma_cm_event_freed, transom_rdma_cm_event_got,
    transom_rdma_cm_given, transom_rdma_cm_id_ended, transom_rdma_cm_id_made, transom_rdma_cm_used,
    transom_rdma_cm_waits, transom_rdma_cm_watched,
};
use command::Command;
use files::File;
pub(crate) use listening::serve_opened;
use refusal::Refusal;
pub(crate) use removal::let_go;
pub use why::{transom_rdma_cm_refused, transom_rdma_cm_why};

/// A refused command is noted under the name of librdmacm's function, not of a verb.
const NOT_A_VERB: &str = "";

/// The commands, by number.
const COMMANDS: [Option<Run>; 25] = {
    let mut commands: [Option<Run>; 25] = [None; 25];
    commands[RDMA_USER_CM_CMD_CREATE_ID as usize] = Some(calls::create_id);
    commands[RDMA_USER_CM_CMD_DESTROY_ID as usize] = Some(calls::destroy_id);
    commands[RDMA_USER_CM_CMD_BIND_IP as usize] = Some(calls::bind_ip);
    commands[RDMA_USER_CM_CMD_RESOLVE_IP as usize] = Some(calls::resolve_ip);
    commands[RDMA_USER_CM_CMD_RESOLVE_ROUTE as usize] = Some(calls::resolve_route);
    commands[RDMA_USER_CM_CMD_QUERY_ROUTE as usize] = Some(queries::query_route);
    commands[RDMA_USER_CM_CMD_CONNECT as usize] = Some(calls::connect);
    commands[RDMA_USER_CM_CMD_LISTEN as usize] = Some(calls::listen);
    commands[RDMA_USER_CM_CMD_ACCEPT as usize] = Some(calls::accept);
    commands[RDMA_USER_CM_CMD_REJECT as usize] = Some(calls::reject);
    commands[RDMA_USER_CM_CMD_DISCONNECT as usize] = Some(calls::disconnect);
    commands[RDMA_USER_CM_CMD_INIT_QP_ATTR as usize] = Some(queries::init_qp_attr);
    commands[RDMA_USER_CM_CMD_SET_OPTION as usize] = Some(calls::set_option);
    commands[RDMA_USER_CM_CMD_NOTIFY as usize] = Some(calls::notify);
    commands[RDMA_USER_CM_CMD_JOIN_IP_MCAST as usize] = Some(calls::join_ip_mcast);
    commands[RDMA_USER_CM_CMD_LEAVE_MCAST as usize] = Some(calls::leave_mcast);
    commands[RDMA_USER_CM_CMD_MIGRATE_ID as usize] = Some(calls::migrate_id);
    commands[RDMA_USER_CM_CMD_QUERY as usize] = Some(queries::query);
    commands[RDMA_USER_CM_CMD_BIND as usize] = Some(calls::bind);
    commands[RDMA_USER_CM_CMD_RESOLVE_ADDR as usize] = Some(calls::resolve_addr);
    commands[RDMA_USER_CM_CMD_JOIN_MCAST as usize] = Some(calls::join_mcast);
    commands[RDMA_USER_CM_CMD_WRITE_CM_EVENT as usize] = Some(calls::write_cm_event);
    commands
};

/// Executes a command.
type Run = fn(&Command<'_>) -> Result<(), Refusal>;

/// The locks of the whole process, which a fork holds.
pub(crate) fn locks() -> [&'static dyn HeldOverForks; 3] {
    [&files::FILES, &listening::SERVED, &why::OPENED]
}

/// Opens a file. Returns its descriptor, or -1.
pub extern "C" fn transom_rdma_cm_open() -> c_int {
    number_always(NOT_A_VERB, || {
        rehearsal::begin();
        rehearse::may_make_channel().map_err(|errno| {
            const SAID: &str = "the rehearsal refuses to make an event channel";
            why::keep(&Refusal::new(errno, SAID))
        })?;
        hold_too(&locks());
        let opened = File::open().map_err(|refusal| why::keep(&refusal));
        serve_opened();
        opened
    })
}

/// Closes a file and ends its ids. Returns 0, or -1.
pub extern "C" fn transom_rdma_cm_close(file: c_int) -> c_int {
    number_always(NOT_A_VERB, || {
        let closed = File::close(file).ok_or(libc::EBADF)?;
        closed.map(|()| 0).map_err(|refused: Refused| why::keep(&refused.into()))
    })
}

/// Executes a command of `n` bytes. Returns `n`, or -1. If a thread is cancelled while it waits for an event, it
/// unwinds through this function.
///
/// # Safety
/// The program may read and write the command and all memory that it names.
pub unsafe extern "C-unwind" fn transom_rdma_cm_write(
    file: c_int,
    command: *const c_void,
    n: usize,
) -> isize {
    let address = command as u64;
    let mut fetches = false;
    let mut carry_out = || {
        let own = File::of(file)?;
        let command = Command::read(&own, address, n)?;
        fetches = command.number() == RDMA_USER_CM_CMD_GET_EVENT;
        if fetches {
            return Ok(());
        }
        sanitizers::peers_are_told();
        let run = COMMANDS.get(command.number() as usize);
        let run = run.ok_or(Refusal::invalid("there is no command of this number"))?;
        let run = run.ok_or(Refusal::new(libc::ENOSYS, "this command is not supported"))?;
        let had_no_device = command.has_no_device();
        let done = match run(&command) {
            // Its device was removed meanwhile, and its id may go on at another.
            Err(_) if command.has_no_device() && !had_no_device => {
                run(&Command::read(&own, address, n)?)
            }
            done => done,
        };
        serve_opened();
        done
    };
    let errno = errno_always(NOT_A_VERB, || carry_out().map_err(|refusal| why::keep(&refusal)));
    let errno = if fetches && errno == 0 { fetch(file, address, n) } else { errno };
    match errno {
        0 => n as isize,
        _ => -1,
    }
}

/// Fetches an event. It waits for one if the descriptor blocks. Returns zero, or an errno.
fn fetch(file: c_int, address: u64, n: usize) -> c_int {
    let mut first = None;
    loop {
        let mut fetched = false;
        // Also after the device has failed, because that is an event too.
        let mut look = || {
            let own = File::of(file)?;
            // While it waited, the file may have been closed, and another one have got its number.
            if *first.get_or_insert(own.number) != own.number {
                return Err(Refused::NoFile.into());
            }
            let command = Command::read(&own, address, n)?;
            loop {
                let (part, has_event) = own.part_of_oldest_event()?;
                fetched = match events::fetch(&command.at(&part)) {
                    // Another thread has given up this part meanwhile.
                    Err(_) if !own.has_part(&part) => continue,
                    fetched => fetched?,
                };
                // Another thread may have taken that one meanwhile, and then the next oldest may be elsewhere.
                if fetched || !has_event {
                    return Ok(());
                }
            }
        };
        let errno =
            errno_always(NOT_A_VERB, || look().map_err(|refusal: Refusal| why::keep(&refusal)));
        if errno != 0 || fetched {
            sanitizers::peers_have_told();
            return errno;
        }
        // Outside the verb's guard, and with nothing to drop, because a thread that waits here may be cancelled.
        if let Err(refusal) = events::wait(file) {
            let errno = why::keep(&refusal);
            set_errno(errno);
            return errno;
        }
    }
}
