//! GitHub workflows and our action, as far as recipes use them. Anything unknown is an error, so that every part of a
//! recipe is tried.

use super::recipe::{Recipe, Step, When, artifact, system};
use crate::commands::Result;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The name of our action in a workflow.
const OURS: &str = "OWNER/transom@COMMIT";
/// GitHub's own actions. The effect of the first is there before the job. The second is left out.
const CHECKOUT: &str = "actions/checkout@";
const KEEP: &str = "actions/upload-artifact@";

/// GitHub's options for a shell: if a step names the shell, and if it does not.
const NAMED_SHELL: &str = "--noprofile --norc -eo pipefail";
const SHELL: &str = "-e";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Workflow {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "on")]
    _on: Vec<String>,
    jobs: BTreeMap<String, Job>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Job {
    runs_on: String,
    steps: Vec<GivenStep>,
}

/// A step of a job or of an action.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenStep {
    name: Option<String>,
    #[serde(rename = "if")]
    condition: Option<String>,
    uses: Option<String>,
    #[serde(default)]
    with: BTreeMap<String, String>,
    shell: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    run: Option<String>,
}

/// The action of this repository.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Action {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "description")]
    _description: String,
    #[serde(rename = "branding")]
    _branding: BTreeMap<String, String>,
    inputs: BTreeMap<String, Input>,
    runs: Runs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(rename = "description")]
    _description: String,
    default: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runs {
    using: String,
    steps: Vec<GivenStep>,
}

impl Action {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let action: Self = yaml_serde::from_str(text)?;
        if action.runs.using != "composite" {
            return Err(format!("an action by {} cannot be tried", action.runs.using).into());
        }
        Ok(action)
    }

    /// Its steps, for a workflow that gives these inputs.
    fn steps(&self, given: &BTreeMap<String, String>) -> Result<Vec<Step>> {
        if let Some(name) = given.keys().find(|name| !self.inputs.contains_key(*name)) {
            return Err(format!("the action has no input {name}").into());
        }
        let value =
            |name: &String, input: &Input| given.get(name).unwrap_or(&input.default).clone();
        let inputs = self.inputs.iter().map(|(name, input)| (name.clone(), value(name, input)));
        let inputs: BTreeMap<_, _> = inputs.collect();
        let script = |step: &GivenStep| match (&step.run, &step.shell) {
            (Some(_), None) => Err("a step of an action must say which shell it is for".into()),
            _ => step.script(&inputs),
        };
        self.runs.steps.iter().map(script).collect()
    }
}

/// The jobs of a workflow.
pub(super) fn recipes(text: &str, action: &Action) -> Result<Vec<Recipe>> {
    let workflow: Workflow = yaml_serde::from_str(text)?;
    let recipe = |(name, job): (&String, &Job)| {
        let mut steps = Vec::new();
        for (index, step) in job.steps.iter().enumerate() {
            match step.uses.as_deref() {
                Some(OURS) if step.condition.is_none() => steps.extend(action.steps(&step.with)?),
                // A later checkout would remove files.
                Some(uses) if uses.starts_with(CHECKOUT) && index == 0 => {}
                Some(uses) if uses.starts_with(KEEP) => {
                    let path = step.with.get("path").ok_or("what is to be kept has no path")?;
                    steps.push(artifact(path, step.when()?));
                }
                Some(uses) => return Err(format!("{uses} cannot be tried there").into()),
                None => steps.push(step.script(&BTreeMap::new())?),
            }
        }
        Ok(Recipe { name: format!("github-{name}"), system: system(&job.runs_on), steps })
    };
    workflow.jobs.iter().map(recipe).collect()
}

impl GivenStep {
    fn when(&self) -> Result<When> {
        match self.condition.as_deref() {
            None => Ok(When::Success),
            Some("failure()") => Ok(When::Failure),
            Some("always()") => Ok(When::Always),
            Some(other) => Err(format!("the condition {other} cannot be tried").into()),
        }
    }

