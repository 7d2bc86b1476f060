//! Programs of others, run over our `libibverbs.so.1` and `librdmacm.so.1`.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::harness::readable;

/// The folder of our `libibverbs.so.1`, `librdmacm.so.1` and `librspreload.so`. Builds them if they are not up to date.
/// `scratch` is the test's `CARGO_TARGET_TMPDIR`.
pub fn library(scratch: &str) -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let profile = built();
        let name = profile.file_name().and_then(|name| name.to_str()).expect("a profile's name");
        let folder = Path::new(scratch)
            .join(format!("{}-library", if name == "debug" { "dev" } else { name }));
        fs::create_dir_all(&folder).expect("the scratch folder is ours");
        for (name, version) in
            [("libibverbs.so", ".1"), ("librdmacm.so", ".1"), ("librspreload.so", "")]
        {
            let (library, link) = (profile.join(name), folder.join(format!("{name}{version}")));
            // Another test may have made it, or may be making it now.
            let _ = std::os::unix::fs::symlink(&library, &link);
            assert_eq!(fs::read_link(&link).ok(), Some(library), "remove {}", link.display());
        }
        folder
    })
}

/// The command `transom` and its libraries, in the order of their packages. Builds them if they are not up to date, and
/// the examples of the crate `transom`.
pub fn command() -> &'static [PathBuf; 5] {
    static FILES: OnceLock<[PathBuf; 5]> = OnceLock::new();
    FILES.get_or_init(|| {
        let profile = built();
        ["transom", "libtransom_malloc.so", "libtransom_paths.so", "libibverbs.so", "librdmacm.so"]
            .map(|name| profile.join(name))
    })
}

/// What `transom check` preloads beside the device, as the loader is told.
pub fn preloaded() -> String {
    let profile = built();
    let paths = ["libtransom_malloc.so", "libtransom_freed.so"].map(|name| profile.join(name));
    paths.map(|path| path.display().to_string()).join(":")
}

/// The variable that tells a process of a test that the one that started it has called [`built`].
const BUILT: &str = "TRANSOM_TEST_BUILT";

static PROFILE: OnceLock<PathBuf> = OnceLock::new();

/// Builds all that tests run like this test, once for it and for the processes that it starts. Returns the folder.
fn built() -> &'static Path {
    PROFILE.get_or_init(|| {
        let profile = profile();
        let target = profile.parent().expect("a profile is in the target folder");
        let name = profile.file_name().and_then(|name| name.to_str()).expect("a profile's name");
        let name = if name == "debug" { "dev" } else { name };
        if env::var_os(BUILT).is_none() {
            build(target, name, Built::ForTests).unwrap_or_else(|problem| panic!("{problem}"));
        }
        profile
    })
}

/// The folder that this test was built into: it is TARGET/PROFILE/deps/TEST.
fn profile() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    test.ancestors().nth(2).expect("a test is in its profile").to_owned()
}

/// The target folder that this test was built into.
pub(crate) fn target() -> PathBuf {
    profile().parent().expect("a profile is in the target folder").to_owned()
}

/// Tells a process of this test what need not be built again.
pub(crate) fn tell_what_is_built(command: &mut Command) {
    if PROFILE.get().is_some() {
        command.env(BUILT, "");
    }
}

/// Runs a command whose standard output nobody reads: its exit status, if it was not killed, and its complaints.
pub fn unread(command: &mut Command) -> (Option<i32>, String) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("the command");
    drop(running.stdout.take());
    let output = running.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The parts of ours that can be built and run.
#[derive(Clone, Copy, Debug)]
pub enum Built<'a> {
    /// `libibverbs.so`, `librdmacm.so`, and the preloaded ones: `librspreload.so`, `libtransom_malloc.so`,
    /// `libtransom_freed.so` and `libtransom_paths.so`.
    Libraries,
    /// `transom`.
    Command,
    /// Both, and the examples of the crate `transom`.
    ForTests,
    /// A program of this package.
    Program(&'a str),
}

/// The folder with the output of a profile.
pub fn folder_of(target: &Path, profile: &str) -> PathBuf {
    target.join(if profile == "dev" { "debug" } else { profile })
}

/// The shipped packages. They are always built together: built alone, each would have dependencies with fewer features,
/// and everything would be built twice.
const PACKAGES: [&str; 7] = [
    "--package=transom-cli",
    "--package=transom-libibverbs",
    "--package=transom-librdmacm",
    "--package=transom-paths",
    "--package=transom-rspreload",
    "--package=transom-malloc",
    "--package=transom-freed",
];

