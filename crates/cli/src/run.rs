//! `transom run`: becomes a program that finds our libibverbs and librdmacm first, or waits for it (`explained`).

mod between;
mod carried;
mod explained;
mod instruments;
pub(crate) mod library;
mod loader;
pub(crate) mod locate;
mod mounts;
mod parent;
pub(crate) mod private;
#[cfg(test)]
pub(crate) mod scratch;
mod tree;
mod watcher;

use crate::broken_pipe;
use crate::failure::{Failure, Result};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use transom_ibverbs::DeviceName;
use tree::Tree;
use watcher::Watching;

/// What this command is called where it answers for iproute2's.
pub(crate) const RDMA: &str = "rdma";

/// Where commands are looked for.
const PATH: &str = "PATH";
/// Which memory is shared.
const MEMORY: &str = "TRANSOM_MEMORY";

const HELP: &str = "\
The program is started with LD_LIBRARY_PATH set so that the loader finds Transom's libibverbs.so.1
and librdmacm.so.1 before the system's, and with LD_PRELOAD so that it does even where the program
brings libraries of its own under other names, as Python packages do. (That has no effect on set-user-ID programs,
nor on those that have libibverbs linked in, or ask for the functions of the one they brought by
dlsym.) LD_PRELOAD names libtransom_malloc.so too, by which memory can be shared with peers. The program takes the place of this command: its exit status and signals are its own.
With --explain this command stays, sends on the signals that it gets, and ends as the program does. It
tells of all processes of this user in this network namespace since the program was started.

A small process stays beside it, which sleeps, and which `wait` does not find: should the program be
killed, it tells the peers on other hosts that their connections have ended, as a kernel with an adapter
does. It ends with the program. As the first process of a container, where that would be killed before,
this command stays instead, and hands on to the program what it is sent.

It and its children, and nobody else, also find the device's files in /sys/class/infiniband,
/sys/class/infiniband_verbs and /dev/infiniband: by mounts of their own if this user may mount (as
root), or else by a library that leads the C library's calls there.

`rdma dev`, `rdma link` and `rdma resource` of iproute2, with -j or without, show this device to them.
All else that `rdma` is asked goes to the real one, which knows the kernel's devices only.

Faults (--fault), to see how a program copes; several add up:
  loss=P,reorder=P,duplicate=P,corrupt=P  Shares of the packets it sends, such as 1% or 0.5%
  delay=T,rate=R,seed=N                   Such as delay=2ms,rate=100mbit; what a seed repeats is below
  nak=KIND,op=OP,nth=N                    Requests that arrive at it are refused, not carried out
  rnr,op=OP,nth=N                         The same, as if no receive were posted
  drop,op=OP,nth=N                        The same, as if the network had lost them
  port-down=T,at=T                        The port is down for a while, a time after it is opened
  device-removal,at=T                     The device is gone, a time after it is opened
  address-change,at=T                     Its addresses belong to other hardware, as after a fail-over
  reject=N,nth=N                          Requests for connections (REQ) are refused for reason N
  drop,op=MESSAGE,nth=N                   Messages of connections are lost
  delay=T,op=MESSAGE,nth=N                They arrive later
KIND is remote-access, invalid-request or remote-operational. OP is send, write, read, atomic,
atomic-write, flush or any, which it is if absent; MESSAGE is req, rep, rtu or dreq. N counts those that arrive at a process over all
its queue pairs: 3 is the third, 3.. the third and all after it, which 1.. is if absent. A request
that is sent again counts again.

The devices that a run opens are counted (in each network namespace), and with the same seed (0 if
absent) the first one has the same chances in every run, and so have the second and all others: if
the third packet that it sends is lost, the third is lost again. Which packet is the third is up to
the programs and their timing, and which device is the first if several are opened at once.

Faults of packets (loss to rate) and port-down need packets, so on one host they need both ends: a
peer without one of them, or TRANSOM_LINK=wire, answers by the local link, and its connected queue
pairs drop the packets. Start both ends under one `transom run`. All other faults are needed at one
end only: those of requests and of messages where these arrive, device-removal and address-change
where they are to happen.

