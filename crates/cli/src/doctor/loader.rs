//! The libibverbs that a program gets, with `transom run` and without it.

use super::{Finding, State};
use crate::run::library::SONAME;
use crate::run::locate::verbs;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The symbol version of our library. No other library has it.
const OURS: &[u8] = b"TRANSOM_1\0";

const TOPIC: &str = "library";

pub(super) fn findings() -> Vec<Finding> {
    let found = found_by_themselves();
    let mut findings = vec![by_run(), by_itself(found.first().map(PathBuf::as_path))];
    findings.extend(others(&found));
    findings
}

fn by_run() -> Finding {
    match verbs() {
        Ok(library) => {
            let text = format!("under `transom run` programs use {}", library.file.display());
            Finding::new(State::Ok, TOPIC, text)
        }
        Err(problem) => Finding::new(State::Fails, TOPIC, problem.to_string()),
    }
}

fn by_itself(found: Option<&Path>) -> Finding {
    let Some(path) = found else {
        return Finding::new(State::Ok, TOPIC, "without it they find no libibverbs");
    };
    let shown = path.display();
    match fs::read(path) {
        Ok(bytes) if bytes.windows(OURS.len()).any(|part| part == OURS) => {
            let text = format!("without it they use Transom's too: {shown}");
            Finding::new(State::Note, TOPIC, text)
        }
        Ok(_) => {
            Finding::new(State::Ok, TOPIC, format!("without it they use the system's, {shown}"))
        }
        Err(error) => {
            Finding::new(State::Note, TOPIC, format!("without it they use {shown}: {error}"))
        }
    }
}

/// If the loader knows two, a program may get the wrong one.
fn others(found: &[PathBuf]) -> Option<Finding> {
    let (_, others) = found.split_first().filter(|(_, others)| !others.is_empty())?;
    let others: Vec<_> = others.iter().map(|path| path.display().to_string()).collect();
    let text = format!(
        "this system has another libibverbs, which some programs may find: {}",
        others.join(", ")
    );
    Some(Finding::new(State::Note, TOPIC, text))
}

/// The libibverbs that the loader finds for an ordinary program, and then all others.
fn found_by_themselves() -> Vec<PathBuf> {
    let search = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named = env::split_paths(&search).map(|directory| directory.join(SONAME));
    let all = named.filter(|path| path.is_file()).chain(in_cache());
    let mut files = Vec::new();
    // Two paths to the same file count once.
    all.filter(|path| {
        let file = path.canonicalize().unwrap_or_else(|_| path.clone());
        let is_new = !files.contains(&file);
        files.push(file);
        is_new
    })
    .collect()
}

/// The entries of the loader's cache. `ldconfig` is not in everybody's PATH.
fn in_cache() -> Vec<PathBuf> {
    let lists = ["/sbin/ldconfig", "/usr/sbin/ldconfig"];
    let list = lists.iter().find_map(|ldconfig| Command::new(ldconfig).arg("-p").output().ok());
    list.map(|list| listed(&String::from_utf8_lossy(&list.stdout))).unwrap_or_default()
}

/// Parses lines of `ldconfig -p`: name, kind and path. Returns those of libibverbs for this machine, the one that
/// counts first.
fn listed(list: &str) -> Vec<PathBuf> {
    let kind = if cfg!(target_arch = "aarch64") { "AArch64" } else { "x86-64" };
    let lines = list.lines().map(str::trim).filter(|line| line.contains(kind));
    let of_name = lines.filter(|line| line.split(' ').next() == Some(SONAME));
    of_name.filter_map(|line| Some(PathBuf::from(line.split_once(" => ")?.1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_s_cache_is_read() {
        let kind = if cfg!(target_arch = "aarch64") { "AArch64" } else { "x86-64" };
        let list = format!(
            "3 libs found in cache `/etc/ld.so.cache'\n\
             \tlibibverbs.so.1 (libc6) => /usr/lib/i386-linux-gnu/libibverbs.so.1\n\
             \tlibibverbs.so.1 (libc6,{kind}) => /usr/lib/transom/libibverbs.so.1\n\
             \tlibibverbs.so.1 (libc6,{kind}) => /usr/lib/other/libibverbs.so.1\n"
        );
        let found = listed(&list);
        let [first, second] =
            ["transom", "other"].map(|it| format!("/usr/lib/{it}/libibverbs.so.1"));
        assert_eq!(found, [&first, &second].map(PathBuf::from));
        assert!(others(&found).is_some_and(|finding| finding.text.contains(&second)));
        assert!(others(&found[..1]).is_none());
        assert_eq!(listed("0 libs found in cache `/etc/ld.so.cache'"), [""; 0].map(PathBuf::from));
    }
}
