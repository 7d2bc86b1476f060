//! Reports for programs: one JSON object a line, on standard output or in a file.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

#[derive(clap::Args)]
pub(crate) struct JsonArgs {
    /// Print one JSON object a line, instead of the report, or into FILE; --help lists the fields
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    json: Option<Option<PathBuf>>,
}

impl JsonArgs {
    /// Whether there is a report for people too.
    pub(crate) fn leaves_a_report(&self) -> bool {
        !matches!(self.json, Some(None))
    }

    /// Opens the output, if lines are wanted. So a file that cannot be written is reported before the program runs.
    pub(crate) fn begin(&self) -> Result<Option<Lines>> {
        let begin = |file: &Option<PathBuf>| {
            let to: Box<dyn Write + Send> = match file {
                None => Box::new(io::stdout()),
                Some(file) => Box::new(create(file)?),
            };
            Ok(Lines { to, file: file.clone(), failed: None })
        };
        self.json.as_ref().map(begin).transpose()
    }
}

/// The output for lines.
pub(crate) struct Lines {
    to: Box<dyn Write + Send>,
    /// `None` is standard output.
    file: Option<PathBuf>,
    /// Why no more is written.
    failed: Option<Failure>,
}

impl Lines {
    pub(crate) fn write(&mut self, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result {
        print(&mut self.to).map_err(|error| match &self.file {
            Some(file) => cannot_write(file, &error),
            None => error.into(),
        })
    }

    /// Writes as long as that succeeds. For a command that has more to do than to write, and a verdict:
    /// [`Lines::written`] says at its end what failed.
    pub(crate) fn write_on(&mut self, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.failed.is_none() {
            self.failed = self.write(print).err();
        }
    }

    /// Whether everything was written.
    pub(crate) fn written(self) -> Result {
        self.failed.map_or(Ok(()), Err)
    }
}

/// A number of 64 bits or more as a text of decimal digits. Many a reader of JSON has only doubles, and would round a
/// number.
pub(crate) struct Exact<T = u64>(pub(crate) T);

impl<T: Display> serde::Serialize for Exact<T> {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Writes a line.
pub(crate) fn print(out: &mut dyn Write, line: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    // By one call, so that nobody else's output comes between.
    out.write_all(&line)?;
    out.flush()
}

pub(crate) fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| cannot_write(path, &error))
}

pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::new(format_args!("cannot write to {path}: {error}; name a file that you may write"))
}

/// The names of all fields in a value, for the tests that the help lists each.
#[cfg(test)]
pub(crate) fn field_names(value: &serde_json::Value, into: &mut Vec<String>) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            into.extend(fields.keys().cloned());
            fields.values().for_each(|value| field_names(value, into));
        }
        Value::Array(values) => values.iter().for_each(|value| field_names(value, into)),
        _ => {}
    }
}
