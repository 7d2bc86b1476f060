//! The commands that the documents tell people to type: each is run as it stands there.
//!
//! Each page runs in a network of its own, line by line, in one folder and with what its lines export. A line
//! that is typed `in one terminal` goes on behind those that follow it in its block, which wait until it
//! listens.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_conformance::c_programs::compile;
use transom_conformance::documents::{Block, Document, root};
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, Way, alone, ip};
use transom_conformance::programs::{Printed, Running, command};
use transom_system::registry::Registry;
use transom_system::registry::connections::Connections;

/// Those whose commands are run.
const PAGES: [&str; 10] = [
    "README.md",
    "docs/first.md",
    "docs/check.md",
    "docs/rehearse.md",
    "docs/exposure.md",
    "docs/run.md",
    "docs/install.md",
    "docs/network.md",
    "docs/faults.md",
    "docs/rust.md",
];

/// Those whose commands are run otherwise: of CIs by `cargo xtask recipes`, and what they check and rehearse by the module
/// beside this one; what is for those who work on Transom, by them and by `./test`; what is for those who have a crate of
/// it, when it is published.
const OTHER_PAGES: [&str; 13] = [
    "CONTRIBUTING.md",
    "crates/cli/README.md",
    "docs/ci.md",
    "docs/contributing/documents.md",
    "docs/contributing/releases.md",
    "docs/contributing/rules.md",
    "docs/contributing/tests.md",
    "docs/contributing/unsafe.md",
    "docs/sanitizers.md",
    "docs/see.md",
    "docs/top.md",
    "fuzz/README.md",
    "spec/costs.md",
];

/// What commands begin with that are run here.
const HERE: [&str; 5] = ["cargo run ", "cc ", "export ", "target/release/transom ", "transom "];

/// A command that is not run here, and where instead: this file has that text.
struct Elsewhere {
    command: &'static str,
    file: &'static str,
    text: &'static str,
}

/// What has been built for the tests stands in for what `cargo build --release` takes minutes to build, and
/// nothing is installed on this system: that is done in roots made for it.
const ELSEWHERE: [Elsewhere; 13] = [
    Elsewhere {
        command: "cargo build --release",
        file: "crates/conformance/src/bin/programs/extent.rs",
        text: "\"release\"",
    },
    Elsewhere { command: "./test", file: ".ci/run", text: " ./test\n" },
    in_a_root("install -D transom-x86_64 ~/.local/bin/transom", "install -m 755"),
    in_a_root("apt install ./transom_0.1.0_amd64.deb", "apt install -y \"$deb\""),
    in_a_root("dnf install ./transom-0.1.0-1.x86_64.rpm", "dnf install -y \"$rpm\""),
    in_a_root(
        "tar -C ~/.local --strip-components=1 -xf transom-0.1.0-x86_64.tar.gz",
        "tar -C ~/.local --strip-components=1 -xf",
    ),
    in_a_root("rm ~/.local/bin/transom", "rm /home/anna/transom"),
    in_a_root("apt remove transom", "apt remove -y transom"),
    in_a_root("dnf remove transom", "dnf remove -y transom"),
    in_a_root(REMOVE_ARCHIVE, REMOVE_ARCHIVE),
    in_a_root(
        "echo /usr/lib/transom >/etc/ld.so.conf.d/000-transom.conf",
        "echo /usr/lib/transom >/etc/ld.so.conf.d/000-transom.conf",
    ),
    in_a_root("rm /etc/ld.so.conf.d/000-transom.conf", "rm /etc/ld.so.conf.d/000-transom.conf"),
    in_a_root("ldconfig", "ldconfig"),
];

const REMOVE_ARCHIVE: &str = "rm -r ~/.local/bin/transom ~/.local/lib/transom ~/.local/include/transom.h \
    ~/.local/share/doc/transom ~/.local/share/*/*/*transom*";

const fn in_a_root(command: &'static str, text: &'static str) -> Elsewhere {
    Elsewhere { command, file: "crates/xtask/roots/inside", text }
}

/// Servers that go on after their clients.
const ENDLESS: [&str; 2] = ["http.server", "-- server"];

/// Stands for whatever a user runs: it READs, and is right. A rehearsal starts it a hundred times.
const PROGRAM: &str = "\
#!/bin/sh
exec ./moments reads-early right
";

