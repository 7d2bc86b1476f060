//! What the documents count.

use std::path::Path;

use transom_conformance::documents::Document;

/// By the rows of the table of where each rule is tested: a rule has one row.
#[test]
fn documents_count_the_rules_as_they_are() {
    let coverage = Document::read("spec/coverage.md");
    let (_, summary) = coverage.text.split_once("| state | rules |").expect("it is there");
    let (summary, _) = summary.split_once("\n\n").expect("it ends");
    let rules: u32 =
        summary.lines().filter_map(|row| row.split('|').nth(2)?.trim().parse::<u32>().ok()).sum();

    let mut documents = Vec::new();
    for Document { path, text } in Document::all() {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (before, _) in text.match_indices(" numbered rules") {
            let (_, said) = text[..before].rsplit_once([' ', '[']).expect("words before it");
            if let Ok(said) = said.parse::<u32>() {
                assert_eq!(said, rules, "{}", path.display());
                documents.push(path.clone());
            }
        }
    }
    for path in ["README.md", "spec/rules.md"] {
        assert!(documents.iter().any(|it| it == Path::new(path)), "{path} has no count");
    }
}
