//! C programs in `tests/c`: compiled against the packaged headers, and run with our libraries.
//!
//! A program that is compiled stays in the target folder. The tests take it from there until the compiler would be given
//! something else.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::processes::{Scratch, as_nobody, is_root};
use crate::programs::{Printed, Running, program, target};

/// How long a compiler, or a program, may take.
const LIMIT: Duration = Duration::from_secs(120);

const PORT_OF_OTHERS: &str = "transom: UDP port 4791 is had by programs of user ";

/// The libraries for a program that connects.
pub const RDMACM: &[&str] = &["-lrdmacm", "-libverbs", "-lpthread", "-ldl"];

/// Compiles a program into a folder. Every warning is an error. The arguments, including libraries, come
/// after the source.
pub fn compile(scratch: &Scratch, source: &str, output: &str, arguments: &[&str]) -> PathBuf {
    compile_by(&program("cc", "gcc"), scratch, source, output, arguments)
}

/// The same with this compiler.
pub fn compile_by(
    compiler: &Path,
    scratch: &Scratch,
    source: &str,
    output: &str,
    arguments: &[&str],
) -> PathBuf {
    let headers = [("infiniband/verbs.h", "libibverbs-dev"), ("rdma/rdma_cma.h", "librdmacm-dev")];
    for (header, package) in headers {
        let header = Path::new("/usr/include").join(header);
        assert!(header.exists(), "no {}: apt-get install {package}", header.display());
    }
    let compilation = Compilation { compiler, source, arguments };
    let folder = scratch.path().to_str().expect("a plain path");
    // What has the folder's name is of no use to the next test.
    if arguments.iter().any(|argument| argument.contains(folder)) {
        let binary = scratch.path().join(output);
        compilation.run(arguments, &binary);
        return binary;
    }
    scratch.take_as(&compilation.compiled(), output)
}

/// How a program is compiled.
struct Compilation<'a> {
    compiler: &'a Path,
    source: &'a str,
    arguments: &'a [&'a str],
}

impl Compilation<'_> {
    /// The program, compiled now or before.
    fn compiled(&self) -> PathBuf {
        let folder = target().join("c-programs");
        fs::create_dir_all(&folder).expect("a folder in the target folder");
        let work = Work::new(&folder);
        let text = work.0.join("text");
        let (linked, others): (Vec<_>, Vec<_>) =
            self.arguments.iter().partition(|it| is_linked(it));
        self.run(&[&["-E"], &others[..]].concat(), &text);
        let purpose = format!("{}-{:016x}-", self.source.replace('/', "-"), self.purpose());
        let name = format!("{purpose}{:016x}", self.identity(&text, &linked));
        let compiled = folder.join(&name);
        if compiled.exists() {
            return compiled;
        }
        let fresh = work.0.join("program");
        self.run(self.arguments, &fresh);
        fs::rename(&fresh, &compiled).expect("a name in our own folder");
        // Earlier ones are of no use any more, but to a test that just takes one.
        let is_old = |entry: &fs::DirEntry| {
            let age = entry.metadata().ok().and_then(|it| it.modified().ok()?.elapsed().ok());
            age.is_some_and(|age| age > Duration::from_secs(3600))
        };
        for entry in fs::read_dir(&folder).expect("our own folder").flatten() {
            let other = entry.file_name();
            if other.to_string_lossy().starts_with(&purpose) && other != *name && is_old(&entry) {
                let _ = fs::remove_file(entry.path());
            }
        }
        compiled
    }

    fn run(&self, arguments: &[&str], output: &Path) {
        let mut compile = Command::new(self.compiler);
        compile.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(output);
        compile.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(self.source));
        Running::start(compile.args(arguments)).finish(LIMIT);
    }

    /// Tells apart what is made of one source.
    fn purpose(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.compiler, self.arguments).hash(&mut hasher);
        // It stands in what debuggers read.
        std::env::current_dir().expect("a folder that stays").hash(&mut hasher);
        hasher.finish()
    }

    /// Tells apart what the compiler makes of it: of `text`, which is what the preprocessor has left with all headers,
    /// and of what is linked by its path.
    fn identity(&self, text: &Path, linked: &[&str]) -> u64 {
        let mut hasher = DefaultHasher::new();
        let paths = linked.iter().map(Path::new).filter(|path| path.is_absolute());
        for path in [self.compiler].into_iter().chain(paths) {
            let file = fs::metadata(path).expect("it is there");
            (file.ino(), file.size(), file.mtime(), file.mtime_nsec()).hash(&mut hasher);
        }
        // An update may bring another compiler behind this one, and other libraries.
        if let Ok(packages) = fs::metadata("/var/lib/dpkg/status") {
            packages.mtime().hash(&mut hasher);
        }
        fs::read(text).expect("the preprocessor has written it").hash(&mut hasher);
        hasher.finish()
    }
}

/// Whether an argument of a compiler is a library.
fn is_linked(argument: &str) -> bool {
    argument.starts_with("-l") || argument.starts_with('/')
}

/// A folder for what is not finished. It is removed with this value.
struct Work(PathBuf);

impl Work {
    fn new(folder: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = folder.join(format!(".{process}-{count}"));
        // One of a test that was killed may be left.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("our own folder");
        Self(path)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program that prints a line for each behaviour that is right, and checks that it shows this many.
pub fn run(command: &mut Command, behaviours: usize) {
    let what = format!("{command:?}");
    let printed = Running::start(command).success(LIMIT);
    let Printed { output: printed, complaints } =
        printed.unwrap_or_else(|problem| panic!("{problem}"));
    // If another user's programs have the port, the device says so and still works.
    let (of_port, others): (Vec<&str>, Vec<&str>) =
        complaints.lines().partition(|line| line.starts_with(PORT_OF_OTHERS));
    of_port.iter().for_each(|line| eprintln!("{line}"));
    assert!(others.is_empty(), "{what} complains: {others:?}");
    assert!(printed.lines().all(|line| line.starts_with("ok - ")), "{printed}");
    assert_eq!(printed.lines().count(), behaviours, "{printed}");
}

/// Runs a program in which something happens at a time that it is told (`in_time.h`): the first of some at which it is
/// ready for it. It ends with 3 if it is not, as on a busy machine. `command` gets the time as the end of a fault. What
/// it prints.
pub fn in_time(patience: Duration, command: &dyn Fn(&str) -> Command) -> Printed {
    const TOO_EARLY: Option<i32> = Some(3);
    let mut last = String::new();
    for time in [250, 1000, 4000, 16_000] {
        let mut command = command(&format!("at={time}ms"));
        let ended = Running::start(&mut command).end(patience);
        let (status, printed) = ended.unwrap_or_else(|problem| panic!("{problem}"));
        last = format!("{command:?}: {status}, {printed:?}");
        if status.code() != TOO_EARLY {
            assert!(status.success(), "{last}");
            return printed;
        }
    }
    panic!("it is never ready: {last}");
}

/// Runs it as an ordinary user, with copies of the libraries in `folder` that such a user may read.
pub fn run_as_nobody(scratch: &Scratch, binary: &Path, folder: &Path, behaviours: usize) {
    if !is_root() {
        eprintln!("skipped: not root, so the other tests are unprivileged already");
        return;
    }
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        scratch.take(&folder.join(name));
    }
    let mut command = Command::new(binary);
    run(as_nobody(&mut command).env("LD_LIBRARY_PATH", scratch.path()), behaviours);
}
