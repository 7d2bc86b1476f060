//! What the person at the screen has chosen.

use super::view::{Process, Stay, View};
use ratatui::layout::{Position, Rect};

/// The parts of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    Processes,
    QueuePairs,
    Memory,
    Connections,
    Refusals,
    Latencies,
}

impl Panel {
    pub(super) const ALL: [Self; 6] = [
        Self::Processes,
        Self::QueuePairs,
        Self::Memory,
        Self::Connections,
        Self::Refusals,
        Self::Latencies,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Processes => "Processes",
            Self::QueuePairs => "Queue pairs",
            Self::Memory => "Memory",
            Self::Connections => "Connections",
            Self::Refusals => "Refusals",
            Self::Latencies => "Latency",
        }
    }

    /// What it says in place of rows.
    pub(super) fn without_rows(self) -> &'static str {
        match self {
            Self::Processes => "No process.",
            Self::QueuePairs => "No queue pairs.",
            Self::Memory => "No memory is registered.",
            Self::Connections => "Nobody listens or is connected by rdma_cm.",
            Self::Refusals => "Nothing was refused or revoked.",
            Self::Latencies => "No request has ended well since the last look.",
        }
    }
}

/// Where somebody is in a panel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The selected row.
    pub(super) row: usize,
    /// The first row that is shown.
    pub(super) top: usize,
    /// The column by which rows are sorted.
    pub(super) sort: usize,
    /// The other way round than usual.
    pub(super) is_reversed: bool,
}

/// What a place on the screen stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Panel(Panel),
    /// The title of a column.
    Column(Panel, usize),
    Row(Panel, usize),
}

impl Target {
    pub(super) fn panel(self) -> Panel {
        match self {
            Self::Panel(panel) | Self::Column(panel, _) | Self::Row(panel, _) => panel,
        }
    }
}

/// What was drawn where.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    /// What lies above comes later.
    pub(super) targets: Vec<(Rect, Target)>,
    /// How many rows each panel has, shown or not, and how many of them fit.
    pub(super) rows: [usize; Panel::ALL.len()],
    pub(super) room: [usize; Panel::ALL.len()],
    /// The columns that each panel can be sorted by: those that are shown.
    pub(super) columns: [Vec<usize>; Panel::ALL.len()],
}

impl Drawn {
    /// What is at a place.
    pub(super) fn at(&self, place: Position) -> Option<Target> {
        let found = self.targets.iter().rev().find(|(area, _)| area.contains(place));
        found.map(|(_, target)| *target)
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) focus: Panel,
    /// The panel that is shown below the processes, where there is no room for all.
    pub(super) below: Panel,
    pub(super) places: [Place; Panel::ALL.len()],
    /// The process in the selected row. The selection follows it.
    pub(super) selected: Option<Stay>,
    /// Only this process is shown.
    pub(super) only: Option<Stay>,
    pub(super) filter: String,
    /// Keys go into the filter.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    pub(super) helps: bool,
    pub(super) drawn: Drawn,
}

impl Default for State {
    fn default() -> Self {
        Self {
            focus: Panel::Processes,
            below: Panel::QueuePairs,
            places: [Place::default(); _],
            selected: None,
            only: None,
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            helps: false,
            drawn: Drawn::default(),
        }
    }
}

impl State {
    pub(super) fn place(&self, panel: Panel) -> &Place {
        &self.places[panel as usize]
    }

    pub(super) fn place_mut(&mut self, panel: Panel) -> &mut Place {
        &mut self.places[panel as usize]
    }

    /// Whether a process is in the list: the filter is a part of its name, or how its PID begins.
    pub(super) fn lists(&self, pid: u32, name: &str) -> bool {
        let filter = self.filter.to_lowercase();
        filter.is_empty()
            || name.to_lowercase().contains(&filter)
            || pid.to_string().starts_with(&filter)
    }

    /// Whether what belongs to a process is shown.
    pub(super) fn shows(&self, stay: Stay, pid: u32, name: &str) -> bool {
        self.only.is_none_or(|only| only == stay) && self.lists(pid, name)
    }

    /// The processes whose memory is shown.
    pub(super) fn shown<'v>(&self, view: &'v View) -> impl Iterator<Item = &'v Process> {
        let is_shown = |process: &&Process| self.shows(process.stay, process.pid, &process.name);
        view.processes.iter().filter(is_shown)
    }

    /// Moves the selection in the panel in focus by so many rows.
    pub(super) fn step(&mut self, panel: Panel, by: isize) {
        let last = self.drawn.rows[panel as usize].saturating_sub(1);
        let place = self.place_mut(panel);
        place.row = place.row.saturating_add_signed(by).min(last);
        if panel == Panel::Processes {
            // The next drawing finds out who is in that row.
            self.selected = None;
        }
    }

    /// Has a panel sorted by a column, or the other way round if it is already.
    pub(super) fn sort_by(&mut self, panel: Panel, column: usize) {
        let place = self.place_mut(panel);
        match place.sort == column {
            true => place.is_reversed = !place.is_reversed,
            false => (place.sort, place.is_reversed) = (column, false),
        }
    }
}
