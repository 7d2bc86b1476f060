//! The page `spec/ordering.md`: litmus tests, each with the table of its outcomes.
//!
//! A test is a heading of the third level with its name, a sentence, a block of the language `litmus`, the table, and a
//! line that begins with `Text:` and names what the judgement was checked against.

use std::collections::BTreeMap;

use super::machine::outcomes;
use super::program::Program;
use super::rules::Authority;

/// What the `Text:` line says if no text was at hand.
pub const UNCHECKED: &str = "not checked against a text";

/// A test of the page.
#[derive(Debug)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// What it does.
    pub program: Program,
    /// The table that the page has.
    pub table: String,
    /// What it was checked against.
    pub text: String,
}

/// What an authority says of an outcome, or of what `run` does.
pub type Said = &'static str;

impl Test {
    /// What each authority says of each outcome that one of them allows, and of the one asked about.
    pub fn judged(&self) -> BTreeMap<Vec<u64>, [Said; 3]> {
        let reached = Authority::ALL.map(|authority| outcomes(&self.program, authority));
        let all = reached.iter().flatten().chain([&self.program.asked.values]);
        let judge = |outcome: &Vec<u64>| {
            let mut said = [""; 3];
            for (at, authority) in Authority::ALL.into_iter().enumerate() {
                said[at] = match (authority, reached[at].contains(outcome)) {
                    (Authority::Model, _) if !self.program.is_of_the_model() => "outside",
                    (Authority::Run, true) => "reached",
                    (Authority::Run, false) => "never",
                    (_, true) => "allowed",
                    (_, false) => "forbidden",
                };
            }
            (outcome.clone(), said)
        };
        all.map(judge).collect()
    }

    /// The table as the page should have it. The outcome asked about is in bold.
    pub fn rendered(&self) -> String {
        let names: Vec<_> = self.program.shown.iter().map(|shown| shown.0.as_str()).collect();
        let mut table =
            format!("| {} | spec | model | run |\n|---|---|---|---|\n", names.join(" "));
        for (outcome, said) in self.judged() {
            let values: Vec<_> = outcome.iter().map(u64::to_string).collect();
            let bold = if outcome == self.program.asked.values { "**" } else { "" };
            table += &format!("| {bold}{}{bold} | {} |\n", values.join(" "), said.join(" | "));
        }
        table
    }
}

/// Reads the tests of a page.
///
/// # Errors
///
/// Says which test is not as it should be, and why.
pub fn parse(page: &str) -> Result<Vec<Test>, String> {
    let sections = page.split("\n### ").skip(1).filter(|section| section.contains("```litmus\n"));
    sections
        .map(|section| parse_test(section).map_err(|(name, why)| format!("{name}: {why}")))
        .collect()
}

fn parse_test(section: &str) -> Result<Test, (String, String)> {
    let (name, rest) = section.split_once('\n').unwrap_or((section, ""));
    let wrong = |why: &str| (name.to_owned(), why.to_owned());
    let (_, rest) = rest.split_once("```litmus\n").ok_or_else(|| wrong("it has no program"))?;
    let (program, rest) =
        rest.split_once("```\n").ok_or_else(|| wrong("its program does not end"))?;
    let program = Program::parse(program).map_err(|why| wrong(&why))?;
    let why = "no line says what it was checked against";
    let (table, text) = rest.split_once("\nText: ").ok_or_else(|| wrong(why))?;
    let rows = table.lines().filter(|line| line.starts_with('|'));
    let table = rows.map(|row| format!("{row}\n")).collect();
    let text = text.split("\n\n").next().unwrap_or_default().trim().to_owned();
    Ok(Test { name: name.to_owned(), program, table, text })
}

/// The page with the table of each test as it should be.
pub fn blessed(page: &str, tests: &[Test]) -> String {
    let mut page = page.to_owned();
    for test in tests {
        let start = page.find(&format!("\n### {}\n", test.name)).expect("it was read from there");
        let block = start + page[start..].find("```litmus\n").expect("its program");
        let end = block + page[block..].find("```\n").expect("its end") + 4;
        let text = end + page[end..].find("Text: ").expect("its line");
        page.replace_range(end..text, &format!("\n{}\n", test.rendered()));
    }
    page
}
