//! Where the registry lies, and what is taken away there.

use std::collections::HashSet;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_system::registry::Registry;

use super::ended::OPENS;
use super::reached::talk_and_kill;
use super::*;

/// The name of the registry's directory in this network namespace.
fn name() -> String {
    let directory = Registry::open().expect("a registry").directory();
    directory.file_name().expect("it has one").to_str().expect("text").to_owned()
}

#[test]
fn role() {
    play(&[("tells_its_namespace", tells_its_namespace)]);
}

/// Tells what the registry's name has for the network namespace.
fn tells_its_namespace(channel: &mut Channel) {
    let name = name();
    let number = name.split('-').nth(3).and_then(|number| number.parse().ok());
    let in_proc = fs::metadata("/proc/self/ns/net").expect("it is there").ino();
    channel.tell(&[number.unwrap_or_else(|| panic!("{name}")), in_proc]);
}

/// A container that starts after another one has ended must not find what the other one has counted. The kernel uses the
/// numbers in `/proc/self/ns/net` again at once.
#[test]
fn a_network_namespace_never_finds_the_registry_of_one_that_has_ended() {
    let test = path_of!("a_network_namespace_never_finds_the_registry_of_one_that_has_ended");
    in_network(test, &words(&after("true")), || {
        let all: Vec<[u64; 2]> = (0..12)
            .map(|_| {
                let wrapper = ["unshare", "--net"];
                let mut process = Child::start_under(path_of!("tells_its_namespace"), &wrapper);
                let told = process.hear();
                process.finish();
                told
            })
            .collect();
        if all[0][0] == all[0][1] {
            return eprintln!("skipped: before Linux 5.14 there is no other number");
        }
        let numbers: HashSet<u64> = all.iter().map(|[number, _]| *number).collect();
        assert_eq!(numbers.len(), 12, "{all:?}");
    });
}

/// As where nothing can be made in `/dev/shm`.
const READ_ONLY: &str = "mount -t tmpfs -o ro tmpfs /dev/shm";

/// Where `/dev/shm` is of no use all processes of the user find each other elsewhere.
#[test]
fn there_is_another_place_than_shared_memory() {
    let test = path_of!("there_is_another_place_than_shared_memory");
    in_network(test, &words(&after(READ_ONLY)), || {
        loopback_up();
        // Others may take away what is in the second.
        for trouble in [READ_ONLY, "mount -t tmpfs -o mode=777 tmpfs /dev/shm"] {
            let wrapper = after(trouble);
            talk_and_kill(&words(&wrapper), &words(&wrapper));
        }
        // Nobody looks there where nobody has such trouble.
        let name = name();
        let (of_network, _) = name.rsplit_once('-').expect("a number at its end");
        let places = ["/run/user/0", "/tmp"].into_iter().flat_map(fs::read_dir);
        for entry in places.flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(of_network)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    });
}

/// A name in a network namespace belongs to the user who takes it first. Another user who takes all names that
/// processes take there keeps nobody from having a device, nor the processes of one user from telling each other by
/// their numbers.
#[test]
fn names_that_another_user_has_taken_keep_nobody_out() {
    if !is_root() {
        return eprintln!("skipped: only root can be another user too");
    }
    in_network(path_of!("names_that_another_user_has_taken_keep_nobody_out"), &[], || {
        loopback_up();
        // As the user nobody, in the name of this thread alone.
        let become_user = |user: u32| {
            // SAFETY: takes numbers; what this process has is not less its own.
            let become_user = unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) };
            assert_eq!(become_user, 0);
        };
        become_user(65_534);
        let taken: Vec<_> = (0..=u8::MAX)
            .map(|slot| {
                let address = SocketAddr::from_abstract_name(format!("transom-slot-{slot}"));
                UnixListener::bind_addr(&address.expect("a name")).expect("nobody has it")
            })
            .collect();
        become_user(0);
        let (users, names) = Registry::open().expect("a registry").names_of_others();
        assert_eq!((Vec::from_iter(users), names), (vec![65_534], Registry::PROCESSES));
        talk_and_kill(&[], &[]);
        drop(taken);
    });
}

