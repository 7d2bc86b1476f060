//! Where the kernel forbids `process_vm_readv` and `process_vm_writev` (a seccomp filter, as some
//! container runtimes have), everything works through rings, and the device says so once. Shared
//! memory needs neither.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use transom::{Buffer as Memory, Pages};
use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::{Running, command};
use transom_host::{Adapter, Copying, Options};
use transom_ibverbs::ibv_reg_mr;
use transom_system::memory::{begin_sharing, is_shared};

const ROLE: &str = "TRANSOM_TEST_FORBIDDEN";

/// What the kernel does with both system calls: they fail with EPERM.
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// As [`REFUSE`]: they end the process.
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// Forbids both system calls to this process.
fn forbid(how: u32) {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The number of the system call is the first word of its description.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            2,
            0,
            libc::SYS_process_vm_readv as u32,
        ),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            0,
            libc::SYS_process_vm_writev as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, how),
    ];
    install(&mut filter);
}

/// Has the kernel ask this filter about every system call of this process.
fn install(filter: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers, and a filter that lives through the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        assert_eq!(libc::syscall(libc::SYS_seccomp, mode, threads, &raw const program), 0);
    }
}

/// The kernel ends this process if it lets others trace it.
fn end_at_consent() {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    /// Where the first argument begins in the description of a system call.
    const ARGUMENT: u32 = 16;
    install(&mut [
        instruction(load, 0, 0, 0),
        instruction(equals, 0, 3, libc::SYS_prctl as u32),
        instruction(load, 0, 0, ARGUMENT),
        instruction(equals, 0, 1, libc::PR_SET_PTRACER as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// A process lets others trace it only where it is asked for that, and only if it wants copies.
#[test]
fn consent_to_be_traced_is_given_only_where_it_is_needed() {
    if let Some(role) = std::env::var_os(ROLE) {
        end_at_consent();
        let copying = if role == "shared" { Copying::Rings } else { Copying::Best };
        drop(Adapter::open(Options { copying, ..Options::default() }).expect("a device opens"));
        return;
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let needed = scope.is_ok_and(|scope| scope.trim() == "1");
    for (role, gives_it) in [("best", needed), ("shared", false)] {
        let mut command = again(path_of!("consent_to_be_traced_is_given_only_where_it_is_needed"));
        let status = command.env(ROLE, role).status().expect("it starts");
        assert_eq!(status.success(), !gives_it, "{role}: {status}");
    }
}

/// The whole repertoire, in a process of its own.
#[test]
fn everything_works_without_process_vm() {
    if std::env::var_os(ROLE).is_some() {
        return without_process_vm();
    }
    let output = again(path_of!("everything_works_without_process_vm"))
        .env(ROLE, "1")
        .output()
        .expect("the test starts itself");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("private memory goes through rings").count(), 1, "{said}");
    // What it costs, and what to do about it.
    for word in ["milliseconds a message", "kernel.yama.ptrace_scope", "CAP_SYS_PTRACE", "seccomp"]
    {
        assert!(said.contains(word), "{said}");
    }
}

fn without_process_vm() {
    forbid(REFUSE);
    for link in [Link::Local, Link::Loopback] {
        repertoire(&Pair::rc(link), |_| {});
    }
}

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("owner", owner)]);
}

/// Has a page that is shared, and a word on its stack, which is not.
fn owner(channel: &mut Channel) {
    forbid(REFUSE);
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    let page = Buffer::new(4096);
    let mut word = 0_u64;
    let at = std::ptr::from_mut(&mut word);
    let (mr, of_word) =
        (end.reg(&page, ALL), try_reg(end.pd, at as u64, 8, ALL).expect("a region"));
    meet(channel, qp);
    assert!(!is_shared(at as u64, 8));
    let shared = u64::from(is_shared(page.addr(), 4096));
    channel.tell(&[page.addr(), keys(mr).1.into(), at as u64, keys(of_word).1.into(), shared]);
    let [] = channel.hear();
    // SAFETY: a live word, which the peer has written to.
    assert_eq!((page.word(0), page.word(8), unsafe { at.read_volatile() }), (7, 8, 7));
    channel.tell(&[]);
    let [] = channel.hear();
}

/// Shared memory is reached also while its process stands still; other memory by messages.
#[test]
fn shared_memory_is_reached_where_process_vm_was_never_allowed() {
    const THIS: &str = path_of!("shared_memory_is_reached_where_process_vm_was_never_allowed");
    alone(THIS, Way::Shared, || {
        forbid(REFUSE);
        let (end, mut child) = (open(), Child::start(path_of!("owner")));
        let qp = end.qp(IBV_QPT_RC);
        let near = Buffer::new(4096);
        let mr = end.reg(&near, ALL);
        meet(&mut child.channel, qp);
        let [page, key, word, of_word, shared] = child.hear();
        let request = |mut wr: ibv_send_wr| {
            post(qp, &mut wr);
            end.expect(IBV_WC_SUCCESS);
        };
        let one = || [sge(near.addr(), 8, mr)];
        near.set_word(0, 7);
        if shared == 1 {
            child.stop();
            request(rdma_wr(IBV_WR_RDMA_WRITE, &mut one(), page, key as u32));
            request(rdma_wr(IBV_WR_RDMA_WRITE, &mut one(), page + 8, key as u32));
            let opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            request(atomic_wr(opcode, &mut one(), page + 8, key as u32, 1, 0));
            near.set_word(0, 0);
            request(rdma_wr(IBV_WR_RDMA_READ, &mut one(), page + 8, key as u32));
            assert_eq!(near.word(0), 8);
            near.set_word(0, 7);
            child.resume();
        } else {
            assert!(begin_sharing().is_err(), "memory is not shared");
            eprintln!("skipped: there is no shared memory here");
        }
        request(rdma_wr(IBV_WR_RDMA_WRITE, &mut one(), word, of_word as u32));
        if shared == 1 {
            child.tell(&[]);
            let [] = child.hear();
        } else {
            child.kill();
            return;
        }
        child.tell(&[]);
        child.finish();
    });
}

/// In shared memory the whole repertoire needs neither of the system calls.
#[test]
fn shared_memory_is_reached_without_process_vm() {
    const THIS: &str = path_of!("shared_memory_is_reached_without_process_vm");
    alone(THIS, Way::Shared, || {
        repertoire(&Pair::rc(Link::Shared), |buffers| {
            let shared = |it: &&Buffer| is_shared(it.addr(), it.len() as u64);
            if buffers.iter().all(shared) {
                return forbid(KILL);
            }
            assert!(begin_sharing().is_err(), "memory is not shared");
            eprintln!("skipped: there is no shared memory here");
        });
    });
}

/// Nor does memory that the program has of the device, or of the Rust API, though its other memory is private.
#[test]
fn memory_that_is_ours_is_reached_without_process_vm() {
    const THIS: &str = path_of!("memory_that_is_ours_is_reached_without_process_vm");
    alone(THIS, Way::Shared, || {
        let pair = Pair::rc(Link::Shared);
        let [mut near, mut far] = [(); 2].map(|()| Pages::new(8192).expect("memory"));
        let register = |end: &End, pages: &mut Pages| {
            let length = Memory::len(pages);
            // SAFETY: the pages outlive the region's last use.
            let mr = unsafe { ibv_reg_mr(end.pd, pages.as_mut_ptr().cast(), length, ALL) };
            assert!(!mr.is_null());
            mr
        };
        let (ma, mb) = (register(&pair.a, &mut near), register(&pair.b, &mut far));
        let dm = alloc_dm(pair.b.context, 4096);
        let access = IBV_ACCESS_ZERO_BASED | ALL as u32;
        let device = try_reg_dm(pair.b.pd, dm, 0, 4096, access).expect("a region");
        let [at, there] = [&mut near, &mut far].map(|pages| pages.as_mut_ptr() as u64);
        if !is_shared(at, 8192) {
            assert!(begin_sharing().is_err(), "memory is not shared");
            return eprintln!("skipped: there is no shared memory here");
        }
        let other = Buffer::private(4096);
        pair.a.reg(&other, ALL);
        assert!(!is_shared(other.addr(), 8));
        forbid(KILL);
        near.write_at(0, &[7; 4096]).expect("room");
        let request = |opcode, at, length, to, key| {
            let mut sges = [sge(at, length, ma)];
            assert_eq!(pair.request(&mut rdma_wr(opcode, &mut sges, to, key)), IBV_WC_SUCCESS);
        };
        request(IBV_WR_RDMA_WRITE, at, 4096, 0, keys(device).1);
        request(IBV_WR_RDMA_READ, at + 4096, 4096, 0, keys(device).1);
        request(IBV_WR_RDMA_WRITE, at + 4096, 4096, there, keys(mb).1);
        let mut sges = [sge(at, 8, ma)];
        let opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        let status = pair.request(&mut atomic_wr(opcode, &mut sges, there, keys(mb).1, 1, 0));
        assert_eq!(status, IBV_WC_SUCCESS);
        // What nobody is granted the kernel copies (`ibv_memcpy_from_dm`), but not what is read by a region.
        request(IBV_WR_RDMA_READ, at + 4096, 4096, 0, keys(device).1);
        request(IBV_WR_RDMA_WRITE, at + 4096, 4096, there + 4096, keys(mb).1);
        let mut found = vec![0; 8192];
        far.read_at(0, &mut found).expect("so many");
        assert_eq!(found[0], 8);
        assert!(found[1..].iter().all(|byte| *byte == 7));
    });
}

/// WRITE, READ, an atomic, a message and a refusal; `registered` is told of the buffers for them.
fn repertoire(pair: &Pair, registered: impl FnOnce(&[&Buffer])) {
    let (near, far) = (Buffer::filled(1 << 20, 5), Buffer::new(1 << 20));
    let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
    registered(&[&near, &far]);
    let mut sges = [sge(near.addr(), 1 << 20, ma)];
    post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1));
    pair.a.expect(IBV_WC_SUCCESS);
    assert!(far.read(0, 1 << 20) == near.read(0, 1 << 20));
    far.set_word(8, 41);
    let mut sges = [sge(near.addr(), 8, ma)];
    let opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    post(pair.qa, &mut atomic_wr(opcode, &mut sges, far.addr() + 8, keys(mb).1, 1, 0));
    pair.a.expect(IBV_WC_SUCCESS);
    assert_eq!((near.word(0), far.word(8)), (41, 42));
    let mut sges = [sge(near.addr(), 100_000, ma)];
    post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr(), keys(mb).1));
    pair.a.expect(IBV_WC_SUCCESS);
    assert!(near.read(0, 100_000) == far.read(0, 100_000));
    recv(pair.qb, 4, &mut [sge(far.addr(), 100, mb)]);
    let mut sges = [sge(near.addr(), 100, ma)];
    post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
    pair.a.expect(IBV_WC_SUCCESS);
    assert_eq!(pair.b.expect(IBV_WC_SUCCESS).byte_len, 100);
    let end = far.addr() + far.len() as u64;
    post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, end - 8, keys(mb).1));
    pair.a.expect(IBV_WC_REM_ACCESS_ERR);
}

