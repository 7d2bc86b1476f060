//! `transom completions`: the script that completes this command's arguments in a shell.

use crate::failure::Result;
use clap_complete::Shell;
use std::io::Write;

const HELP: &str = "\
Examples:
  transom completions bash > ~/.local/share/bash-completion/completions/transom
  transom completions zsh > \"${fpath[1]}/_transom\"
  transom completions fish > ~/.config/fish/completions/transom.fish";

/// Print the completions for a shell
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// `command` is the whole command line.
pub(crate) fn run(args: &CompletionsArgs, mut command: clap::Command) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "transom", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
