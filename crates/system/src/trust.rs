//! Checks that nobody but this user and root decides what is at a path.
//!
//! A user who may write to a directory can replace everything in it, and so can the owner of a directory above. A
//! program that takes a directory from its environment may have another user's: by `su`, which keeps the environment,
//! or by `sudo -E`. That user could then replace everything made or looked up there, however private the last directory
//! is.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Users who may decide what is at a path.
#[derive(Clone, Debug)]
pub struct Trusted {
    users: Vec<u32>,
}

impl Trusted {
    /// This user, root, and the owner of the root directory, who owns the loader and the C library too. In a user
    /// namespace without root, root's files appear to belong to that owner.
    pub fn this_user_and_root() -> Self {
        let user = rustix::process::geteuid().as_raw();
        let of_root = fs::symlink_metadata("/").map(|root| root.uid());
        Self { users: [user, 0].into_iter().chain(of_root).collect() }
    }

    /// This one too.
    pub fn and(mut self, user: u32) -> Self {
        self.users.push(user);
        self
    }

    /// The real path of `path`: without links, and nobody else can redirect it.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if somebody else can, with the user and the place.
    pub fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        let real = path.canonicalize()?;
        // From the root down: once a directory is trusted, nobody else can replace its content.
        let parts: Vec<_> = real.ancestors().collect();
        parts.iter().rev().try_for_each(|part| self.check(part, &fs::symlink_metadata(part)?))?;
        Ok(real)
    }

    /// The same for a directory. Makes it if necessary, and those above it, for this user alone. Makes nothing where
    /// somebody else decides.
    ///
    /// # Errors
    ///
    /// As for [`Trusted::real_path`], and the error of making it.
    pub fn directory(&self, path: &Path) -> io::Result<PathBuf> {
        match self.real_path(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::NotFound.into());
        };
        let directory = self.directory(parent)?.join(name);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => self.real_path(&directory),
        }
    }

    fn check(&self, part: &Path, found: &Metadata) -> io::Result<()> {
        let refuse = |why: String| {
            let text = format!("{} {why}", part.display());
            Err(io::Error::new(ErrorKind::PermissionDenied, text))
        };
        if found.is_symlink() {
            return refuse("has just become a link".into());
        }
        if !self.users.contains(&found.uid()) {
            return refuse(format!("belongs to user {}", found.uid()));
        }
        // A group of a user's own has the user's number.
        let by_group = found.mode() & GROUP_WRITES != 0 && found.gid() != found.uid();
        let is_shared = by_group || found.mode() & OTHERS_WRITE != 0;
        // There, nobody renames or removes what belongs to another.
        let is_sticky = found.is_dir() && found.mode() & STICKY != 0;
        if is_shared && !is_sticky {
            return refuse(format!(
                "can be written to by others (mode {:04o})",
                found.mode() & 0o7777
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// A directory of the test's own. Dropping this value removes it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("transom-trust-{}-{name}", std::process::id());
            let path = Path::new("/tmp").join(name);
            fs::create_dir(&path).expect("nobody has it");
            Self(path)
        }

        fn directory(&self, path: &str, mode: u32) -> PathBuf {
            let path = self.0.join(path);
            fs::create_dir(&path).expect("it is not there");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("our own");
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refusal(found: io::Result<PathBuf>) -> String {
        let error = found.expect_err("somebody else decides there");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        error.to_string()
    }

    #[test]
    fn a_directory_that_others_write_to_decides_for_all_below_it() {
        let scratch = Scratch::new("open");
        let trusted = Trusted::this_user_and_root();
        let open = scratch.directory("open", 0o777);
        let below = scratch.directory("open/private", 0o700);
        assert!(refusal(trusted.real_path(&below)).contains("open can be written to by others"));
        assert!(refusal(trusted.directory(&below.join("new/er"))).contains("mode 0777"));
        assert!(!below.join("new").exists(), "nothing is made there");
        // By another name too.
        let link = scratch.0.join("link");
        symlink(&below, &link).expect("a link");
        refusal(trusted.real_path(&link));
        // A directory in which nobody renames what belongs to another.
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).expect("our own");
        assert_eq!(trusted.real_path(&link).expect("it is ours"), below);
        let made = trusted.directory(&link.join("new/er")).expect("it can be made");
        assert_eq!(made, below.join("new/er"));
        assert_eq!(fs::metadata(&made).expect("made").mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(below.join("new")).expect("made").mode() & 0o777, 0o700);
    }

    #[test]
    fn a_group_that_is_not_a_users_own_is_of_others() {
        let scratch = Scratch::new("group");
        let trusted = Trusted::this_user_and_root();
        let directory = scratch.directory("shared", 0o775);
        let user = rustix::process::geteuid().as_raw();
        let own = rustix::process::getegid().as_raw() == user;
        assert_eq!(trusted.real_path(&directory).is_ok(), own);
        let file = directory.join("file");
        fs::write(&file, "").expect("our own");
        fs::set_permissions(&file, Permissions::from_mode(0o602)).expect("our own");
        refusal(trusted.real_path(&file));
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "what is skipped is to be seen")]
    fn what_belongs_to_another_user_is_not_trusted() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root gives files away");
        }
        let scratch = Scratch::new("theirs");
        let trusted = Trusted::this_user_and_root();
        let theirs = scratch.directory("theirs", 0o755);
        let ours = scratch.directory("theirs/ours", 0o700);
        chown(&theirs, Some(2002), Some(2002)).expect("root may");
        assert!(refusal(trusted.real_path(&ours)).contains("theirs belongs to user 2002"));
        assert_eq!(trusted.and(2002).real_path(&ours).expect("he is trusted too"), ours);
    }
}