/// Builds a part into a target folder, if it is not up to date.
pub fn build(target: &Path, profile: &str, what: Built) -> Result<(), String> {
    let mut which = PACKAGES.to_vec();
    match what {
        Built::Libraries => which.push("--lib"),
        Built::Command => which.extend(["--bin", "transom"]),
        Built::ForTests => {
            which.extend(["--lib", "--bin", "transom", "--package", "transom", "--examples"]);
        }
        Built::Program(name) => which.extend(["--package", env!("CARGO_PKG_NAME"), "--bin", name]),
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--profile", profile])
        .args(&which)
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    match built {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("cargo build --profile {profile} fails for {}", which.join(" "))),
    }
}

/// A program of a Debian package. Panics with one line that says what to do if it is not installed.
pub fn program(name: &str, package: &str) -> PathBuf {
    installed(name, package).unwrap_or_else(|problem| panic!("{problem}"))
}

/// [`program`], with that line as the error.
pub fn installed(name: &str, package: &str) -> Result<PathBuf, String> {
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    // Servers are in a folder that an ordinary user's PATH lacks.
    let folders = env::split_paths(&folders).chain(["/usr/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not installed: apt-get install {package}"))
}

/// A program of a Debian package, by its name and arguments, run over the libraries in a folder.
pub fn tool(line: &str, package: &str, libraries: &Path) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(program(words.next().expect("a name"), package));
    command.args(words).env("LD_LIBRARY_PATH", libraries);
    command
}

/// The output of a program that succeeded.
#[derive(Debug)]
pub struct Printed {
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub complaints: String,
}

/// A running program. It is killed when this is dropped or when this process ends.
#[derive(Debug)]
pub struct Running {
    what: String,
    process: std::process::Child,
}

impl Running {
    /// Starts a command. Its output must fit into a pipe.
    pub fn start(command: &mut Command) -> Self {
        Self::start_with_input(command, Stdio::null())
    }

    /// Starts a command whose input ends with [`Running::end_input`].
    pub fn start_until_told(command: &mut Command) -> Self {
        Self::start_with_input(command, Stdio::piped())
    }

    fn start_with_input(command: &mut Command, input: Stdio) -> Self {
        let what = format!("{command:?}");
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a CI too, the output of programs is for the tests.
        if command.get_envs().all(|(name, _)| name != "CI") {
            command.env_remove("CI");
        }
        command.process_group(group());
        let_signals_end_programs();
        let process = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        Self { what, process }
    }