/// Writes until a pipe takes no more.
fn fill(pipe: &mut io::PipeWriter) {
    set_nonblocking(pipe, true);
    for size in [4096, 1] {
        while pipe.write(&vec![b'.'; size]).is_ok() {}
    }
}

fn set_nonblocking(file: &impl AsRawFd, on: bool) {
    // SAFETY: plain numbers, about an open descriptor.
    unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        let flags = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
        assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags), 0);
    }
}

/// A daemon's log may be gone, full, or closed; a device that has something to say works all the same,
/// in a program that has SIGPIPE as it was.
#[test]
fn a_sentence_that_cannot_be_written_is_left_unsaid() {
    if let Some(role) = std::env::var_os(ROLE) {
        // SAFETY: plain numbers; nothing here holds the descriptor.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            if role == "closed" {
                libc::close(libc::STDERR_FILENO);
            }
        }
        return without_process_vm();
    }
    let (gone, mut nonblocking, mut blocking) = (io::pipe(), io::pipe(), io::pipe());
    let gone = gone.expect("a pipe").1;
    for (pipe, waits) in [(&mut nonblocking, false), (&mut blocking, true)] {
        let pipe = &mut pipe.as_mut().expect("a pipe").1;
        fill(pipe);
        set_nonblocking(pipe, !waits);
    }
    // What is read of the full ones stays open until the end.
    let (_unread, nonblocking) = nonblocking.expect("a pipe");
    let (_unread_either, blocking) = blocking.expect("a pipe");
    let logs: [(&str, Stdio); 4] = [
        ("gone", gone.into()),
        ("full", nonblocking.into()),
        ("full, and waits", blocking.into()),
        ("closed", Stdio::null()),
    ];
    for (name, stderr) in logs {
        let mut command = again(path_of!("a_sentence_that_cannot_be_written_is_left_unsaid"));
        let mut child = command.env(ROLE, name).stderr(stderr).spawn().expect("it starts");
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("our child") {
                break status;
            }
            if start.elapsed() > Duration::from_secs(60) {
                child.kill().expect("our child");
                panic!("{name}: it waits for somebody to read");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{name}: {status}");
    }
}

/// `transom bench` says which contender is missing and why, and measures the others.
#[test]
fn a_benchmark_goes_on_without_what_is_forbidden() {
    let [transom, ..] = command();
    let mut bench = Command::new(transom);
    bench.args(["bench", "--quick", "--json", "8 bytes, to its completion"]);
    // SAFETY: system calls on plain numbers and on memory of the closure's.
    unsafe {
        bench.pre_exec(|| {
            forbid(REFUSE);
            Ok(())
        });
    }
    let printed = Running::start(&mut bench).success(Duration::from_secs(120));
    let printed = printed.unwrap_or_else(|problem| panic!("{problem}")).output;
    for (row, call) in [("READ", "process_vm_readv"), ("WRITE", "process_vm_writev")] {
        let begin = format!("{{\"name\":\"{row} of 8 bytes, to its completion\"");
        let line = printed.lines().find(|line| line.starts_with(&begin)).expect("a row");
        let missing = format!("\"missing\":\"{call}: Operation not permitted");
        assert!(line.contains(&missing), "{line}");
        assert!(line.contains("{\"name\":\"private\",\"median\":"), "{line}");
    }
}
