//! The record of what operations cost, `spec/costs.md`, and how what is measured differs from it.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

/// Instructions may be more or fewer by so many hundredths.
const TOLERANCE: u64 = 5;

/// A table: a row for each step of each operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) title: String,
    /// Between whom.
    pub(crate) columns: Vec<String>,
    /// Operation, step, and a cell for each column.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Display for Table {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "## {}\n", self.title)?;
        writeln!(to, "| operation | step | {} |", self.columns.join(" | "))?;
        writeln!(to, "|---|---|{}", "---|".repeat(self.columns.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(to, "| {} |", row.join(" | ")))
    }
}

impl Table {
    /// The table of this title in a text, without rows if it is not there.
    pub(crate) fn find(text: &str, title: &str) -> Self {
        let of_title = text.split("\n## ").find(|part| part.lines().next() == Some(title));
        let mut lines = of_title.unwrap_or_default().lines().filter_map(cells);
        let columns = lines.next().unwrap_or_default().into_iter().skip(2).collect();
        Self { title: title.to_owned(), columns, rows: lines.collect() }
    }

    /// Where the cells of a measured table are not as recorded, by `is_alike`. What was not measured is not
    /// missed.
    pub(crate) fn differences(
        &self,
        measured: &Self,
        is_alike: impl Fn(&str, &str) -> bool,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for row in &measured.rows {
            let recorded = self.rows.iter().find(|recorded| recorded[..2] == row[..2]);
            for (column, cell) in measured.columns.iter().zip(&row[2..]) {
                let at = self.columns.iter().position(|recorded| recorded == column);
                let was = recorded.zip(at).map_or("nothing", |(row, at)| &row[2 + at]);
                if !is_alike(was, cell) {
                    let of = row[..2].join(", ");
                    found.push(format!("{} of {of}, {column}: {cell}, recorded {was}", self.title));
                }
            }
        }
        found
    }
}

/// The cells of a line of a table.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(inner.split(" | ").map(|cell| cell.trim().to_owned()).collect())
}

/// Whether so many instructions are about as many as recorded.
pub(crate) fn are_about_equal(recorded: &str, measured: &str) -> bool {
    let [Ok(recorded), Ok(measured)] = [recorded, measured].map(str::parse::<u64>) else {
        return false;
    };
    let margin = recorded * TOLERANCE / 100;
    let expected: RangeInclusive<u64> = recorded.saturating_sub(margin)..=recorded + margin;
    expected.contains(&measured)
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let table = Table {
        title: "Instructions".into(),
        columns: vec!["here".into(), "there".into()],
        rows: vec![vec!["SEND".into(), "post".into(), "100".into(), "–".into()]],
    };
    let text = format!("# Costs\n\n{}\n{table}", Table { title: "Other".into(), ..table.clone() });
    assert_eq!(Table::find(&text, "Instructions"), table);
    assert_eq!(Table::find(&text, "None").rows, [[""; 0]; 0]);
}

#[test]
fn what_costs_more_than_recorded_is_a_difference() {
    let with = |cost: &str| Table {
        title: "Instructions".into(),
        columns: vec!["here".into()],
        rows: vec![vec!["SEND".into(), "post".into(), cost.into()]],
    };
    for (cost, differs) in [("1000", false), ("1050", false), ("1051", true), ("949", true)] {
        let found = with("1000").differences(&with(cost), are_about_equal);
        assert_eq!(!found.is_empty(), differs, "{found:?}");
    }
    let nothing = Table::find("", "Instructions");
    assert_eq!(nothing.differences(&with("1000"), are_about_equal).len(), 1);
    assert_eq!(with("–").differences(&with("write"), str::eq).len(), 1);
}
