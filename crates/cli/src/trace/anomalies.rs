//! `transom trace --anomalies`: for each thing that goes wrong, the last events of all processes concerned, as a file.
//!
//! The events stay in the rings of their processes until something has gone wrong. Meanwhile this looks at one word of
//! each process, again and again, and more seldom at its records.
//!
//! | module | holds |
//! |---|---|
//! | `cause` | what counts as an anomaly |
//! | `member` | a process: what is new of it, and who its peers are |
//! | `kept` | which events a file keeps |
//! | `folder` | the files |

mod cause;
mod folder;
mod kept;
mod member;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use serde_json::json;
use transom_device::protection::Announcer;
use transom_system::clock;
use transom_system::registry::{Process, Registry};

use super::find::{Finder, Whom};
use super::{say, unheard};
use crate::explain::{Asked, DocumentKind, Refused, Seen, document};
use crate::failure::Result;
use crate::sentence::counted;
use cause::Cause;
pub(super) use folder::Folder;
use kept::Kept;
use member::Member;

/// How often processes are looked at. One that is busy writes over its oldest events after some milliseconds.
const OFTEN: Duration = Duration::from_millis(5);

/// How often to look whether processes have ended, and what they wait for, in nanoseconds.
const LOOKS: u64 = 50_000_000;

/// How long after an anomaly its file is written, in nanoseconds. What goes wrong until then belongs to it, such as what
/// the other end sees.
const AFTER: u64 = 50_000_000;

/// How long after its first record a process is found, in nanoseconds.
const SOON: u64 = 500_000_000;

/// How long after a file the next one may begin, in nanoseconds.
const APART: u64 = 1_000_000_000;

/// The most causes that a file names.
const CAUSES: usize = 64;

/// How many processes that have ended are remembered: their peers may notice only after a while.
const ENDED: usize = 16;

/// Looks for anomalies, and writes the files.
pub(super) struct Recorder {
    registry: &'static Registry,
    finder: Finder,
    members: Vec<Member>,
    /// How many records of errors processes had before this command.
    before: HashMap<Announcer, u64>,
    seen: Seen<'static>,
    /// Something was noted in the last round. It may not have been written to its end then.
    had_news: bool,
    /// New records of processes that are not found yet.
    early: Vec<Refused>,
    folder: Folder,
    looked: u64,
    open: Option<Anomaly>,
    /// When the next one may begin.
    next: u64,
    told: Told,
}

/// One that is not written yet.
struct Anomaly {
    since: u64,
    causes: Vec<Cause>,
    /// The processes concerned, each by its place among the members.
    kept: Vec<(usize, Kept)>,
}

/// How much was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    processes: usize,
    causes: usize,
    files: usize,
    left_out: usize,
    /// Records of errors that were written over before they were read.
    lost: u64,
    /// Processes that ended before anything of them could be read.
    unheard: usize,
}

impl Recorder {
    pub(super) fn new(registry: &'static Registry, whom: Whom, folder: Folder) -> Self {
        let seen = Seen::new(registry, Asked::from_now());
        let errors =
            |process: Process| (process.announcer, registry.errors(process.announcer.slot));
        Self {
            registry,
            finder: Finder::new(registry, whom),
            members: Vec::new(),
            before: registry.processes().into_iter().map(errors).collect(),
            seen,
            had_news: false,
            early: Vec::new(),
            folder,
            looked: 0,
            open: None,
            next: 0,
            told: Told::default(),
        }
    }

    /// Looks until `is_over`. Returns what was seen.
    pub(super) fn run(mut self, is_over: &AtomicBool) -> Result<Told> {
        loop {
            // Looked at before the last round: what went wrong until then is seen.
            let last = is_over.load(Acquire);
            self.round(last)?;
            if last {
                self.told.unheard = self.finder.unheard();
                self.told.lost += self.members.iter().map(Member::lost).sum::<u64>();
                return Ok(self.told);
            }
            std::thread::sleep(OFTEN);
        }
    }

    fn round(&mut self, last: bool) -> Result {
        let now = clock::steady();
        for watched in self.finder.next(now, last) {
            let errors = self.before.get(&watched.announcer()).copied().unwrap_or(0);
            self.members.push(Member::new(watched, errors));
            self.told.processes += 1;
        }
        self.members.iter_mut().for_each(Member::refresh);
        let is_due = last || now.saturating_sub(self.looked) >= LOOKS;
        let mut causes = self.records(is_due);
        if is_due {
            self.looked = now;
            causes.extend(self.members.iter_mut().flat_map(|member| member.look(now)));
        }
        self.take(causes, now);
        if self.open.as_ref().is_some_and(|open| last || now.saturating_sub(open.since) >= AFTER) {
            self.write(last)?;
        }
        if self.open.is_none() {
            self.forget_ended();
        }
        Ok(())
    }

