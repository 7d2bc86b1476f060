//! The first program over verbs, and what is said of it when a part of it is left out.

use std::fs;

use transom_conformance::documents::{Document, root};
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, ip};

use super::commands::{Session, Step, in_a_network};

const PROGRAM: &str = "crates/conformance/tests/c/first.c";
const SCRIPT: &str = "ci/both.sh";

fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("it is there")
}

#[test]
fn pages_show_the_program_and_the_script_as_they_are() {
    for (page, language, path) in
        [("docs/first.md", "c", PROGRAM), ("docs/rehearse.md", "sh", SCRIPT)]
    {
        let text = file(path);
        let is_it = |text: &str, language: &str| {
            let blocks = Document::read(page).blocks();
            blocks.iter().any(|block| block.language == language && block.text == text)
        };
        assert!(is_it(&text, language), "{page} does not show {path} as it is");
    }
}

/// Each row of the page's table: a part of the program, and what is said without it.
fn rows() -> Vec<(String, String)> {
    let page = Document::read("docs/first.md");
    let (_, behind) =
        page.text.split_once("| without | you see |\n|---|---|\n").expect("its table");
    let row = |line: &str| {
        let (part, said) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((part.replace("\\|", "|"), said.to_owned()))
    };
    behind.lines().map_while(row).collect()
}

/// What the page says of a part whose lack is noticed elsewhere only.
const NOTHING: &str = "nothing here. ";

#[test]
fn without_a_part_of_the_first_program_the_page_says_what_is_said() {
    in_a_network(
        path_of!("without_a_part_of_the_first_program_the_page_says_what_is_said"),
        || {
            ip("link set lo up");
            let scratch = Scratch::new("first");
            let mut session = Session::new(&scratch);
            let program = file(PROGRAM);
            fs::write(scratch.path().join("both.sh"), file(SCRIPT)).expect("our own folder");
            let rows = rows();
            assert!(rows.len() > 10, "{rows:?}");
            let mut wrong = Vec::new();
            for (part, said) in rows {
                assert_eq!(
                    program.matches(&part).count(),
                    1,
                    "it stands once in {PROGRAM}: {part}"
                );
                let text = program.replace(&part, "");
                fs::write(scratch.path().join("first.c"), text).expect("our own folder");
                let (status, output) = match said.strip_prefix(NOTHING) {
                    Some(_) => (0, String::new()),
                    None => (1, said.replace('`', "")),
                };
                let line = "cc -w first.c -o first -libverbs".to_owned();
                session
                    .run(&Step { line, serves: false, status: 0, output: String::new() })
                    .unwrap();
                let both = "sh both.sh 18515 ./first './first 127.0.0.1'";
                let line = format!("transom run --explain -- {both} 2>&1");
                let ran = session.run(&Step { line, serves: false, status, output });
                wrong.extend(ran.err().map(|problem| format!("without {part}\n{problem}")));
            }
            assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        },
    );
}
