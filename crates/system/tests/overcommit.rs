//! A kernel that gives no more memory than there is (`vm.overcommit_memory=2`).

use std::process::Command;

use transom_system::memory::{Allocation, begin_sharing, is_shared};

/// Marks the process that sees such a kernel.
const THERE: &str = "TRANSOM_TEST_THERE";

/// Such a kernel counts shared memory when it is touched, and then refuses it by SIGBUS. It is seen in a namespace of
/// its own, if the system allows that.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own variable")]
fn memory_is_private_where_the_kernel_gives_no_more_than_there_is() {
    if std::env::var_os(THERE).is_some() {
        begin_sharing().expect_err("touching it could fail");
        let memory = Allocation::new(1 << 20).unwrap();
        assert!(!is_shared(memory.first().as_ptr() as u64, 8));
        return;
    }
    // SAFETY: it has no arguments and cannot fail.
    let user: &[&str] = if unsafe { libc::geteuid() } == 0 { &[] } else { &["--map-root-user"] };
    let there = |command: &str| {
        let script = format!(
            "mount -t tmpfs tmpfs /dev/shm
            echo 2 > /dev/shm/mode
            mount --bind /dev/shm/mode /proc/sys/vm/overcommit_memory
            exec {command}"
        );
        let this = std::env::current_exe().expect("a test has a path");
        let mut unshare = Command::new("unshare");
        unshare.args(user).args(["--mount", "sh", "-euc", &script]).arg(this).env(THERE, "1");
        unshare.status()
    };
    if !there("true").is_ok_and(|status| status.success()) {
        return println!("skipped: no namespaces can be made here (unshare)");
    }
    let test = "memory_is_private_where_the_kernel_gives_no_more_than_there_is";
    let status = there(&format!("\"$0\" --exact {test}")).expect("it starts");
    assert!(status.success(), "{status}");
}
