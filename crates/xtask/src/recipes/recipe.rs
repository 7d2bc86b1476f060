//! A recipe for any CI.

use std::collections::BTreeMap;

/// A job of a CI.
#[derive(Debug)]
pub(super) struct Recipe {
    /// Such as `github-c`: the CI, and the job's name there, which is also the project that it tests.
    pub(super) name: String,
    /// The system that it runs on, by its name in `clean-roots`.
    pub(super) system: String,
    pub(super) steps: Vec<Step>,
}

/// A step that runs in a shell of its own.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) script: String,
    /// The options of the shell, which is bash.
    pub(super) options: &'static str,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) when: When,
}

/// When a step runs, depending on earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Success,
    Failure,
    Always,
}

impl When {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Always => "always",
        }
    }
}

/// A file that a CI keeps if a job fails.
pub(super) fn artifact(path: &str, when: When) -> Step {
    Step {
        name: format!("Keep {path}"),
        script: format!(
            "test -s '{path}'\necho \"artifact: $(wc -c <'{path}') bytes of {path}\"\n"
        ),
        options: "-e",
        environment: BTreeMap::new(),
        when,
    }
}

/// The name in `clean-roots` of an image or a runner, such as `debian:12` or `ubuntu-24.04`.
pub(super) fn system(image: &str) -> String {
    image.replace(':', "-")
}
