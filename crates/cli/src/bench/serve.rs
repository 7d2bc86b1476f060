//! One of two processes that measure together. It opens a device, connects to the other, and measures on request until
//! its input ends.

use std::fs;
use std::io::{stdin, stdout};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Instant;

use transom_system::memory::is_shared;
use transom_system::registry::Registry;

use super::crowd::{self, Crowd, Numbers};
use super::end::{Card, End};
use super::process::{Process, Talk};
use super::processors;
use super::setup::{Connected, Role, Setup, Side};
use super::start::start;
use super::tasks::Job;
use super::wire;
use crate::failure::{Failure, Result};
use crate::talk::{hear, tell};

/// What it is told on its command line.
#[derive(clap::Args)]
pub(crate) struct ProcessArgs {
    role: Role,
    /// The [`Setup`], as JSON.
    setup: String,
    /// Two descriptors of `eventfd(2)`, by which the two wake each other.
    #[arg(num_args = 2)]
    bells: Vec<i32>,
}

/// Runs the hidden subcommand.
pub(crate) fn run(args: &ProcessArgs) -> Result {
    let setup: Setup = serde_json::from_str(&args.setup).map_err(Failure::new)?;
    match args.role {
        Role::Near => near(setup),
        Role::Far => far(setup, &args.bells),
        Role::Bystander => crowd::stand_by(setup),
    }
}

fn near(setup: Setup) -> Result {
    if setup.wire.is_some() {
        wire::enter_own_network(true)?;
    }
    let bells = [bell()?, bell()?];
    let (ours, theirs) = UnixStream::pair().map_err(trouble)?;
    let mut far = start(setup, Role::Far)?
        .args(bells.each_ref().map(|bell| bell.as_raw_fd().to_string()))
        .stdin(OwnedFd::from(theirs))
        .spawn()
        .map_err(trouble)?;
    let done = lead(setup, bells, Talk::new(ours), &far);
    // It ends when the talk does.
    let status = far.wait().map_err(trouble)?;
    done?;
    if status.success() { Ok(()) } else { Err(Failure::new("the second of two processes failed")) }
}

/// Does jobs with the far end until there are no more.
fn lead(setup: Setup, bells: [OwnedFd; 2], mut talk: Talk, far: &Child) -> Result {
    if let Some(mtu) = setup.wire {
        let () = talk.hear()?;
        wire::join(far.id(), mtu)?;
        talk.tell(&())?;
        // The carrier comes once both ends are up.
        let () = talk.hear()?;
    }
    let (mut process, [connecting, memory]) = connect(Side::Near, setup, bells, talk)?;
    let mut crowd = Crowd::start(setup)?;
    if setup.bystanders > 0 {
        let ours = crowd::numbers(&mut process.end, setup)?;
        let all = crowd.gather(ours, process.talk.hear()?)?;
        process.talk.tell(&all)?;
        crowd::connect(&process.end, 0, &all)?;
        crowd.connect(&all)?;
        process.meet()?;
    }
    let incoming = process.end.incoming(1);
    tell(
        &mut stdout(),
        &Connected {
            pids: [std::process::id(), process.peer.pid],
            is_shared: is_shared(incoming.addr, 1),
            connecting,
            memory,
        },
    )?;
    let mut input = stdin().lock();
    while let Some(job) = hear::<Job>(&mut input)? {
        process.talk.tell(&job)?;
        let done = job.task.carry_out(&mut process, job.count);
        let failed = done.is_err();
        tell(&mut stdout(), &done.map_err(|failure| failure.to_string()))?;
        if failed {
            // The two may no longer be at the same step.
            break;
        }
    }
    leave(setup);
    Ok(())
}

