//! The recipes of docs/ci.md as jobs that can run. Their steps come from the page and from action.yml, so `cargo xtask
//! recipes` tries exactly what people read.

mod github;
mod gitlab;
mod page;
mod recipe;

use crate::commands::{Result, line};
use recipe::{Recipe, Step, When};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = "docs/ci.md";
const ACTION: &str = "action.yml";

/// Writes each recipe to a directory of its own, where `cargo xtask recipes` and `crates/xtask/roots/job` find it.
pub(crate) fn write(directory: &Path) -> Result {
    let root = line(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    for recipe in all(Path::new(&root))? {
        let directory = directory.join(&recipe.name);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("system"), &recipe.system)?;
        for (index, step) in recipe.steps.iter().enumerate() {
            // They run in the order of their names.
            let directory = directory.join(format!("steps/{index:02}"));
            fs::create_dir_all(&directory)?;
            fs::write(directory.join("name"), &step.name)?;
            fs::write(directory.join("script"), &step.script)?;
            fs::write(directory.join("options"), step.options)?;
            fs::write(directory.join("when"), step.when.word())?;
            fs::write(directory.join("environment"), exports(&step.environment))?;
        }
    }
    Ok(())
}

/// Shell commands that set these variables.
fn exports(environment: &BTreeMap<String, String>) -> String {
    let quoted = |value: &str| value.replace('\'', r"'\''");
    environment.iter().map(|(name, value)| format!("export {name}='{}'\n", quoted(value))).collect()
}

/// All recipes of the page, in its order.
fn all(root: &Path) -> Result<Vec<Recipe>> {
    let page = fs::read_to_string(root.join(PAGE))?;
    let action = github::Action::parse(&fs::read_to_string(root.join(ACTION))?)?;
    let mut recipes = Vec::new();
    let mut shell = Vec::new();
    for block in page::blocks(&page) {
        let place = |error| format!("{PAGE}, line {}: {error}", block.line);
        match &*block.language {
            "yaml" if block.text.contains("\njobs:") => {
                recipes.extend(github::recipes(&block.text, &action).map_err(place)?);
            }
            "yaml" => recipes.extend(gitlab::recipes(&block.text).map_err(place)?),
            "sh" => shell.push(block.text),
            _ => {}
        }
    }
    // People type them one after the other, so later ones see the variables of earlier ones.
    recipes.push(Recipe {
        name: "shell-c".to_owned(),
        system: "debian-12".to_owned(),
        steps: vec![Step {
            name: "All commands of the page".to_owned(),
            script: shell.join("\n"),
            options: "-e",
            environment: BTreeMap::new(),
            when: When::Success,
        }],
    });
    Ok(recipes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Stdio;

    fn of_this_repository() -> Vec<Recipe> {
        all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
    }

    #[test]
    fn there_is_a_recipe_of_each_kind_of_project_for_each_ci() {
        let names: Vec<_> = of_this_repository().into_iter().map(|recipe| recipe.name).collect();
        let expected = [
            "github-c",
            "github-rust",
            "github-python",
            "github-check",
            "github-rehearse",
            "github-source",
            "gitlab-c",
            "gitlab-check",
            "gitlab-python",
            "gitlab-rehearse",
            "gitlab-rust",
            "shell-c",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn there_is_a_project_of_each_kind_to_try_them_on() {
        let projects = Path::new(env!("CARGO_MANIFEST_DIR")).join("roots/projects");
        for recipe in of_this_repository() {
            let (_, project) = recipe.name.split_once('-').unwrap();
            // The recipe `source` runs no tests of a project.
            assert!(project == "source" || projects.join(project).is_dir(), "{project}");
        }
    }

    #[test]
    fn steps_are_scripts_that_bash_takes() {
        for recipe in of_this_repository() {
            for step in &recipe.steps {
                let mut bash = Command::new("bash");
                let bash = bash.arg("-n").stdin(Stdio::piped()).spawn();
                let mut bash = bash.expect("bash is there");
                let mut script = bash.stdin.take().expect("it is piped");
                script.write_all(step.script.as_bytes()).expect("it reads all");
                drop(script);
                assert!(bash.wait().unwrap().success(), "{}: {}", recipe.name, step.name);
            }
        }
    }

    #[test]
    fn every_recipe_installs_the_command_before_it_is_used() {
        for recipe in of_this_repository() {
            let lines = recipe.steps.iter().flat_map(|step| step.script.lines());
            let commands: Vec<_> = lines.filter(|line| !line.starts_with('#')).collect();
            let set_up = commands.iter().position(|line| line.contains("ci/setup.sh"));
            let is_use = |line: &&str| {
                ["run", "check", "rehearse"]
                    .iter()
                    .any(|it| line.contains(&format!("transom {it}")))
            };
            let used = commands.iter().position(is_use);
            assert!(set_up < used && set_up.is_some(), "{}: {commands:#?}", recipe.name);
        }
    }

    #[test]
    fn variables_are_quoted_for_a_shell() {
        let environment = [("NAME".to_owned(), "it's $HOME".to_owned())].into();
        assert_eq!(exports(&environment), "export NAME='it'\\''s $HOME'\n");
    }
}
