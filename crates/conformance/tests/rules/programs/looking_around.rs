//! What programs find under `transom run`, and nobody else: the device's files, for those that look
//! before they open it, and our libibverbs, even if they bring one of their own.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs};

use transom_abi::*;
use transom_conformance::c_programs::compile;
use transom_conformance::harness::{End, device_attr};
use transom_conformance::path_of;
use transom_conformance::processes::{self, Scratch, alone, as_nobody, is_root, open};
use transom_conformance::programs::{Running, command, program};
use transom_ibverbs::*;
use transom_system::addresses::Addresses;
use transom_system::object_counts::ObjectKind;
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::{node_guid, system_image_guid};

const DEVICE: &str = "/sys/class/infiniband/transom0";
/// Where it is, behind that link.
const PARENT: &str = "/sys/devices/transom-rdma";
const EVERYTHING: &str = "/sys/class/infiniband /sys/class/infiniband_verbs /dev/infiniband \
                          /sys/devices/transom-rdma";

/// How the program is shown the files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// By mounts of its own.
    Mounted,
    /// By a library that leads its calls there.
    Led,
}

/// Who starts `transom run`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum User {
    Myself,
    Nobody,
}

/// The command, installed for everybody.
pub(super) struct Installed {
    scratch: Scratch,
    ways: Vec<(Way, User)>,
}

impl Installed {
    /// With every way that can be tried: an ordinary user has only one.
    pub(super) fn new(test: &str) -> Self {
        let scratch = Scratch::new(test);
        let [_, _, _, library, _] = command().each_ref().map(|file| scratch.take(file));
        fs::rename(library, scratch.path().join("libibverbs.so.1")).expect("our own file");
        let temporary = scratch.path().join("tmp");
        fs::create_dir(&temporary).expect("our own folder");
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)).expect("ours");
        let mut installed = Self { scratch, ways: Vec::new() };
        let users = [Some(User::Myself), can_be_nobody().then_some(User::Nobody)];
        for user in users.into_iter().flatten() {
            let mut told = installed.run(user, &["sh", "-c", "echo \"$TRANSOM_TREE\""]);
            let told = told.output().expect("a shell");
            let way = if told.stdout == b"\n" { Way::Mounted } else { Way::Led };
            if installed.ways.iter().all(|(known, _)| *known != way) {
                installed.ways.push((way, user));
            }
        }
        installed
    }

    /// A program under `transom run` of the user who tests.
    pub(super) fn run_as_myself(&self, program: &[&str]) -> Command {
        self.run(User::Myself, program)
    }

    /// A program under `transom run`.
    fn run(&self, user: User, program: &[&str]) -> Command {
        let transom = self.scratch.path().join("transom");
        let mut command = Command::new(transom);
        if user == User::Nobody {
            as_nobody(&mut command);
        }
        command.args(["run", "--"]).args(program).current_dir("/");
        command.env("TMPDIR", self.scratch.path().join("tmp"));
        for variable in
            ["XDG_RUNTIME_DIR", "TRANSOM_LIB", "TRANSOM_TREE", "TRANSOM_DEVICE_NAME", "LD_PRELOAD"]
        {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null());
        command
    }

    /// What a line for the shell prints, in every way; it must not complain.
    pub(super) fn each(&self, line: &str) -> Vec<(Way, String)> {
        let said = |(way, user): &(Way, User)| {
            let output = self.run(*user, &["sh", "-c", line]).output().expect("a shell");
            assert!(output.status.success() && output.stderr.is_empty(), "{way:?}: {output:?}");
            (*way, printed(&output))
        };
        self.ways.iter().map(said).collect()
    }
}

/// Whether this process may become another user.
fn can_be_nobody() -> bool {
    is_root() && as_nobody(&mut Command::new("true")).status().is_ok_and(|it| it.success())
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it prints text")
}

/// Every file below the places, with its content.
fn files(installed: &Installed) -> Vec<(Way, BTreeMap<String, String>)> {
    let line = format!("grep -rZ '' $(find {EVERYTHING} -type f)");
    let parsed = |text: String| {
        let pair =
            |line: &str| line.split_once('\0').map(|(path, text)| (path.into(), text.into()));
        text.lines().filter_map(pair).collect()
    };
    installed.each(&line).into_iter().map(|(way, text)| (way, parsed(text))).collect()
}

