//! The rules hold in a rehearsal too: their own tests run in it. Those that look at a mercy are left out where it is
//! withdrawn.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, thread};

use transom_conformance::processes::{Scratch, is_long, this_program};
use transom_conformance::programs::Running;
use transom_rehearse::{Plan, Provocation, Sort};

/// How long one test may take. A few take a quarter of a minute outside a rehearsal.
const LIMIT: Duration = Duration::from_secs(120);
/// The seeds of the long mode. Here one seed will do.
const SEEDS: u64 = 3;

/// These are about the tools, or about files of the repository.
const NOT_OF_THE_DEVICE: &[&str] = &[
    "checked::",
    "coverage::",
    "documents::",
    "explained::",
    "modules::",
    "programs::",
    "publication::",
    "rehearsed::",
];

/// What the short mode takes: how protection ends.
const SHORT: &[&str] = &[
    "regions::deregister::",
    "type1_windows::completion::",
    "type2_windows::bind::",
    "type2_windows::local_invalidate::",
    "windows::revocation::",
];

/// The tests that do not run under a provocation, and why: their names begin so.
const NOT_UNDER: &[(Provocation, &str, &[&str])] = &[
    (
        Provocation::LateWork,
        "they stop what has not begun, or wait for thousands of requests",
        &["processes::threads::", "states::traffic::sqd_finishes_what"],
    ),
    (Provocation::HiddenCompletions, "they take a poll that finds nothing for the end", POLLS_ONCE),
    (Provocation::SingleCompletions, "they expect all completions of one poll", POLLS_ONCE),
    (
        Provocation::ScribbledTargets,
        "they see that a refused READ leaves its target alone",
        &[
            "ordering::windows::",
            "regions::deregister_under_load::nothing_is_read_from_a_target_that_has_ended",
            "remote_access::",
            "retries::without_read_credits_a_read_fails",
            "windows::revocation::every_reader_of_a_freed_window_is_refused",
        ],
    ),
    (
        Provocation::ScribbledReceives,
        "they see that a receive without a success leaves its buffer alone, or have atomics act on it",
        &[
            "processes::stopped::atomics_reach_the_memory_of_a_stopped_process",
            "regions::local_access::bad_key_in_a_gather_sends_nothing",
            "regions::reregister::posted_receive_sees_the_new_range",
            "remote_access::",
        ],
    ),
    (
        Provocation::PoisonedFields,
        "they look at fields of failed completions, or at fields that mean nothing",
        &[
            "completions::extended::every_field_reads_as_it_is_polled",
            "completions::queues::a_failed_completion_says_which_request",
            "create_destroy::limits::a_request_has_up_to_max_sge_pieces",
            "shared_receives::rendezvous::",
            "shared_receives::tag_matching::",
            "states::traffic::",
            "windows::model::device_agrees_with_the_model",
        ],
    ),
    (
        Provocation::SilentArming,
        "they show that arming raises an event for what waits",
        &[
            "completions::events::nobody_sleeps_over_a_completion",
            "completions::events::what_waits_",
            "completions::moderation::what_waits_when_armed_",
        ],
    ),
    (
        Provocation::ExactSizes,
        "they count what a queue has beyond what was asked for, or use it",
        &[
            "connections::library::the_examples_of_synchronous_ids_end_well",
            "create_destroy::objects::queues_are_as_deep_as_an_adapters",
            "posting::extended_refused::atomic_writes_have_room_inline",
            "shared_receives::limit::the_limit_is_within_the_size",
            "shared_receives::queues::bad_arguments_are_refused",
        ],
    ),
    (
        Provocation::DifferentKeys,
        "they take the keys of both sides for one",
        &[
            "regions::deregister::stale_keys_do_not_fit_their_successors",
            "regions::null_region::",
            "regions::on_demand::advice_that_makes_no_sense_is_refused",
        ],
    ),
    (
        Provocation::RefusedEmptyRegions,
        "they register no bytes",
        &[
            "regions::deregister::stale_keys_do_not_fit_their_successors",
            "regions::in_use::zero_length_region_takes_zero_bytes",
            "regions::registration::",
        ],
    ),
    (
        Provocation::ShutRegions,
        "they use a region while it is changed",
        &["regions::reregister::what_both_allow_goes_on_during_the_change"],
    ),
    (
        Provocation::KeptWindowKeys,
        "they read the key of a window of type 2 from its struct",
        &[
            "completions::events::binds_and_invalidations_raise_events",
            "ordering::",
            "posting::extended::windows_are_bound_and_invalidated",
            "type2_windows::",
            "unreliable::connected::windows_are_bound_and_used_on_uc",
            "windows::",
        ],
    ),
    (
        Provocation::LateEvents,
        "they look for an event when its completion is there",
        &[
            "completions::events::",
            "completions::moderation::",
            "processes::asleep::a_peer_wakes_who_waits_for_an_event",
        ],
    ),
    (
        Provocation::LateAsyncEvents,
        "they look for an event at once, or are told of none",
        &["async_events::", "shared_receives::last_wqe::", "shared_receives::limit::"],
    ),
    (
        Provocation::SlowFlush,
        "they expect that all is flushed at once, or that nothing is allocated",
        &[
            "completions::",
            "processes::want_of_memory::long_queues_are_flushed_without_memory",
            "shared_receives::last_wqe::",
            "states::traffic::",
        ],
    ),
    (
        Provocation::AddressChanges,
        "they know every event that comes",
        &["connections::library::", "connections::one_process::", "connections::sockets::"],
    ),
    (
        Provocation::RefusedEarlyRequests,
        "they connect before anybody listens",
        &[
            "connections::library::",
            "connections::many::many_connections_are_open_at_once",
            "connections::one_process::",
            "connections::processes::a_server_lets_its_listener_go_before_it_makes_the_next",
            "connections::sockets::",
        ],
    ),
    (
        Provocation::SmallMtu,
        "they send as much as the device says that a port may, or more",
        &[
            "create_destroy::limits::a_size_is_given_up_to_its_limit",
            "states::attributes::",
            "unreliable::datagrams::",
            "wire::path_mtu::",
        ],
    ),
    (
        Provocation::ScatteredNumbers,
        "they compare with what other numbers would give",
        &["create_destroy::objects::numbers_rest_before_they_come_back"],
    ),
    (
        Provocation::LostMessages,
        "they wait for each message of UC and UD",
        &[
            "completion_counters::operations_are_counted_at_both_ends",
            "connections::library::",
            "connections::sockets::",
            "posting::refused::unknown_operations_are_refused",
            "posting::requests::immediate_data_arrives_unchanged",
            "processes::registry::",
            "processes::stopped::datagrams_of_a_sender_that_ends_at_once_come",
            "processes::threads::",
            "unreliable::",
            "wire::faults::",
        ],
    ),
    (
        Provocation::UnseenWrites,
        "they look at what a WRITE brought as soon as it is complete",
        &[
            "ordering::requests::inline_data_is_taken_when_posted",
            "ordering::stress::a_bind_is_done_before_the_next_send",
            "posting::extended::inline_data_is_taken_by_the_setter",
            "posting::requests::",
            "processes::atomics_in_turn::",
            "processes::fork::",
            "regions::device_memory::peers_reach_it_by_offset",
            "regions::domains::refused_dealloc_changes_nothing",
            "regions::extended::",
            "regions::imports::imported_objects_carry_data",
            "regions::in_use::",
            "regions::local_pieces::",
            "regions::on_demand::",
            "regions::parent_domains::a_parent_domain_stands_for_its_domain",
            "remote_access::bounds::",
            "remote_access::links::write_and_read",
            "retries::",
            "type2_windows::rights::",
            "windows::model::device_agrees_with_the_model",
        ],
    ),
    (
        Provocation::KeptCompletions,
        "they see that the completions of a queue pair end with it",
        &["ordering::requests::destroying_leaves_the_completions_of_others"],
    ),
    (Provocation::UnseenWrites, COMES_BY_MESSAGE, PLACES),
    (Provocation::RelaxedOrdering, COMES_BY_MESSAGE, PLACES),
    (Provocation::SplitAtomics, COMES_BY_MESSAGE, PLACES),
    (
        Provocation::SplitAtomics,
        "they add by instructions of the processor too, or need the direct way",
        &[
            "processes::atomics_in_turn::",
            "processes::stopped::",
            "remote_access::atomics::shared_atomics_count_with_the_programs_own",
            "retries::retries_are_counted_anew_for_each_message",
        ],
    ),
    (
        Provocation::NumbersAgain,
        "they see numbers rest, or connect new queue pairs with the old packet sequence numbers",
        &[
            "create_destroy::objects::numbers_rest_before_they_come_back",
            "regions::deregister::stale_keys_do_not_fit_their_successors",
            "remote_access::grid::",
            "shared_receives::xrc::",
            "type1_windows::success::a_window_can_be_bound_anew",
            "type2_windows::kinds::a_queue_pair_number_is_kept_while_a_window_names_it",
            "windows::keys::after_a_failed_bind_the_saved_key_is_the_right_one",
            "windows::revocation::no_byte_moves_after_a_window_is_freed",
        ],
    ),
];

