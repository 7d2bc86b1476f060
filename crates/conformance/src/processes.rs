//! Tests with several processes. A test runs its own binary again, for itself and for its peers.
//!
//! * [`on_each_way!`](crate::on_each_way) runs a test's body in a process of its own, so that the device there belongs
//!   to the test alone: with straight copies, with copies through rings, with shared memory, and, if the tests run as
//!   root, as an ordinary user.
//! * [`on_each_link!`](crate::on_each_link) does this for the wire, in a network namespace of its own, and for shared
//!   memory, which all devices of a process have or lack together.
//! * A [`Child`] plays a role. A role is a function of the test's module. The module's test `role` lists it and calls
//!   [`play`]. The two processes exchange lines of numbers over a socket.
//!
//! A process finds tests and roles by their paths, which [`path_of!`](crate::path_of) makes.
//!
//! No process outlives the one that started it. Every wait has a limit. A process kills only its own children.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;
use std::{env, fs};

use transom_abi::*;
use transom_ibverbs::{ibv_free_device_list, ibv_get_device_list, ibv_open_device};
use transom_system::registry::Registry;

use crate::harness::*;
use crate::programs::tell_what_is_built;

/// The role of a process. The test `role` reads it.
const ROLE: &str = "TRANSOM_TEST_ROLE";
/// The test that runs alone in this process.
const ALONE: &str = "TRANSOM_TEST_ALONE";
/// Whether that test runs in a network namespace made for it.
const NAMESPACE: &str = "TRANSOM_TEST_NAMESPACE";
/// What names of folders begin with. The process's number and the test follow.
const SCRATCH: &str = "transom-test-";
/// The user and group nobody.
const NOBODY: u32 = 65_534;
/// The last word of a process that has done all its work.
const DONE: u64 = u64::MAX;
/// How long to wait for a word of another process.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How a test of several processes runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With straight copies, if the kernel allows them.
    Direct,
    /// With copies through rings.
    Rings,
    /// As [`Way::Direct`], with shared memory.
    Shared,
    /// As [`Way::Direct`], by a user without privileges.
    Unprivileged,
    /// As [`Way::Direct`], by root of a new network namespace whose loopback interface is down.
    Namespace,
    /// As [`Way::Direct`], in a new network namespace whose loopback interface is up. If this user cannot make one, in
    /// the process of the test itself.
    Network,
}

/// The path of a test or role of the calling module. The binary finds it by this path.
#[macro_export]
macro_rules! path_of {
    ($name:literal) => {
        concat!(module_path!(), "::", $name)
    };
}