fn groups(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| format!("{:02x}{:02x}", pair[0], pair[1]);
    bytes.chunks(2).map(group).collect::<Vec<_>>().join(":")
}

fn port_attr(end: &End) -> ibv_port_attr {
    let mut attr = ibv_port_attr::default();
    // SAFETY: the context is open, and the attributes are longer than what is written.
    assert_eq!(unsafe { ibv_query_port(end.context, 1, &mut attr) }, 0);
    attr
}

#[test]
fn the_files_say_what_the_verbs_say() {
    let installed = Installed::new("files");
    let end = open();
    let (device, port) = (device_attr(end.context), port_attr(&end));
    // SAFETY: the context is open; the texts end in zero.
    let (name, firmware, dev_name, gid, pkey) = unsafe {
        let listed = (*end.context).device;
        let (mut gid, mut pkey) = (ibv_gid { raw: [0; 16] }, 0);
        assert_eq!(ibv_query_gid(end.context, 1, 0, &mut gid), 0);
        assert_eq!(ibv_query_pkey(end.context, 1, 0, &mut pkey), 0);
        let text =
            |text: *const std::ffi::c_char| CStr::from_ptr(text).to_str().unwrap().to_owned();
        let dev_name = text((*listed).dev_name.as_ptr());
        assert_eq!(text((*listed).ibdev_path.as_ptr()), DEVICE);
        assert_eq!(dev_name, "uverbs0");
        assert_eq!(
            text((*listed).dev_path.as_ptr()),
            format!("/sys/class/infiniband_verbs/{dev_name}")
        );
        (text(ibv_get_device_name(listed)), text(device.fw_ver.as_ptr()), dev_name, gid.raw, pkey)
    };
    let addresses = Addresses::read().unwrap();
    for (way, files) in files(&installed) {
        for (path, expected) in [
            ("node_type", "1: CA".to_owned()),
            ("node_guid", groups(&device.node_guid.to_ne_bytes())),
            ("sys_image_guid", groups(&device.sys_image_guid.to_ne_bytes())),
            ("fw_ver", firmware.clone()),
            ("hw_rev", format!("{:x}", device.hw_ver)),
            ("ports/1/state", format!("{}: ACTIVE", port.state)),
            ("ports/1/phys_state", format!("{}: LinkUp", port.phys_state)),
            ("ports/1/lid", format!("{:#x}", port.lid)),
            ("ports/1/lid_mask_count", port.lmc.to_string()),
            ("ports/1/sm_lid", format!("{:#x}", port.sm_lid)),
            ("ports/1/sm_sl", port.sm_sl.to_string()),
            ("ports/1/cap_mask", format!("{:#010x}", port.port_cap_flags)),
            ("ports/1/rate", "100 Gb/sec (4X EDR)".to_owned()),
            ("ports/1/link_layer", "Ethernet".to_owned()),
            ("ports/1/gids/0", groups(&gid)),
            ("ports/1/pkeys/0", format!("{:#06x}", u16::from_be(pkey))),
            ("ports/1/gid_attrs/types/0", "RoCE v2".to_owned()),
            ("ports/1/gid_attrs/ndevs/0", addresses.get(0).unwrap().interface_name().unwrap()),
        ] {
            let found = files.get(&format!("{PARENT}/infiniband/{name}/{path}"));
            assert_eq!(found, Some(&expected), "{way:?}: {path}");
        }
        assert_eq!((port.active_width, port.active_speed), (2, 32), "100 Gb/sec");
        assert_eq!(port.pkey_tbl_len, 1, "{way:?}: the table is there in full");
        for index in 0..port.gid_tbl_len.unsigned_abs() as usize {
            let gid = addresses.get(index).map_or([0; 16], |address| address.gid);
            let found = files.get(&format!("{PARENT}/infiniband/{name}/ports/1/gids/{index}"));
            assert_eq!(found, Some(&groups(&gid)), "{way:?}: GID {index}");
        }
        let verbs = format!("{PARENT}/infiniband_verbs/{dev_name}");
        assert_eq!(files.get(&format!("{verbs}/ibdev")), Some(&name), "{way:?}");
        let counter = format!("{PARENT}/infiniband/{name}/ports/1/counters/port_xmit_data");
        assert!(files.contains_key(&counter));
        let node = &files[&format!("{PARENT}/numa_node")];
        let nodes = fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
        let one = nodes.trim().parse::<u32>().is_ok();
        assert_eq!(node, if one { nodes.trim() } else { "-1" }, "{way:?}");
    }
}

