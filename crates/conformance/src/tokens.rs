//! Splits Rust sources into tokens, so that text in a string or a comment does not count as code.

/// The tokens of Rust that are needed to find items, paths, and the comments and attributes above them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Comment(&'a str),
    Word(&'a str),
    Other(char),
    Group(char, Vec<Token<'a>>),
}

pub(crate) fn lex(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    loop {
        tokens.extend(lexer.group());
        if lexer.at >= source.len() {
            return tokens;
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    /// Reads the tokens up to the end of the open group, including its closing bracket.
    fn group(&mut self) -> Vec<Token<'a>> {
        let mut tokens = Vec::new();
        while let Some(c) = self.rest().chars().next() {
            let from = self.at;
            self.at += c.len_utf8();
            match c {
                '/' if self.rest().starts_with('/') => {
                    self.skip_while(|c| c != '\n');
                    tokens.push(Token::Comment(&self.source[from..self.at]));
                }
                '/' if self.rest().starts_with('*') => {
                    self.block_comment();
                    tokens.push(Token::Comment(&self.source[from..self.at]));
                }
                '(' | '[' | '{' => tokens.push(Token::Group(c, self.group())),
                ')' | ']' | '}' => return tokens,
                '"' => self.string(),
                '\'' => self.char_or_lifetime(),
                _ if c.is_alphanumeric() || c == '_' => {
                    self.skip_while(|c| c.is_alphanumeric() || c == '_');
                    let word = &self.source[from..self.at];
                    match (word, self.rest().chars().next()) {
                        ("r" | "br" | "cr", Some('"' | '#')) if self.raw_string() => {}
                        _ => tokens.push(Token::Word(word)),
                    }
                }
                _ if c.is_whitespace() => {}
                _ => tokens.push(Token::Other(c)),
            }
        }
        tokens
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn skip_while(&mut self, keep: impl Fn(char) -> bool) {
        self.at += self.rest().find(|c| !keep(c)).unwrap_or(self.rest().len());
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        self.at -= 1;
        while !self.rest().is_empty() {
            let step = match () {
                () if self.rest().starts_with("/*") => 1,
                () if self.rest().starts_with("*/") => -1,
                () => 0,
            };
            depth += step;
            self.at += match step {
                0 => self.rest().chars().next().map_or(0, char::len_utf8),
                _ => 2,
            };
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        let mut escaped = false;
        for c in self.rest().chars() {
            self.at += c.len_utf8();
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return,
                _ => {}
            }
        }
    }

    /// After `r`: reads `#"…"#` and returns true, or leaves a raw name such as `r#fn` alone.
    fn raw_string(&mut self) -> bool {
        let hashes = self.rest().len() - self.rest().trim_start_matches('#').len();
        if !self.rest()[hashes..].starts_with('"') {
            return false;
        }
        let end = format!("\"{}", "#".repeat(hashes));
        let body = self.at + hashes + 1;
        self.at = match self.source[body..].find(&end) {
            Some(length) => body + length + end.len(),
            None => self.source.len(),
        };
        true
    }

    fn char_or_lifetime(&mut self) {
        let mut chars = self.rest().chars();
        match (chars.next(), chars.next()) {
            (Some('\\'), Some(escaped)) => {
                self.at += 1 + escaped.len_utf8();
                self.skip_while(|c| c != '\'');
                self.at += usize::from(!self.rest().is_empty());
            }
            (Some(c), Some('\'')) => self.at += c.len_utf8() + 1,
            _ => self.skip_while(|c| c.is_alphanumeric() || c == '_'),
        }
    }
}
