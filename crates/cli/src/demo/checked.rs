//! The check of the guest's process, as `transom check` does it.

use super::narrator::Narrator;
use crate::check::Directory;
use crate::failure::{Failure, Result};
use std::path::Path;
use transom_check::record::{Finding, Record};
use transom_check::{Gravity, Kind};

/// The directory for the guest's mistakes, or the reason why there is none.
pub(super) struct GuestCheck(std::result::Result<Directory, String>);

impl GuestCheck {
    pub(super) fn begin() -> Self {
        Self(Directory::make())
    }

    pub(super) fn directory(&self) -> Option<&Path> {
        self.0.as_ref().ok().map(Directory::path)
    }

    /// Prints the guest's mistake. Call this when the guest has ended.
    pub(super) fn tell(&self, say: &mut Narrator) -> Result {
        match &self.0 {
            Ok(directory) => {
                let Finding { kind, says, .. } = lost_message(directory)?;
                say.found(&format!("error[{}]: {says}", kind.name()))
            }
            Err(problem) => say.plain(&format!(
                "\n`transom check` would name that mistake, but it has no place for files: {problem}"
            )),
        }
    }
}

/// The only mistake of the guest.
fn lost_message(directory: &Directory) -> Result<Finding> {
    let files = directory.files().map_err(Failure::new)?;
    let findings = files.into_iter().flatten().filter_map(|record| match record {
        Record::Finding(finding) if finding.kind.gravity() == Gravity::Finding => Some(finding),
        _ => None,
    });
    let mut findings: Vec<_> = findings.collect();
    match findings.pop() {
        Some(finding) if finding.kind == Kind::WorkLost && findings.is_empty() => Ok(finding),
        last => Err(Failure::new(format_args!(
            "`transom check` should have found the lost message only, but found {findings:?}, {last:?}"
        ))),
    }
}
