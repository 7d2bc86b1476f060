//! Draws lines over the sizes of messages, with two logarithmic axes, as SVG.

use plotters::prelude::*;

/// The line of a contender.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Pairs of bytes and figure.
    pub(super) points: Vec<(usize, f64)>,
}

/// Colours that differ on light and dark backgrounds, and for colour-blind readers.
const COLOURS: [u32; 9] =
    [0xd55e00, 0x0072b2, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x8c6bb1, 0x7f7f7f, 0xb15928];

const RULE: RGBAColor = RGBAColor(0x88, 0x88, 0x88, 0.5);
const FONT: (&str, i32) = ("sans-serif", 15);

/// The words follow the reader's light or dark theme. A style sheet is above the colours of elements.
const STYLE: &str =
    "<style>text{fill:#1f2328}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}</style>\n";

/// Draws the picture.
pub(super) fn svg(title: &str, unit: &str, lines: &[Line]) -> String {
    let mut picture = String::new();
    draw(&mut picture, &format!("{title}: {unit} over bytes of a message"), lines)
        .expect("there is room in a string");
    let head = picture.find('\n').map_or(0, |end| end + 1);
    picture.insert_str(head, STYLE);
    picture
}

fn draw(
    to: &mut String,
    title: &str,
    lines: &[Line],
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let [shortest, longest] = ends(points().map(|(size, _)| *size as f64));
    let [least, most] = ends(points().map(|(_, value)| *value));
    // A little beyond the powers of ten: each is within, however it is rounded.
    let tens = 0.99 * 10_f64.powf(least.log10().floor())..1.01 * 10_f64.powf(most.log10().ceil());
    let picture = SVGBackend::with_string(to, (740, 420)).into_drawing_area();
    let (plot, names) = picture.split_horizontally(590);
    let mut chart = ChartBuilder::on(&plot)
        .caption(title, FONT)
        .margin(10)
        .set_label_area_size(LabelAreaPosition::Left, 50)
        .set_label_area_size(LabelAreaPosition::Bottom, 30)
        .build_cartesian_2d((shortest..longest).log_scale().base(4.0), tens.log_scale())?;
    chart
        .configure_mesh()
        .bold_line_style(RULE)
        .light_line_style(TRANSPARENT)
        .axis_style(RULE)
        .label_style(FONT)
        .x_label_formatter(&|size| bytes(*size as usize))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (row, (line, colour)) in (0..).zip(lines.iter().zip(COLOURS.iter().cycle())) {
        let [_, red, green, blue] = colour.to_be_bytes();
        let style = RGBColor(red, green, blue).stroke_width(2);
        let points = line.points.iter().map(|(size, value)| (*size as f64, *value));
        chart.draw_series(LineSeries::new(points, style))?;
        let y = 40 + 20 * row;
        names.draw(&PathElement::new([(5, y), (29, y)], style))?;
        names.draw(&Text::new(line.name, (37, y - 6), FONT))?;
    }
    Ok(())
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
            Line { name: "fast & small", points: vec![(16, 0.11), (1 << 20, 40_000.0)] },
            Line { name: "slow", points: vec![(16, 2000.0)] },
        ];
        let drawn = svg("WRITE", "ns", &lines);
        // The line, and the sign before its name.
        let count = |colour| drawn.matches(&format!("stroke=\"#{colour:06X}\"")).count();
        assert_eq!(COLOURS.map(count), [2, 2, 0, 0, 0, 0, 0, 0, 0], "{drawn}");
        for text in ["fast &amp; small", "slow", "16", "1 Ki", "1 Mi", "0.1", "1000", "100k"] {
            assert!(drawn.contains(&format!(">\n{text}\n<")), "{text}: {drawn}");
        }
        for pair in drawn.split("points=\"").skip(1).filter_map(|it| it.split('"').next()) {
            for place in pair.split_whitespace() {
                let (x, y) = place.split_once(',').expect("a place");
                assert!((0..740).contains(&x.parse().expect("a number")), "{place}");
                assert!((0..420).contains(&y.parse().expect("a number")), "{place}");
            }
        }
        assert!(svg("nothing", "ns", &[]).ends_with("</svg>\n"));
    }
}
