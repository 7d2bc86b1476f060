//! What keys and the mouse do.

use super::state::{Panel, State, Target};
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Position;

/// What has to be done beside drawing anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    Quit,
    /// Give the terminal back, and stop until somebody says go on.
    Suspend,
}

/// How many rows the wheel turns.
const WHEEL: isize = 3;

pub(super) fn handle(event: &Event, state: &mut State) -> Then {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => pressed(*key, state),
        Event::Mouse(mouse) => {
            clicked(*mouse, state);
            Then::Nothing
        }
        Event::Paste(text) if state.is_typing => {
            state.filter.extend(text.chars().filter(|letter| !letter.is_control()));
            Then::Nothing
        }
        _ => Then::Nothing,
    }
}

fn pressed(key: KeyEvent, state: &mut State) -> Then {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Then::Quit,
            KeyCode::Char('z') => Then::Suspend,
            _ => Then::Nothing,
        };
    }
    if state.is_typing {
        typed(key.code, state);
        return Then::Nothing;
    }
    if state.helps {
        state.helps = false;
        return if key.code == KeyCode::Char('q') { Then::Quit } else { Then::Nothing };
    }
    let (focus, page) = (state.focus, state.drawn.room[state.focus as usize].max(1) as isize);
    match key.code {
        KeyCode::Char('q') => return Then::Quit,
        KeyCode::Char('?') | KeyCode::F(1) | KeyCode::Char('h') => state.helps = true,
        KeyCode::Char('/') => state.is_typing = true,
        KeyCode::Char('p' | ' ') => state.is_paused = !state.is_paused,
        KeyCode::Char('s') => sort_next(state),
        KeyCode::Char('r') => {
            let place = state.place_mut(focus);
            place.is_reversed = !place.is_reversed;
        }
        KeyCode::Char(digit @ '1'..='6') => state.focus = Panel::ALL[digit as usize - '1' as usize],
        KeyCode::Tab | KeyCode::Right => go(state, 1),
        KeyCode::BackTab | KeyCode::Left => go(state, Panel::ALL.len() - 1),
        KeyCode::Up | KeyCode::Char('k') => state.step(focus, -1),
        KeyCode::Down | KeyCode::Char('j') => state.step(focus, 1),
        KeyCode::PageUp => state.step(focus, -page),
        KeyCode::PageDown => state.step(focus, page),
        KeyCode::Home => state.step(focus, isize::MIN),
        KeyCode::End => state.step(focus, isize::MAX),
        KeyCode::Enter => state.only = if state.only.is_some() { None } else { state.selected },
        // One step back each time.
        KeyCode::Esc if state.only.is_some() => state.only = None,
        KeyCode::Esc => state.filter.clear(),
        _ => {}
    }
    Then::Nothing
}

fn typed(code: KeyCode, state: &mut State) {
    match code {
        KeyCode::Enter => state.is_typing = false,
        KeyCode::Esc => {
            state.is_typing = false;
            state.filter.clear();
        }
        KeyCode::Backspace => drop(state.filter.pop()),
        KeyCode::Char(letter) => state.filter.push(letter),
        _ => {}
    }
}

/// Goes to the panel that is so many further.
fn go(state: &mut State, by: usize) {
    state.focus = Panel::ALL[(state.focus as usize + by) % Panel::ALL.len()];
}

fn sort_next(state: &mut State) {
    let (focus, now) = (state.focus, state.place(state.focus).sort);
    let shown = &state.drawn.columns[focus as usize];
    let next = shown.iter().find(|column| **column > now).or(shown.first()).copied();
    if let Some(next) = next {
        state.sort_by(focus, next);
    }
}

fn clicked(mouse: MouseEvent, state: &mut State) {
    let target = state.drawn.at(Position::new(mouse.column, mouse.row));
    match (mouse.kind, target) {
        (MouseEventKind::Down(MouseButton::Left), _) if state.helps => state.helps = false,
        (MouseEventKind::Down(MouseButton::Left), Some(target)) => match target {
            Target::Panel(panel) => state.focus = panel,
            Target::Column(panel, column) => {
                state.focus = panel;
                state.sort_by(panel, column);
            }
            Target::Row(panel, row) => {
                state.focus = panel;
                state.place_mut(panel).row = row;
                state.step(panel, 0);
            }
        },
        (MouseEventKind::ScrollUp, Some(target)) => state.step(target.panel(), -WHEEL),
        (MouseEventKind::ScrollDown, Some(target)) => state.step(target.panel(), WHEEL),
        _ => {}
    }
}
