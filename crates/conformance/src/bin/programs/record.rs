//! `spec/programs.md`: the tables of the last recorded run, after a summary of them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::table::{Form, LEFT_OUT, Report, Row};

const FILE: &str = "spec/programs.md";

const HEAD: &str = "\
# Programs that run unchanged

The programs that `cargo xtask programs` runs, with the results of the last recording. These commands write this page:

    cargo xtask programs all --bless
    cargo xtask programs strangers --bless
    cargo xtask programs apart --bless
    cargo xtask programs watchers --bless
    cargo xtask programs sanitized --bless
    cargo xtask programs checked --bless
    cargo xtask programs rehearsed --bless
    cargo xtask programs rxe --bless
    cargo xtask programs rxe-speed --bless

`cargo xtask programs` fails if a row's result differs from this page. The figures may differ.
[docs/programs.md](../docs/programs.md) describes the scripts.

";

/// The table of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    script: String,
    /// The date, the machine, and what the script runs.
    about: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Section {
    fn of(report: &Report, about: String) -> Self {
        Self {
            script: report.form.script.to_owned(),
            about,
            columns: report.form.columns().map(|(name, _)| name.to_owned()).collect(),
            rows: report.rows.iter().map(|row| row.cells().map(str::to_owned).collect()).collect(),
        }
    }

    /// The cell of a row in this column.
    fn cell<'a>(&self, row: &'a [String], column: &str) -> &'a str {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| row.get(at)).map_or("", String::as_str)
    }

    /// The sum of a column of numbers.
    fn sum(&self, column: &str) -> u64 {
        self.rows.iter().filter_map(|row| self.cell(row, column).parse::<u64>().ok()).sum()
    }

    /// The rows grouped by their first cell, in order.
    fn by_first(&self) -> Vec<(&str, Vec<&[String]>)> {
        let mut groups = Vec::<(&str, Vec<&[String]>)>::new();
        for row in &self.rows {
            match groups.last_mut() {
                Some((name, rows)) if *name == row[0] => rows.push(row),
                _ => groups.push((&row[0], vec![row])),
            }
        }
        groups
    }

    fn table(&self) -> String {
        let rules = self.columns.iter().map(|_| "---".to_owned()).collect();
        let lines = [self.columns.clone(), rules].into_iter().chain(self.rows.iter().cloned());
        lines.map(|cells| format!("| {} |\n", cells.join(" | "))).collect()
    }
}

/// The tables of all scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    sections: Vec<Section>,
}

