//! What a recipe is, whichever CI it is for.

use std::collections::BTreeMap;

/// A job of a CI.
#[derive(Debug)]
pub(super) struct Recipe {
    /// Such as `github-c`: for which CI, and what it is called there, which is also the project it tests.
    pub(super) name: String,
    /// Where it runs, as `clean-roots` calls it.
    pub(super) system: String,
    pub(super) steps: Vec<Step>,
}

/// What a shell of its own carries out.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) script: String,
    /// What the shell, which is bash, is started with.
    pub(super) options: &'static str,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) when: When,
}

/// After what steps a step is run.
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

/// A file that a CI keeps when a job has failed.
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

/// The name that `clean-roots` has for an image or a runner, such as `debian:12` or `ubuntu-24.04`.
pub(super) fn system(image: &str) -> String {
    image.replace(':', "-")
}
