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
    let clock = format!(
        "{:02}:{:02}:{:02}.{:03}",
        at.tm_hour,
        at.tm_min,
        at.tm_sec,
        time % SECOND / 1_000_000
    );
    if (at.tm_year, at.tm_yday) == (today.tm_year, today.tm_yday) {
        clock
    } else {
        format!("{}-{:02}-{:02} {clock}", 1900 + at.tm_year, at.tm_mon + 1, at.tm_mday)
    }
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
}
