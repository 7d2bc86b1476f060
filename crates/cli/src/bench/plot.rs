//! Draws lines over the sizes of messages, with two logarithmic axes, as SVG. `docs/contributing/libraries.md` says why
//! no library draws them.

use std::fmt::Write;

/// The line of a contender.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Pairs of bytes and figure.
    pub(super) points: Vec<(usize, f64)>,
}

/// Colours that differ on light and dark backgrounds, and for colour-blind readers.
const COLOURS: [&str; 9] = [
    "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f",
    "#b15928",
];

/// The ends of the axes, in the picture's units.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 570.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 380.0;

/// Maps a value to a place between two ends, by its logarithm.
struct Axis {
    values: [f64; 2],
    places: [f64; 2],
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let [from, to] = self.values.map(f64::log2);
        let [start, end] = self.places;
        start + (value.log2() - from) / (to - from).max(f64::EPSILON) * (end - start)
    }
}

/// Draws the picture.
pub(super) fn svg(title: &str, unit: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let sizes = points().map(|(size, _)| *size as f64);
    let across = Axis { values: ends(sizes), places: [LEFT, RIGHT] };
    let [least, most] = ends(points().map(|(_, value)| *value));
    let tens = [10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil())];
    let up = Axis { values: tens, places: [BOTTOM, TOP] };
    let mut to = String::new();
    begin(&mut to, title, unit);
    let mut ten = tens[0];
    while ten <= tens[1] * 1.01 {
        let at = up.place(ten);
        rule(&mut to, [LEFT, at, RIGHT, at]);
        text(&mut to, [LEFT - 8.0, at + 4.0], "end", &short(ten));
        ten *= 10.0;
    }
    let mut sizes: Vec<usize> = points().map(|(size, _)| *size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        let at = across.place(size as f64);
        rule(&mut to, [at, TOP, at, BOTTOM]);
        text(&mut to, [at, BOTTOM + 18.0], "middle", &bytes(size));
    }
    for (index, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let places = line.points.iter().map(|(size, value)| {
            format!("{:.1},{:.1}", across.place(*size as f64), up.place(*value))
        });
        let places = places.collect::<Vec<_>>().join(" ");
        let style = format!("stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"");
        let _ = writeln!(to, "<polyline {style} points=\"{places}\"/>");
        let at = TOP + 12.0 + 20.0 * index as f64;
        let _ = writeln!(to, "<path {style} d=\"M{} {at}h24\"/>", RIGHT + 20.0);
        text(&mut to, [RIGHT + 52.0, at + 4.0], "start", line.name);
    }
    to.push_str("</svg>\n");
    to
}

/// Draws the parts that do not depend on the lines.
fn begin(to: &mut String, title: &str, unit: &str) {
    to.push_str(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 740 420\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>text{fill:#1f2328}.rule{stroke:#8888;stroke-width:.5}\
         @media(prefers-color-scheme:dark){text{fill:#e6edf3}}</style>\n",
    );
    text(to, [LEFT, 22.0], "start", &format!("{title}: {unit} over bytes of a message"));
}

fn rule(to: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(to, "<path class=\"rule\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>");
}

fn text(to: &mut String, [x, y]: [f64; 2], anchor: &str, what: &str) {
    let what = what.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(to, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>");
}

/// The least and the greatest value. Arbitrary values if there are none.
fn ends(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let ends = values.fold(None, |ends: Option<[f64; 2]>, value| match ends {
        Some([least, most]) => Some([least.min(value), most.max(value)]),
        None => Some([value, value]),
    });
    ends.unwrap_or([1.0, 10.0])
}

/// A power of ten in short form: `1000` or `0.1`, `10k`, `10M`.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{:.0}M", value / 1e6),
        1e4.. => format!("{:.0}k", value / 1e3),
        _ => format!("{value}"),
    }
}

fn bytes(size: usize) -> String {
    match size {
        size if size >= 1 << 20 => format!("{} Mi", size >> 20),
        size if size >= 1 << 10 => format!("{} Ki", size >> 10),
        size => size.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_within_the_picture() {
        let lines = [
            Line { name: "fast & small", points: vec![(16, 90.0), (1 << 20, 40_000.0)] },
            Line { name: "slow", points: vec![(16, 2000.0)] },
        ];
        let drawn = svg("WRITE", "ns", &lines);
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert!(drawn.contains("fast &amp; small") && drawn.contains(">1 Mi<"), "{drawn}");
        for pair in drawn.split("points=\"").skip(1).filter_map(|it| it.split('"').next()) {
            for place in pair.split(' ') {
                let (x, y) = place.split_once(',').expect("a place");
                assert!((LEFT..=RIGHT).contains(&x.parse().expect("a number")), "{place}");
                assert!((TOP..=BOTTOM).contains(&y.parse().expect("a number")), "{place}");
            }
        }
        assert!(svg("nothing", "ns", &[]).ends_with("</svg>\n"));
    }
}
