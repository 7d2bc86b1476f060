//! The records that a checked process writes into its own file and the command reads: lines of a word and its values.
//!
//! A process writes each record as soon as it sees the mistake. So the records of a killed program are kept too.

use std::fmt::{self, Display};

use crate::kind::Kind;
use crate::mark::{Level, Mark, Queue};

/// The file in the directory of the records with the names of kinds that nobody wants to see, one a line. What costs much
/// is not looked for then.
pub const UNWANTED: &str = "unwanted";

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The process, at the beginning of its file.
    Process {
        /// Its PID.
        pid: u32,
        /// The path of its program.
        program: String,
    },
    /// The process has opened a device.
    Opened,
    /// The process is not checked any more, because of a mistake in the check itself.
    Stopped {
        /// The message of the mistake.
        says: String,
    },
    /// A mistake, the first time.
    Finding(Finding),
    /// The present count of a mistake.
    Again {
        /// The finding's number in this file.
        number: u32,
        /// How often in all.
        count: u64,
    },
    /// How full the queues were that were made at one place.
    Mark(Mark<Site>),
}

/// A mistake of the program, or a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its number in the file, from 1.
    pub number: u32,
    /// The kind of mistake.
    pub kind: Kind,
    /// What happened, to what: one sentence.
    pub says: String,
    /// The calls that it is about, the one that shows the mistake first.
    pub sites: Vec<Site>,
}

/// A call that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What happened there, such as "destroyed here".
    pub what: String,
    /// The thread, by the system's number.
    pub thread: u32,
    /// The callers, innermost first.
    pub frames: Vec<Frame>,
}

/// A place in a program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The file's path. Empty for code that is in no file.
    pub module: String,
    /// The return address, as the file's own tables count it.
    pub offset: u64,
}

/// A value in a line. Characters that would break the line are shown as `?`.
struct InLine<'a>(&'a str);

impl Display for InLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| write!(f, "{}", if c.is_control() { '?' } else { c }))
    }
}

impl Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, program } => writeln!(f, "process {pid} {}", InLine(program)),
            Self::Opened => writeln!(f, "opened"),
            Self::Stopped { says } => writeln!(f, "stopped {}", InLine(says)),
            Self::Again { number, count } => writeln!(f, "again {number} {count}"),
            Self::Finding(finding) => {
                let Finding { number, kind, says, sites } = finding;
                writeln!(f, "finding {number} {} {}", kind.name(), InLine(says))?;
                sites.iter().try_for_each(|site| site.fmt(f))?;
                writeln!(f, "end")
            }
            Self::Mark(Mark { queue, level, count, made }) => {
                writeln!(f, "mark {} {level} {count}", queue.name())?;
                made.fmt(f)?;
                writeln!(f, "end")
            }
        }
    }
}

impl Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, thread, frames } = self;
        writeln!(f, "site {thread} {}", InLine(what))?;
        for Frame { module, offset } in frames {
            writeln!(f, "frame {offset:x} {}", InLine(module))?;
        }
        Ok(())
    }
}

impl Site {
    /// A call of which a line tells, after its word. Its frames are in the lines behind it.
    pub fn begun(rest: &str) -> Option<Self> {
        let (thread, what) = rest.split_once(' ').unwrap_or((rest, ""));
        let (thread, what) = (thread.parse().ok()?, what.to_owned());
        Some(Self { what, thread, frames: Vec::new() })
    }
}

impl Frame {
    /// The place of which a line tells, after its word.
    pub fn read(rest: &str) -> Option<Self> {
        let (offset, module) = rest.split_once(' ').unwrap_or((rest, ""));
        let offset = u64::from_str_radix(offset, 16).ok()?;
        Some(Self { module: module.to_owned(), offset })
    }
}

