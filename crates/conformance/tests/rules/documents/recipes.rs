//! What the documents tell CIs to check and to rehearse: each line is run as it stands there, on a project that is right
//! and, where it is tests, on the same project with a mistake that fails nowhere else.
//!
//! Whole jobs, with all that they install, are tried by `cargo xtask recipes`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use transom_conformance::c_programs::compile;
use transom_conformance::documents::{Document, root};
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, ip};
use transom_conformance::programs::{Printed, Running, program};

use super::commands::{Session, in_a_network};

/// How long a line may take: some repeat a project twenty times.
const LIMIT: Duration = Duration::from_secs(180);

/// The projects that `cargo xtask recipes` tries whole jobs on. With WRONG in the environment they are wrong.
const PROJECTS: &str = "crates/xtask/roots/projects";

/// What the report says of the mistakes in them.
const CHECKED: &str = "error[busy-ignored]";
const REHEARSED: &str = "single-completions: ";

/// What make returns if a command of it has failed, and what ctest does if a test has.
const MAKE_FAILED: i32 = 2;
const CTEST_FAILED: i32 = 8;

const FOUND: i32 = 66;

/// A folder with one of the projects in it, where lines are typed.
struct Project<'a> {
    scratch: &'a Scratch,
    session: Session<'a>,
}

impl<'a> Project<'a> {
    fn new(scratch: &'a Scratch, name: &str) -> Self {
        let session = Session::new(scratch);
        for file in fs::read_dir(root().join(PROJECTS).join(name)).expect("the project is there") {
            scratch.take(&file.expect("a file of it").path());
        }
        Self { scratch, session }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.scratch.path().join(name), text).expect("our own folder");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.scratch.path().join(name)).unwrap_or_default()
    }

    /// What a line exits with and prints, as a CI with this variable runs it.
    fn runs(&self, line: &str, is_wrong: bool, ci: Option<&str>) -> (Option<i32>, String) {
        let mut shell = self.session.types(line);
        shell.env_remove("GITHUB_ACTIONS").env_remove("MAKEFLAGS");
        shell.envs(ci.map(|name| (name, "true"))).envs(is_wrong.then_some(("WRONG", "1")));
        let (status, Printed { output, complaints }) =
            Running::start(&mut shell).end(LIMIT).expect(line);
        (status.code(), output + &complaints)
    }

    /// Runs a line on the project as it is right.
    fn succeeds(&self, line: &str) {
        let (status, output) = self.runs(line, false, None);
        assert_eq!(status, Some(0), "{line}\n{output}");
    }

    /// Runs a line on the project: it succeeds. With the mistake it exits with this status, and says this of it.
    fn tells(&self, line: &str, ci: Option<&str>, status: i32, says: &str) {
        let (right, output) = self.runs(line, false, ci);
        assert!(right == Some(0) && !output.contains(says), "{line}: {right:?}\n{output}");
        let (wrong, output) = self.runs(line, true, ci);
        assert!(wrong == Some(status) && output.contains(says), "{line}: {wrong:?}\n{output}");
    }
}

/// The rows of a page's table with this heading, each without the bars at its ends.
fn rows<'a>(page: &'a Document, heading: &str) -> Vec<&'a str> {
    let (_, table) = page.text.split_once(heading).expect("the page has this table");
    let rows = table.lines().skip(2).map_while(|row| row.strip_prefix("| ")?.strip_suffix(" |"));
    rows.collect()
}

/// The first piece of code in a row's second cell.
fn code(row: &str) -> &str {
    row.split_once(" | `").and_then(|(_, rest)| rest.split('`').next()).expect("it has code")
}

/// The lines of a page's blocks that check or rehearse something, without what a CI's file has before them.
fn commands(page: &Document) -> Vec<String> {
    let without =
        |line: &str| line.trim().trim_start_matches("- ").trim_start_matches("run: ").to_owned();
    let blocks = page.blocks().into_iter();
    let lines = blocks.flat_map(|block| block.text.lines().map(without).collect::<Vec<_>>());
    let is_one = |line: &String| {
        ["transom check ", "transom rehearse "].iter().any(|begin| line.starts_with(begin))
    };
    lines.filter(is_one).collect()
}

#[test]
fn where_tests_are_checked() {
    in_a_network(path_of!("where_tests_are_checked"), || {
        let page = Document::read("docs/check.md");
        let scratch = Scratch::new("checked-recipes");
        let project = Project::new(&scratch, "check");
        let rows = rows(&page, "| where | how |");
        assert!(rows.len() >= 4, "{rows:?}");
        for row in rows {
            let line = code(row);
            match row.split(' ').next() {
                Some("GitHub") => {
                    let says = "::error file=order.c,line=";
                    project.tells(line, Some("GITHUB_ACTIONS"), FOUND, says);
                }
                Some("GitLab") => {
                    project.tells(line, Some("GITLAB_CI"), FOUND, CHECKED);
                    let (_, file) = row.split_once("junit: ").expect("it says where the report is");
                    let report = project.read(file.trim_end_matches('`'));
                    assert!(report.contains("<failure"), "{row}: {report}");
                }
                Some("make") => {
                    project.succeeds("cc -g order.c -o tests -libverbs");
                    project.write("checked.mk", line);
                    project.tells("make -f checked.mk check", None, MAKE_FAILED, CHECKED);
                }
                Some("ctest") => {
                    program("cmake", "cmake");
                    project.write("CMakeLists.txt", &format!("{CMAKE}{line}\n"));
                    project.succeeds("cmake -B built && cmake --build built");
                    let line = "cd built && ctest --output-on-failure";
                    project.tells(line, None, CTEST_FAILED, CHECKED);
                }
                _ => panic!("nobody runs this: {row}"),
            }
        }
    });
}