/// Where these may happen, requests come as messages.
const COMES_BY_MESSAGE: &str = "it counts places of WRITEs that are complete when they are posted";
const PLACES: &[&str] = &["posting::places::places_come_back_however_a_queue_is_polled"];

/// These poll once and expect all that is there.
const POLLS_ONCE: &[&str] = &[
    "completions::extended::",
    "completions::queues::",
    "create_destroy::refused_calls::what_a_queue_cannot_be_is_told",
    "posting::places::places_come_back_however_a_queue_is_polled",
    "processes::killed::those_that_nobody_answers_do_not_wait_for_the_dead",
    "processes::stopped::",
    "processes::want_of_memory::long_queues_are_flushed_without_memory",
    "shared_receives::races::queue_pairs_fail_under_load",
    "states::traffic::",
];

/// A failure in a rehearsal would not be the test's fault.
const NEVER: &[(&str, &str)] = &[
    (
        "processes::full_disk::",
        "it limits the size of files, so what is provoked cannot be written down",
    ),
    ("ordering::reached::", "it makes rehearsals of its own"),
    (
        "remote_access::errors::an_error_means_the_same_on_every_link",
        "it compares two links, whose operations have other numbers",
    ),
    ("processes::shared_memory::", "its programs have limits of time"),
];

/// The names of this program's tests that are rehearsed.
fn tests() -> Vec<String> {
    let listed = Command::new(this_program()).args(["--list", "--format", "terse"]).output();
    let listed = String::from_utf8(listed.expect("a list").stdout).expect("names");
    let all = listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned);
    let all: Vec<_> = all.collect();
    let marks = NOT_UNDER.iter().flat_map(|(_, _, names)| *names);
    for mark in marks.chain(NEVER.iter().map(|(name, _)| name)) {
        assert!(all.iter().any(|name| name.starts_with(mark)), "no test is named {mark}");
    }
    let never: Vec<_> = NEVER.iter().map(|(name, _)| *name).collect();
    let left_out = |name: &str| begins(name, NOT_OF_THE_DEVICE) || begins(name, &never);
    all.into_iter().filter(|name| !left_out(name) && (is_long() || begins(name, SHORT))).collect()
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|it| name.starts_with(it))
}

