//! Which libibverbs a program gets, by `transom run` and without it.

use super::{Finding, State};
use crate::run::library::{SONAME, verbs};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the symbols of our library have as a version, and no other's.
const OURS: &[u8] = b"TRANSOM_1\0";

pub(super) fn findings() -> [Finding; 2] {
    [by_run(), by_itself(found_by_itself().as_deref())]
}

fn by_run() -> Finding {
    match verbs() {
        Ok(library) => {
            let text = format!("`transom run` leads programs to {}", library.file.display());
            Finding::new(State::Ok, text)
        }
        Err(problem) => Finding::new(State::Fails, problem.to_string()),
    }
}

fn by_itself(found: Option<&Path>) -> Finding {
    let Some(path) = found else {
        return Finding::new(State::Ok, "without it they find no libibverbs");
    };
    let shown = path.display();
    match fs::read(path) {
        Ok(bytes) if bytes.windows(OURS.len()).any(|part| part == OURS) => {
            Finding::new(State::Note, format!("without it they find Transom's too: {shown}"))
        }
        Ok(_) => Finding::new(State::Ok, format!("without it they find the system's, {shown}")),
        Err(error) => Finding::new(State::Note, format!("without it they find {shown}: {error}")),
    }
}

/// Where the loader finds libibverbs for a program that says nothing of it.
fn found_by_itself() -> Option<PathBuf> {
    let search = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named = env::split_paths(&search).map(|directory| directory.join(SONAME));
    named.into_iter().find(|path| path.is_file()).or_else(in_cache)
}

/// What the loader's cache has. It is not in everybody's PATH.
fn in_cache() -> Option<PathBuf> {
    let lists = ["/sbin/ldconfig", "/usr/sbin/ldconfig"];
    let list = lists.iter().find_map(|ldconfig| Command::new(ldconfig).arg("-p").output().ok())?;
    listed(&String::from_utf8_lossy(&list.stdout))
}

/// A line of `ldconfig -p`: name, kind and path. The first of a name and this machine's kind counts.
fn listed(list: &str) -> Option<PathBuf> {
    let kind = if cfg!(target_arch = "aarch64") { "AArch64" } else { "x86-64" };
    let mut lines = list.lines().map(str::trim).filter(|line| line.contains(kind));
    let line = lines.find(|line| line.split(' ').next() == Some(SONAME))?;
    Some(PathBuf::from(line.split_once(" => ")?.1))
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
        assert_eq!(listed(&list), Some("/usr/lib/transom/libibverbs.so.1".into()));
        assert_eq!(listed("0 libs found in cache `/etc/ld.so.cache'"), None);
    }
}
