//! `transom rehearse --as`: the device has the limits of another adapter, and refuses what that one refuses.

use std::fs;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};
use transom_conformance::c_programs::compile;
use transom_conformance::explained::on_one_line;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Printed, Running, command};
use transom_rehearse::profile::AtomicCap;
use transom_rehearse::{Plan, Profile};

const LIMIT: Duration = Duration::from_secs(60);

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("adapters");
    let binary = compile(&scratch, "rehearsed/adapters.c", "adapters", &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

fn rehearse(options: &[&str], program: &str) -> (Option<i32>, Printed) {
    let [transom, ..] = command();
    let mut rehearse = Command::new(transom);
    rehearse.arg("rehearse").args(options).args(["--", &PROGRAM.1, program]);
    rehearse.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    let (status, printed) = Running::start(&mut rehearse).end(LIMIT).unwrap();
    (status.code(), printed)
}

/// The program finds these attributes and answers if the device stands for an adapter, or for none.
fn has(adapter: Option<&str>, facts: &[&str]) {
    let directory = PROGRAM.0.path().join(adapter.unwrap_or("none"));
    fs::create_dir_all(&directory).unwrap();
    let plan = Plan { profile: adapter.and_then(Profile::named), ..Plan::quiet() };
    fs::write(directory.join("plan"), plan.to_string()).unwrap();
    let [transom, ..] = command();
    let mut run = Command::new(transom);
    run.args(["run", "--", &PROGRAM.1]).arg("has").args(facts);
    run.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    run.env("TRANSOM_REHEARSE", &directory);
    let (status, printed) = Running::start(&mut run).end(LIMIT).unwrap();
    assert_eq!(status.code(), Some(0), "{adapter:?}: {printed:?}");
}

/// Rule: REH-84
#[test]
fn the_least_has_what_every_adapter_has() {
    let facts = ["max_qp_wr=4063", "max_sge=4", "reads=16", "window_1=95", "atomic=22"];
    has(Some("least"), &facts);
}

/// Rules: REH-51, REH-52
#[test]
fn a_rehearsal_as_nobody_has_all_that_transom_has() {
    has(
        None,
        &[
            "max_qp_wr=32768",
            "max_sge=32",
            "reads=128",
            "max_mw=0x100000",
            "uc=0",
            "window_1=0",
            "window_2=0",
            "shared=0",
            "on_demand=0",
            "zero_based=0",
            "resize=0",
            "timestamps=0",
            "domains=0",
            "atomic=0",
            "deep=0",
            "deeper=22",
        ],
    );
}

/// Rules: REH-51, REH-52
#[test]
fn mlx5_has_less_depth_of_reads_and_fewer_sges() {
    has(
        Some("mlx5"),
        &[
            "vendor_id=0x2c9",
            "max_sge=30",
            "max_sge_rd=30",
            "reads=16",
            "max_cqe=4194303",
            "page_sizes=0xfffffffffffff000",
            "atomic_cap=1",
            "uc=0",
            "window_1=0",
            "window_2=0",
            "on_demand=0",
            "timestamps=0",
            "domains=0",
            "atomic=0",
        ],
    );
}

/// Rules: REH-51, REH-52
#[test]
fn rxe_has_neither_timestamps_nor_domains_nor_regions_from_zero() {
    has(
        Some("rxe"),
        &[
            "vendor_id=0xffffff",
            "max_cqe=32767",
            "page_sizes=0xfffff000",
            "max_mw=524287",
            "odp=0",
            "dm=0",
            "uc=0",
            "window_2=0",
            "shared=0",
            "on_demand=95",
            "zero_based=95",
            "resize=0",
            "extended_cq=0",
            "timestamps=95",
            "domains=95",
            "atomic=0",
        ],
    );
}

/// Rules: REH-51, REH-52
#[test]
fn irdma_has_no_atomics_and_no_shared_queues() {
    has(
        Some("irdma"),
        &[
            "vendor_id=0x8086",
            "max_qp_wr=4063",
            "max_sge=13",
            "reads=127",
            "max_mr_size=0x200000000000",
            "page_sizes=0x40201000",
            "atomic_cap=0",
            "max_srq=0",
            "uc=95",
            "ud=0",
            "window_1=0",
            "shared=95",
            "inline_101=0",
            "inline_102=22",
            "deep=0",
            "deeper=22",
            "atomic=22",
        ],
    );
}

/// Rules: REH-51, REH-52
#[test]
fn adapters_without_windows_refuse_them() {
    has(Some("bnxt"), &["window_1=95", "window_2=95", "uc=95", "extended_cq=95", "resize=0"]);
    has(Some("efa"), &["window_1=95", "rc=95", "ud=0", "shared=95", "resize=95", "flags=0"]);
    has(Some("hns"), &["window_1=95", "ud=95", "resize=95", "timestamps=95", "domains=0"]);
    has(Some("qedr"), &["window_1=95", "max_sge=4", "reads=32", "atomic=0", "extended_cq=95"]);
    has(Some("ionic"), &["window_1=0", "shared=95", "max_sge=8", "reads=16", "max_cqe=65435"]);
    // Its answers to posts are negative.
    has(Some("siw"), &["window_1=95", "max_sge_rd=1", "atomic_cap=0", "atomic=-22"]);
}

/// Theirs are atomic against the processor, and Transom's in private memory are not: so a program must not rely on it.
///
/// Rules: REH-51, REH-94
#[test]
fn no_adapter_promises_atomics_against_the_processor() {
    for profile in Profile::ALL.iter().filter(|it| it.atomics == AtomicCap::Glob) {
        has(Some(profile.name), &["atomic_cap=1"]);
    }
}

/// Rule: REH-51
#[test]
fn a_device_says_which_kind_of_node_it_is_and_the_version_of_its_firmware() {
    has(None, &["node_type=1", "transport=0"]);
    has(Some("mlx5"), &["node_type=1", "transport=0", "fw_ver=26.31.1014"]);
    has(Some("siw"), &["node_type=4", "transport=1", "fw_ver=0.0.0"]);
    has(Some("efa"), &["node_type=7", "transport=4"]);
    has(Some("qedr"), &["node_type=1", "fw_ver=8.37.7.0"]);
}

/// Programs that take the first entry of the table take one for RoCE v1 then.
///
/// Rule: REH-51
#[test]
fn the_table_of_gids_has_each_address_once_for_each_version_of_roce() {
    has(None, &["gids=128", "type_0=2", "one_gid=0"]);
    for adapter in ["mlx5", "bnxt", "hns"] {
        has(Some(adapter), &["gids=256", "type_0=1", "type_1=2", "one_gid=1"]);
    }
    has(Some("qedr"), &["gids=128", "type_0=1", "type_1=2", "one_gid=1"]);
    has(Some("rxe"), &["gids=128", "type_0=2", "one_gid=0"]);
    has(Some("irdma"), &["gids=32", "type_0=2", "one_gid=0"]);
    has(Some("efa"), &["gids=1", "type_1=22"]);
}

/// Rule: REH-51
#[test]
fn inline_data_is_granted_as_the_provider_rounds_it() {
    let all = ["granted_0", "granted_0_of_2", "granted_20", "granted_64"];
    let of = |adapter, sizes: [u32; 4]| {
        let facts: Vec<_> =
            all.iter().zip(sizes).map(|(name, size)| format!("{name}={size}")).collect();
        has(adapter, &facts.iter().map(String::as_str).collect::<Vec<_>>());
    };
    of(None, [16, 16, 20, 64]);
    of(Some("mlx5"), [60, 60, 60, 124]);
    of(Some("rxe"), [16, 32, 20, 64]);
    of(Some("ionic"), [32, 32, 32, 96]);
    for adapter in ["irdma", "bnxt", "siw", "qedr", "least"] {
        has(Some(adapter), &["granted_0=0", "granted_20=20"]);
    }
    has(Some("hns"), &["granted_0=32", "granted_20=32"]);
    has(Some("mlx5"), &["granted_ud=60"]);
}

/// Rule: REH-52
#[test]
fn a_post_that_is_refused_answers_as_the_provider_does() {
    has(None, &["long_inline=22", "many_sges=22", "many_receive_sges=22"]);
    has(Some("mlx5"), &["long_inline=12", "many_sges=12", "many_receive_sges=22"]);
    has(Some("bnxt"), &["long_inline=12", "many_sges=12", "many_receive_sges=12"]);
    has(Some("bnxt"), &["invalidate=-22"]);
    has(Some("siw"), &["long_inline=-22", "many_receive_sges=-22", "invalidate=-22"]);
    has(Some("rxe"), &["long_inline=22", "many_sges=22"]);
    has(Some("rxe"), &["built_long_inline=28", "built_many_sges=28", "built_unsignaled=0"]);
    has(Some("mlx5"), &["built_long_inline=12", "built_many_sges=12"]);
    has(Some("ionic"), &["built_long_inline=22", "built_many_sges=22"]);
}

/// Rules: PS-14, REH-52
#[test]
fn a_request_that_is_built_call_by_call_is_refused_as_one_that_is_posted() {
    has(None, &["built=0", "built_unsignaled=0", "built_solicited=0"]);
    has(Some("efa"), &["built=0", "built_unsignaled=22", "built_solicited=22"]);
}

/// Rules: REH-50, REH-53
#[test]
fn a_program_that_needs_more_than_an_adapter_has_fails_as_that_adapter() {
    let options = ["--only", "poisoned-fields", "--runs", "1"];
    let (status, printed) = rehearse(&options, "needs-much");
    assert_eq!(status, Some(0), "{printed:?}");
    let (status, printed) = rehearse(&["--as", "irdma"], "needs-much");
    assert_eq!(status, Some(66), "{printed:?}");
    let said = on_one_line(&printed.complaints);
    assert!(said.contains("As irdma the program exits with status 1."), "{printed:?}");
    let again = format!("transom rehearse --as irdma --runs 0 -- {} needs-much", PROGRAM.1);
    assert!(said.contains(&again), "{printed:?}");
    let (status, printed) = rehearse(&["--as", "irdma", "--runs", "0", "--json"], "needs-much");
    assert_eq!(status, Some(66), "{printed:?}");
    let lines: Vec<Value> =
        printed.output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [own, alone, failure, ..] = &lines[..] else { panic!("{printed:?}") };
    assert_eq!((&own["as"], &own["outcome"]), (&Value::Null, &json!("passed")));
    assert_eq!((&alone["as"], &alone["outcome"]), (&json!("irdma"), &json!("exited")));
    assert_eq!((&failure["as"], &failure["cut"]), (&json!("irdma"), &json!("profile")));
    assert_eq!(failure["again"], again);
}

/// Rules: REH-50, REH-53
#[test]
fn a_program_that_asks_first_passes_as_each_adapter() {
    for adapter in ["mlx5", "rxe", "irdma", "bnxt"] {
        let options = ["--as", adapter, "--only", "poisoned-fields", "--runs", "2"];
        let (status, printed) = rehearse(&options, "adapts");
        assert_eq!(status, Some(0), "{adapter}: {printed:?}");
    }
    let (status, printed) = rehearse(&["--as", "mlx4"], "adapts");
    assert_eq!(status, Some(2), "{printed:?}");
    assert!(printed.complaints.contains("mlx5"), "{printed:?}");
}
