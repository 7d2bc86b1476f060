//! `transom top`: what all processes do right now.
//!
//! | module | holds |
//! |---|---|
//! | `watch` | looks at all processes, again and again |
//! | `touches` | what peers touch meanwhile |
//! | `revocations` | what is closed to them meanwhile |
//! | `view` | what one look shows, as plain values |
//! | `screen` | from there to what stands on the screen |
//! | `state` | what the person at the screen has chosen |
//! | `input` | what keys and the mouse do |
//! | `terminal` | the terminal, which is given back as it was |
//! | `text`, `json` | one page for a pipe; the same for programs |
//! | `numbers`, `palette` | numbers in few columns; colours |

mod input;
mod json;
mod numbers;
mod palette;
mod revocations;
mod screen;
mod state;
mod terminal;
mod text;
mod touches;
mod view;
mod watch;

use crate::devices;
use crate::failure::Result;
use input::Then;
use palette::Palette;
use ratatui::crossterm::event::Event;
use state::State;
use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};
use terminal::{Message, Screen};
use view::View;
use watch::Watch;

const EXAMPLES: &str = "\
Examples:
  transom top
  transom top --filter ib_write_bw
  transom top --once
  transom top --json --once | jq '.processes[] | {pid, process, open_windows}'";

const FIELDS: &str = "\
With --json, each line is an object for one look. Numbers are integers, rates have decimals. What may have
64 bits is a text of decimal digits: base, length, and what ends in _ns or bytes. A field without a value
is null. Counts are since the process opened its device, rates since the look before.
  time_ns          when, in nanoseconds since 1970
  interval_ns      since the look before; the first one has 0, and no rates
  processes        your processes that have a device open:
    pid                  its PID, in its own PID namespace
    process              the name of its program
    device_number        the number of its device; a process with several is there once for each
    other_pid_namespace  whether its PID is one of another PID namespace
    readable             false if it is in other namespaces: then everything below is empty
    waits_for            the PID that its revocation of a key waits for
    objects              how many it has: pd, cq, qp, mr, ctx, srq
    open_window_bytes    bytes that peers may use now by windows
    open_region_bytes    the same by regions
    open_windows         bound windows that let peers in
    sent, received       its requests, and those of peers, that ended well, over each link, host and
                         wire: messages, bytes, messages_per_second, bytes_per_second
    refused              accesses that it refused
    binds                windows bound
    invalidations        keys invalidated, by itself or by a peer
    not_ready            how often peers without a receive asked it to wait
    retransmissions      requests sent again
    latencies            for each operation whose requests ended well since the look before: operation,
                         count (how many), p50_ns and p99_ns (half of them, and 99 of 100, took so
                         long at most, as a power of two; null for more than 17 s)
    queue_pairs          qp, transport, state, peer_qp, peer_pid (if it is one of these processes), sends,
                         receives (also in its shared queue) and completions (what waits in its
                         queues, half a second old at most; null until the process has told it),
                         most_sends and most_receives (the most work that waited), failed
                         (requests that ended in error), and sent, received, not_ready,
                         retransmissions as above
    regions, windows     kind, key, base (the first address, as requests name it), length, access;
                         windows also have the qp that bound them
    left_out             regions and windows that are too many to be listed
    listeners            port_space and local, the address
    connections          local and peer, the two addresses
    requests             the same of requests that nobody has answered
  refusals         newest first: count (how often the same was refused), first_ns (the first time),
                   and the fields of `transom explain --json`
  revocations      what peers could use and cannot any more, since this command began to look, newest
                   first: count (how often the same way), and of the newest time_ns, pid, process,
                   kind, key, base, length, access, operation (what closed it: invalidate,
                   remote_invalidate, bind; null if it was deregistered or deallocated), qp and
                   peer_qp (those of the operation), sentence

Examples:
  transom top
  transom top --filter ib_write_bw
  transom top --once
  transom top --json --once | jq '.processes[] | {pid, process, open_windows}'";

/// Watch all your programs that use RDMA: what they carry, open to peers, refuse
///
/// It shows your processes that have a device open, what they send and receive, their queue pairs and connections, the
/// memory that they have registered with the windows in it, and why something was refused. The key ? shows all keys.
///
/// You see processes of your user in this network namespace.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct TopArgs {
    /// Print one page as text, with the newest 10 refusals, and end
    #[arg(long)]
    once: bool,
    /// Print a JSON object a line for each look; --help lists its fields
    #[arg(long)]
    json: bool,
    /// Look this often, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
    /// Show only processes whose name has this in it, or whose PID begins so
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
}

/// How often the events of processes are read. They have room for a part of a second of a busy one.
const TICK: Duration = Duration::from_millis(100);

