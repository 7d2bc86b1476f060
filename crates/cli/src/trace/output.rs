//! Where the packets of a trace go: into a file, or as text to the terminal; and as lines for programs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use prost::Message;

use super::json::Json;
use super::perfetto::{Trace, TracePacket};
use super::text::Text;
use crate::failure::Result;
use crate::lines::{JsonArgs, cannot_write, create};

/// The output.
pub(super) struct Output {
    people: People,
    programs: Option<Json>,
}

/// What people get.
pub(super) enum People {
    /// A timeline, of so many bytes up to now.
    File { path: PathBuf, to: BufWriter<File>, bytes: u64 },
    /// Text on standard output.
    Text(Text),
    /// Nothing: programs have standard output.
    Nothing,
}

impl People {
    /// A timeline in a file.
    pub(super) fn file(path: &Path) -> Result<Self> {
        Ok(Self::File { path: path.to_owned(), to: BufWriter::new(create(path)?), bytes: 0 })
    }
}

impl Output {
    /// For people, unless programs want to have standard output.
    pub(super) fn new(json: &JsonArgs, people: impl FnOnce() -> Result<People>) -> Result<Self> {
        let people = if json.leaves_a_report() { people()? } else { People::Nothing };
        Ok(Self { people, programs: json.begin()?.map(Json::new) })
    }

    /// What people get.
    pub(super) fn people(&self) -> &People {
        &self.people
    }

    /// Writes packets.
    pub(super) fn write(&mut self, packet: Vec<TracePacket>) -> Result {
        if let Some(json) = &mut self.programs {
            json.print(&packet)?;
        }
        match &mut self.people {
            People::File { path, to, bytes } => {
                let encoded = Trace { packet }.encode_to_vec();
                *bytes += encoded.len() as u64;
                to.write_all(&encoded).map_err(|error| cannot_write(path, &error))
            }
            People::Text(text) => text.print(&packet),
            People::Nothing => Ok(()),
        }
    }

    /// Prints the packets of a whole timeline.
    pub(super) fn print_whole(&mut self, packets: &[TracePacket]) -> Result {
        if let Some(json) = &mut self.programs {
            json.print_whole(packets)?;
        }
        match &mut self.people {
            People::Text(text) => text.print_whole(packets),
            People::File { .. } | People::Nothing => Ok(()),
        }
    }

    /// Everything that was written is there.
    pub(super) fn flush(&mut self) -> Result {
        match &mut self.people {
            People::File { path, to, .. } => to.flush().map_err(|error| cannot_write(path, &error)),
            People::Text(_) | People::Nothing => Ok(()),
        }
    }
}
