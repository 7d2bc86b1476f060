//! Screens of a view that is made up, compared with those that are kept in `top/screens`. `TRANSOM_BLESS=1` writes them.

use super::super::input;
use super::super::state::{Panel, State, Target};
use super::super::text;
use super::super::view::*;
use super::*;
use crate::clock;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::style::{Color, Modifier};
use std::path::Path;
use std::time::Duration;
use transom_device::Access;
use transom_device::protection::Kind;
use transom_device::qp::{QpState, Service};
use transom_system::traffic::Depths;

const COLOURS: Palette = Palette { has_colours: true };
const TIME: u64 = 1_800_000_000_000_000_000;
const SERVER: Stay = (1, 7);
const CLIENT: Stay = (2, 3);

fn flow(messages: u64, message_rate: f64, size: u64) -> Flow {
    let byte_rate = message_rate * size as f64;
    Flow { messages, bytes: messages * size, message_rate, byte_rate }
}

fn load(sent: Flow, received: Flow) -> Load {
    let on_host = |host| Links { host, wire: Flow::default() };
    Load { sent: on_host(sent), received: on_host(received) }
}

fn qp(owner: Stay, pid: u32, process: &str, number: u32, load: Load) -> QueuePair {
    QueuePair {
        owner,
        pid,
        process: process.to_owned(),
        number,
        service: Service::Rc,
        state: QpState::Rts,
        peer: None,
        peer_process: None,
        load,
        depths: Some(Depths { sends: 3, receives: 500, ..Depths::default() }),
        most_sends: 128,
        most_receives: 0,
        failed: 0,
        not_ready: 0,
        retransmissions: 0,
    }
}

fn span(owner: Stay, key: u32, base: u64, length: u64, access: Access, kind: Kind) -> Span {
    Span { owner, key, place: base, base, length, access, kind }
}