/// Everything that a correct program does not notice. A call that fails would be noticed.
fn kinds(name: &str) -> BTreeSet<Provocation> {
    let withdrawn = |kind: Provocation| {
        NOT_UNDER.iter().any(|(not_under, _, names)| *not_under == kind && begins(name, names))
    };
    let all = Provocation::ALL.iter().copied();
    all.filter(|kind| kind.sort() != Sort::Failure && !withdrawn(*kind)).collect()
}

/// Runs one test by the plan of a seed, in a process of its own. What it said, if it failed.
fn rehearse(scratch: &Path, name: &str, seed: u64) -> Result<(), String> {
    let directory = scratch.join(format!("{seed}-{}", name.replace(':', "-")));
    let plan = Plan { seed, kinds: kinds(name), ..Plan::quiet() };
    fs::create_dir(&directory).expect("a folder");
    // Some tests have processes of other users.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("our folder");
    fs::write(directory.join("plan"), plan.to_string()).expect("a plan");
    let mut test = Command::new(this_program());
    test.args(["--exact", name]).env("TRANSOM_REHEARSE", &directory).env("RUST_BACKTRACE", "0");
    test.env_remove("TRANSOM_LONG");
    let ended = Running::start(&mut test).end(LIMIT);
    let _ = fs::remove_dir_all(&directory);
    match ended {
        Ok((status, _)) if status.success() => Ok(()),
        Ok((status, printed)) => {
            let said = [printed.output, printed.complaints].join("\n");
            // Indented, so that it is not taken for what this program of tests says itself (ci/failed-tests.awk).
            let said: String = said.lines().map(|line| format!("  | {line}\n")).collect();
            Err(format!("{name} with seed {seed}: {status}\n{said}"))
        }
        Err(problem) => Err(format!("{name} with seed {seed}: {problem}")),
    }
}

/// Rule: REH-05
#[test]
fn the_rules_hold_in_a_rehearsal() {
    let scratch = Scratch::new("rehearsed-rules");
    let tests = tests();
    let seeds = if is_long() { SEEDS } else { 1 };
    let all: Vec<_> =
        (1..=seeds).flat_map(|seed| tests.iter().map(move |name| (name, seed))).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, seed)) = all.get(next.fetch_add(1, Relaxed)) {
            if let Err(said) = rehearse(scratch.path(), name, *seed) {
                failed.lock().expect("whole").push(said);
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().expect("whole");
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), all.len(), failed.join("\n"));
}
