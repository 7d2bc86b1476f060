//! C programs in `tests/c`: compiled against the packaged headers, and run with our libraries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::processes::{Scratch, as_nobody, is_root};
use crate::programs::{Printed, Running, program};

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
    let binary = scratch.path().join(output);
    let mut compile = Command::new(compiler);
    compile.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&binary);
    compile.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source));
    Running::start(compile.args(arguments)).finish(LIMIT);
    binary
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