#[test]
fn both_ways_show_the_same() {
    let installed = Installed::new("same");
    let listed = installed.each(&format!("find {EVERYTHING} | sort"));
    let read = files(&installed);
    assert!(listed[0].1.lines().count() > 50, "{listed:?}");
    for (other, first) in listed.iter().zip(&listed).skip(1) {
        assert_eq!(other.1, first.1);
    }
    for (other, first) in read.iter().zip(&read).skip(1) {
        assert_eq!(other.1, first.1);
    }
}

#[test]
fn paths_mean_the_same_however_they_are_written() {
    let installed = Installed::new("paths");
    for line in [
        "ls /sys/class/infiniband",
        "ls //sys/./class/net/../infiniband/",
        "cd /sys/class/infiniband && ls",
        "cd /sys/class && ls infiniband",
        "cd /dev/infiniband/ && ls ../../sys/class/infiniband",
        "basename \"$(realpath /sys/class/infiniband/transom0)\"",
        "ls /sys/class/infiniband/transom0/device/infiniband",
        "ls /sys/class/infiniband/transom0/../../infiniband",
        "cd /sys/class/infiniband && for device in *; do echo $device; done",
    ] {
        for (way, text) in installed.each(line) {
            assert_eq!(text, "transom0\n", "{way:?}: {line}");
        }
    }
    let line = format!("realpath {DEVICE}/device; realpath {DEVICE}/../..; ls -ld {DEVICE}/");
    for (way, text) in installed.each(&line) {
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], [PARENT; 2], "{way:?}");
        assert!(lines[2].starts_with("dr-xr-xr-x"), "{way:?}: {text}");
    }
    let line = format!("readlink {DEVICE} {DEVICE}/device; stat -c %F {DEVICE}");
    for (way, text) in installed.each(&line) {
        let expected = "../../devices/transom-rdma/infiniband/transom0\n\
                        ../../../transom-rdma\nsymbolic link\n";
        assert_eq!(text, expected, "{way:?}");
    }
    for (way, user) in &installed.ways {
        let mut list = installed.run(*user, &["ls", "infiniband"]);
        let listed = list.current_dir("/sys/class").output().expect("ls");
        assert_eq!(printed(&listed), "transom0\n", "{way:?}");
    }
    for (_, text) in installed.each("test -e /sys/class/infiniband/mlx5_0 || echo nothing") {
        assert_eq!(text, "nothing\n");
    }
}

/// libfabric reads the place of a device on the PCI bus from its parent's name, and MPICH has hwloc look for it there.
#[test]
fn no_name_reads_as_a_pci_function_that_is_not_there() {
    let installed = Installed::new("pci");
    let line = format!(
        "name=$(basename $(realpath {DEVICE}/device)); case $name in
            *:*:*.*) ls -d /sys/bus/pci/devices/$name;;
        esac; cat {DEVICE}/device/numa_node"
    );
    for (way, text) in installed.each(&line) {
        assert_eq!(text.lines().count(), 1, "{way:?}: {text}");
    }
}

/// `apt-get install gcc libc6-dev`.
#[test]
fn every_function_of_the_c_library_finds_them() {
    let installed = Installed::new("functions");
    let binary = compiled(&installed, "looking_around.c", "looking_around", &[]);
    for (_, user) in &installed.ways {
        let mut look = installed.run(*user, &[binary.to_str().expect("a plain path")]);
        Running::start(&mut look).finish(Duration::from_secs(20));
    }
}

