//! `cargo xtask`: runs everything in this repository except `./test`.

mod build;
mod commands;
mod glibc;
mod packages;
mod recipes;
mod sbom;
mod scripts;
mod site;
mod sums;
mod target;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use target::Target;

/// Test, measure and hand out Transom; `./test` does what every commit must pass.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run programs that nobody here wrote on Transom, unmodified
    #[command(disable_help_flag = true)]
    Programs(Rest),
    /// Run two devices on a simulated network, seed after seed
    #[command(disable_help_flag = true)]
    Simulate(Rest),
    /// Fuzz every parser of bytes from outside, and a device
    ///
    /// Looks for inputs that nobody has found yet. Runs each target on one core, as many at once as there are cores,
    /// and stops at the first input that breaks one.
    Fuzz {
        /// How long each target runs, in seconds
        seconds: NonZeroU32,
        /// Which targets, by their files in fuzz/fuzz_targets; all if absent
        target: Vec<String>,
    },
    /// Run Miri and ThreadSanitizer over the unsafe code
    ///
    /// Both need a nightly compiler. Without one it says so and exits with 3.
    Sanitize,
    /// Run the tests on aarch64, emulated
    ///
    /// `user` runs the crates that need no kernel of that machine, by qemu's user mode. `system` boots Debian in
    /// qemu's system mode and runs all the rest there; it needs root. Without the tools for a part it says so and,
    /// when the other part has run, exits with 3.
    Aarch64 {
        /// Which parts: user, system; both if absent
        part: Vec<String>,
    },
    /// Make the site of the documents in target/site/html, and check its links
    Site,
    /// Make the command as one file, packages, the list of parts and checksums in target/packages
    Dist {
        /// For which machine; this one's kind if absent
        #[arg(long, value_enum, default_value_t)]
        target: Target,
    },
    /// Make all that twice, from two clones in unlike surroundings, and compare
    Reproduce {
        /// For which machine; this one's kind if absent
        #[arg(long, value_enum, default_value_t)]
        target: Target,
    },
    /// Install, use and remove what `dist` made, in minimal systems without Rust, compiler or network
    ///
    /// Needs root. The systems are fetched once, into target/clean-roots. Without the tools it says so and exits
    /// with 3.
    CleanRoots {
        /// Which systems, such as debian-12 or podman-5.4; all if absent
        system: Vec<String>,
    },
    /// Try the rows of docs/platforms.md with what `dist` made
    ///
    /// Needs root. Systems and kernels are fetched once, into target/clean-roots. It says at the end which rows it
    /// could not try. Without the tools for any row it exits with 3.
    Platforms {
        /// Which parts: users, containers, kernels, aarch64; all if absent
        part: Vec<String>,
    },
    /// Run the CI jobs of docs/ci.md and action.yml in minimal systems
    ///
    /// Needs root, a network and what `dist` made. Without the tools it says so and exits with 3.
    Recipes {
        /// Which recipes, such as github-c or gitlab-rust; all if absent
        name: Vec<String>,
        /// Write the steps of all recipes to this directory instead
        #[arg(long, conflicts_with = "name")]
        write: Option<PathBuf>,
    },
}

/// Arguments of a program that has a help of its own.
#[derive(clap::Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Programs(rest) => scripts::programs(&rest.arguments),
        Task::Simulate(rest) => scripts::simulate(&rest.arguments),
        Task::Fuzz { seconds, target } => {
            scripts::script("fuzz", [&seconds.to_string()].into_iter().chain(&target))
        }
        Task::Sanitize => scripts::script::<&str>("sanitize", []),
        Task::Aarch64 { part } => scripts::script("aarch64", part),
        Task::Site => site::site().map(|()| ExitCode::SUCCESS),
        Task::Dist { target } => build::dist(target).map(|()| ExitCode::SUCCESS),
        Task::Reproduce { target } => build::reproduce(target).map(|()| ExitCode::SUCCESS),
        Task::CleanRoots { system } => scripts::script("clean-roots", system),
        Task::Platforms { part } => scripts::script("platforms", part),
        Task::Recipes { write: Some(directory), .. } => {
            recipes::write(&directory).map(|()| ExitCode::SUCCESS)
        }
        Task::Recipes { name, write: None } => scripts::script("recipes", name),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