/// A server with a window open to its client, which has just been refused, and a program over the wire.
pub(in super::super) fn view() -> View {
    let written = flow(1_234_567, 123_456.0, 4096);
    let objects =
        |qp, mr| vec![("pd", 1), ("cq", 2), ("qp", qp), ("mr", mr), ("ctx", 1), ("srq", 0)];
    let server = Process {
        stay: SERVER,
        pid: 4711,
        name: "storage_server".to_owned(),
        shares_pids: true,
        objects: objects(2, 2),
        windows: 2,
        in_windows: 1 << 18,
        in_regions: 1 << 20,
        load: load(Flow::default(), written),
        refusals: 3,
        binds: 12,
        invalidations: 10,
        ..Process::default()
    };
    let client = Process {
        stay: CLIENT,
        pid: 4712,
        name: "client".to_owned(),
        shares_pids: true,
        objects: objects(1, 1),
        load: load(written, Flow::default()),
        ..Process::default()
    };
    let over_the_wire = flow(4096, 64.0, 1 << 20);
    let far = Process {
        stay: (3, 1),
        pid: 812,
        name: "ib_read_bw".to_owned(),
        shares_pids: true,
        objects: objects(1, 1),
        not_ready: 4,
        retransmissions: 1,
        load: Load {
            sent: Links { host: Flow::default(), wire: over_the_wire },
            ..Load::default()
        },
        ..Process::default()
    };
    let away = Process {
        stay: (4, 1),
        pid: 17,
        name: "in_a_pod".to_owned(),
        is_far: true,
        ..Process::default()
    };
    let at_server = qp(SERVER, 4711, "storage_server", 0x01_a2b3, server.load);
    let at_client = qp(CLIENT, 4712, "client", 0x02_0f00, client.load);
    let mut view = View {
        time: TIME,
        interval: Duration::from_secs(1),
        queue_pairs: vec![
            QueuePair { peer: Some(at_client.number), ..at_server },
            QueuePair {
                state: QpState::Init,
                most_sends: 0,
                ..qp(SERVER, 4711, "storage_server", 0x01_77aa, Load::default())
            },
            QueuePair { peer: Some(0x01_a2b3), ..at_client },
            QueuePair { peer: Some(0x11), depths: None, ..qp(far.stay, far.pid, &far.name, 0x03_1234, far.load) },
        ],
        regions: vec![
            span(SERVER, 0x8a34_0000, 0x7f5c_1000_0000, 1 << 22, Access::MW_BIND, Kind::Region),
            span(SERVER, 0x8a35_0000, 0x7f5c_2000_0000, 1 << 20, Access::REMOTE_READ, Kind::Region),
            span(CLIENT, 0x1234_0000, 0x55d0_a000_1000, 4096, Access::LOCAL_WRITE, Kind::Region),
        ],
        windows: vec![
            Window {
                span: span(SERVER, 0x99, 0x7f5c_1010_0000, 1 << 17, Access::REMOTE, Kind::Window2B),
                qp: 0x01_a2b3,
            },
            Window {
                span: span(SERVER, 0x9a, 0x7f5c_1030_0000, 1 << 17, Access::REMOTE_WRITE, Kind::Window1),
                qp: 0,
            },
        ],
        touches: vec![Touch {
            span: span(SERVER, 0x99, 0x7f5c_1011_0000, 4096, Access::REMOTE, Kind::Window2B),
            age: Duration::from_millis(100),
        }],
        revoked: vec![Touch {
            span: span(SERVER, 0x19b, 0x7f5c_1020_0000, 1 << 17, Access::REMOTE_WRITE, Kind::Window2B),
            age: Duration::from_millis(200),
        }],
        connections: vec![
            connection(SERVER, 4711, "storage_server", Stage::Listening, "10.0.0.1:7471", None),
            connection(SERVER, 4711, "storage_server", Stage::Connected, "10.0.0.1:7471", Some("10.0.0.1:50123")),
            connection(CLIENT, 4712, "client", Stage::Connected, "10.0.0.1:50123", Some("10.0.0.1:7471")),
        ],
        latencies: vec![
            latency(CLIENT, 4712, "client", "write", (1024, 4096)),
            latency(CLIENT, 4712, "client", "read", (2048, 1 << 25)),
            latency(far.stay, 812, "ib_read_bw", "read", (512, 512)),
        ],
        refusals: vec![Refusal {
            owner: SERVER,
            pid: 4711,
            process: "storage_server".to_owned(),
            who: "storage_server, PID 4711".to_owned(),
            time: TIME,
            count: 3,
            sentence: "WRITE of 4096 bytes at 0x7f5c10120010 with key 0x00000099 from QP 0x20f00 to QP 0x1a2b3: the \
                       range goes 16 bytes past the end of the window [0x7f5c10100000, +131072) with REMOTE_WRITE, \
                       bound by QP 0x1a2b3 as wr_id 5, 1.2 s before (rule RA-33)"
                .to_owned(),
            is_new: true,
            fields: serde_json::Map::new(),
        }],
        older: 0,
        revocations: vec![Revocation {
            owner: SERVER,
            pid: 4711,
            process: "storage_server".to_owned(),
            time: TIME,
            count: 10,
            sentence: "The type 2 window [0x7f5c10200000, +131072) with REMOTE_WRITE and key 0x0000019b was revoked \
                       by LOCAL_INV of QP 0x1a2b3"
                .to_owned(),
            is_new: true,
            fields: serde_json::Map::new(),
        }],
        history: (0..200).map(|look| 60_000 + look % 13 * 5_000).collect(),
        processes: vec![server, client, far, away],
    };
    view.find_peers();
    view
}

fn latency(
    owner: Stay,
    pid: u32,
    process: &str,
    operation: &'static str,
    (p50, p99): (u64, u64),
) -> Latency {
    let (process, p50, p99) = (process.to_owned(), Some(p50), Some(p99));
    Latency { owner, pid, process, operation, requests: 12_345, p50, p99 }
}

fn connection(
    owner: Stay,
    pid: u32,
    process: &str,
    stage: Stage,
    local: &str,
    peer: Option<&str>,
) -> Connection {
    Connection {
        owner,
        pid,
        process: process.to_owned(),
        stage,
        space: if stage == Stage::Listening { "TCP" } else { "" },
        local: local.to_owned(),
        peer: peer.map(str::to_owned),
        waits: None,
    }
}

fn drawn(view: &View, state: &mut State, palette: Palette, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame.buffer_mut(), view, state, palette)).unwrap();
    terminal.backend().buffer().clone()
}

/// The text of a screen. It has the time of the view, in the time zone of whoever runs the test.
fn lines(buffer: &Buffer) -> String {
    let local = clock::local(TIME, TIME);
    let seconds = local.split('.').next().unwrap();
    text::text(buffer).replace(&local, "12:34:56.789").replace(seconds, "12:34:56")
}

