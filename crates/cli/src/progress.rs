//! Shows on a terminal how far long work is. Elsewhere it shows nothing.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line at the end of standard error. It goes when this is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Work of so many steps.
    pub(crate) fn of(steps: u64) -> Self {
        Self::styled(ProgressBar::new(steps), "{bar:20} {pos}/{len}  {wide_msg}")
    }

    /// Work of which nobody knows how long it takes. The line shows the time since its beginning, second by second.
    pub(crate) fn timed() -> Self {
        let timed = Self::styled(ProgressBar::new_spinner(), "{elapsed_precise}  {wide_msg}");
        timed.0.enable_steady_tick(Duration::from_secs(1));
        timed
    }

    fn styled(bar: ProgressBar, template: &str) -> Self {
        if std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
            // It cannot remove a line.
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self(bar.with_style(ProgressStyle::with_template(template).expect("a template")))
    }

    /// What is being done.
    pub(crate) fn doing(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// A step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Prints something, while the line is away.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}