/// Runs the command and the examples that have been built, where users have `cargo` build them: its locks and its
/// looks at what is up to date are not what the pages are about.
const CARGO: &str = "\
#!/bin/sh
set -eu
if [ \"$1 $2 $3 $4 $5\" = 'run --release --bin transom --' ]; then
    shift 5
    exec target/release/transom \"$@\"
fi
[ \"$1 $2 $3 $4\" = 'run -p transom --example' ]
example=$5
shift 5
[ $# = 0 ] || shift
exec \"$EXAMPLES/$example\" \"$@\"
";

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn every_command_is_run_here_or_elsewhere() {
    let of_page = |page| {
        let steps: Vec<_> = Document::read(page).blocks().iter().flat_map(steps).collect();
        assert!(!steps.is_empty(), "{page} has no commands");
        steps
    };
    let steps: Vec<Step> = PAGES.into_iter().flat_map(of_page).collect();
    let commands: BTreeSet<&str> = steps.iter().flat_map(Step::commands).collect();
    let elsewhere: Vec<_> = commands.iter().filter(|command| !is_run_here(command)).collect();
    for Elsewhere { command, file, text } in ELSEWHERE {
        assert!(elsewhere.contains(&&command), "no document has {command}");
        let content = fs::read_to_string(root().join(file)).expect("it is there");
        assert!(content.contains(text), "{command} is not run by {file}");
    }
}

#[test]
fn every_page_with_commands_is_known() {
    let pages: Vec<_> = Document::all()
        .into_iter()
        .filter(|page| page.blocks().iter().any(|it| ["sh", "console"].contains(&&*it.language)))
        .filter(|page| !PAGES.iter().chain(&OTHER_PAGES).any(|it| page.path == Path::new(it)))
        .map(|page| page.path)
        .collect();
    assert!(pages.is_empty(), "nobody runs the commands of {pages:?}");
}

/// Tasks of this repository, and files in it.
#[test]
fn what_contributors_are_to_type_is_there() {
    let pages = Document::all()
        .into_iter()
        .filter(|page| OTHER_PAGES.iter().any(|it| page.path == Path::new(it)));
    let blocks = pages.flat_map(|page| page.blocks()).filter(|block| block.language == "sh");
    let lines: Vec<_> = blocks.map(|block| block.text).collect();
    let lines = || lines.iter().flat_map(|text| text.lines());
    let tasks = fs::read_to_string(root().join("crates/xtask/src/main.rs")).expect("it is there");
    let tasks: Vec<_> = lines()
        .filter_map(|line| line.strip_prefix("cargo xtask ")?.split_whitespace().next())
        .filter(|task| !tasks.contains(&format!("    {}", variant(task))))
        .collect();
    let files = lines().filter_map(|line| line.split_whitespace().next());
    let files: Vec<_> =
        files.filter(|it| it.starts_with("./") && !root().join(it).is_file()).collect();
    assert!(lines().any(|line| line.starts_with("cargo xtask ")), "they type some");
    assert!(tasks.is_empty() && files.is_empty(), "there is no {tasks:?}, nor {files:?}");
}

/// The name of a subcommand as an enum has it.
fn variant(task: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    task.split('-').map(word).collect()
}

#[test]
fn the_readme() {
    in_a_network(path_of!("the_readme"), || run_page("README.md"));
}

#[test]
fn your_first_program() {
    in_a_network(path_of!("your_first_program"), || run_page("docs/first.md"));
}

#[test]
fn finding_mistakes() {
    in_a_network(path_of!("finding_mistakes"), || run_page("docs/check.md"));
}

#[test]
fn rehearsing_a_program() {
    in_a_network(path_of!("rehearsing_a_program"), || run_page("docs/rehearse.md"));
}

#[test]
fn what_a_program_opens_to_its_peers() {
    in_a_network(path_of!("what_a_program_opens_to_its_peers"), || run_page("docs/exposure.md"));
}

#[test]
fn running_programs() {
    in_a_network(path_of!("running_programs"), || run_page("docs/run.md"));
}

#[test]
fn installing_it() {
    in_a_network(path_of!("installing_it"), || run_page("docs/install.md"));
}

#[test]
fn between_hosts() {
    in_a_network(path_of!("between_hosts"), || run_page("docs/network.md"));
}

#[test]
fn watching_it() {
    in_a_network(path_of!("watching_it"), || run_page("docs/faults.md"));
}

#[test]
fn from_rust() {
    in_a_network(path_of!("from_rust"), || run_page("docs/rust.md"));
}

/// Where ports are this test's own. What it needs is built before, for that may take long.
pub(super) fn in_a_network(test: &str, body: fn()) {
    command();
    alone(test, Way::Namespace, body);
}

/// A line that somebody types.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) line: String,
    /// It is a server, for those that follow it in its block.
    pub(super) serves: bool,
    /// How it exits.
    pub(super) status: i32,
    /// What it prints, where the document shows it.
    pub(super) output: String,
}

impl Step {
    /// Each of which may be run here or elsewhere.
    fn commands(&self) -> impl Iterator<Item = &str> {
        self.line.split(" && ")
    }
}

/// Whether a command is run here; nothing is that nobody has thought of.
fn is_run_here(command: &str) -> bool {
    let elsewhere = ELSEWHERE.iter().any(|it| it.command == command);
    let here = HERE.iter().any(|begin| command.starts_with(begin));
    assert!(here ^ elsewhere, "neither run here nor elsewhere: {command}");
    here
}

/// What is typed of a block, if anything is.
fn steps(block: &Block) -> Vec<Step> {
    let shows_output = match &*block.language {
        // A script is a file, for lines that come later.
        "sh" if block.text.starts_with("#!") => return Vec::new(),
        "sh" => false,
        "console" => true,
        _ => return Vec::new(),
    };
    let mut steps = Vec::<Step>::new();
    for line in block.text.lines().filter(|line| !line.is_empty()) {
        let typed = if shows_output { line.strip_prefix("$ ") } else { Some(line) };
        let Some(typed) = typed else {
            let step = steps.last_mut().expect("a command comes before its output");
            step.output += line;
            step.output.push(' ');
            continue;
        };
        let (line, comment) = typed.split_once(" # ").unwrap_or((typed, ""));
        assert!(!line.replace("&&", "").contains(['&', ';', '|']), "not a plain line: {line}");
        let serves = ["in one terminal", "on one host"].iter().any(|it| comment.starts_with(it));
        let status = comment.strip_prefix("exits with ").map(|it| it.parse().expect("a status"));
        let (line, status) = (line.trim().to_owned(), status.unwrap_or(0));
        steps.push(Step { line, serves, status, output: String::new() });
    }
    steps
}

fn run_page(page: &str) {
    ip("link set lo up");
    let page = Document::read(page);
    let scratch = Scratch::new("documents");
    let mut session = Session::new(&scratch);
    for block in page.blocks() {
        // A program that the commands compile has a name, and so has a script.
        let begins = ["// ", "#!/bin/sh\n# "].iter().find_map(|it| block.text.strip_prefix(it));
        if let ("c" | "sh", Some(text)) = (&*block.language, begins) {
            let name = text.split([':', ' ']).next().expect("a name");
            fs::write(scratch.path().join(name), &block.text).expect("our own folder");
        }
        let mut servers = Vec::new();
        for step in steps(&block) {
            let problem = match step.serves {
                true => session.serve(&step).map(|server| servers.push((server, step))).err(),
                false => session.run(&step).err(),
            };
            if let Some(problem) = problem {
                panic!("{}, line {}: {problem}", page.path.display(), block.line);
            }
        }
        for (server, step) in servers {
            if !ENDLESS.iter().any(|it| step.line.contains(it)) {
                server.success(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
            }
        }
    }
}

/// Where somebody types.
pub(super) struct Session<'a> {
    folder: &'a Path,
    /// What is in the environment otherwise than around this test.
    exported: Vec<(OsString, OsString)>,
}

impl<'a> Session<'a> {
    /// In a folder where it looks as at the root of the repository after `cargo build --release`.
    pub(super) fn new(scratch: &'a Scratch) -> Self {
        let folder = scratch.path();
        let built = command()[0].parent().expect("a profile's folder");
        fs::create_dir_all(folder.join("target")).expect("our own folder");
        symlink(built, folder.join("target/release")).expect("our own folder");
        symlink(root().join("crates"), folder.join("crates")).expect("our own folder");
        let write = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("our own folder");
            fs::write(&file, text).expect("our own folder");
            fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("our own file");
        };
        compile(scratch, "rehearsed/moments.c", "moments", &["-libverbs"]);
        write("program", PROGRAM);
        write("bin/cargo", CARGO);
        let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let ours = [folder.join("bin"), built.to_owned()].into_iter();
        let path = env::join_paths(ours.chain(env::split_paths(&path))).expect("a path");
        let examples = built.join("examples").into_os_string();
        Self { folder, exported: vec![("PATH".into(), path), ("EXAMPLES".into(), examples)] }
    }

    /// A shell that is to do this, with what is not run here left out.
    fn shell(&self, before: &str, step: &Step, after: &str) -> Command {
        let commands = step.commands().map(|it| if is_run_here(it) { it } else { ":" });
        let commands: Vec<&str> = commands.collect();
        let line =
            commands.join(" && ").replace("PROGRAM", "./program").replace("HOST", "127.0.0.1");
        self.types(&format!("{before}{line}{after}"))
    }

    /// A shell that is to do what somebody types.
    pub(super) fn types(&self, text: &str) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-euc", text]).current_dir(self.folder);
        for (name, _) in env::vars_os() {
            if ["TRANSOM_", "LD_"].iter().any(|it| name.as_bytes().starts_with(it.as_bytes())) {
                shell.env_remove(name);
            }
        }
        shell.envs(self.exported.iter().cloned());
        shell
    }

    /// Runs a line to its end, and keeps what it exports.
    pub(super) fn run(&mut self, step: &Step) -> Result<(), String> {
        let shell = &mut self.shell("", step, "\nenv -0 >.environment");
        let (status, Printed { output, complaints }) = Running::start(shell).end(LIMIT)?;
        if status.code() != Some(step.status) {
            return Err(format!("{}: {status}\n{output}{complaints}", step.line));
        }
        let has_it = without_numbers(&output).contains(&without_numbers(&step.output));
        has_it.then_some(()).ok_or_else(|| format!("not what the document has: {output}"))?;
        let exported = fs::read(self.folder.join(".environment")).expect("it has been written");
        let exported = exported.split(|byte| *byte == 0).filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            let [name, value] = [&variable[..at], &variable[at + 1..]].map(OsStr::from_bytes);
            let differs = env::var_os(name).is_none_or(|known| known != value);
            differs.then(|| (name.to_owned(), value.to_owned()))
        });
        self.exported = exported.collect();
        Ok(())
    }

    /// Starts a server, and waits until it listens.
    fn serve(&self, step: &Step) -> Result<Running, String> {
        let before = listeners();
        let mut server = Running::start(&mut self.shell("exec ", step, ""));
        server.wait_until("listens", || listeners() > before)?;
        if server.has_ended() {
            let (status, Printed { output, complaints }) = server.end(LIMIT)?;
            return Err(format!("{}: {status}\n{output}{complaints}", step.line));
        }
        Ok(server)
    }
}

/// How many listen in this network, by TCP or by `rdma_cm`.
fn listeners() -> usize {
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    let tables = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
    let of_table = |table: String| {
        table.lines().filter(|line| line.split_whitespace().nth(3) == Some("0A")).count()
    };
    let registry = Registry::open().expect("a registry");
    let connections = Connections::look(registry).expect("what the registry has").map(|table| {
        let ports = table.lock().expect("nobody keeps it").all_ports();
        ports.iter().filter(|port| port.listens).count()
    });
    tables.map(of_table).sum::<usize>() + connections.unwrap_or(0)
}

/// What differs from run to run is left out, and how lines are broken.
fn without_numbers(text: &str) -> String {
    let of_number = |letter: char| letter.is_ascii_hexdigit() || "x.…".contains(letter);
    let of_word = |word: &str| match word {
        "ns" | "µs" | "ms" | "s" => String::new(),
        word if word.contains(|letter: char| letter.is_ascii_digit()) => {
            word.replace(of_number, "")
        }
        word => word.to_owned(),
    };
    text.split_whitespace().map(of_word).collect::<Vec<_>>().join(" ")
}