    /// Its PID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(Some(_)))
    }

    /// Waits until it listens on a TCP port of its network namespace, or has ended. This does not connect to find out,
    /// because the program takes the first connection for its client.
    pub fn wait_until_it_listens(&mut self, port: u16) -> Result<(), String> {
        let wanted = format!(":{port:04X}");
        let id = self.process.id();
        let listens = || {
            ["tcp", "tcp6"].iter().any(|table| {
                let table = fs::read_to_string(format!("/proc/{id}/net/{table}"));
                let table = table.unwrap_or_default();
                table.lines().any(|line| {
                    let fields: Vec<&str> = line.split_whitespace().take(4).collect();
                    matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&wanted))
                })
            })
        };
        self.until("listens", Duration::from_secs(20), |_| listens())
    }

    /// Waits until `done` is true, or it has ended.
    pub fn wait_until(&mut self, what: &str, mut done: impl FnMut() -> bool) -> Result<(), String> {
        self.until(what, Duration::from_secs(20), |_| done())
    }

    /// Waits until it has printed something and then sleeps, or has ended.
    pub fn wait_until_it_spoke_and_sleeps(&mut self) -> Result<(), String> {
        self.until("speaks and sleeps", Duration::from_secs(20), |process| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.id()));
            has_output(process) && stat.is_ok_and(|stat| stat.contains(") S "))
        })
    }

    /// The next line of its output. An error if it ends without one.
    pub fn line(&mut self, limit: Duration) -> Result<String, String> {
        self.until("prints a line", limit, has_output)?;
        let (mut line, mut byte) = (Vec::new(), [0]);
        let output = self.process.stdout.as_mut().expect("a pipe");
        loop {
            match output.read(&mut byte) {
                Ok(1) if byte == *b"\n" => return Ok(String::from_utf8_lossy(&line).into_owned()),
                Ok(1) => line.extend(byte),
                _ => break,
            }
        }
        self.until("ends", limit, |_| false)?;
        let what = &self.what;
        let status = self.process.wait().map_err(|error| format!("{what}: {error}"))?;
        let mut complaints = String::new();
        let _ = self.process.stderr.as_mut().expect("a pipe").read_to_string(&mut complaints);
        Err(format!("{what}: {status}\n{complaints}"))
    }

    /// Whether it has printed something that is not read yet, or its output has ended.
    pub fn has_spoken(&self) -> bool {
        has_output(&self.process)
    }

    /// Reads and drops its unread lines.
    pub fn skip_lines(&mut self) -> Result<(), String> {
        while has_output(&self.process) {
            self.line(Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        self.process.stdin = None;
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: i32) {
        if !self.has_ended() {
            // SAFETY: our own child, not reaped yet, so the PID is its.
            unsafe { libc::kill(self.process.id() as i32, signal) };
        }
    }

    /// Waits for its end. Returns its status and its output.
    pub fn end(mut self, limit: Duration) -> Result<(ExitStatus, Printed), String> {
        let in_time = self.until("ends", limit, |_| false);
        if in_time.is_err() {
            let _ = self.process.kill();
        }
        let status = self.process.wait().map_err(|error| format!("{}: {error}", self.what))?;
        let read = |from: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            from.expect("a pipe").read_to_end(&mut bytes).expect("a pipe can be read");
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let output = read(self.process.stdout.as_mut().map(|pipe| pipe as _));
        let complaints = read(self.process.stderr.as_mut().map(|pipe| pipe as _));
        in_time.map_err(|problem| format!("{problem}\n{output}{complaints}"))?;
        Ok((status, Printed { output, complaints }))
    }

    /// Waits for its end, which must be a success.
    pub fn success(self, limit: Duration) -> Result<Printed, String> {
        let what = self.what.clone();
        match self.end(limit)? {
            (status, printed) if status.success() => Ok(printed),
            (status, Printed { output, complaints }) => {
                Err(format!("{what}: {status}\n{output}{complaints}"))
            }
        }
    }

    /// Waits for its end, which must be a success without complaints. Returns its output.
    pub fn finish(self, limit: Duration) -> String {
        let what = self.what.clone();
        let printed = self.success(limit).unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(printed.complaints, "", "{what} complains");
        printed.output
    }

    /// Waits until it does `what`, or has ended.
    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&std::process::Child) -> bool,
    ) -> Result<(), String> {
        let start = Instant::now();
        while !self.has_ended() && !done(&self.process) {
            if start.elapsed() >= limit {
                return Err(format!("waited {limit:?} in vain until it {what}: {}", self.what));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// The process group of all programs that this process starts. Its leader kills the whole group when this process has
/// ended, however that came. A `pre_exec` with PR_SET_PDEATHSIG would do so too, but it makes each start a fork, which
/// copies the tables of all memory that the tests have.
fn group() -> i32 {
    // With the only other end of its input, which the kernel closes with this process.
    static LEADER: OnceLock<std::process::Child> = OnceLock::new();
    let leader = LEADER.get_or_init(|| {
        let mut leader = Command::new("sh");
        leader.args(["-c", "read -r _; kill -s KILL 0"]).process_group(0);
        leader.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        leader.spawn().expect("there is a shell")
    });
    i32::try_from(leader.id()).expect("a PID")
}

/// Has programs end by Ctrl-C, as from a terminal. A shell has what it starts in the background ignore it, and a test
/// that runs so would wait for its program in vain.
fn let_signals_end_programs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the default action needs nothing. If somebody handles the signal here, that stays.
            unsafe {
                let handled = libc::signal(signal, libc::SIG_DFL);
                if handled != libc::SIG_IGN {
                    libc::signal(signal, handled);
                }
            }
        }
    });
}

/// Whether a process has unread output, or has closed its output.
fn has_output(process: &std::process::Child) -> bool {
    readable(process.stdout.as_ref().expect("a pipe").as_raw_fd())
}

impl Drop for Running {
    fn drop(&mut self) {
        // If it has ended and is reaped, both do nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Each package that these arguments of cargo select or need, with its features.
    fn parts(arguments: &[&str]) -> BTreeSet<String> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let form = ["tree", "--locked", "--offline", "--prefix=none", "--format={p} {f}"];
        let mut command = Command::new(cargo);
        command.args(form).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
        let done = command.output().expect("cargo");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let lines = String::from_utf8(done.stdout).expect("text");
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    }

    /// A part with other features than in the whole is compiled again, and so is everything that depends on it.
    #[test]
    fn what_is_built_by_itself_is_built_of_the_parts_of_the_whole() {
        let whole = parts(&["--workspace"]);
        let with = |more: &[&'static str]| [&PACKAGES[..], &["--edges=no-dev"], more].concat();
        let own = concat!("--package=", env!("CARGO_PKG_NAME"));
        let programs = vec!["--edges=no-dev", own];
        // As `./test` builds the API without the device, which is the one that then differs.
        let without = "--no-default-features";
        let api = vec!["--package=transom", "--package=transom-parts", without];
        for built in
            [with(&[]), with(&["--package=transom"]), with(&[own]), vec![own], programs, api]
        {
            let is_meant =
                |part: &&String| built.contains(&without) && part.starts_with("transom v");
            let parts = parts(&built);
            let others: Vec<_> = parts.difference(&whole).filter(|it| !is_meant(it)).collect();
            assert!(
                others.is_empty(),
                "{built:?}: other features than in the whole, which [workspace.dependencies] in \
                 Cargo.toml or crates/parts/Cargo.toml are to ask for: {others:#?}"
            );
        }
    }
}
