//! `transom run`: becomes a program that finds our libibverbs and librdmacm first, or waits for it
//! (`explained`).

mod between;
mod carried;
mod environment;
mod explained;
mod instruments;
pub(crate) mod library;
mod live;
mod loader;
pub(crate) mod locate;
mod mounts;
mod parent;
pub(crate) mod private;
#[cfg(test)]
pub(crate) mod scratch;
pub(crate) mod tree;
mod watcher;

use crate::broken_pipe;
use crate::failure::{Failure, Result};
use crate::layout;
use crate::shell::{option, quoted};
pub(crate) use explained::Ended;
use live::LiveFiles;
use parent::Signals;
pub(crate) use parent::{conclude, end_like};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use transom_ibverbs::{Description, DeviceName};
use transom_system::environment::{DEVICE_NAME, DEVICES, MEMORY};
use transom_system::registry;
use tree::Tree;
use watcher::Watching;

/// The name of this command when it answers for iproute2's.
pub(crate) const RDMA: &str = "rdma";

/// The variable with the search path of commands.
const PATH: &str = "PATH";

const HELP: &str = "\
The program finds Transom's libibverbs.so.1 and librdmacm.so.1 before the system's: they are in
LD_LIBRARY_PATH and in LD_PRELOAD. LD_PRELOAD is for programs that bring libraries of their own under
other names, as Python packages do. It also names libtransom_malloc.so, which lets the program share
memory with its peers. None of this works for set-user-ID programs, for programs with libibverbs linked
in, and for those that look up functions of their own libibverbs by dlsym.

This command becomes the program: exit status and signals are the program's own. With --explain it
stays, forwards the signals it gets, and exits as the program does. If the program fails, it shows what
was refused to the program and to all that it started, oldest first, and how many refusals other programs
of this user had meanwhile.

A small process stays beside the program. It sleeps, and `wait` does not find it. If the program is
killed, it tells the peers on other hosts that their connections have ended, as a kernel with an adapter
does. It exits with the program. If the program would be the first process of a container, the kernel
would kill the small process with it. This command then stays instead, and forwards signals.

The program and its children also find the device's files in /sys/class/infiniband,
/sys/class/infiniband_verbs and /dev/infiniband. No other process does. If you may mount (as root), they
are mounts in a namespace of their own. If not, a library redirects the C library's calls.

Of iproute2, `rdma dev`, `rdma link`, `rdma resource` and `rdma statistic` show this device to them, its
objects and counters, also with -j. The real `rdma` answers everything else. It knows the kernel's devices
only.

Devices:
  --devices 2                        Two devices that are alike
  --device NAME,port=down,speed=S,numa=N,pci=ADDRESS,netdev=INTERFACE
                                     One that is described; give it several times for several

The port of a device with port=down is down for ever. S is 10G, 25G, 40G, 50G, 56G, 100G, 200G, 400G or
800G, and 100G without it. Programs see speed, NUMA node and PCI address, such as 0000:81:00.0. Nothing
gets faster or slower by them, and nothing is at that address. A device with netdev=eth0 has the addresses
of that network interface, and is down while it has none; the others have those of all interfaces. Each
device that a program opens counts as a process: there is room for 254.

Faults:
  loss=P,reorder=P,duplicate=P,corrupt=P
                                     Shares of the packets it sends, such as 1% or 0.5%
  delay=T,rate=R,seed=N              Such as delay=2ms,rate=100mbit; for seed see below
  nak=KIND,op=OP,nth=N               Refuse requests that arrive
  rnr,op=OP,nth=N                    Answer them as if no receive were posted
  drop,op=OP,nth=N                   Drop them, as if the network had lost them
  port-down=T,at=T                   The port is down for a while, a time after it is opened
  device-removal,at=T                The device is gone, a time after it is opened
  address-change,at=T                Its addresses move to other hardware, as in a fail-over
  device=N                           With these three: only at the device of this number, from 0
  reject=N,nth=N                     Reject requests for connections (REQ) for reason N
  drop,op=MESSAGE,nth=N              Drop messages of connections
  delay=T,op=MESSAGE,nth=N           Delay them

