//! `transom exposure`: runs a program, and reports which memory it opened to its peers, and what they used of it.
//!
//! The processes of the program keep their accounts in files of a private directory (`transom_exposure`). This command
//! waits for the program as its parent, reads the files, looks up the names, and reports.
//!
//! | module | holds |
//! |---|---|
//! | `accounts` | the accounts, from their files |
//! | `ends` | when the processes ended |
//! | `peers` | who a queue pair lets in |
//! | `people`, `json`, `html` | the reports |
//! | `picture`, `scale` | the picture in the page |
//! | `words` | amounts in words |

mod accounts;
mod ends;
mod html;
mod json;
mod peers;
mod people;
mod picture;
mod scale;
mod words;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::PathBuf;

use transom_exposure::opening::Object;
use transom_exposure::report::{Account, groups};
use transom_exposure::sums::Sums;
use transom_system::clock;
use transom_system::environment::EXPOSURE;

use crate::check::Directory;
use crate::check::found::Call;
use crate::check::symbols::Symbols;
use crate::failure::{Failure, Result};
use crate::layout;
use crate::lines::{JsonArgs, Lines, cannot_write, create};
use crate::run::{Program, ProgramArgs, conclude};
use crate::sentence::counted;
use ends::Ends;
use people::People;
pub(crate) use people::sentence;

/// The failure of `--require`.
const UNOPENED: &str = "no process opened a device, so nothing was open. Does the program find a \
                        device? `transom run -- ibv_devices` lists it. Was a test skipped?";

/// The exit status if more was unused than the user allows.
const TOO_MUCH: u8 = 66;

const EXAMPLES: &str = "\
A byte is open while a region or bound window has it with rights for peers, and a queue pair that could use
the key lets its peer in. It is used from when it was opened until a peer touched it for the last time. All
other time was for nothing. Each key counts: a byte that is open by two keys is open twice.

The report goes to standard error, when the program has ended: what was open, and the ten calls that opened
most for nothing, each with what would close it. Compile the program with -g to see files and lines. The
program runs as with `transom run`, whose help has the faults and variables. All requests of peers come as
messages, so it runs slower.

Exit status:
  66   more was unused than --max-unused allows, and the program itself succeeded
  1    --require, and no process opened a device; --require or --max-unused, and an account could not begin
       or ended early; --max-unused, and regions or windows are left out; or a report could not be written
  2    the command line or a variable is wrong
  126  the program exists, but cannot be run
  127  there is no such program
  Otherwise the exit status is the program's own. A program that fails keeps its status.

Examples:
  transom exposure -- ./server
  transom exposure --require --max-unused 90% -- make check
  transom exposure --html exposure.html -- ./server
  transom exposure --json=exposure.json -- mpirun -n 4 ./solver";

const FIELDS: &str = "\
With --json, each line is an object. Give it a FILE if the program prints: standard output is the program's
too. Numbers are integers. What may have 64 bits or more is a text of decimal digits: base, length, offset,
start, end, and what ends in bytes or _ns. Moments are nanoseconds since 1970. A field without a value is
null. Each region and window has these fields:
  type               opening; or folded, for closed ones of one call that share a line for want of room
  pid                the process that has it
  process, program   the name and the path of its program
  kind               region, window_1 or window_2
  instance           which one of the process, in the order in which they opened
  region             a window: the instance of its region
  key                its R_Key
  base               its first address, as requests name it
  length             its bytes; null if it covers all addresses
  access             what peers may do: REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC
  call               where it was registered or bound: what, thread and callers, as for transom check
    callers          the functions: function, file, line, column, inlined, module and offset
  since_ns           when it opened
  until_ns           when it was closed
  at_end             whether it was open until the process ended
  peers              the queue pairs whose peers could use it:
    qp               the process's queue pair
    peer_qp          the queue pair at the other end
    peer_ip          the address of the other end
    peer_pid         the process at the other end, if it ran under this command too
    access           what that peer could do with it
    since_ns         when the queue pair began to let it in
    until_ns         when that ended
  uses               who used it; of more than six, these fields have the first:
    qp               the process's queue pair
    operation        read, write or atomic
    count            how many operations
    bytes            how many bytes they touched, together
    first_ns         when the first one did
    last_ns          when the last one did
  touched            the ranges that were touched: start and end, from its first byte on, first_ns and
                     last_ns
  openings           how many regions or windows the line is about
  untouched          how many of them nobody touched
  open_bytes         how many bytes they have
  touched_bytes      how many of them were touched
  open_byte_ns       bytes × time in which a peer could get in
  used_byte_ns       the part that was used
  excess_byte_ns     what used_byte_ns is at most too much: there is room for twelve ranges each
  unused_percent     the part that was not used, in per cent
  by_right           for each right: right, open_byte_ns, count, bytes, first_ns and last_ns of its use
  changes            what would close some of it: window, no_rights, fewer_bytes, shorter_life, fewer_rights
    change           which of them
    right            fewer_rights: the right to leave out
    closes_byte_ns   how much it closes; fewer_rights: for that right