/// Everything that tells the device's name tells the one that was chosen.
#[test]
fn the_device_has_the_name_that_is_chosen() {
    let installed = Installed::new("name");
    let line = "ls /sys/class/infiniband; cat /sys/class/infiniband/rxe0/node_desc \
                /sys/class/infiniband_verbs/uverbs0/ibdev; \
                ibv_devices | tail -1 | awk '{print $1}'";
    program("ibv_devices", "ibverbs-utils");
    for (way, user) in &installed.ways {
        let mut run = installed.run(*user, &["sh", "-c", line]);
        let output = run.env("TRANSOM_DEVICE_NAME", "rxe0").output().expect("a shell");
        let printed = printed(&output);
        assert_eq!(printed.matches("rxe0\n").count(), 4, "{way:?}: {output:?}");
        assert!(!printed.contains("transom0"), "{way:?}: {printed}");
        // A name that is none is told before the program runs, and by the library where it runs.
        let mut run = installed.run(*user, &["ibv_devinfo"]);
        let output = run.env("TRANSOM_DEVICE_NAME", "a/b").output().expect("a shell");
        assert_eq!(output.status.code(), Some(2), "{way:?}: {output:?}");
        let mut run = installed.run(*user, &["env", "TRANSOM_DEVICE_NAME=..", "ibv_devinfo"]);
        let output = run.output().expect("a shell");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaint.contains("\"..\" is no name for a device"), "{way:?}: {output:?}");
    }
}

/// The command `rdma` shows the device as it shows the kernel's, and what it cannot answer it leaves to
/// the next command of that name.
#[test]
fn rdma_shows_the_device() {
    let installed = Installed::new("rdma");
    let other = installed.scratch.path().join("rdma");
    fs::write(&other, "#!/bin/sh\necho the other: \"$@\"\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let addresses = Addresses::read().unwrap();
    let (interface, index) =
        addresses.get(0).map(|it| (it.interface_name().unwrap(), it.interface)).unwrap();
    let [node, system] =
        [node_guid(0), system_image_guid()].map(|guid| groups(&guid.to_be_bytes()));
    let version = env!("CARGO_PKG_VERSION");
    let link = format!("link transom0/1 state ACTIVE physical_state LINK_UP netdev {interface} ");
    let details = format!("{link}netdev_index {index} ");
    let link_json = format!(
        r#"[{{"ifindex":0,"ifname":"transom0","port":1,"state":"ACTIVE","physical_state":"LINK_UP","netdev":"{interface}","netdev_index":{index}}}]"#
    );
    let device = format!(
        "0: transom0: node_type ca protocol roce fw {version} node_guid {node} sys_image_guid {system} "
    );
    let folder = installed.scratch.path().to_str().expect("a plain path").to_owned();
    for (way, user) in &installed.ways {
        let ask = |question: &str| {
            let words: Vec<&str> = question.split_whitespace().collect();
            let mut run = installed.run(*user, &["rdma"]);
            let path = format!("{folder}:/usr/bin:/bin");
            run.args(words).env("PATH", path).output().expect("the command is built")
        };
        for (question, expected) in [
            ("link", &link),
            ("link show transom0/1", &link),
            ("l s -d", &details),
            ("-j link show", &link_json),
            ("dev", &device),
            ("dev show transom0", &device),
            ("system show", &"the other: system show".into()),
            (
                "link add rxe0 type rxe netdev lo",
                &"the other: link add rxe0 type rxe netdev lo".into(),
            ),
            ("resource set frmr_pools", &"the other: resource set frmr_pools".into()),
        ] {
            let answer = ask(question);
            let expected = format!("{expected}\n");
            assert_eq!(printed(&answer), expected, "{way:?}: {question}: {answer:?}");
            assert!(answer.status.success(), "{way:?}: {question}");
        }
        assert!(printed(&ask("-d dev")).contains("    caps: <"), "{way:?}");
        assert_eq!(ask("dev show mlx5_0").status.code(), Some(1), "{way:?}");
        let resources = printed(&ask("resource"));
        for kind in ["pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"] {
            assert!(resources.contains(&format!(" {kind} ")), "{way:?}: {resources}");
        }
        let mut alone = installed.run(*user, &["rdma", "system"]);
        let alone = alone.env("PATH", "/proc").output().expect("the command is built");
        let complaint = String::from_utf8_lossy(&alone.stderr).into_owned();
        assert_eq!(alone.status.code(), Some(127), "{way:?}: {complaint}");
        assert!(complaint.contains("no other `rdma` in PATH"), "{way:?}: {complaint}");
    }
}

/// What `rdma resource` tells of a process.
#[test]
fn objects_are_counted_where_others_find_it() {
    let installed = Installed::new("counted");
    let binary = compiled(&installed, "counted.c", "counted", &["-libverbs"]);
    let mut command = installed.run(User::Myself, &[binary.to_str().expect("a plain path")]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let pid = child.id();
    let mut after = |said: &str| {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), said);
        let processes = Registry::open().unwrap().processes();
        let process = processes.iter().find(|process| process.alive && process.pid == pid);
        let counts = Segment::objects_of(process.expect("it has a device open")).expect("ours");
        ObjectKind::ALL.map(|kind| counts.get(kind))
    };
    // Domains, completion queues, queue pairs, regions, contexts, shared receive queues.
    assert_eq!(after("made"), [2, 2, 1, 1, 2, 1]);
    child.stdin.as_mut().expect("a pipe").write_all(b"on\n").expect("it reads");
    assert_eq!(after("ended"), [0, 0, 0, 0, 1, 0]);
    child.stdin.as_mut().expect("a pipe").write_all(b"on\n").expect("it reads");
    assert!(child.wait().expect("our own child").success());
}

