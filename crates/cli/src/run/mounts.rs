//! Shows the tree through mounts that only the program and its children see.

use super::live::LiveFiles;
use super::private;
use super::tree::{PLACES, Tree};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_move, mount_remount, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;

/// The directory, beside the tree's own places, where another is prepared before it takes its place.
const STAGE: &str = "stage";

/// Moves this process into a mount namespace of its own, with the tree over the kernel's files. This needs the
/// permission to mount. Later mounts of others appear in the namespace too. The tree is in memory, and goes with the
/// last process of the namespace. Returns the files in it whose values change.
pub(super) fn show(tree: &Tree) -> io::Result<Option<LiveFiles>> {
    // SAFETY: file descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    // Our mounts do not propagate out.
    let inwards = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", inwards)?;
    let here = env::current_dir();
    let root = private::in_first(|parent| private::directory(parent, "mount"));
    let root = root.map_err(io::Error::other)?;
    mount("transom", &root, "tmpfs", MountFlags::NOSUID, c"mode=0755")?;
    let live = tree.write(&root)?;
    let stage = root.join(STAGE);
    fs::create_dir(&stage)?;
    for (parent, names) in PLACES {
        let parent = Path::new(parent);
        let missing = names.iter().any(|name| !parent.join(name).is_dir());
        if missing {
            remake(parent, names, &stage)?;
            mount_move(&stage, parent)?;
            // As in the kernel's: a program may make files only in `/dev`.
            if parent.starts_with("/sys") {
                forbid_writing(parent)?;
            }
        }
        for name in names {
            let target = parent.join(name);
            mount_bind(root.join(target.strip_prefix("/").unwrap_or(&target)), &target)?;
            forbid_writing(&target)?;
        }
        if let Some(here) = here.as_ref().ok().filter(|here| here.starts_with(parent)) {
            env::set_current_dir(here)?;
        }
    }
    unmount(root, UnmountFlags::DETACH)?;
    Ok(live)
}

/// Makes a mount read-only.
fn forbid_writing(path: &Path) -> io::Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    Ok(mount_remount(path, flags, c"")?)
}

/// Makes a copy of a kernel directory: everything in it, and empty directories of these names. Nothing can be added to
/// the kernel's own directory.
fn remake(directory: &Path, names: &[&str], stage: &Path) -> io::Result<()> {
    mount("transom", stage, "tmpfs", MountFlags::NOSUID, c"mode=0755")?;
    for name in names {
        fs::create_dir(stage.join(name))?;
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (source, target) = (entry.path(), stage.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(source)?, target)?;
            continue;
        }
        // The kernel looks beside this file for the terminals that it hands out, so a bind mount does not
        // work.
        if entry.file_name() == "ptmx" {
            copy_node(&source, &target)?;
            continue;
        }
        if !kind.is_dir() {
            File::create_new(&target)?;
        } else if !target.is_dir() {
            fs::create_dir(&target)?;
        }
        mount_bind_recursive(source, target)?;
    }
    Ok(())
}

/// Makes a device file with the numbers of another.
fn copy_node(source: &Path, target: &Path) -> io::Result<()> {
    let found = fs::metadata(source)?;
    let kind = FileType::from_raw_mode(found.mode());
    mknodat(CWD, target, kind, Mode::from_raw_mode(found.mode()), found.rdev())?;
    chown(target, Some(found.uid()), Some(found.gid()))?;
    fs::set_permissions(target, found.permissions())
}
