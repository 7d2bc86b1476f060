//! Our libraries, in a place where programs find them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Built, build, folder_of, installed};

/// The device for the programs.
pub(crate) const DEVICE: &str = "transom0";

const SOCKETS: &str = "librspreload.so";
const FREED: &str = "libtransom_freed.so";
const MALLOC: &str = "libtransom_malloc.so";

/// The libraries, in a folder that every user can read.
#[derive(Debug)]
pub(crate) struct Installation {
    scratch: Scratch,
    target: PathBuf,
    /// The cargo profile of everything that runs.
    profile: &'static str,
    /// Our programs that are known to be up to date.
    built: RefCell<BTreeSet<String>>,
}

impl Installation {
    /// Builds the libraries if they are not up to date.
    pub(crate) fn new(profile: &'static str) -> Result<Self, String> {
        // TARGET/PROFILE/programs
        let this = env::current_exe().map_err(|error| format!("where am I: {error}"))?;
        let target = this.parent().and_then(Path::parent).ok_or("not in a target folder")?;
        build(target, profile, Built::Libraries)?;
        let scratch = Scratch::new("programs");
        for name in ["libibverbs.so", "librdmacm.so"] {
            let copy = scratch.take(&folder_of(target, profile).join(name));
            std::fs::rename(&copy, copy.with_file_name(format!("{name}.1")))
                .map_err(|error| format!("{}: {error}", copy.display()))?;
        }
        for name in [SOCKETS, FREED, MALLOC] {
            scratch.take(&folder_of(target, profile).join(name));
        }
        Ok(Self { scratch, target: target.to_owned(), profile, built: RefCell::default() })
    }

    /// A folder for temporary files. It is removed at the end.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The library that turns a program's sockets into rsockets when it is preloaded.
    pub(crate) fn sockets_library(&self) -> PathBuf {
        self.folder().join(SOCKETS)
    }

    /// The library that tells a check what memory a program gives back, when it is preloaded.
    pub(crate) fn freed_library(&self) -> PathBuf {
        self.folder().join(FREED)
    }

    /// The library that shares a program's allocations with its peers when it is preloaded.
    pub(crate) fn malloc_library(&self) -> PathBuf {
        self.folder().join(MALLOC)
    }

    /// A program of a Debian package that will find our library.
    pub(crate) fn command(&self, name: &str, package: &str) -> Result<Command, String> {
        let mut command = Command::new(installed(name, package)?);
        command.env("LD_LIBRARY_PATH", self.folder());
        Ok(command)
    }

    /// Our own command `transom`, built like the library.
    pub(crate) fn transom(&self) -> Result<Command, String> {
        self.once("transom", Built::Command)
    }

    /// `transom run` with this build's library. Add the program and its arguments.
    pub(crate) fn transom_run(&self) -> Result<Command, String> {
        let mut command = self.transom()?;
        command.env_remove("TRANSOM_LIB").args(["run", "--"]);
        Ok(command)
    }

    /// A folder for files that take long to make. It stays.
    pub(crate) fn lasting(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }

    /// The tests or the examples of a package of ours: their names and files.
    pub(crate) fn targets(
        &self,
        package: &str,
        kind: &str,
    ) -> Result<Vec<(String, PathBuf)>, String> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--package", package, "--message-format", "json"])
            .arg(format!("--{kind}s"))
            .arg("--target-dir")
            .arg(&self.target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stderr(Stdio::inherit())
            .output();
        let built = built.map_err(|error| format!("cargo: {error}"))?;
        if !built.status.success() {
            return Err(format!("cargo build --{kind}s fails for {package}"));
        }
        let output = String::from_utf8_lossy(&built.stdout);
        let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut targets: Vec<(String, PathBuf)> = messages
            .filter(|message| message["target"]["kind"][0] == kind)
            .filter_map(|message| {
                let name = message["target"]["name"].as_str()?.to_owned();
                Some((name, message["executable"].as_str()?.into()))
            })
            .collect();
        targets.sort();
        Ok(targets)
    }

    /// A program of this package, with the device linked in, built like the library.
    pub(crate) fn own(&self, name: &str) -> Result<Command, String> {
        self.once(name, Built::Program(name))
    }

    /// A program of ours. Builds it if this has not been done.
    fn once(&self, name: &str, what: Built) -> Result<Command, String> {
        if !self.built.borrow().contains(name) {
            build(&self.target, self.profile, what)?;
            self.built.borrow_mut().insert(name.to_owned());
        }
        Ok(Command::new(folder_of(&self.target, self.profile).join(name)))
    }
}
