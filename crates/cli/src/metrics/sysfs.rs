//! A directory that looks like `/sys`, with the device in it. Everything else in it leads to the real one.
//!
//! Exporters outside `transom run` read real files, and many make system calls of their own (those in Go do). So
//! nothing that is preloaded helps them. A file system of our own (FUSE) would need `/dev/fuse` and a helper with
//! rights. Real files work everywhere. Their values are a second old at most.

use crate::failure::{Failure, Result};
use crate::run::tree::{Content, Tree};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use transom_ibverbs::DeviceName;

/// A file that tells a directory of this command from others.
const MARK: &str = ".transom";

/// The next content of a file.
const NEW: &str = ".new";

/// The directory, and what is in it.
pub(super) struct Directory {
    path: PathBuf,
    name: DeviceName,
    written: std::cell::RefCell<HashMap<PathBuf, Content>>,
}

impl Directory {
    /// Makes it, or takes over an empty one or one that an earlier command has left.
    pub(super) fn new(path: &Path, name: DeviceName) -> Result<Self> {
        let directory =
            Self { path: path.to_owned(), name, written: std::cell::RefCell::default() };
        directory.prepare().map_err(|error| directory.failure(&error))?;
        Ok(directory)
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::new(format_args!("{}: {error}", self.path.display()))
    }

    fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        let is_empty = fs::read_dir(&self.path)?.next().is_none();
        if !is_empty && !self.path.join(MARK).exists() {
            let why = "it is not empty, and no earlier `transom metrics` has made it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        self.empty()?;
        fs::write(self.path.join(MARK), "")
    }

    fn empty(&self) -> io::Result<()> {
        // Some file systems leave out entries if others go meanwhile.
        for entry in fs::read_dir(&self.path)?.collect::<io::Result<Vec<_>>>()? {
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// What is to be in it now.
    pub(super) fn tree(&self) -> Result<Tree> {
        Tree::of(&self.name).map_err(Failure::new)
    }

    /// Writes everything that has changed. Each file changes in one step.
    pub(super) fn refresh(&self, tree: &Tree) -> Result {
        self.write(tree).map_err(|error| self.failure(&error))
    }

    fn write(&self, tree: &Tree) -> io::Result<()> {
        let mut written = self.written.borrow_mut();
        let first = written.is_empty();
        for (path, content) in tree.below("/sys") {
            if written.get(path) == Some(content) {
                continue;
            }
            let whole = self.path.join(path);
            if let Some(parent) = whole.parent() {
                fs::create_dir_all(parent)?;
            }
            match content {
                Content::Text(text) => self.replace(&whole, text)?,
                Content::Link(target) => {
                    let _ = fs::remove_file(&whole);
                    symlink(target, &whole)?;
                }
            }
            written.insert(path.to_owned(), content.clone());
        }
        if first { self.link_the_rest() } else { Ok(()) }
    }

    /// Has everything else of `/sys` found here, so that one exporter tells of the whole host.
    fn link_the_rest(&self) -> io::Result<()> {
        for directory in ["class/infiniband", "class/infiniband_verbs", "class", "devices", ""] {
            let real = Path::new("/sys").join(directory);
            let Ok(entries) = fs::read_dir(&real) else { continue };
            for entry in entries.flatten() {
                let ours = self.path.join(directory).join(entry.file_name());
                if fs::symlink_metadata(&ours).is_err() {
                    symlink(entry.path(), ours)?;
                }
            }
        }
        Ok(())
    }

    /// Removes what is in it, so that nobody takes old values for new ones.
    pub(super) fn remove(&self) -> Result {
        self.empty().map_err(|error| self.failure(&error))
    }

    /// Replaces a file by one with this text and a newline, in one step. No reader finds the new one before.
    fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        let beside = self.path.join(NEW);
        fs::write(&beside, format!("{text}\n"))?;
        fs::rename(beside, path)
    }
}
