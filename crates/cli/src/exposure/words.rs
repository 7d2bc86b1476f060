//! Amounts in words, and words in a page.

use transom_exposure::Rights;

/// Nanoseconds: `310 ms`, `2.1 s`.
pub(super) fn time(nanoseconds: u64) -> String {
    let units = [(1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s")];
    let fits = |(unit, _): &(u64, &str)| nanoseconds >= *unit;
    let (unit, name) = units.into_iter().rev().find(fits).unwrap_or(units[0]);
    format!("{} {name}", short(nanoseconds as f64 / unit as f64))
}

/// Bytes: `4 KiB`.
pub(super) fn bytes(count: u128) -> String {
    let (count, unit) = scaled(count as f64);
    match unit {
        "bytes" if count == 1.0 => "1 byte".to_owned(),
        unit => format!("{} {unit}", short(count)),
    }
}

/// Bytes × nanoseconds: `1.5 MiB × s`.
pub(super) fn bytes_by_time(amount: u128) -> String {
    let seconds = amount as f64 / 1e9;
    let (count, unit) = scaled(seconds);
    if count > 0.0 && seconds < 1.0 {
        return format!("{} bytes × ms", short(seconds * 1e3));
    }
    format!("{} {unit} × s", short(count))
}

fn scaled(mut count: f64) -> (f64, &'static str) {
    const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    while count >= 1024.0 && unit + 1 < UNITS.len() {
        (count, unit) = (count / 1024.0, unit + 1);
    }
    (count, UNITS[unit])
}

/// Three digits, and no zeros behind the point.
fn short(number: f64) -> String {
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    let text = format!("{number:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A part of a whole, in per cent. Only nothing is 0 %, and only all is 100 %.
pub(super) fn percent(part: u128, whole: u128) -> String {
    let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    match percent {
        _ if part == 0 => "0 %".to_owned(),
        _ if part >= whole => "100 %".to_owned(),
        percent if percent < 0.1 => "less than 0.1 %".to_owned(),
        percent if percent > 99.9 => "more than 99.9 %".to_owned(),
        percent => format!("{} %", short((percent * 10.0).round() / 10.0)),
    }
}

/// What peers may do: `reading and writing`.
pub(super) fn rights(rights: Rights) -> String {
    let words = rights.deeds().map(|deed| doing(deed).to_owned());
    let mut words: Vec<_> = words.collect();
    let last = words.pop().unwrap_or_default();
    if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
}

/// What an operation is called as a use.
pub(super) fn doing(deed: transom_exposure::Deed) -> &'static str {
    match deed {
        transom_exposure::Deed::Read => "reading",
        transom_exposure::Deed::Write => "writing",
        transom_exposure::Deed::Atomic => "atomics",
    }
}

/// Text for a page.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() => out.push('?'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits() {
        let times = [0, 7, 1_500, 310_000_000, 2_140_000_000, 3_600_000_000_000].map(time);
        assert_eq!(times, ["0 ns", "7 ns", "1.5 µs", "310 ms", "2.14 s", "3600 s"]);
        assert_eq!([0, 1, 4096, 1 << 20].map(bytes), ["0 bytes", "1 byte", "4 KiB", "1 MiB"]);
        let by_time = [0, 4_000_000, 4096 * 2_500_000_000].map(bytes_by_time);
        assert_eq!(by_time, ["0 bytes × s", "4 bytes × ms", "10 KiB × s"]);
    }

    #[test]
    fn a_page_shows_names_as_they_are() {
        assert_eq!(escaped("a<b> \"&\n"), "a&lt;b&gt; &quot;&amp;?");
    }

    #[test]
    fn only_nothing_is_none_and_only_all_is_all() {
        let parts = [0, 1, 4_560, 10_000, 9_999_999, 10_000_000].map(|it| percent(it, 10_000_000));
        let expected =
            ["0 %", "less than 0.1 %", "less than 0.1 %", "0.1 %", "more than 99.9 %", "100 %"];
        assert_eq!(parts, expected);
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "0 %");
    }
}
