//! The file with the findings of a process, in the directory of `transom check`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use transom_check::Call;
use transom_check::ledger::Mistake;
use transom_check::mark::Mark;
use transom_check::record::{Finding, Record, Site};

use crate::records::Records;
use crate::site;

/// The file of one process.
pub(super) struct Sink {
    file: Records,
    /// The mistakes that were written, by their identity: the number of each, and how often it came.
    known: HashMap<u64, (u32, u64)>,
}

impl Sink {
    /// The process has opened a device. Whether the file could be made.
    pub(super) fn open(&mut self) -> bool {
        self.file.append(&Record::Opened.to_string()).is_ok()
    }

    /// It makes the file when there is something to write.
    pub(super) fn later(directory: &Path) -> Self {
        Self { file: Records::later(directory), known: HashMap::new() }
    }

    /// Writes a mistake, or counts it if the same one is written already.
    pub(super) fn write(&mut self, mistake: Mistake) {
        let (identity, number) = (identity(&mistake), self.known.len() as u32 + 1);
        let (number, count) = self.known.entry(identity).or_insert((number, 0));
        *count += 1;
        let is_new = *count == 1;
        let record = match *count {
            1 => finding(*number, mistake),
            count if count.is_power_of_two() => Record::Again { number: *number, count },
            _ => return,
        };
        // There is no other place to report that the write failed. The next such mistake is written whole.
        if self.file.append(&record.to_string()).is_err() && is_new {
            self.known.remove(&identity);
        }
    }

    /// Writes that the check of this process has ended.
    pub(super) fn stop(&mut self, says: String) {
        let _ = self.file.append(&Record::Stopped { says }.to_string());
    }

    /// Writes how often each mistake came, and how full the queues were.
    pub(super) fn end(&mut self, marks: &[Mark<Call>]) {
        let several = self.known.values().filter(|(_, count)| *count > 1);
        let counts = several.map(|&(number, count)| Record::Again { number, count }.to_string());
        let marks = marks.iter().map(|Mark { queue, level, count, made }| {
            let made = as_site("made here".to_owned(), made);
            let mark = Mark { queue: *queue, level: *level, count: *count, made };
            Record::Mark(mark).to_string()
        });
        let _ = self.file.append(&counts.chain(marks).collect::<String>());
    }
}

/// The identity of a mistake: its kind and its call sites.
fn identity(mistake: &Mistake) -> u64 {
    let mut hasher = DefaultHasher::new();
    mistake.kind.hash(&mut hasher);
    for (_, call) in &mistake.calls {
        call.frames().hash(&mut hasher);
    }
    hasher.finish()
}

fn finding(number: u32, mistake: Mistake) -> Record {
    let Mistake { kind, says, calls } = mistake;
    let sites = calls.into_iter().map(|(what, call)| as_site(what, &call)).collect();
    Record::Finding(Finding { number, kind, says, sites })
}

fn as_site(what: String, call: &Call) -> Site {
    let frames = call.frames().iter().map(|address| site::frame(*address)).collect();
    Site { what, thread: call.thread, frames }
}
