//! The files of anomalies: a timeline for each, and beside it a document that names it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use prost::Message;
use rustix::fs::Access;

use super::super::packets::Packets;
use super::super::perfetto::Trace;
use crate::clock;
use crate::failure::Result;
use crate::lines::cannot_write;

/// Where the files go, and how many more may come.
pub(in super::super) struct Folder {
    path: PathBuf,
    left: usize,
}

impl Folder {
    /// Makes the directory, if there is none.
    pub(in super::super) fn make(path: &Path, files: usize) -> Result<Self> {
        let made = fs::create_dir_all(path)
            .and_then(|()| Ok(rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK)?));
        made.map_err(|error| cannot_write(path, &error))?;
        // Others read the documents, from another directory.
        let path = fs::canonicalize(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path, left: files })
    }

    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Writes the files of what happened at a time. The document comes last: when it is there, the timeline is whole.
    pub(super) fn add(
        &mut self,
        time: u64,
        mut packets: Packets,
        document: impl FnOnce(&Path) -> Result<String>,
    ) -> Result<PathBuf> {
        let bytes = Trace { packet: packets.take() }.encode_to_vec();
        let (path, mut file) =
            self.create(time).map_err(|error| cannot_write(&self.path, &error))?;
        file.write_all(&bytes).map_err(|error| cannot_write(&path, &error))?;
        let beside = path.with_extension("json");
        let line = document(&path)?;
        // Others wait for it, and read it at once.
        let part = path.with_extension("json.part");
        let written = fs::write(&part, line + "\n").and_then(|()| fs::rename(&part, &beside));
        written.map_err(|error| cannot_write(&beside, &error))?;
        self.left -= 1;
        Ok(path)
    }

    /// A new file. Another command may write to the same directory.
    fn create(&self, time: u64) -> io::Result<(PathBuf, File)> {
        let name = clock::for_a_name(time);
        let names = (1..100).map(|number| match number {
            1 => format!("anomaly-{name}.pftrace"),
            number => format!("anomaly-{name}-{number}.pftrace"),
        });
        for name in names {
            let path = self.path.join(name);
            match File::create_new(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}
