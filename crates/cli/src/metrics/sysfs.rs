//! A directory that looks like `/sys`, with the device in it. Everything else in it leads to the real one.
//!
//! Exporters outside `transom run` read real files, and many make system calls of their own (those in Go do). So
//! nothing that is preloaded helps them. A file system of our own (FUSE) would need `/dev/fuse` and a helper with
//! rights. Real files work everywhere. Their values are a second old at most.

use super::seen;
use crate::failure::{Failure, Result};
use crate::run::tree::{Content, Tree};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use transom_ibverbs::Description;
use transom_system::registry::Registry;

/// A file that tells a directory of this command from others. The command that keeps the directory holds a lock on it.
const MARK: &str = ".transom";

/// What is in it. Only a file that says so lets a command remove what it has not made itself.
const SAYS: &str =
    "`transom metrics --sysfs` keeps this directory, and may remove everything in it.\n";

/// The next content of a file.
const NEW: &str = ".new";

/// The directory, and what this command has made in it.
pub(super) struct Directory {
    path: PathBuf,
    registry: &'static Registry,
    devices: Vec<Description>,
    written: RefCell<HashMap<PathBuf, Content>>,
    /// The links to the rest of `/sys`.
    links: RefCell<Vec<PathBuf>>,
    /// Locked as long as this is open.
    _mark: File,
}

impl Directory {
    /// Makes it, or takes over an empty one or one that a killed command has left.
    pub(super) fn new(
        path: &Path,
        registry: &'static Registry,
        devices: Vec<Description>,
    ) -> Result<Self> {
        let mark = prepare(path)
            .map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
        Ok(Self {
            path: path.to_owned(),
            registry,
            devices,
            written: RefCell::default(),
            links: RefCell::default(),
            _mark: mark,
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::new(format_args!("{}: {error}", self.path.display()))
    }

    /// What is to be in it now.
    pub(super) fn tree(&self) -> Result<Tree> {
        Tree::of(&seen::with_used(self.registry, &self.devices)).map_err(Failure::new)
    }

    /// Writes everything that has changed, and removes what is not there any more. Each file and each link changes in
    /// one step.
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
                Content::Link(target) => self.lead(&whole, target)?,
            }
            written.insert(path.to_owned(), content.clone());
        }
        let there: HashSet<_> = tree.below("/sys").map(|(path, _)| path).collect();
        let gone = written.extract_if(|path, _| !there.contains(path.as_path()));
        let gone: Vec<_> = gone.map(|(path, _)| path).collect();
        self.remove_all(gone.iter().map(PathBuf::as_path))?;
        if first { self.link_the_rest() } else { Ok(()) }
    }

    /// Removes files, and the directories that are empty then.
    fn remove_all<'a>(&self, files: impl Iterator<Item = &'a Path> + Clone) -> io::Result<()> {
        let removed = files
            .clone()
            .map(|file| unless_gone(fs::remove_file(self.path.join(file))))
            // Each of them, though one fails.
            .fold(Ok(()), io::Result::and);
        let directories: BTreeSet<_> = files.flat_map(|path| path.ancestors().skip(1)).collect();
        // Inner ones first. The last one is the empty path: the directory itself, which stays.
        for directory in directories.into_iter().rev().filter(|it| !it.as_os_str().is_empty()) {
            let _ = fs::remove_dir(self.path.join(directory));
        }
        removed
    }

    /// Has everything else of `/sys` found here, so that one exporter tells of the whole host.
    fn link_the_rest(&self) -> io::Result<()> {
        for directory in ["class/infiniband", "class/infiniband_verbs", "class", "devices", ""] {
            let real = Path::new("/sys").join(directory);
            let Ok(entries) = fs::read_dir(&real) else { continue };
            for entry in entries.flatten() {
                let ours = Path::new(directory).join(entry.file_name());
                let whole = self.path.join(&ours);
                if fs::symlink_metadata(&whole).is_err() {
                    symlink(entry.path(), whole)?;
                    self.links.borrow_mut().push(ours);
                }
            }
        }
        Ok(())
    }

    /// Removes what this command has made, so that nobody takes old values for new ones. What others have put here stays.
    pub(super) fn remove(&self) -> Result {
        let (written, links) = (self.written.borrow(), self.links.borrow());
        let ours = written.keys().chain(links.iter()).map(PathBuf::as_path);
        let removed = self.remove_all(ours.chain([Path::new(NEW)]));
        let unmarked = unless_gone(fs::remove_file(self.path.join(MARK)));
        removed.and(unmarked).map_err(|error| self.failure(&error))
    }

    /// Replaces a file by one with this text and a newline, in one step. No reader finds the new one before.
    fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        let beside = self.path.join(NEW);
        fs::write(&beside, format!("{text}\n"))?;
        fs::rename(beside, path)
    }

    /// The same with a link.
    fn lead(&self, path: &Path, target: &str) -> io::Result<()> {
        let beside = self.path.join(NEW);
        unless_gone(fs::remove_file(&beside))?;
        symlink(target, &beside)?;
        // Nobody is to write through it.
        fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
    }
}

