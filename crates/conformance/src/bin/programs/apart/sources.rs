//! Sources of Debian's packages. apt fetches them, and they are built once, in a folder that stays.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use transom_conformance::programs::installed;

/// The release that has all of them. Its binary packages are not installed, because they need its libraries.
const SOURCES: &str = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
    http://deb.debian.org/debian trixie main\n";

#[derive(Debug)]
pub(crate) struct Sources {
    folder: PathBuf,
}

impl Sources {
    /// Uses a folder that stays, because this takes minutes.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The folder of a package's source, built there.
    pub(crate) fn built(
        &self,
        package: &str,
        build: impl FnOnce(&Shell) -> Result<(), String>,
    ) -> Result<PathBuf, String> {
        let folder = self.folder.join(package);
        let done = folder.join("built");
        if !done.exists() {
            let failed = |error| format!("{}: {error}", folder.display());
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).map_err(failed)?;
            self.unpack(package, &folder)?;
            build(&Shell { folder: &folder })?;
            File::create(done).map_err(failed)?;
        }
        Ok(folder)
    }

    /// Unpacks the source as its authors gave it to Debian, without Debian's changes.
    fn unpack(&self, package: &str, to: &Path) -> Result<(), String> {
        let shell = Shell { folder: to };
        installed("apt-get", "apt")?;
        fs::write(to.join("sources.list"), SOURCES).map_err(|error| error.to_string())?;
        // With separate lists, so that this system's stay unchanged.
        let apt = "apt-get -q -o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=/dev/null \
                   -o Dir::State::Lists=$PWD/apt/lists -o Dir::Cache=$PWD/apt/cache -o APT::Sandbox::User=root";
        shell.run("mkdir -p apt/lists/partial apt/cache/archives/partial")?;
        shell.run(&format!("{apt} update"))?;
        shell.run(&format!("{apt} source --download-only --tar-only {package}"))?;
        shell.run("tar --strip-components=1 -xf *.orig.tar.*")
    }
}

/// The folder for commands.
pub(crate) struct Shell<'a> {
    folder: &'a Path,
}

impl Shell<'_> {
    /// Runs a command. Its output goes to a file there. If it fails, the error is the end of that file.
    pub(crate) fn run(&self, command: &str) -> Result<(), String> {
        let path = self.folder.join("log");
        let log = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("exec 2>&1; {command}")]);
        let ended = shell.current_dir(self.folder).stdin(Stdio::null()).stdout(log).status();
        if ended.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        let said = fs::read_to_string(&path).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(12).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Err(format!("{command}\n{}\nall it said: {}", last.join("\n"), path.display()))
    }
}