The last line is of type summary. It has the fields from openings on, and these:
  opened             how many processes opened a device
  stopped            how many accounts could not begin, or ended early because of a mistake in Transom
  openings_left_out  how many regions and windows are in no line, for want of room
  pairs_left_out     how many connections are in no line, for want of room
  refused            how many accesses of peers to memory were refused

";

/// Run a program, and report which memory it opens to peers for nothing
///
/// It tells which bytes were open to whom, with which rights and for how long, and what peers used of it. Each of the
/// ten worst comes with what would close it: a window in place of a region, fewer rights, a shorter life.
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    after_long_help = format!("{FIELDS}{EXAMPLES}"),
    override_usage = "transom exposure [OPTIONS] [--] PROGRAM [ARGUMENTS]..."
)]
pub(crate) struct ExposureArgs {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    json: JsonArgs,
    /// Draw the memory over time, in a page that needs no network
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Exit with 66 if more than this part of what was open was not used, such as 90%
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    max_unused: Option<f64>,
    /// Fail if no process opened a device: a skipped test must not look like a passed one
    #[arg(long)]
    require: bool,
}

/// A part in per cent: `90%`, `99.5%`, `90`.
fn parse_percent(text: &str) -> std::result::Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>();
    let number = number.ok().filter(|percent| (0.0..=100.0).contains(percent));
    number.ok_or_else(|| "give a part from 0% to 100%, such as 90%".to_owned())
}

pub(crate) fn run(args: &ExposureArgs) -> Result {
    let json = args.json.begin()?;
    // A file that cannot be written is reported before the program runs.
    args.html.as_deref().map(create).transpose()?;
    let mut program = Program::prepare(&args.program)?;
    let directory = Directory::make().map_err(|problem| {
        Failure::new(format_args!("there is no place for what the program opens: {problem}"))
    })?;
    program.command.env(EXPOSURE.name, directory.path());
    let mut ends = Ends::of(&directory).inspect_err(|problem| {
        layout::warn(format_args!(
            "what a process that is killed has open counts as open until the program ends: {problem}"
        ));
    });
    let status = match &mut ends {
        Ok(ends) => ends.during(|end, look| program.wait(Some(end), None, look))?,
        Err(_) => program.wait(None, None, &mut || ())?,
    };
    let now = clock::steady();
    let end_of = |cells: &OsStr| ends.as_ref().ok()?.of_cells(cells);
    let accounts = accounts::read(directory.path(), |cells| end_of(cells).unwrap_or(now));
    drop(directory);
    let (reported, written) = match accounts {
        Ok(accounts) => {
            let (sums, written) = report(args, json, &accounts);
            (Ok((accounts, sums)), written)
        }
        Err(error) => {
            (Err(Failure::new(format_args!("cannot read what was open: {error}"))), Ok(()))
        }
    };
    conclude(status, reported, written, |(accounts, sums)| {
        match own_failure(args, &accounts, &sums) {
            Some((status, message)) => Err(Failure::with_status(status, message)),
            None => Ok(()),
        }
    })
}

/// How this command fails although the program has succeeded.
fn own_failure(args: &ExposureArgs, accounts: &[Account], sums: &Sums) -> Option<(u8, String)> {
    let unused = sums.percent_unused();
    let asks = args.require || args.max_unused.is_some();
    let first = accounts.iter().find_map(|account| Some((account, incomplete(account)?)));
    if let Some((account, why)) = first.filter(|_| asks) {
        return Some((1, format!("the account of {} {why}", peers::process(account))));
    }
    let first = accounts.iter().find_map(|account| Some((account, left_out(account)?)));
    if let (Some((account, why)), Some(_)) = (first, args.max_unused) {
        return Some((1, format!("{} {why}", peers::process(account))));
    }
    match args.max_unused {
        _ if args.require && accounts.is_empty() => Some((1, UNOPENED.to_owned())),
        Some(most) if unused > most => {
            let part = words::percent(sums.unused(), sums.open);
            Some((TOO_MUCH, format!("{part} of what was open was not used; {most} % may be")))
        }
        _ => None,
    }
}

