//! The subcommands in groups, as `transom --help` shows them.

use clap::Command;

use crate::layout;

/// The groups: a title, and the subcommands for it.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Run programs", &["run", "demo", "devices"]),
    ("Understand what happened", &["top", "explain", "trace", "metrics", "doctor"]),
    (
        "Prove that a program is right, and how fast it is",
        &["check", "rehearse", "exposure", "bench"],
    ),
];

/// Replaces the list of subcommands in the help by groups, in lines of this many columns.
pub(crate) fn in_groups(command: Command, columns: usize) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let shown: Vec<_> = command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
    let width = shown.iter().map(|it| it.get_name().len()).max().unwrap_or(0);
    let row = |command: &Command| {
        let (name, about) = (command.get_name(), command.get_about().cloned());
        let about = about.unwrap_or_default();
        let space = width - name.len() + 2;
        format!("  {literal}{name}{literal:#}{:space$}{about}\n", "")
    };
    let list = |title: &str, commands: Vec<&Command>| {
        let rows: String = commands.into_iter().map(row).collect();
        format!("{header}{title}:{header:#}\n{rows}\n")
    };
    let mut text = String::new();
    for (title, names) in GROUPS {
        let commands = names.iter().filter_map(|name| command.find_subcommand(name)).collect();
        text.push_str(&list(title, commands));
    }
    let is_in_none = |it: &Command| GROUPS.iter().all(|(_, names)| !names.contains(&it.get_name()));
    let others = shown.iter().copied().filter(|it| is_in_none(it)).collect();
    text.push_str(&list("Set up", others));
    let text = layout::help(text.trim_end(), columns);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\n\n\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_in_a_group_and_every_group_has_its_commands() {
        let command = crate::Arguments::command();
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
        let help = in_groups(command.clone(), 80).render_help().to_string();
        for shown in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let row = format!("\n  {} ", shown.get_name());
            assert_eq!(help.matches(&row).count(), 1, "{row}{help}");
        }
    }
}
