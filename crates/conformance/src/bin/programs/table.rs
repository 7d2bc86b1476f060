//! Tables of results, printed row by row during the run.

use std::io::Write as _;

use serde_json::{Map, Value};

/// The result of a row that did not run.
pub(crate) const LEFT_OUT: &str = "left out";

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// For people.
    Table,
    /// One JSON object for each row.
    Json,
}

/// The form of a script's table.
#[derive(Debug)]
pub(crate) struct Form {
    /// The script, as on the command line.
    pub(crate) script: &'static str,
    /// What it runs.
    pub(crate) title: &'static str,
    /// The columns that describe a row's run, each with its width.
    pub(crate) subject: &'static [(&'static str, usize)],
    /// The columns with its figures, beside the result.
    pub(crate) figures: &'static [(&'static str, usize)],
}

impl Form {
    /// All columns in order: the run, the result, the figures.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.subject.iter().chain(&[("result", 8)]).chain(self.figures).copied()
    }
}

/// The result of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is well.
    Ok,
    /// Failed, with the problem.
    Failed(String),
    /// Nothing ran. The row gives the reason.
    LeftOut,
}

impl Verdict {
    /// `Ok` if there is no problem.
    pub(crate) fn of(problem: Option<String>) -> Self {
        problem.map_or(Self::Ok, Self::Failed)
    }

    fn problem(&self) -> Option<&String> {
        match self {
            Self::Failed(problem) => Some(problem),
            Self::Ok | Self::LeftOut => None,
        }
    }
}

/// One row of a table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The run.
    pub(crate) subject: Vec<String>,
    /// The figures that were measured or counted.
    pub(crate) figures: Vec<String>,
    /// The result.
    pub(crate) verdict: Verdict,
}

impl Row {
    /// The verdict in a word.
    pub(crate) fn result(&self) -> &'static str {
        match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Failed(_) => "FAILED",
            Verdict::LeftOut => LEFT_OUT,
        }
    }

    /// The cells in the order of [`Form::columns`].
    pub(crate) fn cells(&self) -> impl Iterator<Item = &str> {
        let (subject, figures) = (self.subject.iter(), self.figures.iter());
        subject.map(String::as_str).chain([self.result()]).chain(figures.map(String::as_str))
    }
}

/// The table of a running script.
#[derive(Debug)]
pub(crate) struct Report {
    /// Its form.
    pub(crate) form: &'static Form,
    /// The rows so far.
    pub(crate) rows: Vec<Row>,
    /// Problems of the whole run.
    pub(crate) remarks: Vec<String>,
    style: Style,
}

impl Report {
    /// Prints the head of the table.
    pub(crate) fn begin(form: &'static Form, style: Style) -> Self {
        let report = Self { form, rows: Vec::new(), remarks: Vec::new(), style };
        if style == Style::Table {
            println!("\n{}: {}\n", form.script, form.title);
            report.print_line(form.columns().map(|(name, _)| name));
        }
        report
    }

    /// Prints a row and keeps it.
    pub(crate) fn add(&mut self, row: Row) {
        match self.style {
            Style::Table => self.print_line(row.cells()),
            Style::Json => println!("{}", self.json(&row)),
        }
        self.rows.push(row);
    }

    fn print_line<'a>(&self, cells: impl Iterator<Item = &'a str>) {
        let padded = cells.zip(self.form.columns()).map(|(cell, (_, width))| {
            let padding = width.saturating_sub(cell.chars().count());
            format!("{cell}{:padding$}", "")
        });
        println!("  {}", padded.collect::<Vec<_>>().join("  ").trim_end());
        // A reader behind a pipe wants to see the line now. If nobody reads, the run goes on.
        let _ = std::io::stdout().flush();
    }

    fn json(&self, row: &Row) -> Value {
        let mut object = Map::new();
        object.insert("script".into(), self.form.script.into());
        for ((name, _), cell) in self.form.columns().zip(row.cells()) {
            object.insert(name.into(), cell.into());
        }
        object.insert("problem".into(), row.verdict.problem().cloned().into());
        object.into()
    }

    /// All problems.
    pub(crate) fn problems(&self) -> Vec<String> {
        let failed = self.rows.iter().filter_map(|row| {
            let problem = row.verdict.problem()?;
            let subject = row.subject.join(" ");
            let problem = problem.trim_end().replace('\n', "\n    ");
            Some(format!("\n{} {}:\n    {problem}", self.form.script, subject.trim_end()))
        });
        let remarks = self.remarks.iter().map(|remark| format!("{}: {remark}", self.form.script));
        failed.chain(remarks).collect()
    }
}
