//! Where the packets of a trace go: into a file, or as text to the terminal.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use prost::Message;

use super::perfetto::{Trace, TracePacket};
use super::text::Text;
use crate::failure::Result;
use crate::lines::{cannot_write, create};

/// The output.
pub(super) struct Output {
    to: To,
    bytes: u64,
}

enum To {
    File { path: PathBuf, to: BufWriter<File> },
    Text(Text),
}

impl Output {
    /// Into a file.
    pub(super) fn file(path: &Path) -> Result<Self> {
        let to = To::File { path: path.to_owned(), to: BufWriter::new(create(path)?) };
        Ok(Self { to, bytes: 0 })
    }

    /// To standard output.
    pub(super) fn text() -> Self {
        Self { to: To::Text(Text::default()), bytes: 0 }
    }

    /// How many bytes are in the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes packets.
    pub(super) fn write(&mut self, packet: Vec<TracePacket>) -> Result {
        match &mut self.to {
            To::File { path, to } => {
                let bytes = Trace { packet }.encode_to_vec();
                self.bytes += bytes.len() as u64;
                to.write_all(&bytes).map_err(|error| cannot_write(path, &error))
            }
            To::Text(text) => text.print(&packet),
        }
    }

    /// Everything that was written is there.
    pub(super) fn flush(&mut self) -> Result {
        match &mut self.to {
            To::File { path, to } => to.flush().map_err(|error| cannot_write(path, &error)),
            To::Text(_) => Ok(()),
        }
    }
}
