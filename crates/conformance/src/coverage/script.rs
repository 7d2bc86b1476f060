//! Tests in C, shell and Python.

use std::collections::{BTreeMap, BTreeSet};

use super::Test;
use super::test::ids_in_comment;

/// Finds the tests in a C file, a shell script or a Python file.
///
/// A comment line `Rules: …` above a function names that function; elsewhere, the file.
pub fn scan_script(file: &str, source: &str) -> Vec<Test> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut comment = String::new();
    let mut flush = |comment: &mut String, name: String| {
        let ids = ids_in_comment(comment);
        if !ids.is_empty() {
            found.entry(name).or_default().extend(ids);
        }
        comment.clear();
    };
    for line in source.lines() {
        let line = line.trim();
        let text = ["//", "/*", "*", "#"].iter().find_map(|start| line.strip_prefix(start));
        match text {
            Some(text) => {
                comment.push_str(text.trim_end_matches("*/"));
                comment.push('\n');
            }
            None => {
                let name = match function_name(line) {
                    Some(function) => format!("{file}::{function}"),
                    None => file.to_owned(),
                };
                flush(&mut comment, name);
            }
        }
    }
    flush(&mut comment, file.to_owned());
    found.into_iter().map(|(name, ids)| Test { name, ids }).collect()
}

/// The name of the function whose definition begins on a line of C, shell or Python.
fn function_name(line: &str) -> Option<&str> {
    if line.ends_with(';') {
        return None;
    }
    let head = line.split_once('(')?.0.trim_end();
    let name = head.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
    let control = ["if", "for", "while", "switch", "return"].contains(&name);
    (!name.is_empty() && !head.contains('=') && !control).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::sample::ids;

    #[test]
    fn a_script_or_its_function_is_a_test() {
        let c = "
            /* Everything through the header alone.
             * Rules: PD-01 */
            #include <infiniband/verbs.h>

            /* Rules: PD-02, T1-01 */
            static void refuses(struct ibv_pd *pd)
            {
                /* Rules: AT-10 */
                check(1);
            }
        ";
        let found: Vec<_> =
            scan_script("tests/w.c", c).into_iter().map(|t| (t.name, t.ids)).collect();
        assert_eq!(
            found,
            [
                ("tests/w.c".to_owned(), ids(&["AT-10", "PD-01"])),
                ("tests/w.c::refuses".to_owned(), ids(&["PD-02", "T1-01"])),
            ]
        );
        let shell = "#!/bin/sh\n# Rules: PD-01\nset -e\n# Rules: PD-02\nkilled() {\n:\n}\n";
        let names: Vec<_> = scan_script("tests/x.sh", shell).into_iter().map(|t| t.name).collect();
        assert_eq!(names, ["tests/x.sh", "tests/x.sh::killed"]);
    }
}