impl Record {
    /// Reads `spec/programs.md`.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let path = root.join(FILE);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let parts = text.split("\n## ").skip(1);
        let section = |part: &str| {
            let lines = || part.lines();
            let about = lines().skip(1).find(|line| !line.is_empty() && !line.starts_with('|'));
            let mut table = lines().filter(|line| line.starts_with('|')).map(cells);
            Section {
                script: lines().next().unwrap_or_default().to_owned(),
                about: about.unwrap_or_default().to_owned(),
                columns: table.next().unwrap_or_default(),
                rows: table.skip(1).collect(),
            }
        };
        Self { sections: parts.map(section).collect() }
    }

    fn render(&self) -> String {
        let section = |s: &Section| format!("\n## {}\n\n{}\n\n{}", s.script, s.about, s.table());
        let begin = [HEAD.to_owned(), self.summary()];
        begin.into_iter().chain(self.sections.iter().map(section)).collect()
    }

    /// Puts a new table in the place of the old one.
    pub(crate) fn replace(&mut self, report: &Report) {
        let about = format!("{} Recorded {}.", sentence(report.form.title), circumstances());
        let new = Section::of(report, about);
        match self.sections.iter_mut().find(|section| section.script == new.script) {
            Some(section) => *section = new,
            None => self.sections.push(new),
        }
    }

    /// Puts the rows of a part of a script in the place of the old ones, or behind them.
    pub(crate) fn put_rows(&mut self, report: &Report) {
        let known = |section: &&mut Section| section.script == report.form.script;
        let Some(section) = self.sections.iter_mut().find(known) else {
            return self.replace(report);
        };
        let again = format!(" Rows were recorded again {}.", circumstances());
        if !section.about.ends_with(&again) {
            section.about += &again;
        }
        let subjects = report.form.subject.len();
        for row in Section::of(report, String::new()).rows {
            match section.rows.iter_mut().find(|old| old[..subjects] == row[..subjects]) {
                Some(old) => *old = row,
                None => section.rows.push(row),
            }
        }
    }

    /// Writes `spec/programs.md`.
    pub(crate) fn write(&self, root: &Path) -> Result<(), String> {
        fs::write(root.join(FILE), self.render())
            .map_err(|error| format!("writing {FILE}: {error}"))
    }

    /// The rows of a run that differ from the record. A long run has rows that are not recorded.
    pub(crate) fn disagreements(&self, report: &Report, long: bool) -> Vec<String> {
        let Form { script, subject, .. } = report.form;
        let section = self.sections.iter().find(|section| section.script == *script);
        let recorded = |row: &Row| {
            let rows = section.map_or(&[][..], |section| &section.rows);
            let known = rows.iter().find(|known| known[..subject.len()] == row.subject)?;
            Some(known[subject.len()].clone())
        };
        let disagreement = |row: &Row| {
            let recorded = recorded(row).or_else(|| (!long).then(|| "nothing".to_owned()))?;
            // Another machine may lack something that the row needs, or have it.
            let other = *script == "watchers" && [&recorded, row.result()].contains(&LEFT_OUT);
            let differs = recorded != row.result() && !other;
            differs.then(|| {
                let what = row.subject.join(" ");
                format!("    {}: {}, recorded: {recorded}", what.trim_end(), row.result())
            })
        };
        let mut rows: Vec<String> = report.rows.iter().filter_map(disagreement).collect();
        if !rows.is_empty() {
            rows.insert(0, format!("\n{script} differs from {FILE}:"));
            let wanted = match *script {
                script @ ("strangers" | "apart" | "watchers" | "sanitized" | "checked"
                | "rxe-speed") => script,
                "rxe-connections" | "rxe-cmtime" => "rxe-connections",
                script if script.starts_with("rehearsed") => "rehearsed",
                script if script.starts_with("rxe") => "rxe",
                _ => "all",
            };
            rows.push(format!(
                "    If it is right now, record it: cargo xtask programs {wanted} --bless"
            ));
        }
        rows
    }

    /// How many runs of each program succeeded. It leaves out measurements.
    fn summary(&self) -> String {
        let mut text = String::from("| program | runs |\n|---|---|\n");
        for section in &self.sections {
            match section.script.as_str() {
                "pyverbs" => text += &pyverbs(section),
                "perftest" => text += &tools(section, |rows| by_service(section, rows)),
                "utils" => text += &tools(section, |rows| how_many(section, rows)),
                "spaces" => text += &groups(section, |wire| format!("across a veth pair, {wire}")),
                "connections" => {
                    text +=
                        &groups(section, |place| format!("what connects by librdmacm, {place}"));
                }
                "strangers" => {
                    text += &groups(section, |program| format!("{program}; idle, one, busy"));
                }
                "apart" => {
                    text += &groups(section, |program| format!("{program}, across a veth pair"));
                }
                "watchers" => {
                    let rows: Vec<&[String]> = section.rows.iter().map(Vec::as_slice).collect();
                    let came = how_many(section, &rows);
                    let _ = writeln!(
                        text,
                        "| our programs under tools that watch or replace their memory | {came} |"
                    );
                }
                "checked" => {
                    let rows: Vec<&[String]> = section.rows.iter().map(Vec::as_slice).collect();
                    let came = how_many(section, &rows);
                    let _ = writeln!(
                        text,
                        "| programs without a finding of `transom check` that is not true | {came} |"
                    );
                }
                _ => {}
            }
        }
        if let Some(when) = self.recorded() {
            let _ = writeln!(text, "\nRecorded {when}");
        }
        text
    }

    /// The dates and the machine of the recorded tables: one day, or from the first day to the last. It leaves out
    /// rxe's tables, which are not in the summary.
    fn recorded(&self) -> Option<String> {
        let shown = self.sections.iter().filter(|s| !s.script.starts_with("rxe"));
        let told: Vec<(&str, &str)> =
            shown.filter_map(|s| s.about.rsplit_once("Recorded ")?.1.split_once(' ')).collect();
        let days = || told.iter().map(|(day, _)| *day);
        let (first, last) = (days().min()?, days().max()?);
        let days = if first == last { first.to_owned() } else { format!("{first} to {last}") };
        Some(format!("{days} {}", told.first()?.1))
    }
}

fn pyverbs(section: &Section) -> String {
    let [tests, pass, skip] = ["tests", "pass", "skip"].map(|column| section.sum(column));
    let rxe = section.columns.last().map_or("", String::as_str);
    let (failed, theirs) = (tests - pass - skip, section.sum(rxe));
    let failed = if failed == 0 { String::new() } else { format!(", **{failed} fail**") };
    format!(
        "| rdma-core's Python tests, the {tests} for any device | {pass} pass, {skip} skipped\
         {failed} ({rxe}: {theirs} pass) |\n"
    )
}