fn compare(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/top/screens/{name}.txt"));
    if std::env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, shown).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == shown,
        "{name} differs. Look at it, and if you mean it:\n\
         TRANSOM_BLESS=1 cargo test -p transom-cli top::\n{shown}instead of\n{kept}"
    );
}

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 50);

fn press(state: &mut State, keys: &[KeyCode]) {
    for key in keys {
        input::handle(&Event::Key(KeyEvent::new(*key, KeyModifiers::NONE)), state);
    }
}

fn mouse(state: &mut State, kind: MouseEventKind, (column, row): (u16, u16)) {
    let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
    input::handle(&Event::Mouse(event), state);
}

/// Rules: SEE-32, SEE-34
#[test]
fn screens_are_as_they_were() {
    let view = view();
    for (panel, name) in [
        (Panel::Processes, "processes"),
        (Panel::QueuePairs, "queue-pairs"),
        (Panel::Memory, "memory"),
        (Panel::Connections, "connections"),
        (Panel::Refusals, "refusals"),
        (Panel::Latencies, "latencies"),
    ] {
        let mut state = State { focus: panel, ..State::default() };
        compare(name, &lines(&drawn(&view, &mut state, COLOURS, SMALL)));
    }
    compare("large", &lines(&drawn(&view, &mut State::default(), COLOURS, LARGE)));
    let mut state = State { helps: true, ..State::default() };
    compare("help", &lines(&drawn(&view, &mut state, COLOURS, SMALL)));
    compare(
        "nothing",
        &lines(&drawn(
            &View { time: TIME, ..View::default() },
            &mut State::default(),
            COLOURS,
            SMALL,
        )),
    );
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, height(&view, &State::default(), 80)));
    draw_all(&mut buffer, &view, &mut State::default(), COLOURS);
    compare("once", &lines(&buffer));
}

/// Any size draws something, and nothing outside.
#[test]
fn no_size_is_too_small() {
    let view = view();
    for width in [1, 2, 10, 40, 79, 149, 150, 400] {
        for height in [1, 2, 3, 5, 9, 12, 23, 35, 36, 120] {
            for panel in Panel::ALL {
                let mut state = State { focus: panel, ..State::default() };
                drawn(&view, &mut state, COLOURS, (width, height));
                state.helps = true;
                drawn(&view, &mut state, COLOURS, (width, height));
            }
        }
    }
}

/// Rules: SEE-34
#[test]
fn without_colours_the_letters_are_the_same() {
    let view = view();
    let plain = Palette { has_colours: false };
    let [coloured, plain] =
        [COLOURS, plain].map(|palette| drawn(&view, &mut State::default(), palette, LARGE));
    assert_eq!(lines(&coloured), lines(&plain));
    let has_colour = |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    assert!(has_colour(&coloured) && !has_colour(&plain));
}

/// The line that is selected in a panel.
fn selected(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width);
    let reversed = |row: &&[ratatui::buffer::Cell]| {
        row.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED))
    };
    let rows: Vec<_> = rows.filter(reversed).collect();
    let [row] = rows[..] else { panic!("{} rows are selected", rows.len()) };
    row.iter().map(|cell| cell.symbol()).collect()
}

#[test]
fn the_selection_stays_with_its_process() {
    let view = view();
    let mut state = State::default();
    assert!(selected(&drawn(&view, &mut state, COLOURS, SMALL)).contains(" 17 "));
    press(&mut state, &[KeyCode::Down, KeyCode::Down]);
    assert!(selected(&drawn(&view, &mut state, COLOURS, SMALL)).contains("storage_server"));
    // The other way round it is elsewhere.
    press(&mut state, &[KeyCode::Char('r')]);
    assert!(selected(&drawn(&view, &mut state, COLOURS, SMALL)).contains("storage_server"));
    press(&mut state, &[KeyCode::Home]);
    assert!(selected(&drawn(&view, &mut state, COLOURS, SMALL)).contains("4712"));
    press(&mut state, &[KeyCode::End]);
    assert!(selected(&drawn(&view, &mut state, COLOURS, SMALL)).contains(" 17 "));
}

