//! Findings as annotations. GitHub shows them beside the lines of the source code.

use std::env;
use std::path::PathBuf;

use transom_check::Gravity;

use super::found::Found;
use super::shown;

/// The variable that is `true` in a GitHub job.
const IN_A_JOB: &str = "GITHUB_ACTIONS";
/// The variable with the directory of the job's checkout. GitHub names files relative to it.
const WORKSPACE: &str = "GITHUB_WORKSPACE";

/// Whether this runs in a GitHub job.
pub(super) fn is_here() -> bool {
    env::var_os(IN_A_JOB).is_some_and(|value| value == "true")
}

/// The directory to which GitHub's file names are relative.
pub(super) fn workspace() -> PathBuf {
    let workspace = env::var_os(WORKSPACE).map(PathBuf::from);
    workspace.or_else(|| env::current_dir().ok()).unwrap_or_default()
}

/// The line that makes an annotation.
pub(super) fn annotation(found: &Found, workspace: &std::path::Path) -> String {
    let command = match found.gravity {
        Gravity::Finding => "error",
        Gravity::Note => "notice",
    };
    let mut properties = Vec::new();
    if let Some((_, source)) = found.calls.first().and_then(shown::source) {
        let file = shown::relative(&source.file, workspace);
        properties.push(format!("file={}", property(&file.display().to_string())));
        properties.push(format!("line={}", source.line));
    }
    properties
        .push(format!("title={}", property(&format!("transom check: {}", found.kind.name()))));
    let mut message = vec![found.says.clone()];
    for call in &found.calls {
        let place = shown::places(call).first().map(|it| shown::place(it, workspace));
        message.push(format!("{}: {}", place.unwrap_or_default(), call.what));
    }
    message.push(found.kind.instead().to_owned());
    format!("::{command} {}::{}", properties.join(","), data(&message.join("\n")))
}

/// Escapes a text for the command's message.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a text for the command's properties.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;
    use std::path::Path;

    #[test]
    fn an_annotation_is_one_line_at_the_place_that_shows_the_mistake() {
        let mut found = found();
        found.says = "100% wrong".into();
        let line = annotation(&found, Path::new("/src"));
        let kind = found.kind.name();
        let start = format!("::error file=server.c,line=83,title=transom check%3A {kind}::");
        let message = line.strip_prefix(&start).unwrap_or_else(|| panic!("{line}"));
        let told = "100%25 wrong%0Aserver.c:83 in finish: destroyed here%0Aserver.c:71 in post_reply: \
                    posted here";
        assert!(message.starts_with(told), "{message}");
        assert!(!line.contains('\n'));
    }

    #[test]
    fn an_annotation_without_a_line_belongs_to_the_job() {
        let mut found = found();
        found.calls.clear();
        assert!(annotation(&found, Path::new("/src")).starts_with("::error title=transom check"));
    }
}
