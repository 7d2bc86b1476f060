//! The owner: tells the story, owns the memory, grants and revokes.

use super::Station;
use super::checked::GuestCheck;
use super::exposed;
use super::narrator::{Narrator, Role};
use super::partner::Partner;
use crate::devices::registry;
use crate::failure::{Failure, Result};
use std::fmt;
use std::ops::Range;
use transom::{
    Access, Bound, Free, Grant, MemoryRegion, QueuePair, RemoteSlice, Rights, Type2, Window,
};
use transom_device::protection::{Key, Reason};
use transom_system::environment::CHECK;
use transom_system::registry::Process;

const PAGE: usize = 4096;
/// The bytes of the page that the window opens.
const PLACE: Range<usize> = 2016..2080;
/// How many bytes the guest reads past the end.
const OUTSIDE: u64 = 16;
const FILLER: u8 = b'-';
const GREETING: &str = "Written by the owner.";
const REPLY: &str = "Written by the guest.";

/// Tells the story, and fails if a step goes another way.
pub(crate) fn run() -> Result {
    let mut say = Narrator::new();
    say.plain("One process opens a window into its memory to another, and takes it back.")?;
    say.plain("No RDMA hardware, no kernel module, no root: the device is software.\n")?;
    let check = GuestCheck::begin();
    let mut guest = Partner::start(&CHECK, check.directory())?;
    let (owner, pid) = (Owner::new()?, std::process::id());
    let device = owner.station.context.name();
    say.step(Role::Owner, format_args!("opens the RDMA device {device} in process {pid}."))?;
    let qp = guest.connect(&owner.station)?;
    let (pid, number) = (guest.pid(), qp.number());
    let what =
        format!("opens it in process {pid} and connects to the owner's queue pair {number:#x}.");
    say.step(Role::Guest, what)?;
    say.step(Role::Owner, format_args!("registers {PAGE} bytes of its memory as a region."))?;

    let window = owner.open_first(&mut say, &qp)?;
    owner.let_in(&mut say, &mut guest, window.grant())?;
    overstep(&mut say, &mut guest, window.grant())?;
    // The window belonged to the failed queue pair. Dropping it revokes and frees it.
    drop((window, qp));
    owner.revoke(&mut say, &mut guest)?;
    guest.lose_a_message()?;
    say.step(Role::Guest, "sends itself a message, and ends the queue pair before it arrives.")?;
    guest.dismiss()?;
    check.tell(&mut say)?;
    exposed::show(&mut say, &owner.station)?;

    say.plain("\nEvery granted access worked, and no other did.")?;
    say.plain("Both refusals are on record with all their numbers. See them: `transom explain`")?;
    say.plain("What does your own program do wrong? Ask: `transom check -- PROGRAM`")?;
    say.plain("What does it open to its peers? Ask: `transom exposure -- PROGRAM`")
}

/// The guest reads past the end of the window.
fn overstep(say: &mut Narrator, guest: &mut Partner, grant: Grant) -> Result {
    let (addr, length) = (grant.addr + grant.length - OUTSIDE, 2 * OUTSIDE);
    let what = format!("steps outside: it reads {length} bytes, {OUTSIDE} of them past the end.");
    say.step(Role::Guest, what)?;
    guest.trespass(RemoteSlice { addr, rkey: grant.rkey, length })?;
    say.refused(&explanation(grant, Reason::PastEnd)?)
}

struct Owner {
    station: Station,
    region: MemoryRegion<Vec<u8>>,
    /// The content of the region before anybody writes.
    page: Vec<u8>,
}

impl Owner {
    fn new() -> Result<Self> {
        let station = Station::open()?;
        let mut page = vec![FILLER; PAGE];
        page[PLACE][..GREETING.len()].copy_from_slice(GREETING.as_bytes());
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        let region = MemoryRegion::register(&station.pd, page.clone(), access)
            .map_err(|refused| refused.error)?;
        Ok(Self { station, region, page })
    }

