//! What came of a row, for people and for programs.

use std::fmt::{self, Display};

use serde::Serialize;

use super::rows::{Bound, Row};
use super::statistics::Spread;

/// What came of a row.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) figures: Vec<Figure>,
    pub(super) targets: Vec<Verdict>,
}

/// What came of a contender, or why nothing did.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) spread: Option<Spread>,
    pub(super) missing: Option<String>,
}

/// Whether what was wanted is so.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) of: String,
    pub(super) wanted: String,
    /// What it was, beside what it is to be compared with.
    pub(super) ratio: f64,
    pub(super) met: bool,
}

/// Nanoseconds of an operation in each round, or why there are none.
pub(super) type Rounds = Result<Vec<f64>, String>;

impl Outcome {
    pub(super) fn new(row: &Row, measured: &[Rounds]) -> Self {
        let figures = row.contenders.iter().zip(measured).map(|(contender, rounds)| {
            let in_unit = |rounds: &Vec<f64>| {
                Spread::of(&rounds.iter().map(|each| row.unit.of(*each)).collect::<Vec<_>>())
            };
            Figure {
                name: contender.name.into(),
                spread: rounds.as_ref().ok().map(in_unit),
                missing: rounds.as_ref().err().cloned(),
            }
        });
        let of = |name: &str| {
            let at = row.contenders.iter().position(|contender| contender.name == name)?;
            measured[at].as_ref().ok()
        };
        let targets = row.targets.iter().filter_map(|target| {
            let others: Vec<&Vec<f64>> = target.beside.iter().filter_map(|name| of(name)).collect();
            let ratios = of(target.of)?.iter().enumerate().filter_map(|(round, each)| {
                let best = others.iter().map(|other| other[round]).reduce(f64::min)?;
                Some(match target.bound {
                    Bound::AtMost(_) => each / best,
                    Bound::AtLeast(_) => best / each,
                })
            });
            let ratios: Vec<f64> = ratios.collect();
            let ratio = (!ratios.is_empty()).then(|| Spread::of(&ratios).median)?;
            let beside = target.beside.join(", ");
            let (wanted, met) = match target.bound {
                Bound::AtMost(most) => (format!("at most {most} × {beside}"), ratio <= most),
                Bound::AtLeast(least) => (format!("at least {least} × {beside}"), ratio >= least),
            };
            Some(Verdict { of: target.of.into(), wanted, ratio, met })
        });
        Self {
            name: row.name.into(),
            unit: row.unit.name(),
            figures: figures.collect(),
            targets: targets.collect(),
        }
    }

    /// One value, or why there is none, with what is wanted of it.
    pub(super) fn single(
        name: String,
        unit: &'static str,
        value: Result<f64, String>,
        most: f64,
    ) -> Self {
        let spread = |value: &f64| Spread { median: *value, from: *value, to: *value };
        let verdict = |value: &f64| Verdict {
            of: "private".into(),
            wanted: format!("at most {most} {unit}").trim_end().to_owned(),
            ratio: *value,
            met: *value <= most,
        };
        let targets = value.iter().map(verdict).collect();
        let spread = value.as_ref().ok().map(spread);
        let figure = Figure { name: "private".into(), spread, missing: value.err() };
        Self { name, unit, figures: vec![figure], targets }
    }
}

impl Display for Outcome {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "{}", self.name)?;
        for Figure { name, spread, missing } in &self.figures {
            match (spread, missing) {
                (Some(spread), _) => {
                    let Spread { median, from, to: most } = *spread;
                    let digits = if median.abs() < 10.0 { 2 } else { 0 };
                    let figure = format!("{median:.digits$} {}", self.unit);
                    writeln!(
                        to,
                        "  {name:20} {figure:>16}   ({from:.digits$} to {most:.digits$})"
                    )?;
                }
                (None, missing) => {
                    writeln!(to, "  {name:20} {:>16}", missing.as_deref().unwrap_or("–"))?;
                }
            }
        }
        for Verdict { of, wanted, ratio, met } in &self.targets {
            let met = if *met { "met" } else { "MISSED" };
            writeln!(to, "  {met}: {of} is {ratio:.2}, wanted {wanted}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::extent::Extent;
    use crate::bench::rows::rows;

    #[test]
    fn the_best_of_each_round_is_what_counts() {
        let row = rows(Extent::new(true))
            .into_iter()
            .find(|row| row.name == "SENDs of 64 KiB")
            .expect("a row");
        let missing = Err("not installed".to_owned());
        let measured =
            [Ok(vec![10.0, 10.0, 10.0]), missing, Ok(vec![20.0; 3]), Ok(vec![5.0, 8.0, 30.0])];
        let outcome = Outcome::new(&row, &measured);
        assert_eq!(outcome.targets[0].ratio, 0.8);
        assert!(!outcome.targets[0].met);
        assert!(outcome.to_string().contains("not installed"));
        serde_json::to_string(&outcome).expect("it is JSON");
    }
}