/// Reads the records in a file's text. It skips incomplete records and other lines.
pub fn read(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut open: Option<Open> = None;
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (number, rest_of) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "process" => records.extend(
                number.parse().ok().map(|pid| Record::Process { pid, program: rest_of.to_owned() }),
            ),
            "opened" => records.push(Record::Opened),
            "stopped" => records.push(Record::Stopped { says: rest.to_owned() }),
            "again" => records.extend(again(number, rest_of)),
            "finding" => open = begun(number, rest_of).map(|about| Open { about, sites: vec![] }),
            "mark" => open = marked(rest).map(|about| Open { about, sites: vec![] }),
            "site" => {
                if let (Some(open), Some(site)) = (&mut open, Site::begun(rest)) {
                    open.sites.push(site);
                }
            }
            "frame" => {
                let site = open.as_mut().and_then(|open| open.sites.last_mut());
                if let (Some(site), Some(frame)) = (site, Frame::read(rest)) {
                    site.frames.push(frame);
                }
            }
            "end" => records.extend(open.take().and_then(Open::whole)),
            _ => {}
        }
    }
    records
}

fn again(number: &str, count: &str) -> Option<Record> {
    Some(Record::Again { number: number.parse().ok()?, count: count.parse().ok()? })
}

/// A record whose sites are in the lines behind it.
struct Open {
    about: About,
    sites: Vec<Site>,
}

enum About {
    Finding { number: u32, kind: Kind, says: String },
    Mark { queue: Queue, level: Level, count: u64 },
}

impl Open {
    fn whole(self) -> Option<Record> {
        let Self { about, sites } = self;
        Some(match about {
            About::Finding { number, kind, says } => {
                Record::Finding(Finding { number, kind, says, sites })
            }
            About::Mark { queue, level, count } => {
                let made = sites.into_iter().next()?;
                Record::Mark(Mark { queue, level, count, made })
            }
        })
    }
}

fn begun(number: &str, rest: &str) -> Option<About> {
    let (kind, says) = rest.split_once(' ')?;
    let (number, kind) = (number.parse().ok()?, Kind::named(kind)?);
    Some(About::Finding { number, kind, says: says.to_owned() })
}

fn marked(rest: &str) -> Option<About> {
    let mut words = rest.split(' ');
    let queue = Queue::named(words.next()?)?;
    let mut number = || words.next()?.parse().ok();
    let level = Level { most: number()?, asked: number()? };
    Some(About::Mark { queue, level, count: number()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(says: &str) -> Record {
        let frames = vec![
            Frame { module: "/usr/bin/a program".into(), offset: 0x12ab },
            Frame { module: String::new(), offset: 7 },
        ];
        let site = Site { what: "destroyed here".into(), thread: 42, frames };
        Record::Finding(Finding {
            number: 3,
            kind: Kind::WorkLost,
            says: says.into(),
            sites: vec![site.clone(), Site { what: "posted here".into(), frames: vec![], ..site }],
        })
    }

    fn mark() -> Record {
        let frames = vec![Frame { module: "/usr/bin/a program".into(), offset: 0x12ab }];
        let made = Site { what: "made here".into(), thread: 42, frames };
        let level = Level { most: 3, asked: 4 };
        Record::Mark(Mark { queue: Queue::SharedReceive, level, count: 2, made })
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let all = [
            Record::Process { pid: 12, program: "/bin/a b".into() },
            Record::Opened,
            finding("queue pair 0x12 had work."),
            Record::Again { number: 3, count: 8 },
            mark(),
            Record::Stopped { says: "there is no such object".into() },
        ];
        let text: String = all.iter().map(Record::to_string).collect();
        assert_eq!(read(&text), all);
    }

    #[test]
    fn a_record_that_is_not_whole_yet_is_left_out() {
        for text in [finding("what"), mark()].map(|it| it.to_string()) {
            for end in 0..text.len() {
                assert_eq!(read(&text[..end]), [], "{end}");
            }
        }
        assert_eq!(read("mark send 3 4 2\nend\n"), []);
    }

    #[test]
    fn no_name_breaks_a_line() {
        let Record::Finding(read) = &read(&finding("one\nend\ntwo").to_string())[0] else {
            panic!("a finding");
        };
        assert_eq!(read.says, "one?end?two");
    }
}