    /// The new records that are anomalies. They are read if there is news, and if they are due.
    fn records(&mut self, is_due: bool) -> Vec<Cause> {
        let mut has_news = false;
        for member in &mut self.members {
            has_news |= member.has_new_errors(self.registry);
        }
        let had_news = std::mem::replace(&mut self.had_news, has_news);
        if !has_news && !had_news && !is_due {
            return Vec::new();
        }
        let mut all = std::mem::take(&mut self.early);
        all.extend(self.seen.next());
        let is_here = |process| self.members.iter().any(|it| it.watched.announcer() == process);
        let (ours, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|refused| is_here(refused.process.announcer));
        // A new process is found a moment later. Those of others than were asked for never are.
        let moment_ago = clock::wall().saturating_sub(SOON);
        self.early =
            others.into_iter().filter(|refused| refused.record.time() > moment_ago).collect();
        for refused in ours.iter().filter(|refused| !refused.record.is_ordinary()) {
            let mut all = self.members.iter_mut();
            let member = all.find(|it| it.watched.announcer() == refused.process.announcer);
            member.into_iter().for_each(Member::note_read);
        }
        ours.into_iter().filter_map(Cause::of_record).collect()
    }

    /// Takes in what went wrong, with the events of the processes concerned.
    fn take(&mut self, causes: Vec<Cause>, now: u64) {
        self.told.causes += causes.len();
        for cause in causes {
            if self.open.is_none() && (self.folder.is_full() || now < self.next) {
                self.told.left_out += 1;
                continue;
            }
            let concerned = self.concerned(&cause);
            let begin = || Anomaly { since: now, causes: Vec::new(), kept: Vec::new() };
            let open = self.open.get_or_insert_with(begin);
            for index in concerned {
                if !open.kept.iter().any(|(known, _)| *known == index) {
                    open.kept.push((index, Kept::begin(&mut self.members[index].watched)));
                }
            }
            match open.causes.len() < CAUSES {
                true => open.causes.push(cause),
                false => self.told.left_out += 1,
            }
        }
    }

    /// The processes that something concerns: that in which it happened, and those at the other end.
    fn concerned(&self, cause: &Cause) -> Vec<usize> {
        let all = self.members.iter().enumerate();
        let of = |(index, member): (usize, &Member)| {
            let is_it = member.watched.announcer() == cause.process().announcer;
            let pairs = cause.pairs();
            (is_it || pairs.iter().any(|(own, peer)| member.is_peer(*peer, *own))).then_some(index)
        };
        all.filter_map(of).collect()
    }

    /// Writes the file of what is open.
    fn write(&mut self, last: bool) -> Result {
        let Some(Anomaly { causes, mut kept, .. }) = self.open.take() else { return Ok(()) };
        self.next = clock::steady() + APART;
        let [first, ..] = &causes[..] else { return Ok(()) };
        for (index, kept) in &mut kept {
            let member = &mut self.members[*index];
            kept.end(&mut member.watched, last || !member.is_alive);
        }
        let (packets, processes) = kept::timeline(self.registry, &causes, &kept, &self.members);
        let left_out = self.told.left_out;
        let path = self.folder.add(first.time(), packets, |path: &Path| {
            let data = json!({
                "trace": path.to_string_lossy(),
                "anomalies": causes.iter().map(Cause::json).collect::<Vec<_>>(),
                "processes": processes,
                "left_out_before": left_out,
            });
            document(first.process(), first.time(), DocumentKind::Autotracing, data)
        })?;
        self.told.files += 1;
        say(&format!("{}: {}", path.display(), first.sentence()));
        Ok(())
    }

    /// Forgets processes that ended long ago.
    fn forget_ended(&mut self) {
        let ended = self.members.iter().filter(|member| !member.is_alive).count();
        let mut surplus = ended.saturating_sub(ENDED);
        self.members.retain(|member| {
            let goes = surplus > 0 && !member.is_alive;
            surplus -= usize::from(goes);
            self.told.lost += if goes { member.lost() } else { 0 };
            !goes
        });
    }
}

impl Told {
    /// The same in words.
    pub(super) fn words(&self, folder: &Path) -> Vec<String> {
        if self.processes == 0 && self.unheard == 0 {
            return vec!["no process opened a device, so there is nothing to see.".to_owned()];
        }
        let processes = counted(self.processes, "process", "processes");
        let mut words = vec![match self.causes {
            0 => format!("nothing went wrong in {processes}."),
            causes => format!(
                "{} in {processes}, {} in {}. Print one with --read, or open it at https://ui.perfetto.dev.",
                counted(causes, "anomaly", "anomalies"),
                counted(self.files, "timeline", "timelines"),
                folder.display()
            ),
        }];
        words.extend(unheard(self.unheard));
        if self.lost > 0 {
            let lost =
                counted(usize::try_from(self.lost).unwrap_or(usize::MAX), "record", "records");
            words.push(format!(
                "Not read: {lost} of errors. A process keeps its last 64. What they tell of is not counted above, and may be in no timeline."
            ));
        }
        if self.left_out > 0 {
            words.push(format!(
                "{} left out: less than a second after the last timeline, beyond the {CAUSES} that a timeline names, or when there were as many timelines as --files allows.",
                counted(self.left_out, "anomaly", "anomalies")
            ));
        }
        words
    }
}
