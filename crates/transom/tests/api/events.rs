//! The device's events of `tracing`: a program's own subscriber gets them.

use std::fmt::{Debug, Write};
use std::sync::Mutex;

use crate::common::{Pair, alone, path_of};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps each event as a line.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("transom")
    }

    fn event(&self, event: &Event<'_>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                write!(self.0, " {}={value:?}", field.name()).expect("into a string");
            }
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        unreachable!("there are no spans")
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A device that is already open has installed no subscriber before the program's.
#[test]
fn a_programs_own_subscriber_has_them() {
    if std::env::var_os("TRANSOM_TEST_PROVIDER").is_some() {
        println!("skipped: another libibverbs has its events to itself");
        return;
    }
    // A program has one subscriber.
    if let Some(end) = alone(path_of!("a_programs_own_subscriber_has_them"), &[]) {
        return assert_eq!(end, 0);
    }
    let before = Pair::new();
    tracing::subscriber::set_global_default(Lines).expect("nobody else has set one");
    let pair = Pair::new();
    drop((before, pair));
    let lines = LINES.lock().unwrap();
    let has = |wanted: &str| lines.iter().any(|line| line.contains(wanted));
    assert!(has("DEBUG message=queue pair modified qp=0x"), "{lines:#?}");
    assert!(has("INFO message=device closed slot="), "{lines:#?}");
}
