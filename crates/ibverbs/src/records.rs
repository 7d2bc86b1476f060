//! The file with the records of a process, in the directory of a command that runs a program.
//!
//! It is opened for each record. The program could close a descriptor of ours, and does not expect one.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use transom_check::record::Record;
use transom_system::{clock, file_limit};

use crate::site;

/// The file of one process.
pub(crate) struct Records {
    path: PathBuf,
    /// The file exists.
    is_made: bool,
}

impl Records {
    /// The file of this process. It is made when there is something to write.
    pub(crate) fn later(directory: &Path) -> Self {
        // Processes of different PID namespaces may have the same PID.
        let path = directory.join(format!("{}-{}", std::process::id(), clock::steady()));
        Self { path, is_made: false }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes behind what is there.
    pub(crate) fn append(&mut self, text: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(!self.is_made).mode(0o600);
        options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
        let mut file = options.open(&self.path)?;
        if !self.is_made {
            let (pid, program) = (std::process::id(), site::program());
            let process = Record::Process { pid, program }.to_string();
            file_limit::grow(|| file.write_all(process.as_bytes()))?;
            self.is_made = true;
        }
        file_limit::grow(|| file.write_all(text.as_bytes()))
    }
}
