//! Packages from PyPI: a Python environment, made once for the requested packages.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::{Running, installed};

use crate::pyverbs;

/// The packages that are installed unchanged.
const PACKAGES: &str = include_str!("../../../../programs/strangers.txt");
/// The newest pyverbs. It is the source of a whole rdma-core release, with its tests. The package that it builds leaves
/// out the libraries of vendors, but the tests need them in the same release. So everything is built and used where it
/// lies.
const PYVERBS: &str = "pyverbs==59.0";
/// How long an installation may take. It compiles a release of rdma-core.
const LIMIT: Duration = Duration::from_secs(1800);

/// The environment.
#[derive(Debug)]
pub(crate) struct Python {
    folder: PathBuf,
}

impl Python {
    /// Uses a folder that stays, because this takes minutes.
    pub(crate) fn new(folder: PathBuf) -> Result<Self, String> {
        let python = Self { folder };
        let wanted = format!("{PACKAGES}{PYVERBS}\n");
        let done = python.folder.join("installed.txt");
        if fs::read_to_string(&done).is_ok_and(|found| found == wanted) {
            return Ok(python);
        }
        let failed = |error| format!("{}: {error}", python.folder.display());
        let _ = fs::remove_dir_all(&python.folder);
        fs::create_dir_all(&python.folder).map_err(failed)?;
        let list = python.folder.join("packages.txt");
        fs::write(&list, PACKAGES).map_err(failed)?;
        let mut make = Command::new(pyverbs::PYTHON);
        run(make.args(["-m", "venv"]).arg(&python.folder))?;
        run(python.pip().args(["install", "--no-deps", "-r"]).arg(&list))?;
        let sources = python.folder.join("sources");
        let mut download = python.pip();
        download.args(["download", "--no-deps", "--no-binary", "pyverbs", PYVERBS, "--dest"]);
        run(download.arg(&sources))?;
        let mut unpack = Command::new(installed("sh", "dash")?);
        run(unpack.args(["-c", "tar xzf *.tar.gz --strip-components=1"]).current_dir(&sources))?;
        let mut configure = Command::new(installed("cmake", "cmake")?);
        configure.args(["-S", "rdma-core", "-B", "build", "-G", "Ninja"]);
        configure.args(["-DIN_PLACE=1", "-DNO_MAN_PAGES=1", "-DENABLE_STATIC=0"]);
        configure.arg(format!("-DPYTHON_EXECUTABLE={}", pyverbs::PYTHON));
        configure
            .arg(format!("-DCYTHON_EXECUTABLE={}", installed("cython3", "cython3")?.display()));
        run(configure.current_dir(&sources))?;
        run(Command::new(installed("ninja", "ninja-build")?)
            .args(["-C", "build"])
            .current_dir(&sources))?;
        fs::write(&done, wanted).map_err(failed)?;
        Ok(python)
    }

    fn pip(&self) -> Command {
        let mut pip = Command::new(self.folder.join("bin/python"));
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip
    }

    /// The interpreter, which finds the packages.
    pub(crate) fn interpreter(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// The folder with pyverbs.
    pub(crate) fn pyverbs(&self) -> PathBuf {
        self.folder.join("sources/build/python")
    }

    /// The folder with the tests of pyverbs' release.
    pub(crate) fn tests(&self) -> PathBuf {
        self.folder.join("sources/rdma-core/tests")
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    Running::start(command).success(LIMIT).map(drop)
}