    fn open_first(&self, say: &mut Narrator, qp: &QueuePair) -> Result<Window<Type2, Bound>> {
        let window = Window::alloc(&self.station.pd)?;
        say.step(Role::Owner, "allocates a memory window. So far it grants nothing to anybody.")?;
        let window = self.bind(window, qp)?;
        let (from, to) = (PLACE.start, PLACE.end - 1);
        let what = format!("binds it to 64 bytes in the middle ({from} to {to}): READ and WRITE.");
        say.step(Role::Owner, what)?;
        say.step(Role::Owner, format_args!("hands the guest a grant: {}.", Told(window.grant())))?;
        Ok(window)
    }

    fn bind(&self, window: Window<Type2, Free>, qp: &QueuePair) -> Result<Window<Type2, Bound>> {
        let memory = self.region.slice(PLACE)?;
        let binding = window
            .bind(qp, &memory, Rights::READ | Rights::WRITE)
            .map_err(|refused| refused.error)?;
        Ok(binding.wait().map_err(|refused| refused.error)?)
    }

    /// The guest reads and writes what it was granted.
    fn let_in(&self, say: &mut Narrator, guest: &mut Partner, grant: Grant) -> Result {
        expect_text(&guest.read(grant)?, GREETING)?;
        say.step(Role::Guest, format_args!("reads through the window: {GREETING:?}"))?;
        guest.write(grant, REPLY)?;
        let what = format!("writes {REPLY:?}; the owner's program has no part in it.");
        say.step(Role::Guest, what)?;
        let mut expected = self.page.clone();
        expected[PLACE][..REPLY.len()].copy_from_slice(REPLY.as_bytes());
        let mut found = vec![0; PAGE];
        self.region.read_at(0, &mut found)?;
        if found != expected {
            return Err(Failure::new("the guest's text is not in the owner's memory"));
        }
        say.step(Role::Owner, "finds it in its memory. Not a byte around it has changed.")
    }

    /// The guest gets access once more. Then the owner revokes the window.
    fn revoke(&self, say: &mut Narrator, guest: &mut Partner) -> Result {
        let qp = guest.connect(&self.station)?;
        let number = qp.number();
        let what = format!("connects to a new queue pair {number:#x}; a refusal ends the old one.");
        say.step(Role::Guest, what)?;
        let window = self.bind(Window::alloc(&self.station.pd)?, &qp)?;
        let grant = window.grant();
        say.step(
            Role::Owner,
            format_args!("binds another window and grants it: {}.", Told(grant)),
        )?;
        expect_text(&guest.read(grant)?, REPLY)?;
        say.step(Role::Guest, format_args!("reads through it: {REPLY:?}"))?;
        let revoking = window.invalidate(&qp).map_err(|refused| refused.error)?;
        let _window = revoking.wait().map_err(|refused| refused.error)?;
        say.step(Role::Owner, "revokes the window (LOCAL_INV). Its key opens nothing any more.")?;
        say.step(Role::Guest, "tries to read with the same grant.")?;
        guest.trespass(grant.into())?;
        say.refused(&explanation(grant, Reason::FreeWindow)?)
    }
}

fn expect_text(found: &str, expected: &str) -> Result {
    let found = found.trim_end_matches(char::from(FILLER));
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(format_args!("the guest should have read {expected:?}, but read {found:?}")))
}

/// The reason why this process's device refused the use of a grant.
fn explanation(grant: Grant, reason: Reason) -> Result<String> {
    let registry = registry()?;
    let is_this = |it: &Process| it.shares_pids && it.pid == std::process::id();
    let here = registry.processes().into_iter().filter(is_this);
    let mut refusals = here.flat_map(|process| registry.refusals(process.announcer.slot)).rev();
    let found = refusals.find(|record| record.refusal.key() == Key(grant.rkey));
    match found {
        Some(record) if record.refusal.reason == reason => Ok(record.to_string()),
        Some(record) => Err(Failure::new(format_args!(
            "the access was refused for another reason than expected: {record}"
        ))),
        None => Err(Failure::new("the access was refused, but the reason is not on record")),
    }
}

/// A grant, as short as possible.
struct Told(Grant);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { addr, rkey, length, .. } = self.0;
        write!(f, "address {addr:#x}, {length} bytes, key {}", Key(rkey))
    }
}