fn far(setup: Setup, bells: &[i32]) -> Result {
    let socket = stdin().as_fd().try_clone_to_owned().map_err(trouble)?;
    let mut talk = Talk::new(UnixStream::from(socket));
    if setup.wire.is_some() {
        wire::enter_own_network(false)?;
        talk.tell(&())?;
        let () = talk.hear()?;
        wire::set_up(Side::Far)?;
        talk.tell(&())?;
    }
    let [first, second] = bells else { return Err(Failure::new("two descriptors are missing")) };
    // SAFETY: the near end has opened them for this process, and nothing else here knows them.
    let bells = [first, second].map(|bell| unsafe { OwnedFd::from_raw_fd(*bell) });
    let (mut process, _) = connect(Side::Far, setup, bells, talk)?;
    if setup.bystanders > 0 {
        let ours = crowd::numbers(&mut process.end, setup)?;
        process.talk.tell(&ours)?;
        let all: Vec<Numbers> = process.talk.hear()?;
        crowd::connect(&process.end, 1, &all)?;
        process.meet()?;
    }
    while let Some(job) = process.talk.next::<Job>()? {
        job.task.carry_out(&mut process, job.count)?;
    }
    leave(setup);
    Ok(())
}

/// Opens the device, and connects to the other end, which does the same. Returns the time for each queue pair, and for
/// as much memory.
fn connect(
    side: Side,
    setup: Setup,
    bells: [OwnedFd; 2],
    mut talk: Talk,
) -> Result<(Process, [f64; 2])> {
    let mut end = End::new(setup.shared)?;
    let before = allocated();
    let start = Instant::now();
    end.add_queue_pairs(setup.queue_pairs)?;
    let made = start.elapsed();
    let bytes = allocated().wrapping_sub(before) as usize / setup.queue_pairs.max(1);
    talk.tell(&end.card())?;
    let peer: Card = talk.hear()?;
    let over = setup.wire.map(|mtu| (mtu, wire::addresses(side)));
    let start = Instant::now();
    end.connect(&peer, over)?;
    let took = (made + start.elapsed()).as_nanos() as f64 / setup.queue_pairs as f64;
    let memory = fault_in(bytes, setup.queue_pairs);
    // Pinned after the device is open, so that its own thread may run on any processor.
    if let Some([near, far]) = setup.processors {
        processors::stay_on(if side == Side::Near { near } else { far });
    }
    let mut process = Process { side, end, peer, talk, bells, windows: Vec::new() };
    process.meet()?;
    Ok((process, [took, memory]))
}

/// The bytes that the program has from `malloc`, modulo 2^32.
fn allocated() -> u32 {
    // SAFETY: it only reads the allocator's counters. `mallinfo2` is of glibc 2.33, and older ones are supported.
    let info = unsafe { libc::mallinfo() };
    info.uordblks.wrapping_add(info.hblkhd).cast_unsigned()
}

/// Page faults of a new queue pair, of which each takes about as long as any other.
const FAULTS: usize = 5;

/// Nanoseconds for each of `count` allocations of this size, if five pages of each are touched.
fn fault_in(bytes: usize, count: usize) -> f64 {
    let page = transom_system::memory::page_size() as usize;
    let bytes = bytes.max(FAULTS * page);
    let start = Instant::now();
    let all: Vec<_> = (0..count)
        .map(|_| {
            let mut memory = Vec::<u8>::with_capacity(bytes);
            for at in memory.spare_capacity_mut().iter_mut().step_by(page).take(FAULTS) {
                at.write(1);
            }
            std::hint::black_box(memory)
        })
        .collect();
    let took = start.elapsed().as_nanos() as f64 / count as f64;
    drop(all);
    took
}

/// Removes the registry of an own network namespace, because another namespace may get its number.
fn leave(setup: Setup) {
    if let (Some(_), Ok(registry)) = (setup.wire, Registry::open()) {
        let _ = fs::remove_dir_all(registry.directory());
    }
}

/// A descriptor of `eventfd(2)` that a started process inherits.
fn bell() -> Result<OwnedFd> {
    // SAFETY: it takes plain numbers.
    let bell = unsafe { libc::eventfd(0, 0) };
    if bell < 0 {
        return Err(trouble(std::io::Error::last_os_error()));
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(bell) })
}

fn trouble(error: std::io::Error) -> Failure {
    Failure::new(format!("starting two processes: {error}"))
}