/// Makes the directory if need be, and has it empty except for the mark, which it returns locked.
fn prepare(path: &Path) -> io::Result<File> {
    fs::create_dir_all(path)?;
    let at = path.join(MARK);
    if fs::read_dir(path)?.next().is_none() {
        let mut mark = OpenOptions::new().write(true).create_new(true).open(&at)?;
        let marked = lock(&mark).and_then(|()| mark.write_all(SAYS.as_bytes()));
        return match marked {
            Ok(()) => Ok(mark),
            Err(error) => {
                let _ = fs::remove_file(&at);
                Err(error)
            }
        };
    }
    let mark = left_mark(&at)?.ok_or_else(|| {
        let why = "it is not empty, and no earlier `transom metrics` has made it";
        io::Error::new(ErrorKind::AlreadyExists, why)
    })?;
    // Some file systems leave out entries if others go meanwhile.
    for entry in fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()? {
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != MARK {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(mark)
}

/// The mark that a command has left which was killed, locked. `None` if what is there is none.
fn left_mark(at: &Path) -> io::Result<Option<File>> {
    if !fs::symlink_metadata(at).is_ok_and(|it| it.is_file()) {
        return Ok(None);
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mark = OpenOptions::new().read(true).custom_flags(flags).open(at)?;
    lock(&mark)?;
    // The command that held the lock before may have removed it.
    let (ours, there) = (mark.metadata()?, fs::symlink_metadata(at)?);
    let mut says = Vec::new();
    (&mark).take(SAYS.len() as u64 + 1).read_to_end(&mut says)?;
    let is_same = (ours.dev(), ours.ino()) == (there.dev(), there.ino());
    Ok((is_same && ours.is_file() && says == SAYS.as_bytes()).then_some(mark))
}

/// Only one command keeps a directory.
fn lock(mark: &File) -> io::Result<()> {
    mark.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => {
            io::Error::new(ErrorKind::AlreadyExists, "another `transom metrics` keeps it")
        }
        fs::TryLockError::Error(error) => error,
    })
}

/// What is gone already need not be removed.
fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::run::scratch::Scratch;

    fn refusal(path: &Path) -> String {
        prepare(path).expect_err("it is refused").to_string()
    }

    #[test]
    fn only_a_mark_that_nobody_holds_gives_a_directory_away() {
        let scratch = Scratch::new("mark");
        let path = scratch.0.join("sys");
        let (path, mark) = (path.as_path(), path.join(MARK));
        let theirs = path.join("theirs");
        let held = prepare(path).expect("it is empty");
        fs::create_dir(&theirs).expect("a directory");
        assert_eq!(refusal(path), "another `transom metrics` keeps it");
        drop(held);
        let text = fs::read_to_string(&mark).expect("a mark");
        for other in ["", "another text\n", &text[1..], &format!("{text}\n")] {
            fs::write(&mark, other).expect("a file");
            assert!(refusal(path).contains("it is not empty"), "{other:?}");
        }
        let elsewhere = scratch.file("elsewhere");
        fs::write(&elsewhere, &text).expect("a file");
        fs::remove_file(&mark).expect("it was there");
        symlink(&elsewhere, &mark).expect("a link");
        assert!(refusal(path).contains("it is not empty"));
        assert!(theirs.exists());
        fs::remove_file(&mark).expect("it was there");
        fs::write(&mark, text).expect("a file");
        prepare(path).expect("a killed command has left it");
        assert!(!theirs.exists());
    }

    /// A second device moves the parent of the first.
    ///
    /// Rule: SEE-06
    #[test]
    fn what_has_moved_is_where_it_was_no_more_and_links_change_in_one_step() {
        let (made, registry) = (Scratch::new("moved"), Registry::open().expect("a registry"));
        let (scratch, device) = (made.0.as_path(), Description::default());
        let directory =
            Directory::new(scratch, registry, vec![device.clone()]).expect("it is empty");
        let second = Description::plain(device.name.behind(1).expect("a name"));
        let trees = [vec![device.clone()], vec![device.clone(), second]]
            .map(|devices| Tree::of(&devices).expect("a tree"));
        let link = scratch.join(format!("class/infiniband/{}", device.name));
        let parent = scratch.join("devices/transom-rdma");
        directory.refresh(&trees[0]).expect("written");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    fs::read_link(&link).expect("it is always there");
                }
            });
            for round in 1..20 {
                let is_alone = round % 2 == 0;
                directory.refresh(&trees[round % 2]).expect("written");
                assert_eq!(parent.join("infiniband").exists(), is_alone);
                assert_eq!(parent.join(device.name.to_string()).exists(), !is_alone);
                assert!(link.join("ports/1/counters/port_xmit_data").exists());
            }
            is_over.store(true, Relaxed);
            looks.join().expect("it was always there");
        });
        directory.remove().expect("removed");
        assert_eq!(fs::read_dir(scratch).expect("it stays").count(), 0);
    }

    #[test]
    fn only_what_was_made_is_removed() {
        let made = Scratch::new("made");
        let (scratch, registry) = (made.0.as_path(), Registry::open().expect("a registry"));
        let directory =
            Directory::new(scratch, registry, vec![Description::default()]).expect("it is empty");
        directory.refresh(&directory.tree().expect("a tree")).expect("written");
        let class = scratch.join("class/infiniband");
        fs::write(class.join("theirs"), "theirs").expect("a file");
        directory.remove().expect("removed");
        let left = |path: &Path| {
            let entries = fs::read_dir(path).expect("it stays");
            entries.map(|it| it.expect("an entry").file_name()).collect::<Vec<_>>()
        };
        assert_eq!(left(scratch), ["class"]);
        assert_eq!(left(&scratch.join("class")), ["infiniband"]);
        assert_eq!(left(&class), ["theirs"]);
    }
}