/// Runs each test over each [`Link`](crate::harness::Link). A test is a function of the link. Over the wire it runs in
/// a network namespace of its own, where nobody else has the port.
#[macro_export]
macro_rules! on_each_link {
    ($($(#[$doc:meta])* fn $name:ident($link:ident: Link) $body:block)+) => {
        $($(#[$doc])* mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn run($link: Link) $body

            #[test]
            fn loopback() {
                run(Link::Loopback);
            }

            #[test]
            fn local() {
                run(Link::Local);
            }

            #[test]
            fn rings() {
                run(Link::Rings);
            }

            #[test]
            fn shared() {
                let test = $crate::path_of!("shared");
                $crate::processes::alone(test, $crate::processes::Way::Shared, || run(Link::Shared));
            }

            #[test]
            fn wire() {
                let test = $crate::path_of!("wire");
                $crate::processes::alone(test, $crate::processes::Way::Network, || run(Link::Wire));
            }
        })+
    };
}

/// Runs each test alone in a process, in each [`Way`].
#[macro_export]
macro_rules! on_each_way {
    ($($(#[$doc:meta])* fn $name:ident() $body:block)+) => {
        $(fn $name() $body

        $(#[$doc])* mod $name {
            use super::$name as run;

            #[test]
            fn direct() {
                $crate::processes::alone($crate::path_of!("direct"), $crate::processes::Way::Direct, run);
            }

            #[test]
            fn rings() {
                $crate::processes::alone($crate::path_of!("rings"), $crate::processes::Way::Rings, run);
            }

            #[test]
            fn shared() {
                $crate::processes::alone($crate::path_of!("shared"), $crate::processes::Way::Shared, run);
            }

            #[test]
            fn unprivileged() {
                $crate::processes::alone($crate::path_of!("unprivileged"), $crate::processes::Way::Unprivileged, run);
            }
        })+
    };
}

/// Runs `body` in a process of its own, with all its children. `test` is the path of the calling test.
pub fn alone(test: &str, way: Way, body: fn()) {
    if env::var_os(ALONE).is_some_and(|name| name == test) {
        stay_with_parent();
        let _registry = env::var_os(NAMESPACE).is_some().then(|| RegistryOfNamespace);
        body();
        return parent().tell(&[DONE]);
    }
    let mut command = again(test);
    let mut copied = None;
    match way {
        Way::Direct => {}
        Way::Rings => {
            command.env("TRANSOM_COPY", "rings");
        }
        Way::Shared => {
            command.env("TRANSOM_MEMORY", "shared");
        }
        Way::Unprivileged if !is_root() => {
            eprintln!("skipped: not root, so the other tests are unprivileged already");
            return;
        }
        Way::Unprivileged => {
            // The build's folder may be readable by root alone.
            let scratch = Scratch::new(test);
            let program = scratch.take(&this_program());
            command = Command::new(program);
            command.args(arguments(test)).stdout(Stdio::null()).current_dir("/");
            match in_namespace(&command, Inside::Nobody) {
                Some(inside) => command = inside,
                None => drop(as_nobody(&mut command)),
            }
            // The same as for programs that set nothing.
            command.env("TRANSOM_MEMORY", "shared");
            copied = Some(scratch);
        }
        Way::Namespace => match in_namespace(&command, Inside::Root) {
            Some(inside) => command = inside,
            None => return eprintln!("skipped: no network namespace can be made here (unshare)"),
        },
        Way::Network => match in_namespace(&command, Inside::Same) {
            Some(inside) => command = inside,
            None => return body(),
        },
    }
    command.env(ALONE, test);
    let limit = if is_long() { 7200 } else { 180 };
    Child::spawn(test, command).finish_within(Duration::from_secs(limit));
    drop(copied);
}

/// Makes a command run as an ordinary user, in this test's turn to use the wire. The first user who takes the UDP port
/// has it, and no other user can.
pub fn as_nobody(command: &mut Command) -> &mut Command {
    take_turn(Link::Wire);
    command.uid(NOBODY).gid(NOBODY).current_dir("/")
}

/// A command line that runs a program as the user nobody, who may not be able to enter the program's folder.
pub const AS_NOBODY: &[&str] = &[
    "sh",
    "-c",
    "exec 3<\"$1\"; shift
    exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/3 \"$@\"",
    "sh",
];

/// Runs `ip` with these words, for a test in a namespace of its own.
pub fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status();
    assert!(status.expect("there is an ip command").success(), "ip {words}");
}

/// Brings up the loopback interface of a test's namespace, and another interface with the address 10.9.0.1.
pub fn interfaces_up() {
    ip("link set lo up");
    ip("link add eth0 type veth peer name far");
    ip("address add 10.9.0.1/24 dev eth0");
    ip("link set eth0 up");
    ip("link set far up");
}

/// Removes the registry of this namespace at the end, because another namespace may get its number.
struct RegistryOfNamespace;

impl Drop for RegistryOfNamespace {
    fn drop(&mut self) {
        let Ok(registry) = Registry::open() else { return };
        let _ = fs::remove_dir_all(registry.directory());
        // Also those of other users that were here. Their names have the layout, user, namespace, and a number.
        let namespace = |path: &Path| {
            let name = path.file_name()?.to_str()?.strip_prefix("transom-")?;
            name.split('-').nth(2).map(str::to_owned)
        };
        let ours = namespace(registry.directory());
        let parent = registry.directory().parent().and_then(|parent| fs::read_dir(parent).ok());
        for other in parent.into_iter().flatten().flatten().map(|entry| entry.path()) {
            if ours.is_some() && namespace(&other) == ours {
                let _ = fs::remove_dir_all(other);
            }
        }
    }
}

/// Whether `TRANSOM_LONG=1` asks for the long runs.
pub fn is_long() -> bool {
    env::var_os("TRANSOM_LONG").is_some_and(|value| value == "1")
}

/// Whether a test of this program has started this process.
pub fn is_of_a_test() -> bool {
    [ROLE, ALONE, NAMESPACE].iter().any(|name| env::var_os(name).is_some())
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The binary of the tests.
pub fn this_program() -> PathBuf {
    env::current_exe().expect("a test has a path")
}

/// The arguments that make it run the one test of this path, and print its output at once.
pub fn arguments(test: &str) -> [&str; 4] {
    let (_crate, name) = test.split_once("::").expect("the path of a test");
    ["--exact", name, "--nocapture", "--test-threads=1"]
}

/// Forks, and waits for the child. The child only checks whether `holds` is true: it may not allocate memory or take
/// locks.
pub fn fork_once(holds: impl FnOnce() -> bool) {
    // SAFETY: by this function's contract the child only checks, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!holds())) };
    }
    assert!(child > 0, "no process could be made");
    let mut status = 0;
    // SAFETY: the status is this function's own.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "it does not hold in the child");
}

/// Forks so many processes, and waits for all of them. This process has one thread, and has opened no device.
pub fn fork_each(count: usize, act: impl Fn(usize)) {
    let fork = |nth| {
        // SAFETY: no other thread can hold a lock that the child takes.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
        if child == 0 {
            stay_with_parent();
            let acted = catch_unwind(AssertUnwindSafe(|| act(nth)));
            std::process::exit(i32::from(acted.is_err()));
        }
        child
    };
    let children: Vec<_> = (0..count).map(fork).collect();
    let ended = |child: &libc::pid_t| {
        let mut status = 0;
        // SAFETY: our own child; the status is this function's own.
        assert_eq!(unsafe { libc::waitpid(*child, &mut status, 0) }, *child);
        status
    };
    let ends: Vec<_> = children.iter().map(ended).collect();
    assert!(ends.iter().all(|status| *status == 0), "the processes ended so: {ends:?}");
}

/// Whether this is the process of the test run, which plays no role.
fn is_the_run() -> bool {
    [ALONE, ROLE].iter().all(|name| env::var_os(name).is_none())
}

/// An empty file that ends with its last descriptor.
pub fn file_without_name() -> File {
    // SAFETY: a new descriptor, which the answer owns.
    unsafe {
        let file = libc::memfd_create(c"transom-test".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0, "there is memory");
        File::from_raw_fd(file)
    }
}

/// A command that runs the test of this path again.
pub fn again(test: &str) -> Command {
    let mut command = Command::new(this_program());
    command.args(arguments(test)).stdout(Stdio::null());
    command
}

/// The user in a new network namespace.
#[derive(Clone, Copy, Debug)]
enum Inside {
    /// Its root. The loopback interface is down.
    Root,
    /// The user of this process. The loopback interface is up.
    Same,
    /// A user without privileges. The loopback interface is up.
    Nobody,
}

/// The same command in a new network namespace; `None` if this user can make none.
fn in_namespace(command: &Command, inside: Inside) -> Option<Command> {
    static CAN: OnceLock<bool> = OnceLock::new();
    let enter = |inside: Inside| {
        let mut unshare = Command::new("unshare");
        unshare.arg("--net");
        // An ordinary user gets one together with a user namespace, if the system allows that.
        match inside {
            _ if is_root() => {}
            Inside::Root => drop(unshare.arg("--map-root-user")),
            Inside::Same | Inside::Nobody => {
                unshare.args(["--map-current-user", "--keep-caps"]);
            }
        }
        let then = match inside {
            Inside::Root => return unshare,
            Inside::Same if is_root() => "",
            Inside::Same => "setpriv --inh-caps=-all --ambient-caps=-all",
            Inside::Nobody => "setpriv --reuid=65534 --regid=65534 --clear-groups",
        };
        unshare.args(["sh", "-c", &format!("ip link set lo up && exec {then} \"$@\""), "sh"]);
        unshare
    };
    let can = || enter(Inside::Same).arg("true").stderr(Stdio::null()).status();
    if !*CAN.get_or_init(|| can().is_ok_and(|status| status.success())) {
        return None;
    }
    let mut entered = enter(inside);
    entered.arg(command.get_program()).args(command.get_args()).stdout(Stdio::null());
    entered.env(NAMESPACE, "").current_dir(command.get_current_dir().unwrap_or(".".as_ref()));
    Some(entered)
}

/// Makes the kernel end this process when the thread that started it ends.
fn stay_with_parent() {
    // SAFETY: this prctl takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// The channel to another process.
#[derive(Debug)]
pub struct Channel(BufReader<UnixStream>);

impl Channel {
    fn new(stream: UnixStream) -> Self {
        // In a long run, the work between two words takes longer, and nobody waits for it.
        let limit = if is_long() { 10 * TIMEOUT } else { TIMEOUT };
        stream.set_read_timeout(Some(limit)).expect("a socket takes a timeout");
        Self(BufReader::new(stream))
    }

    /// Both ends of a channel, for a process and one that it forks.
    pub fn pair() -> (Self, Self) {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        (Self::new(ours), Self::new(theirs))
    }

    /// Says some numbers.
    pub fn tell(&mut self, numbers: &[u64]) {
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let line = words.join(" ") + "\n";
        self.0.get_mut().write_all(line.as_bytes()).expect("the other process listens");
    }

    /// Waits for numbers.
    pub fn hear_all(&mut self) -> Vec<u64> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).expect("a word of the other process");
        assert!(length > 0, "the other process has ended");
        line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
    }

    /// Waits for exactly this many numbers.
    pub fn hear<const N: usize>(&mut self) -> [u64; N] {
        self.hear_all().try_into().expect("as many numbers as expected")
    }

    /// Waits until the other process closes, with this limit for each word. The error is its last word, if it goes on.
    fn wait_for_end(&mut self, limit: Duration) -> Result<String, String> {
        self.0.get_ref().set_read_timeout(Some(limit)).expect("a socket takes a timeout");
        let mut last = String::new();
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                Ok(0) => return Ok(last),
                Ok(_) => last = line,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(last),
                Err(_) => return Err(last),
            }
        }
    }
}