fn tools(section: &Section, describe: impl Fn(&[&[String]]) -> String) -> String {
    let groups = section.by_first().into_iter();
    groups.map(|(tool, rows)| format!("| `{tool}` | {} |\n", describe(&rows))).collect()
}

/// How many runs of each group succeeded.
fn groups(section: &Section, name: impl Fn(&str) -> String) -> String {
    let groups = section.by_first().into_iter();
    let line = |(group, rows): (&str, Vec<&[String]>)| {
        format!("| {} | {} |\n", name(group), how_many(section, &rows))
    };
    groups.map(line).collect()
}

/// For each service, whether all runs succeeded.
fn by_service(section: &Section, rows: &[&[String]]) -> String {
    let mut services: Vec<&str> = rows.iter().map(|row| section.cell(row, "service")).collect();
    services.dedup();
    let describe = |service: &&str| {
        let of: Vec<&[String]> =
            rows.iter().copied().filter(|row| section.cell(row, "service") == *service).collect();
        format!("{service} {}", how_many(section, &of))
    };
    services.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// How many of these runs succeeded.
fn how_many(section: &Section, rows: &[&[String]]) -> String {
    let results = || rows.iter().map(|row| section.cell(row, "result"));
    let ok = results().filter(|result| *result == "ok").count();
    match (ok, results().filter(|result| *result != LEFT_OUT).count()) {
        (_, 0) => LEFT_OUT.to_owned(),
        (1, 1) => "ok".to_owned(),
        (ok, all) if ok == all => format!("{all} ok"),
        (ok, all) => format!("**{ok} of {all}**"),
    }
}

/// The cells of a line of a table.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn sentence(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(['.']).collect()
}

/// Today's date, and this machine.
fn circumstances() -> String {
    let output = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let today = output("date", &["-u", "+%Y-%m-%d"]).unwrap_or_default();
    let kernel = output("uname", &["-sr"]).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // The part after the version names a build of it.
    let kernel = kernel.split('-').next().unwrap_or_default();
    format!("{today} on {kernel}, {processors} processors")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Style, Verdict};

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn the_record_is_read_as_it_is_written() {
        let text = fs::read_to_string(root().join(FILE)).unwrap();
        assert_eq!(Record::parse(&text).render(), text, "run cargo xtask programs all --bless");
    }

    #[test]
    fn rows_of_a_part_take_the_place_of_theirs_and_leave_the_others() {
        static FORM: Form = Form {
            script: "rehearsed",
            title: "programs",
            subject: &[("program", 1)],
            figures: &[("runs", 1)],
        };
        let text = "\n## rehearsed\n\nPrograms. Recorded then.\n\n| program | result | runs |\n\
                    | --- | --- | --- |\n| a | ok | 5 |\n| b | ok | 6 |\n";
        let mut record = Record::parse(text);
        let mut report = Report::begin(&FORM, Style::Json);
        for (program, runs) in [("b", "7"), ("c", "8")] {
            let (subject, figures) = (vec![program.into()], vec![runs.into()]);
            report.add(Row { subject, figures, verdict: Verdict::Ok });
        }
        record.put_rows(&report);
        let rows = record.sections[0].rows.iter().map(|row| row.join(" "));
        assert_eq!(rows.collect::<Vec<_>>(), ["a ok 5", "b ok 7", "c ok 8"]);
        let about = &record.sections[0].about;
        assert!(about.starts_with("Programs. Recorded then. Rows were recorded again "), "{about}");
    }

    #[test]
    fn the_first_day_and_the_last_are_told() {
        let recorded = |tables: &[(&str, &str)]| {
            let section = |(script, day): &(&str, &str)| {
                format!("\n## {script}\n\nTools. Recorded {day} on Linux 6.18, 2 processors.\n")
            };
            Record::parse(&tables.iter().map(section).collect::<String>()).recorded()
        };
        let one = [("utils", "2026-11-22"), ("rxe", "2026-11-20"), ("speed", "2026-11-22")];
        assert_eq!(recorded(&one).as_deref(), Some("2026-11-22 on Linux 6.18, 2 processors."));
        let two = [("utils", "2026-11-22"), ("speed", "2026-11-21"), ("flood", "2026-11-22")];
        let told = "2026-11-21 to 2026-11-22 on Linux 6.18, 2 processors.";
        assert_eq!(recorded(&two).as_deref(), Some(told));
        assert_eq!(recorded(&[]), None);
    }
}