/// Rules: SEE-32
#[test]
fn a_filter_and_enter_leave_out_what_belongs_to_others() {
    let view = view();
    let mut state = State::default();
    press(&mut state, &"/STOR".chars().map(KeyCode::Char).collect::<Vec<_>>());
    let screen = lines(&drawn(&view, &mut state, COLOURS, LARGE));
    assert!(screen.contains("Filter: STOR") && !screen.contains("ib_read_bw"), "{screen}");
    press(&mut state, &[KeyCode::Enter]);
    let screen = lines(&drawn(&view, &mut state, COLOURS, LARGE));
    assert!(screen.contains("filter: STOR") && screen.contains("0x177aa"), "{screen}");
    press(&mut state, &[KeyCode::Esc]);
    let screen = lines(&drawn(&view, &mut state, COLOURS, LARGE));
    assert!(screen.contains("ib_read_bw") && screen.contains("0x31234"), "{screen}");
    // Only the one that is selected.
    press(&mut state, &[KeyCode::Home]);
    drawn(&view, &mut state, COLOURS, LARGE);
    press(&mut state, &[KeyCode::Down]);
    drawn(&view, &mut state, COLOURS, LARGE);
    press(&mut state, &[KeyCode::Enter]);
    let screen = lines(&drawn(&view, &mut state, COLOURS, LARGE));
    assert!(screen.contains("0x31234") && !screen.contains("0x177aa"), "{screen}");
    assert!(screen.contains("storage_server"), "the list of processes stays whole: {screen}");
    press(&mut state, &[KeyCode::Enter]);
    let screen = lines(&drawn(&view, &mut state, COLOURS, LARGE));
    assert!(screen.contains("0x31234") && screen.contains("0x177aa"), "{screen}");
}

/// Where the curve has its title otherwise.
///
/// Rules: SEE-32
#[test]
fn a_filter_is_told_on_a_small_screen_too() {
    let mut state = State { filter: "storage".to_owned(), ..State::default() };
    let screen = lines(&drawn(&view(), &mut state, COLOURS, SMALL));
    let titles = screen.lines().nth(1).unwrap();
    assert!(titles.contains(" bytes/s    ") && titles.ends_with("    filter: storage"), "{screen}");
    // So is that the panels are about one process, wherever one is.
    press(&mut state, &[KeyCode::Enter, KeyCode::Char('4')]);
    let screen = lines(&drawn(&view(), &mut state, COLOURS, SMALL));
    let titles = screen.lines().nth(1).unwrap();
    assert!(titles.contains(" bytes/s     only 4711, filter: stor"), "{screen}");
    press(&mut state, &[KeyCode::Esc, KeyCode::Esc]);
    let screen = lines(&drawn(&view(), &mut state, COLOURS, SMALL));
    assert!(screen.contains("    sent/s of both, until now"), "{screen}");
}

/// Rules: SEE-32
#[test]
fn a_panel_without_rows_says_so() {
    let empty = View { processes: view().processes, ..View::default() };
    let screen = lines(&drawn(&empty, &mut State::default(), COLOURS, LARGE));
    let others =
        [Panel::QueuePairs, Panel::Memory, Panel::Connections, Panel::Refusals, Panel::Latencies];
    for panel in others.into_iter().filter(|panel| *panel != Panel::Memory) {
        assert!(screen.contains(panel.without_rows()), "{panel:?} in {screen}");
    }
    let page = text::page(empty, &mut State::default(), 80);
    assert!(page.contains(Panel::Connections.without_rows()), "{page}");
    let mut state = State { filter: "nobody".to_owned(), ..State::default() };
    let screen = lines(&drawn(&view(), &mut state, COLOURS, LARGE));
    let all = [Panel::Processes].into_iter().chain(others);
    for panel in all {
        assert!(screen.contains(panel.without_rows()), "{panel:?} in {screen}");
    }
}

/// A queue pair whose number is cut would be another one.
///
/// Rules: SEE-32
#[test]
fn what_has_no_room_is_shortened_and_says_so() {
    let view = view();
    let mut state = State { focus: Panel::Memory, ..State::default() };
    let screen = lines(&drawn(&view, &mut state, COLOURS, SMALL));
    assert!(screen.contains("▓ 2B window +0x100000, QP 0x1a2b3 "), "{screen}");
    assert!(screen.contains("▓ type 1 window at +0x300000 "), "{screen}");
    let narrow = lines(&drawn(&view, &mut state, COLOURS, (60, 24)));
    assert!(narrow.contains("▓ 2B window +0x10… 0x00000099"), "{narrow}");
    assert!(
        narrow.contains("├─ 4 Connections ─ 5 Refusa…╮") && narrow.contains("  ? h…"),
        "{narrow}"
    );
}

