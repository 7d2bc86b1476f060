//! The colours of the screen. Without colours, brightness tells the same.

use ratatui::style::{Color, Modifier, Style};

/// What something on the screen is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    /// There is nothing to look at.
    Quiet,
    Strong,
    /// The title of a panel or column.
    Title,
    /// Something moves.
    Busy,
    Good,
    Warning,
    Bad,
    /// Memory that peers may use by a region.
    Open,
    /// Memory that peers may use by a window.
    Window,
    /// Memory that a peer has touched just now, or some moments ago.
    Touched,
    Fading,
}

/// The styles of tones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) has_colours: bool,
}

impl Palette {
    /// As the environment asks for (<https://no-color.org>).
    pub(super) fn of_environment() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { has_colours: !no_color }
    }

    pub(super) fn style(self, tone: Tone) -> Style {
        let (colour, modifier) = match tone {
            Tone::Plain => (None, Modifier::empty()),
            Tone::Quiet => (None, Modifier::DIM),
            Tone::Strong => (None, Modifier::BOLD),
            Tone::Title => (Some(Color::Cyan), Modifier::BOLD),
            Tone::Busy => (Some(Color::Green), Modifier::BOLD),
            Tone::Good => (Some(Color::Green), Modifier::empty()),
            Tone::Warning => (Some(Color::Yellow), Modifier::BOLD),
            Tone::Bad => (Some(Color::Red), Modifier::BOLD),
            Tone::Open => (Some(Color::Blue), Modifier::empty()),
            Tone::Window => (Some(Color::Cyan), Modifier::empty()),
            Tone::Touched => (Some(Color::LightYellow), Modifier::BOLD),
            Tone::Fading => (Some(Color::Yellow), Modifier::DIM),
        };
        let style = Style::new().add_modifier(modifier);
        match colour.filter(|_| self.has_colours) {
            Some(colour) => style.fg(colour),
            None => style,
        }
    }

    /// The selected row.
    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
