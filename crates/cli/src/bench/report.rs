//! The result of a row, for people and for programs.

use std::fmt::{self, Display};

use serde::Serialize;

use super::load::{busy_with_others, is_quiet};
use super::rows::{Bound, Row};
use super::statistics::Spread;

/// The result of a row.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) figures: Vec<Figure>,
    pub(super) targets: Vec<Verdict>,
    /// The share of the processors that other programs kept busy meanwhile.
    pub(super) others: f64,
}

/// The result of a contender, or why there is none.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) spread: Option<Spread>,
    pub(super) missing: Option<String>,
}

/// A target, and whether it is met.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) of: String,
    pub(super) wanted: String,
    /// The figure divided by the figure it is compared with.
    pub(super) ratio: f64,
    /// `None` on a busy machine.
    pub(super) met: Option<bool>,
}

/// The nanoseconds of an operation in each round, or the reason why there are none.
pub(super) type Rounds = Result<Vec<f64>, String>;

impl Outcome {
    pub(super) fn new(row: &Row, measured: &[Rounds], others: f64) -> Self {
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
            let beside: Vec<&Vec<f64>> = target.beside.iter().filter_map(|name| of(name)).collect();
            let ratios = of(target.of)?.iter().enumerate().filter_map(|(round, each)| {
                let best = beside.iter().map(|other| other[round]).reduce(f64::min)?;
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
            let met = is_quiet(others).then_some(met);
            Some(Verdict { of: target.of.into(), wanted, ratio, met })
        });
        Self {
            name: row.name.into(),
            unit: row.unit.name(),
            figures: figures.collect(),
            targets: targets.collect(),
            others,
        }
    }

    /// A row of nanoseconds beside those of its floor, and how many times as many it may take.
    pub(super) fn beside(
        name: String,
        times: Result<[f64; 2], String>,
        (floor, most): (&str, f64),
        others: f64,
    ) -> Self {
        let figure = |name: &str, at: usize| {
            let spread = |times: &[f64; 2]| Spread::of(&[times[at]]);
            let missing = times.as_ref().err().cloned();
            Figure { name: name.into(), spread: times.as_ref().ok().map(spread), missing }
        };
        let verdict = |&[ours, floor_takes]: &[f64; 2]| {
            let ratio = ours / floor_takes;
            let wanted = format!("at most {most} × {floor}");
            let met = is_quiet(others).then_some(ratio <= most);
            Verdict { of: "private".into(), wanted, ratio, met }
        };
        let targets = times.iter().map(verdict).collect();
        let figures = vec![figure("private", 0), figure(floor, 1)];
        Self { name, unit: "ns", figures, targets, others }
    }

    /// A row of one value, or the reason why there is none, with its target.
    pub(super) fn single(
        name: String,
        unit: &'static str,
        value: Result<f64, String>,
        most: f64,
        others: f64,
    ) -> Self {
        let spread = |value: &f64| Spread { median: *value, from: *value, to: *value };
        let verdict = |value: &f64| Verdict {
            of: "private".into(),
            wanted: format!("at most {most} {unit}").trim_end().to_owned(),
            ratio: *value,
            met: is_quiet(others).then_some(*value <= most),
        };
        let targets = value.iter().map(verdict).collect();
        let spread = value.as_ref().ok().map(spread);
        let figure = Figure { name: "private".into(), spread, missing: value.err() };
        Self { name, unit, figures: vec![figure], targets, others }
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
            let met = match met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => &format!("not judged: {}", busy_with_others(self.others)),
            };
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
        let outcome = Outcome::new(&row, &measured, 0.02);
        assert_eq!(outcome.targets[0].ratio, 0.8);
        assert_eq!(outcome.targets[0].met, Some(false));
        assert!(outcome.to_string().contains("not installed"));
        let busy = Outcome::new(&row, &measured, 0.47);
        assert_eq!((busy.targets[0].ratio, busy.targets[0].met), (0.8, None));
        let said = busy.to_string();
        let verdict = "not judged: 47 % of the processors were busy with others: shared is 0.80";
        assert!(said.contains(verdict), "{said}");
        serde_json::to_string(&outcome).expect("it is JSON");
    }
}
