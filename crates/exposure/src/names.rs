//! The text beside the cells: the process, its call sites, and why the account ended early.

use std::collections::HashMap;

use transom_check::record::{Frame, Record, Site};

/// How the names of the files with cells end. Those with the names of a process have the same name without it.
pub const CELLS: &str = "cells";

/// The names of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Its PID.
    pub pid: u32,
    /// The path of its program.
    pub program: String,
    /// Where it registers and binds, by the numbers of the cells.
    pub sites: HashMap<u32, Site>,
    /// Why its account ended before it did.
    pub stopped: Option<String>,
}

/// The line of a call site. Its frames follow.
pub fn site(number: u32, site: &Site) -> String {
    format!("number {number}\n{site}")
}

impl Names {
    /// Reads a process's text. It skips what is not whole.
    pub fn read(text: &str) -> Self {
        let (mut names, mut number) = (Self::default(), None);
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "number" => number = rest.parse::<u32>().ok(),
                "site" => {
                    let site = number.zip(Site::begun(rest));
                    names.sites.extend(site);
                }
                "frame" => {
                    let site = number.and_then(|number| names.sites.get_mut(&number));
                    if let (Some(site), Some(frame)) = (site, Frame::read(rest)) {
                        site.frames.push(frame);
                    }
                }
                _ => {}
            }
        }
        for record in transom_check::record::read(text) {
            match record {
                Record::Process { pid, program } => (names.pid, names.program) = (pid, program),
                Record::Stopped { says } => names.stopped = Some(says),
                Record::Opened | Record::Finding(_) | Record::Again { .. } | Record::Mark(_) => {}
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        let frame = |offset| Frame { module: "/bin/a b".into(), offset };
        let at = |what: &str, frames: Vec<Frame>| Site { what: what.into(), thread: 7, frames };
        let sites = [
            (1, at("registered here", vec![frame(0x40), frame(0x50)])),
            (2, at("bound here", vec![])),
        ];
        let process = Record::Process { pid: 9, program: "/bin/server".into() };
        let stopped = Record::Stopped { says: "why".into() };
        let text: String = sites.iter().map(|(number, it)| site(*number, it)).collect();
        let read = Names::read(&format!("{process}{text}{stopped}frame 7"));
        assert_eq!((read.pid, &*read.program), (9, "/bin/server"));
        assert_eq!(read.sites, HashMap::from(sites));
        assert_eq!(read.stopped.as_deref(), Some("why"));
    }
}
