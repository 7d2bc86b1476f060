//! Words for a shell.

use std::ffi::OsStr;

/// A word as a shell reads it.
pub(crate) fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// An option with its value, and a space before it.
pub(crate) fn option(name: &str, value: impl AsRef<OsStr>) -> String {
    format!(" --{name} {}", quoted(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_if_a_shell_would_take_it_apart() {
        assert_eq!(quoted("mlx5_0,port=down"), "mlx5_0,port=down");
        assert_eq!(quoted("it's here"), "'it'\\''s here'");
        assert_eq!(option("capture", "a b"), " --capture 'a b'");
    }
}
