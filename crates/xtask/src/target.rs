//! The kinds of machines that Transom is made for.

use crate::commands::{Result, line};
use clap::ValueEnum;
use std::fmt::{self, Display};
use std::process::Command;

/// A kind of machine, by the compiler's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// 64-bit PCs
    #[value(name = "x86_64-unknown-linux-gnu")]
    X86_64,
    /// 64-bit ARM
    #[value(name = "aarch64-unknown-linux-gnu")]
    Aarch64,
}

impl Default for Target {
    fn default() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 }
    }
}

impl Target {
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Debian's name for it.
    pub(crate) fn of_debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The path of GCC's unwinder for it.
    pub(crate) fn libgcc(self) -> Result<String> {
        let compiler = if self == Self::default() {
            "cc".to_owned()
        } else {
            format!("{}-linux-gnu-gcc", self.architecture())
        };
        let path = line(Command::new(&compiler).arg("-print-file-name=libgcc_s.so.1"))?;
        if path.starts_with('/') {
            Ok(path)
        } else {
            Err(format!("{compiler} has no libgcc_s.so.1").into())
        }
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-unknown-linux-gnu", self.architecture())
    }
}
