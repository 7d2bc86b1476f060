//! No room for files: none in `/dev/shm`, or their size is limited (`ulimit -f`). Opening the device then
//! fails with a sentence and the right errno, a capture ends with one, and no program does.

use std::path::Path;
use std::process::{Command, Output};

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, again, arguments, is_root, open, this_program};
use transom_host::capture;
use transom_ibverbs::{ibv_get_device_list, ibv_open_device};
use transom_system::environment::CAPTURE;

const ROLE: &str = "TRANSOM_TEST_FULL_DISK";

fn has_role() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// What a process said that ended well.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    said
}

#[test]
fn a_full_shared_memory_file_system_is_said_so() {
    if has_role() {
        return refuse_to_open(libc::ENOSPC);
    }
    let output = Command::new("unshare")
        .args([if is_root() { "-m" } else { "-rm" }, "sh", "-c"])
        .args(["mount -t tmpfs -o size=8k tmpfs /dev/shm && exec \"$@\"", "sh"])
        .arg(this_program())
        .args(arguments(path_of!("a_full_shared_memory_file_system_is_said_so")))
        .env(ROLE, "1")
        .output();
    let Ok(output) = output else { return eprintln!("skipped: there is no unshare") };
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("unshare failed") || complaint.contains("mount:") {
        return eprintln!("skipped: no mount namespace can be made here: {complaint}");
    }
    let said = said(&output);
    assert!(said.contains("no room left for the registry in /dev/shm"), "{said}");
}

fn refuse_to_open(wanted: i32) {
    // SAFETY: the list is the library's own.
    let context = unsafe { ibv_open_device(*ibv_get_device_list(std::ptr::null_mut())) };
    assert!(context.is_null());
    assert_eq!(errno(), wanted);
}

/// Limits the size of files, as the kernel counts it for this process.
fn limit_files(rlim_cur: u64) {
    let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this call's own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
}

/// The device's memory is a file, which may be larger than files are allowed to be.
#[test]
fn a_limit_of_file_sizes_is_said_so() {
    if has_role() {
        limit_files(1 << 20);
        refuse_to_open(libc::EFBIG);
        limit_files(libc::RLIM_INFINITY);
        open();
        return;
    }
    let mut command = again(path_of!("a_limit_of_file_sizes_is_said_so"));
    let said = said(&command.env(ROLE, "1").output().expect("this"));
    assert!(said.contains("cannot open the Transom device: making its shared memory"), "{said}");
    assert!(said.contains("the limit of file sizes (ulimit -f) is too low"), "{said}");
}

/// A capture that must not grow any more ends; the program goes on.
#[test]
fn a_capture_ends_at_the_limit_of_file_sizes() {
    if has_role() {
        return exchange_beyond_the_limit();
    }
    let scratch = Scratch::new("capture-limit");
    let file = scratch.path().join("capture");
    capture::begin(&file).expect("our own folder");
    let mut command = again(path_of!("a_capture_ends_at_the_limit_of_file_sizes"));
    let output = command.env(ROLE, "1").env(CAPTURE.name, &file).output();
    let said = said(&output.expect("this"));
    assert_eq!(said.matches("the capture ends here").count(), 1, "{said}");
    assert!(said.contains("the limit of file sizes (ulimit -f) is too low"), "{said}");
    assert_eq!(length(&file), LIMIT);
}

/// Bytes of a capture with a few messages, but not of one with many.
const LIMIT: u64 = 8 << 10;

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).expect("our own file").len()
}

fn exchange_beyond_the_limit() {
    let end = open();
    let (qa, qb) = (end.qp(IBV_QPT_RC), end.qp(IBV_QPT_RC));
    connect(qa, qb);
    limit_files(LIMIT);
    for _ in 0..200 {
        recv(qb, 2, &mut []);
        post(qa, &mut wr(IBV_WR_SEND));
        for _ in 0..2 {
            end.expect(IBV_WC_SUCCESS);
        }
    }
}
