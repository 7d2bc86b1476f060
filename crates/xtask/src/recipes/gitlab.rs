//! GitLab jobs, as far as recipes use them. Anything unknown is an error, so that every part of a recipe is tried.

use super::recipe::{Recipe, Step, When, artifact, system};
use crate::commands::Result;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The options of GitLab's shell.
const SHELL: &str = "-eo pipefail";

/// A job, or a template that jobs extend. A template's name begins with a dot.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Job {
    extends: Option<String>,
    image: Option<String>,
    before_script: Option<Vec<String>>,
    script: Option<Vec<String>>,
    after_script: Option<Vec<String>>,
    artifacts: Option<Artifacts>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Artifacts {
    when: Option<String>,
    #[serde(default)]
    paths: Vec<String>,
    reports: Option<Reports>,
}

/// GitLab keeps them whether the job fails or not.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reports {
    junit: String,
}

/// The jobs of a file.
pub(super) fn recipes(text: &str) -> Result<Vec<Recipe>> {
    let jobs: BTreeMap<String, Job> = yaml_serde::from_str(text)?;
    let extended = |job: &Job| match &job.extends {
        None => Ok(job.clone()),
        Some(name) => {
            let base = jobs.get(name).ok_or_else(|| format!("there is no {name} to extend"))?;
            Ok::<_, Box<dyn std::error::Error>>(job.clone().over(base.clone()))
        }
    };
    let shown = jobs.iter().filter(|(name, _)| !name.starts_with('.'));
    shown.map(|(name, job)| extended(job)?.recipe(name)).collect()
}

impl Job {
    /// Merges this over the other. Values of this job take precedence, including whole lists.
    fn over(self, base: Self) -> Self {
        Self {
            extends: base.extends,
            image: self.image.or(base.image),
            before_script: self.before_script.or(base.before_script),
            script: self.script.or(base.script),
            after_script: self.after_script.or(base.after_script),
            artifacts: self.artifacts.or(base.artifacts),
        }
    }

    fn recipe(self, name: &str) -> Result<Recipe> {
        if let Some(other) = self.extends {
            return Err(format!("what extends {other} is extended itself").into());
        }
        let step = |name: &str, lines: Vec<String>, when| Step {
            name: name.to_owned(),
            script: lines.join("\n"),
            options: SHELL,
            environment: BTreeMap::new(),
            when,
        };
        let script = self.script.ok_or("a job needs a script")?;
        // One shell runs both.
        let lines = self.before_script.into_iter().flatten().chain(script).collect();
        let mut steps = vec![step("script", lines, When::Success)];
        if let Some(lines) = self.after_script {
            steps.push(step("after_script", lines, When::Always));
        }
        if let Some(Artifacts { when, paths, reports }) = self.artifacts {
            let when = match when.as_deref() {
                Some("on_failure") => When::Failure,
                Some("on_success") | None => When::Success,
                Some(other) => return Err(format!("artifacts kept {other} cannot be tried").into()),
            };
            steps.extend(paths.iter().map(|path| artifact(path, when)));
            steps.extend(reports.map(|reports| artifact(&reports.junit, When::Always)));
        }
        let image = self.image.ok_or("a job needs an image")?;
        Ok(Recipe { name: format!("gitlab-{name}"), system: system(&image), steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_what_it_extends_and_does_not_say_itself() {
        let text = "\
.base:
  before_script: [one]
  script: [not this]
  after_script: [three]
  artifacts: { when: on_failure, paths: [file] }
job: { extends: .base, image: 'debian:12', script: [two] }
";
        let [recipe] = &recipes(text).unwrap()[..] else { panic!("there is one job") };
        assert_eq!((&*recipe.name, &*recipe.system), ("gitlab-job", "debian-12"));
        let steps: Vec<_> = recipe.steps.iter().map(|step| (&*step.script, step.when)).collect();
        assert_eq!(steps[..2], [("one\ntwo", When::Success), ("three", When::Always)]);
        assert!(steps[2].0.contains("test -s 'file'") && steps[2].1 == When::Failure);
    }

    #[test]
    fn a_report_is_kept_of_each_run() {
        let text = "\
job: { image: 'debian:12', script: [one], artifacts: { reports: { junit: a.xml } } }
";
        let [recipe] = &recipes(text).unwrap()[..] else { panic!("there is one job") };
        let kept = &recipe.steps[1];
        assert!(kept.script.contains("test -s 'a.xml'") && kept.when == When::Always);
    }

    #[test]
    fn what_cannot_be_tried_is_an_error() {
        for job in [
            "{ image: a }",
            "{ script: [a] }",
            "{ image: a, script: [a], extends: .nothing }",
            "{ image: a, script: [a], services: [b] }",
            "{ image: a, script: [a], artifacts: { when: always, paths: [b] } }",
            "{ image: a, script: [a], artifacts: { reports: { metrics: b } } }",
        ] {
            assert!(recipes(&format!("job: {job}")).is_err(), "{job}");
        }
    }
}
