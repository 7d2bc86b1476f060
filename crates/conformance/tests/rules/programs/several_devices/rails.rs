//! Programs of others that choose among several devices.

use transom_conformance::c_programs::compile_by;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, interfaces_up};
use transom_conformance::programs::{Running, program};

use super::{Installed, LIMIT, ON_INTERFACES, second_interface_up, statistics};

/// Of so many bytes, each device has sent a good part.
fn both_have_sent(told: &str, bytes: u64) {
    let all = statistics(told);
    assert_eq!(all.len(), 2, "{told}");
    for (name, it) in all {
        let sent = it["sent_pkts"].as_u64().expect("a number");
        assert!(sent > bytes / 4000, "{name} sent {sent} packets of {bytes} bytes");
    }
}

/// A message of UCX that is long enough for both.
fn rails_of_ucx() {
    interfaces_up();
    program("ucx_perftest", "ucx-utils");
    let installed = Installed::new("rails");
    let line = "export UCX_NET_DEVICES=transom0:1,transom1:1 UCX_TLS=rc_verbs,ud_verbs,self
        export UCX_MAX_RNDV_RAILS=2 UCX_MAX_EAGER_LANES=2
        ucx_perftest -t tag_bw -s 1000000 -n 20 -w 2 -p 14791 >/dev/null 2>&1 &
        until grep -q :39C7 /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done
        ucx_perftest -t tag_bw -s 1000000 -n 20 -w 2 -p 14791 127.0.0.1 >&2 && wait && rdma -j statistic";
    let mut command = installed.run(&["--devices", "2"], &["sh", "-c", line]);
    let output = Running::start(&mut command).success(LIMIT);
    let output = output.unwrap_or_else(|problem| panic!("{problem}"));
    assert!(output.complaints.contains("Final:"), "{output:?}");
    both_have_sent(&output.output, 20_000_000);
}

/// OpenMPI chooses devices by UCX.
fn rails_of_open_mpi() {
    interfaces_up();
    let installed = Installed::new("mpi-rails");
    let (compiler, mpirun) = (program("mpicc", "libopenmpi-dev"), program("mpirun", "openmpi-bin"));
    let binary = compile_by(&compiler, &installed.0, "two_ranks.c", "two_ranks", &[]);
    let line = format!(
        "export UCX_NET_DEVICES=transom0:1,transom1:1 UCX_TLS=rc_verbs,ud_verbs,self
        export UCX_MAX_RNDV_RAILS=2 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        {} --oversubscribe --bind-to none -np 2 --mca pml ucx --mca osc ucx \
            --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any {} >&2 &&
        rdma -j statistic",
        mpirun.display(),
        binary.display()
    );
    let mut command = installed.run(&["--devices", "2"], &["sh", "-c", &line]);
    let output = Running::start(&mut command).success(LIMIT);
    let output = output.unwrap_or_else(|problem| panic!("{problem}"));
    assert!(output.complaints.contains("ok - 10 messages"), "{output:?}");
    both_have_sent(&output.output, 80 << 20);
}

/// Rules: DEVS-09
#[test]
fn open_mpi_sends_over_two_rails() {
    alone(path_of!("open_mpi_sends_over_two_rails"), Way::Namespace, rails_of_open_mpi);
}

/// Rules: DEVS-09
#[test]
fn ucx_sends_over_two_rails() {
    alone(path_of!("ucx_sends_over_two_rails"), Way::Namespace, rails_of_ucx);
}

/// By rdma_cm, over the second of two devices, and then over both at once.
fn pingpong_of_libfabric() {
    interfaces_up();
    second_interface_up();
    program("fi_pingpong", "libfabric-bin");
    let installed = Installed::new("pingpong");
    for (link, endpoints, port) in
        [("", "msg", "7777"), ("", "rdm", "7778"), ("wire", "msg", "7779")]
    {
        let run = |tail: &[&str]| {
            let line =
                ["fi_pingpong", "-p", "verbs", "-e", endpoints, "-d", "transom1", "-I", "50"];
            let mut command = installed.run(&ON_INTERFACES, &[&line[..], tail].concat());
            Running::start(command.env("TRANSOM_LINK", link))
        };
        let mut server = run(&["-B", port]);
        server.wait_until_it_listens(port.parse().expect("a number")).expect("it listens");
        for end in [run(&["-P", port, "10.10.0.1"]), server] {
            end.success(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }
    let sent = || {
        let told = installed.says(&ON_INTERFACES, "rdma -j statistic");
        let sent = statistics(&told).into_values().map(|it| it["sent_pkts"].as_u64());
        let sent: Vec<_> = sent.map(|sent| sent.expect("a number")).collect();
        <[u64; 2]>::try_from(sent).expect(&told)
    };
    let before = sent();
    assert!(before[0] < 100 && before[1] > 1000, "{before:?}");
    let run = |device, tail: &[&str]| {
        let line = ["fi_pingpong", "-p", "verbs", "-e", "msg", "-d", device, "-I", "50"];
        Running::start(&mut installed.run(&ON_INTERFACES, &[&line[..], tail].concat()))
    };
    let both = [("transom0", "7780", "10.9.0.1"), ("transom1", "7781", "10.10.0.1")];
    let mut servers = both.map(|(device, port, _)| run(device, &["-B", port]));
    for (server, (_, port, _)) in servers.iter_mut().zip(both) {
        server.wait_until_it_listens(port.parse().expect("a number")).expect("it listens");
    }
    let clients = both.map(|(device, port, address)| run(device, &["-P", port, address]));
    for end in clients.into_iter().chain(servers) {
        end.success(LIMIT).unwrap_or_else(|problem| panic!("{problem}"));
    }
    let after = sent();
    assert!((0..2).all(|device| after[device] > before[device] + 500), "{before:?} {after:?}");
}

/// Rules: DEVS-09, DEVS-14
#[test]
fn libfabric_connects_over_the_second_and_over_both() {
    let path = path_of!("libfabric_connects_over_the_second_and_over_both");
    alone(path, Way::Namespace, pingpong_of_libfabric);
}