/// Names begin with the first, and numbers with the largest, until somebody wants them the other way round.
///
/// Rules: SEE-32
#[test]
fn an_arrow_says_which_way_a_column_is_sorted() {
    let view = view();
    let mut state = State::default();
    let titles = |state: &mut State| {
        let screen = lines(&drawn(&view, state, COLOURS, SMALL));
        let mut rows = screen.lines().skip(5);
        let titles = rows.next().unwrap().to_owned();
        let pids = rows.take(4).map(|row| row.get(3..10).unwrap().trim().to_owned());
        (titles, pids.collect::<Vec<_>>())
    };
    let (head, pids) = titles(&mut state);
    assert!(head.contains("PID▴") && pids == ["17", "812", "4711", "4712"], "{head} {pids:?}");
    press(&mut state, &[KeyCode::Char('r')]);
    let (head, pids) = titles(&mut state);
    assert!(head.contains("PID▾") && pids == ["4712", "4711", "812", "17"], "{head} {pids:?}");
    state.sort_by(Panel::Processes, 10);
    let (head, pids) = titles(&mut state);
    assert!(head.contains("OUT/s▾") && pids[..2] == ["4712", "812"], "{head} {pids:?}");
}

/// A key does what one can see, or the foot does not name it.
///
/// Rules: SEE-32
#[test]
fn a_key_sorts_by_a_column_that_is_shown_where_there_are_columns() {
    let view = view();
    let mut state = State::default();
    drawn(&view, &mut state, COLOURS, SMALL);
    for press_count in 1..20 {
        press(&mut state, &[KeyCode::Char('s')]);
        let screen = lines(&drawn(&view, &mut state, COLOURS, SMALL));
        let head = screen.lines().find(|line| line.contains("PROGRAM")).expect("the titles");
        assert!(head.contains('▾') || head.contains('▴'), "{press_count}: {screen}");
        assert!(screen.contains("s sort"), "{screen}");
    }
    for panel in ['3', '5'] {
        press(&mut state, &[KeyCode::Char(panel)]);
        let screen = lines(&drawn(&view, &mut state, COLOURS, SMALL));
        assert!(!screen.contains("s sort"), "{screen}");
    }
}

/// Rules: SEE-32
#[test]
fn a_click_selects_and_sorts_and_the_wheel_turns() {
    let view = view();
    let mut state = State::default();
    drawn(&view, &mut state, COLOURS, SMALL);
    let find = |state: &State, wanted: Target| {
        let found = state.drawn.targets.iter().find(|(_, target)| *target == wanted);
        let (area, _) = found.unwrap_or_else(|| panic!("{wanted:?} is not on the screen"));
        (area.x + 1, area.y)
    };
    let left = MouseEventKind::Down(MouseButton::Left);
    let row = find(&state, Target::Row(Panel::Processes, 3));
    mouse(&mut state, left, row);
    assert!(selected(&drawn(&view, &mut state, COLOURS, SMALL)).contains("client"));
    // OUT/s: the largest first, and then last.
    for (first, last) in [("client", "in_a_pod"), ("storage_server", "client")] {
        let title = find(&state, Target::Column(Panel::Processes, 10));
        mouse(&mut state, left, title);
        let screen = lines(&drawn(&view, &mut state, COLOURS, SMALL));
        let rows: Vec<_> = screen.lines().skip(6).take(4).collect();
        assert!(rows[0].contains(first) && rows[3].contains(last), "{screen}");
    }
    // A tab, and the wheel over it.
    let tab = find(&state, Target::Panel(Panel::Memory));
    mouse(&mut state, left, tab);
    assert_eq!(state.focus, Panel::Memory);
    drawn(&view, &mut state, COLOURS, SMALL);
    let over = find(&state, Target::Row(Panel::Memory, 1));
    mouse(&mut state, MouseEventKind::ScrollDown, over);
    assert_eq!(state.place(Panel::Memory).row, 3);
    mouse(&mut state, MouseEventKind::ScrollUp, over);
    assert_eq!(state.place(Panel::Memory).row, 0);
}
