//! The usual causes of a status, an errno or an event, of `docs/symptoms.md`.

use crate::explain::rule::cells;
use crate::failure::{Failure, Result};
use crate::layout::{self, Page};
use std::io::{self, Write};

/// The page. The file is a link in this crate, so that the crate can be published.
const PAGE: &str = include_str!("../../symptoms.txt");

/// A row of a table.
#[derive(Debug)]
struct Symptom {
    /// What shows it: a status, a call or an event.
    of: String,
    /// The errno, or the status of an event. Empty in tables without it.
    code: String,
    causes: String,
}

/// All rows. A row without a call or an event is about that of the row before.
fn symptoms() -> impl Iterator<Item = Symptom> {
    let mut last = String::new();
    PAGE.lines().filter_map(move |line| {
        let mut cells = cells(line)?;
        let causes = plain(&cells.pop()?);
        let code = if cells.len() > 1 { cells.pop()? } else { String::new() };
        let first = cells.pop()?;
        if !first.is_empty() {
            last = first;
        }
        // Not the head of a table.
        let is_row = last.contains('`') || last.starts_with("any ");
        is_row.then(|| Symptom { of: last.clone(), code, causes })
    })
}

/// A text without its links.
fn plain(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().replace('[', "");
    for part in parts {
        let (_, behind) = part.split_once(')').unwrap_or(("", part));
        plain += &behind.replace('[', "");
    }
    plain
}

/// Whether a cell has a name: whole, or without what all of its kind begin with.
fn has(cell: &str, wanted: &str) -> bool {
    let mut names = cell.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    names.any(|name| {
        let name = name.to_ascii_uppercase();
        let short = ["IBV_WC_", "IBV_EVENT_", "RDMA_CM_EVENT_"];
        name == wanted || short.iter().any(|it| name.strip_prefix(it) == Some(wanted))
    })
}

/// Prints the rows about a status, an errno, an event or a call.
pub(super) fn print(name: &str) -> Result {
    let wanted = name.to_ascii_uppercase();
    let is_about = |it: &Symptom| has(&it.of, &wanted) || has(&it.code, &wanted);
    let found: Vec<_> = symptoms().filter(is_about).collect();
    if found.is_empty() {
        return Err(Failure::with_status(
            2,
            format_args!(
                "{name} is no status, errno, event or call with known causes. Write it as in IBV_WC_RETRY_EXC_ERR, \
                 EINVAL, RDMA_CM_EVENT_REJECTED or ibv_modify_qp. `--process {name}` asks about a program of that name"
            ),
        ));
    }
    Ok(write(&mut layout::stdout(), &found)?)
}

fn write(out: &mut Page<impl Write>, found: &[Symptom]) -> io::Result<()> {
    for Symptom { of, code, causes } in found {
        let code = if code.is_empty() { String::new() } else { format!(", {code}") };
        out.text(format!("{of}{code}:").replace('`', ""))?;
        out.item("  ", causes)?;
    }
    out.text("The commonest cause comes first. What happened in your case: `transom explain`.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Vec<String> {
        let found = symptoms().filter(|it| has(&it.of, name) || has(&it.code, name));
        found.map(|it| format!("{}|{}|{}", it.of, it.code, it.causes)).collect()
    }

    #[test]
    fn a_name_leads_to_its_rows() {
        let [status] = &of("IBV_WC_RETRY_EXC_ERR")[..] else { panic!() };
        assert!(status.starts_with("`IBV_WC_RETRY_EXC_ERR`||Nobody answers: "), "{status}");
        assert_eq!(of("RETRY_EXC_ERR"), [status.as_str()]);
        let errnos = of("EINVAL");
        assert!(errnos.len() > 5 && errnos[0].starts_with("`ibv_reg_mr`|`EINVAL`|"), "{errnos:?}");
        // A row goes on with the call of the one before.
        assert!(of("IBV_REG_MR").iter().any(|row| row.contains("|`EFAULT`|")));
        assert_eq!(of("REJECTED"), of("RDMA_CM_EVENT_REJECTED"));
        assert_eq!(of("HELLO"), [""; 0]);
    }

    #[test]
    fn rows_fit_a_terminal_and_have_no_links() {
        let mut out = Page::new(Vec::new(), 80);
        write(&mut out, &symptoms().collect::<Vec<_>>()).unwrap();
        let text = String::from_utf8(out.to).unwrap();
        for line in text.lines() {
            // Quoted text stays whole, even if it is long.
            assert!(line.chars().count() <= 80 || line.contains('`'), "{line}");
            assert!(!line.contains("]("), "{line}");
        }
    }
}