Give --fault several times to combine faults. KIND is remote-access, invalid-request or
remote-operational. OP is send, write, read, atomic, atomic-write, flush or any, which is the default.
MESSAGE is req, rep, rtu or dreq. N counts the requests that arrive at a process, over all its queue
pairs. 3 is the third, 3.. the third and all after it; the default is `1..`, all of them. A request that is
sent again counts again.

The seed makes a run repeatable; it is 0 by default. In each network namespace the run counts the devices
it opens, and each device gets its chances from the seed and its number. If the third packet of the first
device is lost, it is lost again in the next run. The programs and their timing decide which packet is the
third, and which device is the first if several are opened at once.

The faults loss to rate and port-down need packets. On one host, both ends need the fault: an end without
it answers by the local link, unless it has TRANSOM_LINK=wire, and connected queue pairs drop the packets.
So start both ends under one `transom run`. All other faults work with one end: the one where the request
or the message arrives, or where the port or device changes.

A capture (--capture) holds what the processes send and receive on any link. It has packets, with the
reasons of refusals as comments. Read it with Wireshark or tshark. tshark 4 takes small payloads for
another protocol's unless you disable that: `tshark --disable-protocol rpcordma -r FILE`. Each `transom
run --capture FILE` overwrites FILE. To capture several programs, start them from one shell under it.

Exit status:
  126  the program exists, but cannot be run
  127  there is no such program
  1    Transom's libibverbs was not found
  2    the command line, or a variable below, is wrong
  Otherwise the exit status is the program's own.

Environment:
{environment}

";

const EXAMPLES: &str = "\
Examples:
  transom run -- ibv_devinfo -v
  transom run -- ibv_rc_pingpong -g 0             (in one terminal)
  transom run -- ibv_rc_pingpong -g 0 localhost   (in another)
  transom run --device-name rxe0 -- ibv_devices
  transom run --devices 2 -- env UCX_NET_DEVICES=transom0:1,transom1:1 PROGRAM
  transom run --device mlx5_0,numa=0 --device mlx5_1,numa=1,port=down -- ibv_devinfo
  transom run --explain -- make check
  transom run --capture ping.pcapng -- ibv_rc_pingpong -g 0
  transom run --fault loss=1%,delay=2ms,seed=7 -- \\
    sh -c 'ibv_rc_pingpong -g 0 & sleep 1; ibv_rc_pingpong -g 0 localhost; wait'
  transom run --fault nak=remote-access,op=read,nth=3 -- PROGRAM";

fn help() -> String {
    HELP.replace("{environment}", &environment::rows()) + EXAMPLES
}

/// Run a program that uses RDMA, unchanged, on the software device
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    after_long_help = help(),
    override_usage = "transom run [OPTIONS] [--] PROGRAM [ARGUMENTS]..."
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    program: ProgramArgs,
    /// If the program fails, say on standard error what was refused, as `transom explain` does
    #[arg(long)]
    explain: bool,
}

/// The program, and its device.
#[derive(clap::Args)]
pub(crate) struct ProgramArgs {
    #[command(flatten)]
    instruments: instruments::InstrumentArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// The devices that the program finds.
#[derive(clap::Args)]
struct DeviceArgs {
    /// Give the device another name, for programs that want an rxe0 or mlx5_0
    #[arg(long, value_name = "NAME")]
    device_name: Option<DeviceName>,
    /// Give the program N devices, up to 16: transom0, transom1 and so on
    #[arg(long = "devices", value_name = "N", value_parser = clap::value_parser!(u8).range(1..=registry::DEVICES as i64))]
    count: Option<u8>,
    /// Give it a device such as mlx5_0,port=down; once for each; see below
    #[arg(long = "device", value_name = "DEVICE", conflicts_with_all = ["device_name", "count"])]
    described: Vec<Description>,
}

impl DeviceArgs {
    /// The devices: as the options say, or else as the environment does. `usual` is the name of the first if the user
    /// names none.
    fn all(&self, usual: Option<DeviceName>) -> Result<Vec<Description>> {
        let all = self.named(usual)?;
        let checked = all.iter().try_for_each(Description::check_here);
        checked.map_err(|error| Failure::with_status(2, error)).map(|()| all)
    }

    fn named(&self, usual: Option<DeviceName>) -> Result<Vec<Description>> {
        let refuse = |error: &dyn std::fmt::Display| Failure::with_status(2, error);
        if !self.described.is_empty() {
            Description::check_all(&self.described).map_err(|error| refuse(&error))?;
            return Ok(self.described.clone());
        }
        let is_told = [DEVICE_NAME, DEVICES].iter().any(|variable| variable.text().is_some());
        let named = self.device_name.clone().or(usual.filter(|_| !is_told));
        let first = match (named, self.count) {
            (Some(name), _) => name,
            (None, count) => {
                let chosen = Description::chosen().map_err(|error| refuse(&error))?;
                match count {
                    None => return Ok(chosen.to_vec()),
                    Some(_) => chosen[0].name.clone(),
                }
            }
        };
        let names = (0..self.count.unwrap_or(1)).map(|places| first.behind(places));
        let all = names.map(|name| Ok(Description::plain(name.map_err(|error| refuse(&error))?)));
        let all = all.collect::<Result<Vec<_>>>()?;
        Description::check_all(&all).map_err(|error| refuse(&error)).map(|()| all)
    }
}

/// Has the program find these devices.
fn name_devices(devices: &[Description], command: &mut Command) {
    let texts: Vec<String> = devices.iter().map(ToString::to_string).collect();
    command.env(DEVICE_NAME.name, devices[0].name.to_string());
    // The variable may come from the run that this command is in.
    match devices {
        [only] if *only == Description::plain(only.name.clone()) => {
            command.env_remove(DEVICES.name)
        }
        _ => command.env(DEVICES.name, texts.join(";")),
    };
}

impl ProgramArgs {
    /// Whether there is one.
    pub(crate) fn is_given(&self) -> bool {
        !self.command.is_empty()
    }

    /// The words of the program, as a shell reads them.
    pub(crate) fn words(&self) -> Vec<String> {
        self.command.iter().map(quoted).collect()
    }

    /// The options for its device as the user may type them, each with a space before it.
    pub(crate) fn options(&self) -> String {
        let DeviceArgs { device_name, count, described } = &self.devices;
        let name = device_name.iter().map(|name| option("device-name", name.to_string()));
        let count = count.iter().map(|count| option("devices", count.to_string()));
        let described = described.iter().map(|device| option("device", device.to_string()));
        name.chain(count).chain(described).chain(self.instruments.options()).collect()
    }
}

/// Returns only if it failed.
pub(crate) fn run(args: &RunArgs) -> Result {
    let mut program = Program::prepare(&args.program)?;
    if args.explain {
        return explained::run(program);
    }
    let error = program.command.exec();
    Err(not_run(&program.name, &error))
}

/// A program that will find our libraries and our device.
pub(crate) struct Program {
    /// The name that the user gave.
    pub(crate) name: OsString,
    pub(crate) command: Command,
}

impl Program {
    /// Prepares it, and starts a process that watches this one. This process then becomes the program or
    /// waits for it.
    pub(crate) fn prepare(args: &ProgramArgs) -> Result<Self> {
        Self::prepare_for(args, None)
    }

    /// The same with another name for the first device, if the user gives it none.
    pub(crate) fn prepare_for(args: &ProgramArgs, device: Option<DeviceName>) -> Result<Self> {
        let [program, arguments @ ..] = &args.command[..] else {
            return Err(Failure::with_status(2, "no program given; see `transom run --help`"));
        };
        environment::check()?;
        let verbs = locate::verbs()?;
        let mut command = Command::new(program);
        command.args(arguments);
        let devices = args.devices.all(device)?;
        name_devices(&devices, &mut command);
        loader::lead(&verbs, &mut command);
        lead_others(&mut command);
        instruments::attach(&args.instruments, devices.len(), &mut command)?;
        let watching = Watching::prepare(&mut command);
        let live = show_files(&devices, &mut command).unwrap_or_else(|problem| {
            // Few programs need them.
            layout::warn(format_args!(
                "the program will not find the device's files in /sys and /dev: {problem}"
            ));
            None
        });
        broken_pipe::leave_as_it_was(&mut command);
        let watched = watching.and_then(|it| it.map_or(Ok(()), |it| begin(it.keeping(live))));
        if let Err(problem) = watched {
            layout::warn(format_args!(
                "if the program is killed, its peers on other hosts will not be told: {problem}"
            ));
        }
        Ok(Self { name: program.clone(), command })
    }

    /// Starts it as a child.
    pub(crate) fn spawn(&mut self) -> Result<Child> {
        self.command.spawn().map_err(|error| not_run(&self.name, &error))
    }

    /// Runs it as a child, until it has ended. Calls `look` each time `watched` is readable, and after each such time in
    /// which nothing has come.
    pub(crate) fn wait(
        &mut self,
        watched: Option<BorrowedFd<'_>>,
        every: Option<Duration>,
        look: &mut dyn FnMut(),
    ) -> Result<ExitStatus> {
        let signals = Signals::block()?;
        signals.leave_to(&mut self.command);
        let child = self.command.spawn().map_err(|error| not_run(&self.name, &error))?;
        let status = signals.wait_for(child.id() as libc::pid_t, watched, every, look);
        signals.unblock();
        Ok(status)
    }
}

/// Makes the loader find our other libraries, if they are there.
fn lead_others(command: &mut Command) {
    match locate::connections() {
        Ok(Some(connections)) => loader::lead_connections(&connections, command),
        Ok(None) => {}
        Err(problem) => {
            layout::warn(format_args!("the program cannot connect by rdma_cm: {problem}"));
        }
    }
    if let Err(problem) = share_allocations(command) {
        layout::warn(format_args!("the program's allocations will be private memory: {problem}"));
    }
    match locate::command(RDMA) {
        Ok(directory) => {
            let mut path = directory.into_os_string();
            path.push(":");
            path.push(search_path());
            command.env(PATH, path);
        }
        Err(problem) => {
            layout::warn(format_args!("`rdma` will not show the device: {problem}"));
        }
    }
}

/// Starts a process that watches the program, and returns in the process that becomes the program.
fn begin(watching: Watching) -> io::Result<()> {
    if between::is_needed() { between::stay(watching) } else { watching.begin_beside() }
}

/// Makes the program's page-aligned allocations shared memory, unless all memory must be private.
fn share_allocations(command: &mut Command) -> std::result::Result<(), String> {
    if MEMORY.text().is_none_or(|memory| memory != "private") {
        loader::preload(&[&locate::preloaded(library::MALLOC)?], command);
    }
    Ok(())
}

/// Tells the checker of the program what memory it gives back.
pub(crate) fn tell_of_freed_memory(command: &mut Command) -> std::result::Result<(), String> {
    loader::preload(&[&locate::preloaded(library::FREED)?], command);
    Ok(())
}

/// Makes the program find the files that the kernel would have for its devices. Returns those whose values change.
fn show_files(
    devices: &[Description],
    command: &mut Command,
) -> std::result::Result<Option<LiveFiles>, String> {
    let tree = Tree::of(devices)?;
    // Done before the mounts: if the root is not a mount, the kernel cannot tell from our own mount namespace where
    // this command's file is.
    let paths = locate::preloaded(library::PATHS);
    if let Ok(live) = mounts::show(&tree) {
        // The variable may come from the run that this command is in.
        command.env_remove(tree::VARIABLE);
        return Ok(live);
    }
    let (tree, live) = tree.of_a_run()?;
    loader::preload(&[&paths?], command);
    command.env(tree::VARIABLE, tree);
    Ok(live)
}

/// The reason why a program did not start, with the exit status that shells use.
fn not_run(program: &OsStr, error: &io::Error) -> Failure {
    let name = program.display();
    let by_path = has_slash(program);
    let exists = if by_path { Path::new(program).exists() } else { is_in_path(program) };
    match error.kind() {
        // If a directory in PATH may not be searched, that says nothing about the program.
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
                 first line, or ask `file {name}`"
            );
            Failure::with_status(126, message)
        }
        io::ErrorKind::PermissionDenied => {
            let message = format!(
                "cannot run {name}: {error}; make it a file that you may execute (`chmod +x {name}`)"
            );
            Failure::with_status(126, message)
        }
        _ => Failure::with_status(126, format_args!("cannot run {name}: {error}")),
    }
}

/// The search path of programs. Without a variable, it is the system's own list.
fn search_path() -> OsString {
    std::env::var_os(PATH).unwrap_or_else(|| {
        let mut list = vec![0; 256];
        // SAFETY: the list has this length.
        let length = unsafe { libc::confstr(libc::_CS_PATH, list.as_mut_ptr().cast(), list.len()) };
        // `confstr` counts the final zero. It returns 0 if there is no such list.
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
