//! The fenced blocks of a page.

/// A block between two fences.
pub(super) struct Block {
    /// The word after the first fence.
    pub(super) language: String,
    /// The line number of the first fence.
    pub(super) line: usize,
    pub(super) text: String,
}

/// All fenced blocks of a page of Markdown.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let language = language.to_owned();
                open = Some(Block { language, line: number + 1, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_fences_is_taken_with_its_language() {
        let page = "Text\n```sh\none\n\ntwo\n```\nText\n```\nthree\n```\n";
        let found: Vec<_> = blocks(page)
            .into_iter()
            .map(|block| (block.language, block.line, block.text))
            .collect();
        let expected = [("sh", 2, "one\n\ntwo\n"), ("", 8, "three\n")];
        assert_eq!(
            found,
            expected.map(|(language, line, text)| (language.into(), line, text.into()))
        );
    }
}