/// A process that this one has started. Dropping this kills it if it still runs.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: std::process::Child,
    /// To talk with it.
    pub channel: Channel,
    /// What it and its own children write to standard error, until it is repeated.
    said: Option<File>,
}

impl Child {
    /// Starts a process that plays the role of this path.
    pub fn start(role: &str) -> Self {
        Self::start_under(role, &[])
    }

    /// The same with a wrapper: a command that runs the command given to it, such as `unshare`.
    pub fn start_under(role: &str, wrapper: &[&str]) -> Self {
        let (module, _) = role.rsplit_once("::").expect("the path of a role");
        let mut command = again(&format!("{module}::role"));
        if let [program, arguments @ ..] = wrapper {
            let mut wrapped = Command::new(program);
            wrapped.args(arguments).arg(command.get_program()).args(command.get_args());
            command = wrapped;
            command.stdout(Stdio::null());
        }
        command.env(ROLE, role).env_remove(ALONE).env_remove(NAMESPACE);
        Self::spawn(role, command)
    }

    fn spawn(name: &str, mut command: Command) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        tell_what_is_built(&mut command);
        let said = is_the_run().then(file_without_name);
        if let Some(said) = &said {
            command.stderr(said.try_clone().expect("one more descriptor"));
        }
        let process = command.stdin(OwnedFd::from(theirs)).spawn();
        let process = process.unwrap_or_else(|error| panic!("starting {name}: {error}"));
        Self { name: name.to_owned(), process, channel: Channel::new(ours), said }
    }

    /// Repeats what it said as words of the test. So they stand with the test that they belong to.
    fn repeat(&mut self) {
        let Some(mut said) = self.said.take() else { return };
        let mut words = Vec::new();
        said.rewind().and_then(|()| said.read_to_end(&mut words)).expect("our own file");
        eprint!("{}", String::from_utf8_lossy(&words));
    }

    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Says some numbers to it.
    pub fn tell(&mut self, numbers: &[u64]) {
        self.channel.tell(numbers);
    }

    /// Waits for numbers of it.
    pub fn hear<const N: usize>(&mut self) -> [u64; N] {
        self.channel.hear()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: our own child, not reaped yet, so the PID is its.
        assert_eq!(unsafe { libc::kill(self.pid() as i32, signal) }, 0);
    }

    /// Kills it with SIGKILL, and reaps it.
    pub fn kill(mut self) {
        self.signal(libc::SIGKILL);
        self.process.wait().expect("a child is waited for");
    }

    /// Stops it. It has stopped when this returns.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        until("the child to stop", || {
            let mut status = 0;
            let flags = libc::WUNTRACED | libc::WNOHANG;
            // SAFETY: our own child; the status is this call's own.
            let found = unsafe { libc::waitpid(self.pid() as i32, &mut status, flags) };
            assert!(found == 0 || libc::WIFSTOPPED(status), "{} ended by itself", self.name);
            (found != 0).then_some(())
        });
    }

    /// Lets it continue.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Waits for its end, which must be a success.
    pub fn finish(self) {
        self.finish_within(TIMEOUT);
    }

    fn finish_within(mut self, limit: Duration) {
        let last = self.channel.wait_for_end(limit);
        self.repeat();
        let last = last.unwrap_or_else(|said| {
            panic!("{} is not done after {limit:?}; the last it said was {said:?}", self.name)
        });
        let status = self.process.wait().expect("a child is waited for");
        let what = "what went wrong is above, the last it said was";
        assert!(status.success(), "{}: {status}; {what} {last:?}", self.name);
        assert_eq!(last.trim_end(), DONE.to_string(), "{} has not run at all", self.name);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // If it has ended and is reaped, both do nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.repeat();
    }
}