/// Processes whose file mode creation mask takes away even the owner's rights find each other, by the
/// local link and by packets.
fn talk_under_mask(mask: &str) {
    loopback_up();
    let script = format!("umask {mask}; exec \"$@\"");
    let wrapper = [WITHOUT_RIGHTS, &["sh", "-c", &script, "sh"]].concat();
    talk_and_kill(&wrapper, &wrapper);
    talk_and_kill(&[OWN_PIDS, &wrapper].concat(), &wrapper);
}

#[test]
fn directories_that_cannot_be_entered_are_mended() {
    let test = path_of!("directories_that_cannot_be_entered_are_mended");
    in_network(test, WITHOUT_RIGHTS, || talk_under_mask("0177"));
}

#[test]
fn files_that_cannot_be_read_are_mended() {
    let test = path_of!("files_that_cannot_be_read_are_mended");
    in_network(test, WITHOUT_RIGHTS, || talk_under_mask("0777"));
}

/// As a process under such a mask leaves it that is killed before it has given the file its mode, or
/// that has yet to do so.
#[test]
fn a_file_without_a_mode_is_given_one() {
    let test = path_of!("a_file_without_a_mode_is_given_one");
    in_network(test, WITHOUT_RIGHTS, || {
        loopback_up();
        let path = Path::new("/dev/shm").join(name()).join("registry");
        fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("our own");
        talk_and_kill(WITHOUT_RIGHTS, WITHOUT_RIGHTS);
        // Not in another place.
        let mode = fs::metadata(&path).expect("they have met there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    });
}

/// A directory as a registry leaves it.
struct Left {
    file: File,
    directory: std::path::PathBuf,
}

impl Left {
    fn new(name: &str, last_change: SystemTime) -> Self {
        let directory = Path::new("/dev/shm").join(name);
        fs::DirBuilder::new().create(&directory).expect("nobody has it");
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("our own");
        fs::write(directory.join("steering"), "x").expect("our own");
        let file = File::create(directory.join("registry")).expect("our own");
        file.set_times(FileTimes::new().set_modified(last_change)).expect("our own");
        Self { file, directory }
    }

    fn is_there(&self) -> bool {
        self.directory.exists()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The first process of a registry removes the directories of ended namespaces, of any version. It keeps those in use,
/// and those that were in use a moment ago, because their users may still ask what was refused.
#[test]
fn what_nobody_uses_any_more_is_removed() {
    let test = path_of!("what_nobody_uses_any_more_is_removed");
    in_network(test, &[], || {
        // SAFETY: takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        let long_ago = SystemTime::now() - Duration::from_secs(7200);
        // No namespace has such a number, so no other test is there.
        let id = std::process::id();
        let left = |number: &str, time| Left::new(&format!("transom-{number}{id}"), time);
        let gone =
            [left(&format!("5-{user}-1"), long_ago), left(&format!("4-{user}-2-"), long_ago)];
        // Other tests open devices too, and would remove it before it is locked.
        let used = left(&format!("5-{user}-3"), SystemTime::now());
        let kept = [
            left(&format!("5-{user}-4"), SystemTime::now()),
            left(&format!("5-{user}-5"), UNIX_EPOCH),
            left(&format!("5-{}-6", user + 1), long_ago),
            left("run-", long_ago),
        ];
        // SAFETY: all zeros is a lock of the whole file.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as i16;
        // SAFETY: an open file and a lock of this call's own.
        assert_eq!(unsafe { libc::fcntl(used.file.as_raw_fd(), libc::F_SETLK, &mut lock) }, 0);
        used.file.set_times(FileTimes::new().set_modified(long_ago)).expect("our own");
        Child::start(OPENS).finish();
        assert!(!gone.iter().any(Left::is_there));
        assert!(used.is_there() && kept.iter().all(Left::is_there));
        let marked = kept[1].file.metadata().and_then(|it| it.modified()).expect("it is there");
        assert!(marked > long_ago, "from now on it counts as unused");
    });
}