Captures (--capture) hold what its processes send and get on any link, as packets with the reasons of
refusals as comments. Read them with Wireshark, or: tshark --disable-protocol rpcordma -r FILE
(without that, tshark 4 takes small payloads for another protocol's). Each `transom run --capture
FILE` begins FILE anew; to have several programs in one file, start them from one shell under it.

Exit status:
  126  the program exists, but cannot be run
  127  there is no such program
  1    Transom's libibverbs was not found
  Otherwise the program's own.

Environment:
  TRANSOM_LIB=DIR            Take libibverbs.so.1 (or libibverbs.so) from DIR and nowhere else;
                             librdmacm.so.1 too if it is there
  TRANSOM_DEVICE_NAME=NAME   What the device is called, as with --device-name
  TRANSOM_WINDOWS=2A         Windows of type 2 are of kind 2A instead of 2B
  TRANSOM_COPY=rings         Copy through rings, even where the kernel would copy directly
  TRANSOM_MEMORY=private     Have no shared memory, so the kernel copies. Otherwise peers reach by
                             instructions what the program allocates aligned to a page after it has
                             opened the device (posix_memalign and its like)
  TRANSOM_LINK=wire          Send everything as packets, within this host too; both ends need it
  TRANSOM_CONGESTION=notify  Have packets marked by a congested network, and tell the sender of such

Examples:
  transom run -- ibv_devinfo -v
  transom run -- ibv_rc_pingpong -g 0             (in one terminal)
  transom run -- ibv_rc_pingpong -g 0 localhost   (in another)
  transom run --device-name rxe0 -- ibv_devices
  transom run --explain -- make check
  transom run --capture ping.pcapng -- ibv_rc_pingpong -g 0
  transom run --fault loss=1%,delay=2ms,seed=7 -- \\
    sh -c 'ibv_rc_pingpong -g 0 & sleep 1; ibv_rc_pingpong -g 0 localhost; wait'
  transom run --fault nak=remote-access,op=read,nth=3 -- PROGRAM";

/// Run a program that uses RDMA, unchanged, on the software device.
#[derive(clap::Args)]
#[command(after_help = HELP, override_usage = "transom run [OPTIONS] [--] PROGRAM [ARGUMENTS]...")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    instruments: instruments::InstrumentArgs,
    /// What the device is called, for programs that want an rxe0 or mlx5_0
    #[arg(long, value_name = "NAME")]
    device_name: Option<DeviceName>,
    /// If the program fails, say on standard error what was refused meanwhile, as `transom explain`
    #[arg(long)]
    explain: bool,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// Comes back only if it failed.
pub(crate) fn run(args: &RunArgs) -> Result {
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::with_status(2, "no program given; see `transom run --help`"));
    };
    let verbs = locate::verbs()?;
    let mut command = Command::new(program);
    command.args(arguments);
    let name = device_name(args)?;
    command.env(DeviceName::VARIABLE, name.to_string());
    loader::lead(&verbs, &mut command);
    match locate::connections() {
        Ok(Some(connections)) => loader::lead_connections(&connections, &mut command),
        Ok(None) => {}
        Err(problem) => {
            anstream::eprintln!("warning: the program cannot connect by rdma_cm: {problem}");
        }
    }
    if let Err(problem) = share_allocations(&mut command) {
        anstream::eprintln!(
            "warning: what the program allocates will be private memory: {problem}"
        );
    }
    match locate::command(RDMA) {
        Ok(directory) => {
            let mut path = directory.into_os_string();
            path.push(":");
            path.push(search_path());
            command.env(PATH, path);
        }
        Err(problem) => anstream::eprintln!("warning: `rdma` will not show the device: {problem}"),
    }
    instruments::attach(&args.instruments, &mut command)?;
    let watching = Watching::prepare(&mut command);
    if let Err(problem) = show_files(&name, &mut command) {
        // Few programs need them.
        anstream::eprintln!(
            "warning: the program will not find the device's files in /sys and /dev: {problem}"
        );
    }
    broken_pipe::leave_as_it_was(&mut command);
    let watched = watching.and_then(|watching| watching.map_or(Ok(()), begin));
    if let Err(problem) = watched {
        anstream::eprintln!(
            "warning: should the program be killed, its peers on other hosts will not be told: {problem}"
        );
    }
    if args.explain {
        return explained::run(program, &mut command);
    }
    Err(not_run(program, &command.exec()))
}

/// Has somebody watch the program, and comes back in the process that becomes it.
fn begin(watching: Watching) -> io::Result<()> {
    if between::is_needed() { between::stay(watching) } else { watching.begin_beside() }
}

/// What the device is to be called: as the option says, or else the environment.
fn device_name(args: &RunArgs) -> Result<DeviceName> {
    let chosen = || DeviceName::chosen().cloned();
    args.device_name
        .clone()
        .map_or_else(chosen, Ok)
        .map_err(|error| Failure::with_status(2, format_args!("{}: {error}", DeviceName::VARIABLE)))
}

/// Has what the program allocates aligned to a page be shared memory, unless all is to be private.
fn share_allocations(command: &mut Command) -> std::result::Result<(), String> {
    if std::env::var_os(MEMORY).is_none_or(|memory| memory != "private") {
        loader::preload(&[&locate::preloaded(library::MALLOC)?], command);
    }
    Ok(())
}

/// Has the program find the files that the kernel would have of the device.
fn show_files(name: &DeviceName, command: &mut Command) -> std::result::Result<(), String> {
    let tree = Tree::of(name)?;
    // Looked for before: where the root is no mount, the kernel does not tell from a mount namespace of one's own
    // where this command is.
    let paths = locate::preloaded(library::PATHS);
    if mounts::show(&tree).is_ok() {
        // One that was led by the environment that this command has.
        command.env_remove(tree::VARIABLE);
        return Ok(());
    }
    let tree = tree.of_a_run()?;
    loader::preload(&[&paths?], command);
    command.env(tree::VARIABLE, tree);
    Ok(())
}

/// Why a program was not started, with the status that shells give.
fn not_run(program: &OsStr, error: &io::Error) -> Failure {
    let name = program.display();
    let by_path = has_slash(program);
    let exists = if by_path { Path::new(program).exists() } else { is_in_path(program) };
    match error.kind() {
        // A directory in PATH that may not be searched says nothing of the program.
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if !exists && !by_path => {
            let message =
                format!("there is no program {name} in PATH; install it, or give its path");
            Failure::with_status(127, message)
        }
        io::ErrorKind::NotFound if !exists => {
            Failure::with_status(127, format_args!("there is no program {name}; check the path"))
        }
        io::ErrorKind::NotFound => {
            let message = format!(
                "cannot run {name}: the interpreter or loader it names does not exist; see its \
                 first line, or `file {name}`"
            );
            Failure::with_status(126, message)
        }
        io::ErrorKind::PermissionDenied => {
            let message = format!(
                "cannot run {name}: {error}; it must be a file that this user may execute (chmod \
                 +x)"
            );
            Failure::with_status(126, message)
        }
        _ => Failure::with_status(126, format_args!("cannot run {name}: {error}")),
    }
}

/// Where programs are looked for: by the system's own list if nobody says where.
fn search_path() -> OsString {
    std::env::var_os(PATH).unwrap_or_else(|| {
        let mut list = vec![0; 256];
        // SAFETY: the list has this length.
        let length = unsafe { libc::confstr(libc::_CS_PATH, list.as_mut_ptr().cast(), list.len()) };
        // With the zero at its end; none if there is no such list.
        list.truncate(length.saturating_sub(1));
        OsString::from_vec(list)
    })
}

fn is_in_path(program: &OsStr) -> bool {
    std::env::split_paths(&search_path()).any(|directory| directory.join(program).is_file())
}

fn has_slash(program: &OsStr) -> bool {
    program.as_bytes().contains(&b'/')
}