/// The function of a role. It gets the channel to the test that started the process.
pub type Role = fn(&mut Channel);

/// Plays the role that this process was started for. In the test run itself it does nothing.
pub fn play(roles: &[(&str, Role)]) {
    let Ok(wanted) = env::var(ROLE) else { return };
    stay_with_parent();
    let (_, wanted) = wanted.rsplit_once("::").expect("the path of a role");
    let (_, role) = roles.iter().find(|(name, _)| wanted == *name).expect("a role of this module");
    let mut channel = parent();
    role(&mut channel);
    channel.tell(&[DONE]);
}

/// Reports progress to the process that started this one. The report helps if this process gets no further.
pub fn note(number: u64) {
    parent().tell(&[number]);
}

/// The channel to the process that started this one.
fn parent() -> Channel {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("one more descriptor");
    Channel::new(UnixStream::from(socket))
}

/// A folder that everybody can read. It is removed with this value, or when this process exits.
#[derive(Debug)]
pub struct Scratch(PathBuf);

/// The folders of this process.
static SCRATCHES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the folders of values that live as long as this process does.
extern "C" fn remove_scratches() {
    let of_this_process = format!("{SCRATCH}{}-", std::process::id());
    // The process exits already, perhaps with the lock held by a thread that exists no more.
    let Ok(left) = SCRATCHES.try_lock() else { return };
    for path in left.iter() {
        let name = path.file_name().expect("it has one").to_string_lossy();
        // Those of the process that forked this one are still in use.
        if name.starts_with(&of_this_process) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Whether every user can enter a folder, and this user can write there.
fn is_for_all(folder: &Path) -> bool {
    let enters = |place: &Path| fs::metadata(place).is_ok_and(|it| it.mode() & 0o001 != 0);
    let writes = || {
        let folder = CString::new(folder.as_os_str().as_bytes()).expect("a path");
        // SAFETY: a string that ends with zero. The call only asks the kernel.
        unsafe { libc::access(folder.as_ptr(), libc::W_OK) == 0 }
    };
    folder.ancestors().all(enters) && writes()
}

impl Scratch {
    /// A new folder for the test of this name.
    pub fn new(name: &str) -> Self {
        static AT_EXIT: Once = Once::new();
        // SAFETY: the function stays, and may run at any time.
        AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(remove_scratches) }, 0));
        let name = format!("{SCRATCH}{}-{}", std::process::id(), name.replace(':', "-"));
        // Other users use these files too. TMPDIR may belong to one user alone.
        let folders = [env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
        let folder = folders.iter().find(|folder| is_for_all(folder)).unwrap_or(&folders[0]);
        let path = folder.join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our own folder");
        scratches().push(path.clone());
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Puts a copy of a file into it, for everybody to read and run.
    ///
    /// A process of its own makes the copy. Otherwise a child that this process forks meanwhile would inherit the open
    /// copy, and nobody can run a file that is open for writing.
    pub fn take(&self, file: &Path) -> PathBuf {
        self.take_as(file, file.file_name().expect("a file has a name"))
    }

    /// The same, under another name.
    pub fn take_as(&self, file: &Path, name: impl AsRef<Path>) -> PathBuf {
        let copy = self.0.join(name);
        let mut install = Command::new("install");
        let done = install.args(["-m", "755"]).arg(file).arg(&copy).status();
        assert!(done.is_ok_and(|status| status.success()), "cannot copy {}", file.display());
        copy
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        scratches().retain(|path| *path != self.0);
    }
}

fn scratches() -> MutexGuard<'static, Vec<PathBuf>> {
    SCRATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An end on this process's device, opened as programs do.
pub fn open() -> End {
    // SAFETY: the list is freed once, after its device is open.
    let context = unsafe {
        let list = ibv_get_device_list(null_mut());
        assert!(!list.is_null() && !(*list).is_null());
        let context = ibv_open_device(*list);
        ibv_free_device_list(list);
        context
    };
    End::on(context)
}

/// The number of a queue pair.
pub fn number(qp: *mut ibv_qp) -> u64 {
    // SAFETY: a live queue pair.
    u64::from(unsafe { (*qp).qp_num })
}

/// [`usual_attr`] for a peer known by its number.
pub fn attr_to(peer: u64) -> ibv_qp_attr {
    ibv_qp_attr { dest_qp_num: peer as u32, ..usual_attr(null_mut()) }
}

/// Connects a queue pair to that of the process at the other end of the channel, which must call [`meet`] as well. Both
/// are in RTS when this returns.
pub fn meet(channel: &mut Channel, qp: *mut ibv_qp) {
    meet_with(channel, qp, usual_attr(null_mut()).retry_cnt);
}

/// The same for a peer that will be lost: this end's requests fail after one retry.
pub fn meet_to_lose(channel: &mut Channel, qp: *mut ibv_qp) {
    meet_with(channel, qp, 1);
}

fn meet_with(channel: &mut Channel, qp: *mut ibv_qp, retry_cnt: u8) {
    channel.tell(&[number(qp)]);
    let [peer] = channel.hear();
    bring_up(qp, &ibv_qp_attr { retry_cnt, ..attr_to(peer) });
    channel.tell(&[]);
    let [] = channel.hear();
}

/// Whom a revocation of this process waits for now.
pub fn waits_for() -> Option<u32> {
    let registry = Registry::open().expect("the registry of this user");
    let pid = std::process::id();
    let me = registry.processes().into_iter().find(|process| process.pid == pid && process.alive);
    me.expect("this process has a device").waits_for
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_for_all_is_none_below_one_that_is_its_owners_alone() {
        let scratch = Scratch::new("for-all");
        let below = scratch.path().join("private/below");
        fs::create_dir_all(&below).expect("our own folder");
        let private = scratch.path().join("private");
        let mode = |mode| fs::set_permissions(&private, fs::Permissions::from_mode(mode));
        mode(0o755).expect("our own folder");
        assert!(is_for_all(scratch.path()) && is_for_all(&below));
        mode(0o700).expect("our own folder");
        assert!(!is_for_all(&private) && !is_for_all(&below));
    }
}