/// The beginning of a CMakeLists.txt that makes the project's tests.
const CMAKE: &str = "\
cmake_minimum_required(VERSION 3.13)
project(tests C)
enable_testing()
add_executable(tests order.c)
target_link_libraries(tests ibverbs)
";

/// Stands for the repository that the project is in: it has so many commits.
const GIT: &str = "\
#!/bin/sh
[ \"$*\" = 'rev-list --count HEAD' ] && echo 7
";

/// Stands for OpenMPI's: it starts so many ranks, and crashes after one of them has failed.
const MPIRUN: &str = "\
#!/bin/sh
[ \"$1 $2 $#\" = '-np 4 3' ] || exit 2
for rank in 0 1 2 3; do
    $3 &
    ranks=\"$ranks $!\"
done
for rank in $ranks; do
    wait $rank || failed=1
done
[ ! \"$failed\" ] || kill -SEGV $$
";

/// Programs that are no tests are right here, and some of their calls are made to fail.
#[test]
fn what_is_rehearsed_by_hand() {
    in_a_network(path_of!("what_is_rehearsed_by_hand"), || {
        ip("link set lo up");
        let page = Document::read("docs/rehearse.md");
        let rows = rows(&page, "| you have | command |").into_iter();
        // A bar in a table has a backslash before it.
        let lines = rows.map(|row| code(row).replace("\\|", "|"));
        let lines: Vec<_> = lines.filter(|line| !line.ends_with(" -- make check")).collect();
        assert!(lines.len() >= 3, "{lines:?}");
        let scratch = Scratch::new("rehearsed-by-hand");
        let project = Project::new(&scratch, "rehearse");
        let mpirun = scratch.path().join("bin/mpirun");
        fs::write(&mpirun, MPIRUN).expect("our own folder");
        fs::set_permissions(&mpirun, Permissions::from_mode(0o755)).expect("our own file");
        fs::copy(scratch.path().join("program"), scratch.path().join("ranks")).expect("a script");
        project.write("known.supp", "work-lost give_up\n");
        for line in lines {
            // Nobody waits for so many runs here.
            project.succeeds(&line.replace("--runs 200", "--runs 4"));
        }
        // The shell of the recipe is needed.
        let crashes = "transom rehearse --only refused-objects -- mpirun -np 4 ./ranks";
        let (status, output) = project.runs(crashes, false, None);
        assert_eq!(status, Some(FOUND), "{output}");
    });
}

/// The jobs of CIs, and what is to be typed in others.
#[test]
fn what_is_checked_and_rehearsed_in_ci() {
    in_a_network(path_of!("what_is_checked_and_rehearsed_in_ci"), || {
        ip("link set lo up");
        let rehearsals = Document::read("docs/rehearse.md");
        let of_tables = ["| when | command |", "| you have | command |"]
            .into_iter()
            .flat_map(|heading| rows(&rehearsals, heading))
            .map(|row| code(row).to_owned())
            .filter(|line| line.ends_with(" -- make check"));
        let of_blocks = commands(&Document::read("docs/ci.md"));
        // Nobody waits so long here.
        let mut lines: Vec<_> = of_blocks
            .into_iter()
            .chain(of_tables)
            .map(|line| line.replace("--for 10m", "--for 3s"))
            .collect();
        lines.sort_unstable();
        lines.dedup();
        assert!(lines.len() >= 8, "{lines:?}");
        let scratches = ["check", "rehearse"].map(|it| Scratch::new(&format!("{it}-in-ci")));
        let checked = Project::new(&scratches[0], "check");
        let rehearsed = Project::new(&scratches[1], "rehearse");
        for scratch in &scratches {
            for end in ["server", "client"] {
                compile(scratch, "first.c", end, &["-libverbs"]);
            }
            fs::create_dir(scratch.path().join("ci")).expect("our own folder");
            let git = scratch.path().join("bin/git");
            fs::write(&git, GIT).expect("our own folder");
            fs::set_permissions(git, Permissions::from_mode(0o755)).expect("our own file");
            scratch.take_as(&root().join("ci/both.sh"), "ci/both.sh");
        }
        for line in lines {
            let (project, says) = match line.starts_with("transom check ") {
                true => (&checked, CHECKED),
                false => (&rehearsed, REHEARSED),
            };
            match line.split_once(" -- ").expect("a program").1 {
                // One run may be lucky.
                "make check" if line.contains("--seed") => project.succeeds(&line),
                "make check" => project.tells(&line, None, FOUND, says),
                program if program.starts_with("ci/both.sh ") => project.succeeds(&line),
                _ => panic!("nobody runs this: {line}"),
            }
        }
    });
}
