//! Programs that nobody here wrote, over our `libibverbs.so.1`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::processes::NOBODY;

/// The folder of our `libibverbs.so.1`, built if it is not up to date. `scratch` is the test's
/// `CARGO_TARGET_TMPDIR`.
pub fn library(scratch: &str) -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let profile = build(&["transom-libibverbs"]);
        let library = profile.join("libibverbs.so");
        let name = profile.file_name().and_then(|name| name.to_str()).expect("a profile's name");
        let folder = Path::new(scratch)
            .join(format!("{}-library", if name == "debug" { "dev" } else { name }));
        let link = folder.join("libibverbs.so.1");
        fs::create_dir_all(&folder).expect("the scratch folder is ours");
        // Another test may have made it, or be making it now.
        let _ = std::os::unix::fs::symlink(&library, &link);
        assert_eq!(fs::read_link(&link).ok(), Some(library), "remove {}", link.display());
        folder
    })
}

/// The command `transom` and its libraries, built if they are not up to date: the files in the order
/// of their packages.
pub fn command() -> &'static [PathBuf; 3] {
    static FILES: OnceLock<[PathBuf; 3]> = OnceLock::new();
    FILES.get_or_init(|| {
        let profile = build(&["transom-cli", "transom-paths", "transom-libibverbs"]);
        ["transom", "libtransom_paths.so", "libibverbs.so"].map(|name| profile.join(name))
    })
}

/// Builds packages as this test was built; the folder they are in.
fn build(packages: &[&str]) -> PathBuf {
    // TARGET/PROFILE/deps/TEST
    let test = env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent).expect("a test is in its profile");
    let target = profile.parent().expect("a profile is in the target folder");
    let name = profile.file_name().and_then(|name| name.to_str()).expect("a profile's name");
    let name = if name == "debug" { "dev" } else { name };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--profile", name])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "cargo build fails for {packages:?}");
    profile.to_owned()
}

/// A program of a Debian package; one line says what to do if it is not installed.
pub fn program(name: &str, package: &str) -> PathBuf {
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let found = env::split_paths(&folders).map(|folder| folder.join(name)).find(|p| p.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: apt-get install {package}"))
}

/// Has a command run as a user without privileges.
pub fn as_nobody(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY).current_dir("/")
}

/// A program under way; killed, if it still runs, when this is dropped.
#[derive(Debug)]
pub struct Running {
    what: String,
    process: std::process::Child,
}

impl Running {
    /// Starts a command. What it prints must fit into a pipe.
    pub fn start(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        Self { what, process }
    }

    /// Waits until it listens on a TCP port. Nobody connects to find out, for it takes the first
    /// who does for its client.
    pub fn wait_until_it_listens(&mut self, port: u16) {
        let wanted = format!(":{port:04X}");
        let listens = || {
            ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
                let table = fs::read_to_string(table).unwrap_or_default();
                table.lines().any(|line| {
                    let fields: Vec<&str> = line.split_whitespace().take(4).collect();
                    matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&wanted))
                })
            })
        };
        self.until("listens", Duration::from_secs(20), |process| {
            let ended = process.try_wait().expect("our own child").is_some();
            ended || listens()
        });
    }

    /// Waits for its end, which must be a good one; what it printed.
    pub fn finish(mut self, limit: Duration) -> String {
        self.until("ends", limit, |process| process.try_wait().expect("our own child").is_some());
        let status = self.process.wait().expect("it has ended");
        let read = |from: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            from.expect("a pipe").read_to_string(&mut text).expect("it prints text");
            text
        };
        let printed = read(self.process.stdout.as_mut().map(|pipe| pipe as _));
        let complaints = read(self.process.stderr.as_mut().map(|pipe| pipe as _));
        assert!(status.success(), "{}: {status}\n{printed}{complaints}", self.what);
        assert_eq!(complaints, "", "{} complains", self.what);
        printed
    }

    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&mut std::process::Child) -> bool,
    ) {
        let start = Instant::now();
        while !done(&mut self.process) {
            assert!(start.elapsed() < limit, "waited in vain until it {what}: {}", self.what);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If it has ended and is reaped, both do nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