/// A time in seconds, such as `0.5`.
fn parse_interval(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|it| (0.05..=3600.0).contains(it));
    let seconds =
        seconds.ok_or_else(|| "give seconds from 0.05 to 3600, such as 0.5".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

pub(crate) fn run(args: &TopArgs) -> Result {
    let mut watch = Watch::new(devices::registry()?);
    let mut state = State { filter: args.filter.clone(), ..State::default() };
    match (args.json, args.once) {
        (true, true) => json::print(&rated(&mut watch, &state, args.interval)),
        (false, true) => text::print(rated(&mut watch, &state, args.interval), &mut state),
        (true, false) => loop {
            json::print(&only_listed(watch.look(), &state))?;
            sleep(&mut watch, args.interval);
        },
        (false, false) => watch_on_screen(&mut watch, &mut state, args.interval),
    }
}

/// One look with rates, which take two.
fn rated(watch: &mut Watch, state: &State, interval: Duration) -> View {
    watch.look();
    sleep(watch, interval);
    only_listed(watch.look(), state)
}

/// Waits, and reads what processes record meanwhile.
fn sleep(watch: &mut Watch, interval: Duration) {
    let end = Instant::now() + interval;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(TICK));
        watch.tick();
    }
}

/// Leaves out what the filter leaves out. The screen does that itself, so that a filter can be taken back.
fn only_listed(mut view: View, state: &State) -> View {
    view.processes.retain(|it| state.lists(it.pid, &it.name));
    view.queue_pairs.retain(|it| state.lists(it.pid, &it.process));
    view.connections.retain(|it| state.lists(it.pid, &it.process));
    view.latencies.retain(|it| state.lists(it.pid, &it.process));
    view.refusals.retain(|it| state.lists(it.pid, &it.process));
    view.revocations.retain(|it| state.lists(it.pid, &it.process));
    let listed: HashSet<_> = view.processes.iter().map(|it| it.stay).collect();
    view.regions.retain(|it| listed.contains(&it.owner));
    view.windows.retain(|it| listed.contains(&it.span.owner));
    view.touches.retain(|it| listed.contains(&it.span.owner));
    view.revoked.retain(|it| listed.contains(&it.span.owner));
    view
}

/// The next message, if one comes before it is time to look again.
fn next_message(
    screen: &Screen,
    watch: &mut Watch,
    state: &State,
    next: Instant,
) -> Option<Message> {
    if state.is_paused {
        return screen.next_within(None);
    }
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let message = screen.next_within(Some(left.min(TICK)));
        if message.is_some() || left.is_zero() {
            return message;
        }
        watch.tick();
    }
}

fn watch_on_screen(watch: &mut Watch, state: &mut State, interval: Duration) -> Result {
    let palette = Palette::of_environment();
    let mut screen = Screen::take()?;
    let mut view = watch.look();
    let mut next = Instant::now() + interval;
    loop {
        screen.terminal.draw(|frame| {
            screen::draw(frame.buffer_mut(), &view, state, palette);
        })?;
        let then = match next_message(&screen, watch, state, next) {
            Some(Message::Input(Event::Resize(..))) => Then::Nothing,
            Some(Message::Input(event)) => input::handle(&event, state),
            Some(Message::Signal(libc::SIGTSTP)) => Then::Suspend,
            Some(Message::Signal(libc::SIGWINCH)) => Then::Nothing,
            Some(Message::Signal(_) | Message::Closed) => Then::Quit,
            None => Then::Nothing,
        };
        match then {
            Then::Nothing => {}
            Then::Quit => return Ok(()),
            Then::Suspend => screen.suspend()?,
        }
        if !state.is_paused && Instant::now() >= next {
            view = watch.look();
            next = Instant::now() + interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::screen::tests::view;
    use super::view::Refusal;
    use super::*;

    fn page(view: View, filter: &str) -> String {
        let mut state = State { filter: filter.to_owned(), ..State::default() };
        text::page(only_listed(view, &state), &mut state, 80)
    }

    /// Rules: SEE-32
    #[test]
    fn a_page_with_a_filter_has_nothing_of_other_processes() {
        let page = page(view(), "client");
        assert!(page.contains("  1 process, 1 queue pair, 0 refusals "), "{page}");
        assert!(page.contains(" 2 Queue pairs 1 ") && page.contains(" 3 Memory 1 "), "{page}");
        for other in ["0x31234", "0x8a340000", "listens", "ib_read_bw", "1.2 s before"] {
            assert!(!page.contains(other), "{other}: {page}");
        }
        // It names the process at the other end of its own queue pair.
        assert!(page.contains("0x1a2b3 4711 sto"), "{page}");
    }

    /// Rules: SEE-32
    #[test]
    fn a_page_whose_filter_leaves_nothing_does_not_say_that_nothing_runs() {
        let page = page(view(), "nosuch");
        assert!(page.contains("    filter: nosuch\n"), "{page}");
        assert!(page.contains("None of your processes like that has an RDMA device"), "{page}");
    }

    /// Rules: SEE-32
    #[test]
    fn a_page_has_the_newest_refusals_and_counts_the_older_ones() {
        let refusal = |number: usize| Refusal {
            sentence: format!("refusal number {number}."),
            count: 2,
            fields: serde_json::Map::new(),
            who: String::new(),
            process: String::new(),
            ..view().refusals.remove(0)
        };
        let many = View { refusals: (0..200).map(refusal).collect(), ..view() };
        let page = page(many, "");
        assert!(page.contains("number 9.") && !page.contains("number 10."), "{page}");
        assert!(page.contains(", 400 refusals "), "{page}");
        assert!(page.ends_with("\n380 older refusals: `transom explain`\n"), "{page}");
    }
}
