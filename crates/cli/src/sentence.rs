//! Sentences about events, and when two of them say the same.

/// A sentence without its numbers. A number begins with a digit, and no other word does.
pub(crate) fn without_numbers(sentence: &str) -> String {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let words = sentence.split_inclusive(|letter| !is_part(letter));
    words.filter(|word| !word.starts_with(|letter: char| letter.is_ascii_digit())).collect()
}

/// A number of things: `1 process`, `2 processes`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_in_numbers_alone_is_the_same() {
        let of = |qp, count| format!("queue pair {qp:#x} has {count} requests, of max_send_wr_2");
        assert_eq!(without_numbers(&of(18, 1)), without_numbers(&of(0x12056e, 40)));
        assert_ne!(without_numbers(&of(18, 1)), without_numbers("queue pair 0x12 has 1 request"));
    }

    #[test]
    fn things_are_counted() {
        assert_eq!(counted(1, "note", "notes"), "1 note");
        assert_eq!(counted(0, "note", "notes"), "0 notes");
    }
}
