//! The spread of repeated measurements.

use serde::Serialize;

/// The spread of the values of some rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    /// The first quartile: half of all values lie from here …
    pub(super) from: f64,
    /// … to here.
    pub(super) to: f64,
}

impl Spread {
    /// The spread of at least one value.
    pub(super) fn of(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self {
            median: values[last.div_ceil(2)],
            from: values[last / 4],
            to: values[last - last / 4],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_move_neither_median_nor_spread() {
        let spread = Spread::of(&[3.0, 900.0, 1.0, 2.0, 4.0]);
        assert_eq!(spread, Spread { median: 3.0, from: 2.0, to: 4.0 });
        assert_eq!(Spread::of(&[7.0]), Spread { median: 7.0, from: 7.0, to: 7.0 });
        assert_eq!(Spread::of(&[1.0, 2.0]).median, 2.0);
    }
}