/// The next run tidies up behind those that are over, but not under a program that goes on, whatever that has
/// done to its environment.
#[test]
fn the_files_stay_for_a_program_that_outlives_its_starter() {
    let installed = Installed::new("outlives");
    let binary = compiled(&installed, "outlives.c", "outlives", &[]);
    let binary = binary.to_str().expect("a plain path");
    for (way, user) in &installed.ways {
        let mut command = installed.run(*user, &[binary]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut input = child.stdin.take().expect("a pipe");
        let mut next = || lines.next().expect("a line").expect("it is text");
        assert_eq!(next(), "ready", "{way:?}");
        assert!(child.wait().expect("our own child").success(), "{way:?}");
        for _ in 0..2 {
            let other = installed.run(*user, &["true"]).status();
            assert!(other.expect("the command is built").success(), "{way:?}");
            input.write_all(b"on\n").expect("it reads");
            assert_eq!(next(), "there", "{way:?}");
        }
    }
}

/// Compiles C to a file in the installation's scratch folder.
pub(super) fn compiled(
    installed: &Installed,
    source: &str,
    output: &str,
    options: &[&str],
) -> PathBuf {
    compile(&installed.scratch, source, output, options)
}

/// Python packages bring a libibverbs under a name of their own, and a module that is linked with it
/// and loaded apart. Symbols of both lead to ours.
#[test]
fn programs_that_bring_their_own_libibverbs_use_ours() {
    let installed = Installed::new("own");
    let map = installed.scratch.path().join("own.map");
    fs::write(&map, "IBVERBS_1.0 { local: *; }; IBVERBS_1.1 { global: ibv_*; } IBVERBS_1.0;")
        .unwrap();
    let map = format!("-Wl,--version-script={}", map.display());
    let own = "libibverbs-1de1263b.so.1.14.48.0";
    let soname = format!("-Wl,-soname,{own}");
    compiled(&installed, "own_libibverbs.c", own, &["-shared", "-fPIC", &soname, &map]);
    let folder = format!("-L{}", installed.scratch.path().display());
    let link = format!("-l:{own}");
    let here = "-Wl,-rpath,$ORIGIN";
    let options = ["-shared", "-fPIC", &folder, &link, here];
    compiled(&installed, "own_module.c", "module.so", &options);
    let binary = compiled(&installed, "own_program.c", "own_program", &["-ldl", here]);
    let binary = binary.to_str().expect("a plain path");
    // Without us they find what they brought.
    let alone = Command::new(binary).output().expect("it is built");
    assert_eq!(printed(&alone), "module: own0\n");
    for (way, user) in &installed.ways {
        let output = installed.run(*user, &[binary]).output().expect("the command is built");
        let expected = "module: transom0, opened\nlibibverbs.so: transom0, opened\n\
                        libibverbs.so.1: transom0, opened\n";
        assert_eq!(printed(&output), expected, "{way:?}: {output:?}");
    }
}

/// A library before all others does not keep programs from working that insist on another, nor
/// does it do anything in one that has no use for it.
#[test]
fn programs_that_have_no_use_for_the_library_are_as_they_were() {
    let installed = Installed::new("no-use");
    let line = "ls /proc/self/task | wc -l; ls /proc/self/fd | wc -l";
    let outside = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).output();
    let outside = printed(&outside.expect("a shell"));
    for (way, text) in installed.each(line) {
        assert_eq!(text, outside, "{way:?}");
    }
    let checked = compiled(&installed, "asks_nothing.c", "checked", &["-fsanitize=address"]);
    let checked = checked.to_str().expect("a plain path");
    for (_, user) in &installed.ways {
        Running::start(&mut installed.run(*user, &[checked])).finish(Duration::from_secs(20));
    }
}