/// Reports to programs and people. The sums of all that was open, and whether all could be written.
fn report(args: &ExposureArgs, json: Option<Lines>, accounts: &[Account]) -> (Sums, Result) {
    let names = Names::of(accounts);
    let mut sums = Sums::default();
    accounts.iter().for_each(|account| sums.and(&account.sums()));
    let lines = json.map_or(Ok(()), |mut out| {
        let clock = json::Clock { began: clock::wall().saturating_sub(clock::steady()) };
        for account in accounts {
            out.write_on(|out| json::print(out, account, accounts, &names, clock));
        }
        out.write_on(|out| json::print_summary(out, accounts, &sums, clock));
        out.written()
    });
    let page = args.html.as_ref().map_or(Ok(()), |path| {
        let page = html::page(accounts, &groups(accounts), &names, &sums).map_err(Failure::new)?;
        let written = create(path)?.write_all(page.as_bytes());
        written.map_err(|error| cannot_write(path, &error))
    });
    if args.json.leaves_a_report() {
        // If standard error cannot be written, there is no other place to report it.
        let _ = tell(accounts, &names, &sums);
    }
    // A reader that has seen enough is no failure, so that of the page comes first.
    (sums, page.and(lines))
}

/// The accounts in a directory, for `transom demo`.
pub(crate) fn account_of(directory: &Directory) -> Result<Vec<Account>> {
    let now = clock::steady();
    accounts::read(directory.path(), |_| now).map_err(Failure::new)
}

/// Why an account does not have all that its process opened.
fn incomplete(account: &Account) -> Option<String> {
    match (&account.names.stopped, account.process.began) {
        (Some(says), 0) => Some(format!("could not begin: {says}")),
        (None, 0) => Some("could not begin".to_owned()),
        (Some(says), _) => {
            let because = "ended early, because of a mistake in Transom. Please report it";
            Some(format!("{because}: {says}"))
        }
        (None, _) => None,
    }
}

/// That an account has something of its process in no line.
fn left_out(account: &Account) -> Option<String> {
    let left_out = account.process.openings_left_out;
    (left_out > 0).then(|| {
        format!(
            "had more open at once than there is room for: {left_out} regions and windows are left out"
        )
    })
}

fn tell(accounts: &[Account], names: &Names, sums: &Sums) -> io::Result<()> {
    let mut out = layout::stderr();
    let groups = groups(accounts);
    if sums.unused() > 0 {
        // The program's output comes before.
        writeln!(out.to)?;
    }
    People::new(accounts, names).worst(&mut out, &groups)?;
    for account in accounts {
        let process = peers::process(account);
        if let Some(why) = incomplete(account) {
            out.text(format_args!("transom exposure: the account of {process} {why}."))?;
        }
        let refused = usize::try_from(account.process.refused).unwrap_or(usize::MAX);
        if refused > 0 {
            let accesses = counted(refused, "access of a peer was", "accesses of peers were");
            out.text(format_args!(
                "transom exposure: {accesses} refused in {process}: `transom explain` says why."
            ))?;
        }
        if let Some(why) = left_out(account) {
            out.text(format_args!("transom exposure: {process} {why}."))?;
        }
        let left_out = account.process.pairs_left_out;
        if left_out > 0 {
            out.text(format_args!(
                "transom exposure: {process} had more connections than there is room for: \
                 {left_out} are not named. What was open to them counts all the same."
            ))?;
        }
    }
    let summary = people::summary(accounts, sums);
    out.text(format_args!("transom exposure: {summary}"))
}

/// Whether a window could be in the place of such an object.
fn object_of(object: Object) -> bool {
    object == Object::Region
}

/// The names of call sites.
struct Names(HashMap<(u32, u64, u32), Call>);

impl Names {
    fn of(accounts: &[Account]) -> Self {
        let (mut names, mut symbols) = (HashMap::new(), Symbols::default());
        for account in accounts {
            for (number, site) in &account.names.sites {
                names.insert(Self::key(account, *number), Call::of(site, &mut symbols));
            }
        }
        Self(names)
    }

    fn key(account: &Account, site: u32) -> (u32, u64, u32) {
        (account.names.pid, account.process.began, site)
    }

    fn call(&self, account: &Account, site: u32) -> Option<&Call> {
        self.0.get(&Self::key(account, site))
    }
}
