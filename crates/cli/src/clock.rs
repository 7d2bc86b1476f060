//! Times for people.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// A moment, in nanoseconds since 1970, on the local clock. It has a date unless the date is today's.
pub(crate) fn local(time: u64, now: u64) -> String {
    let (Some(at), Some(today)) = (broken_down(time), broken_down(now)) else {
        return format!("{}.{:03} s after 1970", time / SECOND, time % SECOND / 1_000_000);
    };
    let clock = clock_of(&at, time);
    if (at.tm_year, at.tm_yday) == (today.tm_year, today.tm_yday) {
        clock
    } else {
        format!("{} {clock}", date_of(&at))
    }
}

/// A moment on the local clock, with its date and the distance of its time zone: `2026-05-07 00:11:49.753 +0200`.
pub(crate) fn zoned(time: u64) -> String {
    with_zone(time, ' ', " ", "")
}

/// The same as RFC 3339 has it: `2026-05-07T00:11:49.753+02:00`.
pub(crate) fn rfc3339(time: u64) -> String {
    with_zone(time, 'T', "", ":")
}

/// A moment as a part of a file's name: `20260507-001149.753`.
pub(crate) fn for_a_name(time: u64) -> String {
    let at = broken_down(time).or_else(|| broken_down(0)).expect("1970 has a date");
    format!("{} {}", date_of(&at), clock_of(&at, time)).replace(['-', ':'], "").replace(' ', "-")
}

fn with_zone(time: u64, before_clock: char, before_zone: &str, in_zone: &str) -> String {
    // Only a time beyond all calendars has no date.
    let at = broken_down(time).or_else(|| broken_down(0)).expect("1970 has a date");
    let (date, clock, east) = (date_of(&at), clock_of(&at, time), at.tm_gmtoff / 60);
    let (sign, minutes) = (if east < 0 { '-' } else { '+' }, east.abs());
    let (hours, minutes) = (minutes / 60, minutes % 60);
    format!("{date}{before_clock}{clock}{before_zone}{sign}{hours:02}{in_zone}{minutes:02}")
}

fn date_of(at: &libc::tm) -> String {
    format!("{}-{:02}-{:02}", 1900 + at.tm_year, at.tm_mon + 1, at.tm_mday)
}

fn clock_of(at: &libc::tm, time: u64) -> String {
    let milliseconds = time % SECOND / 1_000_000;
    format!("{:02}:{:02}:{:02}.{milliseconds:03}", at.tm_hour, at.tm_min, at.tm_sec)
}

fn broken_down(time: u64) -> Option<libc::tm> {
    let seconds = libc::time_t::try_from(time / SECOND).ok()?;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both point to this call's own values. The call reads the environment, which nothing in this program
    // changes.
    let filled = unsafe { libc::localtime_r(&seconds, parts.as_mut_ptr()) };
    if filled.is_null() {
        return None;
    }
    // SAFETY: the struct has only integers and a pointer. They were zero at first, and the call has filled
    // them in.
    Some(unsafe { parts.assume_init() })
}

/// Parses a length of time as people write it: a number and its unit.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("give a number with s, m, h or d behind it, such as 30s".to_owned()),
    };
    let seconds = number.parse::<u32>().map(|number| u64::from(number) * seconds);
    seconds.map(Duration::from_secs).map_err(|error| error.to_string())
}

/// An age for people: `3.2 s ago`.
pub(crate) struct Ago(pub(crate) u64);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / SECOND;
        match seconds {
            0..60 => write!(f, "{}.{} s ago", seconds, self.0 % SECOND / (SECOND / 10)),
            60..3600 => write!(f, "{} min ago", seconds / 60),
            3600..172_800 => write!(f, "{} h ago", seconds / 3600),
            _ => write!(f, "{} days ago", seconds / 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_number() {
        let ago = |tenths: u64| Ago(tenths * SECOND / 10).to_string();
        assert_eq!(ago(0), "0.0 s ago");
        assert_eq!(ago(32), "3.2 s ago");
        assert_eq!(ago(599), "59.9 s ago");
        assert_eq!(ago(600), "1 min ago");
        assert_eq!(ago(10 * 7200), "2 h ago");
        assert_eq!(ago(10 * 86_400 * 3), "3 days ago");
    }

    #[test]
    fn lengths_of_time_have_a_unit() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for text in ["", "30", "s", "-1s", "1.5h", "4294967296d", "30 s", "1µ"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn todays_times_have_no_date() {
        let now = now();
        assert_eq!(local(now, now).len(), "12:34:56.789".len());
        assert_eq!(local(now - 3 * 86_400 * SECOND, now).len(), "2000-01-01 12:34:56.789".len());
    }

    #[test]
    fn a_moment_is_the_same_in_both_layouts() {
        let (plain, strict) =
            (zoned(1_234_567_890_123_456_789), rfc3339(1_234_567_890_123_456_789));
        assert!(plain.contains(":31:30.123 ") || plain.contains(":01:30.123 "), "{plain}");
        let digits = |text: &str| text.replace(|letter: char| !letter.is_ascii_digit(), "");
        assert_eq!(digits(&plain), digits(&strict));
        let name = for_a_name(1_234_567_890_123_456_789);
        assert!(
            name.starts_with("2009021") && name.ends_with("30.123") && name.len() == 19,
            "{name}"
        );
    }
}