    /// The script that it runs with these inputs.
    fn script(&self, inputs: &BTreeMap<String, String>) -> Result<Step> {
        let (Some(run), None) = (&self.run, &self.uses) else {
            return Err("a step must run something".into());
        };
        let options = match self.shell.as_deref() {
            None => SHELL,
            Some("bash") => NAMED_SHELL,
            Some(shell) => return Err(format!("steps for {shell} cannot be tried").into()),
        };
        let mut environment = BTreeMap::new();
        for (name, value) in &self.env {
            environment.insert(name.clone(), evaluated(value, inputs)?);
        }
        Ok(Step {
            name: self
                .name
                .clone()
                .unwrap_or_else(|| run.lines().next().unwrap_or_default().into()),
            // Scripts get outside values through their environment. They must not be pasted into the script.
            script: evaluated(run, &BTreeMap::new())?,
            options,
            environment,
            when: self.when()?,
        })
    }
}

/// A text with the values of its expressions. An expression may be an input.
fn evaluated(text: &str, inputs: &BTreeMap<String, String>) -> Result<String> {
    let mut parts = text.split("${{");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (expression, rest) = part.split_once("}}").ok_or("an expression has no end")?;
        let name = expression.trim().strip_prefix("inputs.");
        let value = name.and_then(|name| inputs.get(name));
        result += value.ok_or_else(|| format!("{} is no input", expression.trim()))?;
        result += rest;
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTION: &str = "\
name: A
description: It does something.
branding: {}
inputs:
  file: { description: What, default: none }
runs:
  using: composite
  steps:
    - { shell: bash, env: { FILE: 'of ${{ inputs.file }}' }, run: use it }
";

    fn steps(of_job: &str) -> Result<Vec<Step>> {
        let action = Action::parse(ACTION)?;
        let workflow =
            format!("name: W\non: [push]\njobs: {{ a: {{ runs-on: b, steps: [{of_job}] }} }}");
        Ok(recipes(&workflow, &action)?.remove(0).steps)
    }

    #[test]
    fn the_steps_of_the_action_take_the_place_of_its_use() {
        let found =
            steps("{ run: one }, { uses: OWNER/transom@COMMIT, with: { file: x } }").unwrap();
        let scripts: Vec<_> = found.iter().map(|step| &*step.script).collect();
        assert_eq!(scripts, ["one", "use it"]);
        assert_eq!(found[0].options, SHELL);
        assert_eq!(found[1].options, NAMED_SHELL);
        assert_eq!(found[1].environment["FILE"], "of x");
        let found = steps("{ uses: OWNER/transom@COMMIT }").unwrap();
        assert_eq!(found[0].environment["FILE"], "of none");
    }

    #[test]
    fn conditions_are_kept() {
        let found =
            steps("{ run: a }, { if: failure(), run: b }, { if: always(), run: c }").unwrap();
        let when: Vec<_> = found.iter().map(|step| step.when).collect();
        assert_eq!(when, [When::Success, When::Failure, When::Always]);
    }

    #[test]
    fn what_cannot_be_tried_is_an_error() {
        let refused = [
            "{ uses: OWNER/transom@COMMIT, with: { fiel: x } }",
            "{ uses: somebody/else@v1 }",
            "{ run: a }, { uses: actions/checkout@v1 }",
            "{ run: a, if: github.ref }",
            "{ run: 'a ${{ inputs.file }}' }",
            "{ run: a, shell: pwsh }",
            "{ run: a, timeout-minutes: 1 }",
            "{ name: a }",
        ];
        for job in refused {
            assert!(steps(job).is_err(), "{job}");
        }
        for (from, to) in
            [("composite", "node20"), ("shell: bash, ", ""), ("branding: {}", "icon: a")]
        {
            let action = Action::parse(&ACTION.replace(from, to));
            assert!(action.and_then(|action| action.steps(&BTreeMap::new())).is_err(), "{to}");
        }
    }
}