#[test]
fn the_character_device_can_be_read_and_written() {
    let installed = Installed::new("character");
    let line = "for file in /dev/infiniband/*; do
        test -c $file && test -r $file && test -w $file && echo word 1<>$file && cat $file && echo $file
    done";
    for (way, text) in installed.each(line) {
        assert_eq!(text, "/dev/infiniband/uverbs0\n", "{way:?}");
    }
}

#[test]
fn terminals_can_be_had() {
    let installed = Installed::new("terminals");
    let script = program("script", "bsdutils");
    for (way, user) in &installed.ways {
        let script = script.to_str().expect("a plain path");
        let arguments = [script, "-qec", "test -t 1 && echo word", "/dev/null"];
        let output = installed.run(*user, &arguments).output().expect("script");
        assert!(
            output.status.success() && printed(&output).contains("word"),
            "{way:?}: {output:?}"
        );
    }
}

#[test]
fn everything_else_is_as_it_was() {
    let installed = Installed::new("else");
    let line = "ls /sys/class /sys/devices /dev | grep -v 'infiniband\\|transom-rdma'; cat /sys/class/net/lo/ifindex; \
                readlink -f /sys/class/net/lo; stat -c '%F %t:%T %a' /dev/null /dev/shm /dev/fd";
    let outside = Command::new("sh").args(["-c", line]).output().expect("a shell");
    for (way, text) in installed.each(line) {
        assert_eq!(text, printed(&outside), "{way:?}");
    }
}

/// A program under way that has said a line, and ends when its input does.
fn waiting(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the command is built");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "transom0\n");
    child
}

#[test]
fn nobody_else_sees_anything() {
    let around = || {
        let listed = |path: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            paths
        };
        let places = ["/sys/class", "/sys/class/infiniband", "/dev/infiniband", "/sys/devices"];
        (
            fs::read_to_string("/proc/self/mountinfo").unwrap(),
            places.map(|path| listed(path.as_ref())),
        )
    };
    let installed = Installed::new("nobody");
    let before = around();
    for (_, user) in &installed.ways {
        let line = "ls /sys/class/infiniband; read line";
        let mut child = waiting(&mut installed.run(*user, &["sh", "-c", line]));
        assert_eq!(around(), before);
        drop(child.stdin.take());
        child.wait().expect("our own child");
        assert_eq!(around(), before);
    }
}

/// Each run has files of its own, and they are gone with it, at the latest when the next begins.
#[test]
fn the_files_go_with_the_run() {
    let installed = Installed::new("gone");
    let line = "ls /sys/class/infiniband; read line";
    let left = || {
        let mut find = Command::new("find");
        find.arg(installed.scratch.path().join("tmp")).args(["-path", "*/runs/*", "-prune"]);
        printed(&find.output().expect("find")).lines().count()
    };
    for (way, user) in &installed.ways {
        let before = left();
        let expected = |running| if *way == Way::Led { running } else { before };
        let mut first = waiting(&mut installed.run(*user, &["sh", "-c", line]));
        let mut second = waiting(&mut installed.run(*user, &["sh", "-c", line]));
        assert_eq!(left(), expected(2), "{way:?}");
        for child in [&mut first, &mut second] {
            drop(child.stdin.take());
            child.wait().expect("our own child");
        }
        let mut third = waiting(&mut installed.run(*user, &["sh", "-c", line]));
        assert_eq!(left(), expected(1), "{way:?}");
        drop(third.stdin.take());
        third.wait().expect("our own child");
    }
}

