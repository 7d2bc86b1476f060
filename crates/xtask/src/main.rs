//! `cargo xtask dist`: makes what is given to others, and `cargo xtask recipes` what they do with it.

mod build;
mod commands;
mod glibc;
mod packages;
mod recipes;
mod sbom;
mod site;
mod sums;
mod target;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use target::Target;

/// Tasks of Transom's makers.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make a site of the documents, in target/site/html, and look whether its links lead somewhere
    Site,
    /// Make what is given to others, in target/packages: the command as one file, packages, list of parts, checksums
    Dist {
        /// For which machines; those of this one if absent
        #[arg(long, value_enum, default_value_t)]
        target: Target,
    },
    /// Make it twice, from two clones of what is committed, in unlike surroundings, and compare
    Reproduce {
        /// For which machines; those of this one if absent
        #[arg(long, value_enum, default_value_t)]
        target: Target,
    },
    /// Write the steps of the recipes of docs/ci.md to a directory, for ./recipes to try them
    Recipes {
        /// Where to
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Site => site::site(),
        Task::Dist { target } => build::dist(target),
        Task::Reproduce { target } => build::reproduce(target),
        Task::Recipes { directory } => recipes::write(&directory),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
