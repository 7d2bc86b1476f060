//! No room in `/dev/shm`: opening the device fails with a sentence and the right errno, and nothing
//! crashes. In a mount namespace of the test's own; skipped, and said so, where none can be made.

use std::process::Command;

use transom_ibverbs::{ibv_get_device_list, ibv_open_device};

const ROLE: &str = "TRANSOM_TEST_FULL_DISK";

#[test]
fn a_full_shared_memory_file_system_is_said_so() {
    if std::env::var_os(ROLE).is_some() {
        return open_without_room();
    }
    // SAFETY: asks for a number.
    let root = unsafe { libc::geteuid() } == 0;
    let this = std::env::current_exe().expect("a test has a path");
    let script = format!(
        "mount -t tmpfs -o size=8k tmpfs /dev/shm && exec '{}' --exact \
         a_full_shared_memory_file_system_is_said_so --nocapture",
        this.display()
    );
    let output = Command::new("unshare")
        .args([if root { "-m" } else { "-rm" }, "sh", "-c", &script])
        .env(ROLE, "1")
        .output();
    let Ok(output) = output else { return println!("skipped: there is no unshare") };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare failed") || said.contains("mount:") {
        return println!("skipped: no mount namespace can be made here: {said}");
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no room left for the registry in /dev/shm"), "{said}");
}

fn open_without_room() {
    // SAFETY: the list is the library's own.
    let context = unsafe { ibv_open_device(*ibv_get_device_list(std::ptr::null_mut())) };
    assert!(context.is_null());
    assert_eq!(transom_conformance::harness::errno(), libc::ENOSPC);
}