#[test]
fn input_status_and_signals_are_the_programs_own() {
    let installed = Installed::new("status");
    for (way, user) in &installed.ways {
        let status = installed.run(*user, &["sh", "-c", "exit 42"]).status().expect("a shell");
        assert_eq!(status.code(), Some(42), "{way:?}");
        let missing = installed.run(*user, &["no-such-program-anywhere"]).output().unwrap();
        assert_eq!(missing.status.code(), Some(127), "{way:?}");

        let line = "ls /sys/class/infiniband; pwd; exec cat";
        let mut child = waiting(installed.run(*user, &["sh", "-c", line]).current_dir("/usr"));
        child.stdin.take().expect("a pipe").write_all(b"word\n").expect("cat reads");
        let mut rest = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut rest).expect("text");
        assert!(child.wait().expect("our own child").success());
        assert!("/usr\nword\n".ends_with(&rest), "{way:?}: {rest}");

        // Not the one of Ctrl-C: a shell has what it starts in the background ignore that.
        let line = "ls /sys/class/infiniband; exec cat";
        let mut child = waiting(&mut installed.run(*user, &["sh", "-c", line]));
        // The shell itself loses a signal that comes while it becomes `cat`.
        child.stdin.as_mut().expect("a pipe").write_all(b"!").expect("cat reads");
        child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("cat writes");
        // SAFETY: our own child, which is not yet waited for.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) }, 0);
        let status = child.wait().expect("our own child");
        assert_eq!(status.signal(), Some(libc::SIGTERM), "{way:?}");
    }
}

#[test]
fn processes_that_are_started_apart_copy_directly() {
    let installed = Installed::new("apart");
    let pingpong = program("ibv_rc_pingpong", "ibverbs-utils");
    for (_, user) in &installed.ways {
        let probe = std::net::TcpListener::bind("[::]:0");
        let probe = probe.or_else(|_| std::net::TcpListener::bind("0.0.0.0:0"));
        let port = probe.and_then(|probe| probe.local_addr()).expect("a free port").port();
        let port = port.to_string();
        let pingpong = pingpong.to_str().expect("a plain path");
        let arguments = [pingpong, "-g", "0", "-p", &port, "-s", "65536", "-c"];
        let mut server = Running::start(&mut installed.run(*user, &arguments));
        server.wait_until_it_listens(port.parse().expect("a number")).expect("it listens");
        let client = Running::start(installed.run(*user, &arguments).arg("localhost"));
        for end in [client, server] {
            // It does not complain: a slower way would.
            let printed = end.finish(Duration::from_secs(60));
            assert!(printed.contains("bytes in"), "{printed}");
        }
    }
}

/// UCX looks for the device's files, and opens both transports.
#[test]
fn ucx_lists_the_device() {
    program("ucx_info", "ucx-utils");
    let installed = Installed::new("ucx");
    for (way, user) in &installed.ways {
        let output = installed.run(*user, &["ucx_info", "-d"]).output().expect("ucx_info");
        let text = printed(&output);
        for transport in ["rc_verbs", "ud_verbs"] {
            let section = text.split("Transport: ").find(|section| section.starts_with(transport));
            let section = section.unwrap_or_else(|| panic!("{way:?}: no {transport} in {text}"));
            assert!(section.contains("Device: transom0:1"), "{way:?}: {section}");
            assert!(!section.contains("failed to open interface"), "{way:?}: {section}");
        }
    }
}

/// And messages of UCX go over both. In a network of its own, for another user may have the port in this one.
#[test]
fn ucx_sends_over_the_device() {
    alone(path_of!("ucx_sends_over_the_device"), processes::Way::Network, messages_of_ucx);
}

fn messages_of_ucx() {
    program("ucx_perftest", "ucx-utils");
    let installed = Installed::new("ucx-perf");
    let (_, user) = installed.ways.last().expect("a way");
    for transports in ["UCX_TLS=ud_verbs,self", "UCX_TLS=rc_verbs,ud_verbs,self"] {
        let probe = std::net::TcpListener::bind("0.0.0.0:0");
        let port = probe.and_then(|probe| probe.local_addr()).expect("a free port").port();
        let number = port.to_string();
        let arguments = ["env", transports, "UCX_NET_DEVICES=transom0:1", "ucx_perftest"];
        let options = ["-t", "tag_lat", "-n", "50", "-w", "5", "-p", &number];
        let mut server = Running::start(installed.run(*user, &arguments).args(options));
        server.wait_until_it_listens(port).expect("it listens");
        let mut client = installed.run(*user, &arguments);
        let client = Running::start(client.arg("127.0.0.1").args(options));
        let printed = client.finish(Duration::from_secs(60));
        assert!(printed.contains("Final:"), "{transports}: {printed}");
        server.finish(Duration::from_secs(60));
    }
}
