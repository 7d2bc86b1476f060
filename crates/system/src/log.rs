//! Events of this library as lines on standard error, if you ask for them with `TRANSOM_LOG`.
//!
//! This is for programs that have no Rust but this library's: C programs, and the `transom` command. A Rust program
//! that links the device has the events in its own subscriber, and nothing here replaces that.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::environment::{LOG, NotAllowed};
use crate::say::write_line;

/// Writes events from now on, if `TRANSOM_LOG` asks for any. Call it where all Rust of the program is this
/// library's.
///
/// # Errors
/// `TRANSOM_LOG` is not a level. A device does not open then either, and says so.
pub fn start() -> Result<(), NotAllowed> {
    if let Some(most) = level()? {
        // One that is there already stays.
        let _ = tracing::subscriber::set_global_default(Lines { most });
    }
    Ok(())
}

/// The level that `TRANSOM_LOG` asks for.
///
/// # Errors
/// It is none.
pub fn level() -> Result<Option<LevelFilter>, NotAllowed> {
    LOG.parse("off, error, warn, info, debug or trace", parse)
}

fn parse(asked: &str) -> Option<LevelFilter> {
    asked.parse().ok()
}

/// Writes each event as a line.
struct Lines {
    /// The least severe level that is written.
    most: LevelFilter,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    fn event(&self, event: &Event<'_>) {
        match *event.metadata().level() {
            // Unasked messages look the same here.
            Level::ERROR => write_line(format_args!("transom:{}", Fields(event))),
            level => write_line(format_args!(
                "transom[{}]: {}:{}",
                std::process::id(),
                Lower(level),
                Fields(event)
            )),
        }
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The name of a level, in lower case.
struct Lower(Level);

impl fmt::Display for Lower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_str().chars().try_for_each(|letter| f.write_char(letter.to_ascii_lowercase()))
    }
}

/// The message of an event and its fields, each behind a space.
struct Fields<'e, 'v>(&'e Event<'v>);

impl fmt::Display for Fields<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Writes the fields in order.
        struct Writer<'a, 'f>(&'a mut fmt::Formatter<'f>, fmt::Result);

        impl Visit for Writer<'_, '_> {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                self.1 = self.1.and_then(|()| match field.name() {
                    "message" => write!(self.0, " {value:?}"),
                    name => write!(self.0, " {name}={value:?}"),
                });
            }
        }

        let mut writer = Writer(f, Ok(()));
        self.0.record(&mut writer);
        writer.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_every_rust_program() {
        assert_eq!(parse("off"), Some(LevelFilter::OFF));
        assert_eq!(parse("debug"), Some(LevelFilter::DEBUG));
        assert_eq!(parse("INFO"), Some(LevelFilter::INFO));
        assert_eq!(parse("yes"), None);
    }
}
