//! The programs that are rehearsed, and what each is known to fail by.

use transom_rehearse::Provocation;

/// A program that is rehearsed.
pub(super) struct Rehearsed {
    /// The server and its client, with PORT for the port. A program that starts all it needs has no client.
    pub(super) server: &'static str,
    pub(super) client: Option<&'static str>,
    pub(super) package: &'static str,
    /// Where the server listens.
    pub(super) listens: Listens,
    /// The server does not end with its client.
    pub(super) stays: bool,
    /// Both have sockets, which rsockets take the place of.
    pub(super) has_sockets: bool,
    /// What it fails by.
    pub(super) known: &'static [&'static [Known]],
    /// The findings that it has without any provocation (`programs checked`), as a line of suppressions.
    pub(super) suppressed: Option<&'static str>,
}

/// Where a server listens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Listens {
    /// At a port that it is told.
    Anywhere,
    /// At its own port.
    At(u16),
    /// Nowhere: its client need not wait for it.
    Nowhere,
}

/// A failure that is known.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) by: Provocation,
    /// What it comes with, if that alone does not suffice.
    pub(super) with: Option<Provocation>,
    /// What the program relies on, or does wrong.
    pub(super) relies_on: &'static str,
    /// The adapters on which that bites, by `spec/mercies.md` and `spec/adapters.md`.
    pub(super) bites: &'static str,
}

const fn known(by: Provocation, relies_on: &'static str, bites: &'static str) -> Known {
    Known { by, with: None, relies_on, bites }
}

/// What a call or a request may answer on every adapter.
const ANY: &str = "all: any call or request may fail";
/// No adapter tells that a host has gone.
const ANY_GONE: &str = "all: none tells that a host has died";
/// What networks do.
const ANY_LOST: &str = "all: UC and UD may lose a message";
/// When adapters gather.
const ANY_LATE: &str = "all: each gathers by DMA after the post";

/// What a program without time-outs fails by on services that lose messages.
const WAITS_FOR_EVER: &[Known] = &[
    known(Provocation::LostMessages, "waits for ever for a message that is lost", ANY_LOST),
    known(Provocation::GonePeers, "waits for ever for a peer that is gone", ANY_GONE),
];

/// What the other end waits for without end when one has given up, or is gone.
const NO_TIME_OUT: &str = "its other end waits for ever, and looks at no time-out and no event";

/// What two ends without time-outs fail by.
const GIVEN_UP: &[Known] = &[
    known(Provocation::RefusedPosts, NO_TIME_OUT, ANY),
    known(Provocation::RefusedReceives, NO_TIME_OUT, ANY),
    known(Provocation::FailedRequests, NO_TIME_OUT, ANY),
    known(Provocation::GonePeers, NO_TIME_OUT, ANY_GONE),
];

/// UCX 1.13 calls `abort(3)`, unless its program has asked to be told of errors of peers. An adapter may do any of this.
const ENDS_BY_ABORT: &str = "UCX ends its program by abort() when a verb or a request fails";

/// What UCX fails by.
const UCX_ABORTS: &[Known] = &[
    known(Provocation::RefusedPosts, ENDS_BY_ABORT, ANY),
    known(Provocation::RefusedReceives, ENDS_BY_ABORT, ANY),
    known(Provocation::FailedRequests, ENDS_BY_ABORT, ANY),
    known(Provocation::FailedReceives, ENDS_BY_ABORT, ANY),
    known(Provocation::RemovedDevices, ENDS_BY_ABORT, "all that can be taken away"),
    known(Provocation::GonePeers, NO_TIME_OUT, ANY_GONE),
];

/// What it fails by on UD.
const UCX_ON_UD: &[Known] = &[
    known(
        Provocation::ScribbledReceives,
        "UCX's receives of UD are 16 bytes longer than their place, and end in its list of places",
        "none is known to write behind a message; all may",
    ),
    known(
        Provocation::LostMessages,
        "UCX doubles its pause after each loss, so nine in a row take a minute",
        ANY_LOST,
    ),
];

/// What OpenMPI fails by when it uses UCX. Its ranks connect to each other at once. If two requests to connect cross,
/// UCX takes the peer's for the answer to its own, and gives the buffer of its own to another message, though the SEND
/// has no completion yet. So its request, or the answer to it, may have the bytes of that message.
const OPEN_MPI: &[Known] = &[
    known(Provocation::LateWork, REUSES_A_SOURCE, ANY_LATE),
    known(Provocation::StuckWork, REUSES_A_SOURCE, ANY_LATE),
    known(Provocation::TornSources, REUSES_A_SOURCE, ANY_LATE),
    known(
        Provocation::RefusedObjects,
        "unmaps a window whose registration was refused",
        "all: any registration may fail",
    ),
];

const REUSES_A_SOURCE: &str =
    "reuses the buffer of a request to connect before its completion (ucx#6040)";

/// What mckey relies on.
const ENDS_EARLY: &str = "its sender ends without waiting for what it has sent";

/// What mckey's `run` does with the error of a post.
const FORGETS_A_REFUSAL: &str = "puts the result of leaving the group in place of a refused post's, and its other end waits for ever";

/// What its `poll_cqs` does not look at.
const IGNORES_STATUS: &str = "looks at no status of a completion, and its other end waits for ever";

/// What redis-benchmark does when a connection is lost, or comes to nothing.
const TRIES_FOR_EVER: &str = "takes each error of a write for EAGAIN, and tries again for ever";

/// What riostream relies on.
const SPINS: &str = "looks only at the last byte of its memory, and at no error";
/// Where its last byte may come first.
const UNORDERED: &str = "all but mlx5 whose firmware promises whole messages in order";

/// All of them.
pub(super) const PROGRAMS: &[Rehearsed] = &[
    ping_pong("ibv_rc_pingpong -g 0 -c -p PORT", "ibv_rc_pingpong -g 0 -c -p PORT 127.0.0.1"),
    ping_pong("ibv_rc_pingpong -g 0 -e -p PORT", "ibv_rc_pingpong -g 0 -e -p PORT 127.0.0.1"),
    Rehearsed {
        known: &[WAITS_FOR_EVER],
        ..ping_pong("ibv_uc_pingpong -g 0 -c -p PORT", "ibv_uc_pingpong -g 0 -c -p PORT 127.0.0.1")
    },
    Rehearsed {
        known: &[WAITS_FOR_EVER],
        ..ping_pong("ibv_ud_pingpong -g 0 -c -p PORT", "ibv_ud_pingpong -g 0 -c -p PORT 127.0.0.1")
    },
    Rehearsed {
        suppressed: Some("work-lost ibv_srq_pingpong"),
        ..ping_pong(
            "ibv_srq_pingpong -g 0 -c -p PORT",
            "ibv_srq_pingpong -g 0 -c -p PORT 127.0.0.1",
        )
    },
    Rehearsed {
        known: &[GIVEN_UP],
        ..ping_pong("ibv_xsrq_pingpong -g 0 -p PORT", "ibv_xsrq_pingpong -g 0 -p PORT 127.0.0.1")
    },
    perftest("ib_send_lat -F -n 200 -p PORT", "ib_send_lat -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_write_lat -F -n 200 -p PORT", "ib_write_lat -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_read_lat -F -n 200 -p PORT", "ib_read_lat -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_atomic_lat -F -n 200 -p PORT", "ib_atomic_lat -F -n 200 -p PORT 127.0.0.1"),
    Rehearsed {
        suppressed: Some("left-at-close ib_send_bw"),
        ..perftest("ib_send_bw -F -n 200 -p PORT", "ib_send_bw -F -n 200 -p PORT 127.0.0.1")
    },
    perftest("ib_write_bw -F -n 200 -p PORT", "ib_write_bw -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_read_bw -F -n 200 -p PORT", "ib_read_bw -F -n 200 -p PORT 127.0.0.1"),
    perftest("ib_atomic_bw -F -n 200 -p PORT", "ib_atomic_bw -F -n 200 -p PORT 127.0.0.1"),
    Rehearsed {
        suppressed: Some("source-changed rping"),
        ..rdmacm("rping -s -a 127.0.0.1 -C 20 -V -p PORT", "rping -c -a 127.0.0.1 -C 20 -V -p PORT")
    },
    Rehearsed {
        known: &[&[
            known(
                Provocation::RefusedObjects,
                "frees its buffer twice when its region is refused",
                "all: any registration may fail",
            ),
            known(Provocation::RefusedPosts, NO_TIME_OUT, ANY),
            known(Provocation::FailedRequests, NO_TIME_OUT, ANY),
            known(
                Provocation::FailedReceives,
                "does not look at the status of completions, and posts after an error",
                ANY,
            ),
            known(Provocation::GonePeers, NO_TIME_OUT, ANY_GONE),
            known(
                Provocation::RemovedDevices,
                "takes no notice of DEVICE_REMOVAL, and waits for ever for completions",
                "all that can be taken away",
            ),
        ]],
        ..rdmacm("ucmatose -p PORT -C 10", "ucmatose -s 127.0.0.1 -p PORT -C 10")
    },
    rdmacm("rstream -p PORT -T v -S 1000 -C 50", "rstream -s 127.0.0.1 -p PORT -T v -S 1000 -C 50"),
    Rehearsed {
        known: &[&[
            known(Provocation::ScrambledBytes, SPINS, UNORDERED),
            known(Provocation::ScrambledMessages, SPINS, UNORDERED),
            known(Provocation::FailedRequests, SPINS, ANY),
            known(Provocation::GonePeers, SPINS, ANY_GONE),
        ]],
        ..rdmacm("riostream -p PORT -S 1000 -C 50", "riostream -s 127.0.0.1 -p PORT -S 1000 -C 50")
    },
    Rehearsed {
        known: &[GIVEN_UP],
        ..rdmacm("rdma_server -p PORT", "rdma_client -s 127.0.0.1 -p PORT")
    },
    Rehearsed {
        known: &[&[
            known(
                Provocation::ExactSizes,
                "sends its 16 bytes inline, and asks for no inline data",
                "irdma, bnxt and efa grant none; siw and qedr tell of none",
            ),
            known(Provocation::RefusedObjects, NO_TIME_OUT, ANY),
            known(Provocation::FailedRequests, NO_TIME_OUT, ANY),
            known(Provocation::GonePeers, NO_TIME_OUT, ANY_GONE),
        ]],
        ..rdmacm("rdma_xserver -p PORT", "rdma_xclient -s 127.0.0.1 -p PORT")
    },
    Rehearsed {
        known: &[UCX_ABORTS, UCX_ON_UD],
        ..ends(
            "ucx_perftest -t tag_lat -n 200 -w 20 -p PORT",
            "ucx_perftest -t tag_lat -n 200 -w 20 -p PORT 127.0.0.1",
            "ucx-utils",
        )
    },
    Rehearsed {
        known: &[UCX_ABORTS],
        ..ends(
            "ucx_perftest -t am_bw -n 200 -w 20 -d transom0:1 -x rc_verbs -p PORT",
            "ucx_perftest -t am_bw -n 200 -w 20 -d transom0:1 -x rc_verbs -p PORT 127.0.0.1",
            "ucx-utils",
        )
    },
    ends(
        "fi_pingpong -p verbs -e msg -I 50 -B PORT",
        "fi_pingpong -p verbs -e msg -I 50 -P PORT 127.0.0.1",
        "libfabric-bin",
    ),
    Rehearsed {
        client: None,
        known: &[UCX_ABORTS, UCX_ON_UD, OPEN_MPI],
        ..ends("mpirun", "", "openmpi-bin")
    },
    Rehearsed {
        listens: Listens::At(7174),
        known: &[&[
            known(
                Provocation::RefusedObjects,
                "frees its buffer twice when its region is refused",
                "all: any registration may fail",
            ),
            Known {
                with: Some(Provocation::StuckWork),
                ..known(
                    Provocation::RefusedPosts,
                    "ends with work under way when a post is refused",
                    ANY,
                )
            },
            known(Provocation::FailedRequests, NO_TIME_OUT, ANY),
            known(Provocation::FailedReceives, NO_TIME_OUT, ANY),
            known(Provocation::LostMessages, "waits for ever for a message that is lost", ANY_LOST),
        ]],
        ..rdmacm("udaddy -c 2 -C 5 -S 100", "udaddy -s 127.0.0.1 -c 2 -C 5 -S 100")
    },
    Rehearsed {
        listens: Listens::Nowhere,
        known: &[&[
            known(Provocation::LateWork, ENDS_EARLY, ANY_LATE),
            known(Provocation::StuckWork, ENDS_EARLY, ANY_LATE),
            known(Provocation::TornSources, ENDS_EARLY, ANY_LATE),
            known(Provocation::RefusedPosts, FORGETS_A_REFUSAL, ANY),
            known(Provocation::FailedRequests, IGNORES_STATUS, ANY),
            known(
                Provocation::RemovedDevices,
                "waits for ever for a message when the device goes",
                "all that can be taken away",
            ),
            known(Provocation::LostMessages, "waits for ever for a message that is lost", ANY_LOST),
        ]],
        ..rdmacm("mckey -m 239.255.77.1 -C 5 -S 100", "mckey -m 239.255.77.1 -s -C 5 -S 100")
    },
    Rehearsed {
        stays: true,
        known: &[&[
            known(
                Provocation::RefusedConnections,
                "its server cleans up connections that it has no list of when it cannot listen",
                "all: a port may be taken",
            ),
            known(
                Provocation::RefusedObjects,
                "goes on with a list that it has freed when an id is refused",
                "all: there may be no memory",
            ),
        ]],
        ..rdmacm("cmtime -b 127.0.0.1 -p PORT -c 10", "cmtime -s 127.0.0.1 -p PORT -c 10")
    },
    Rehearsed {
        listens: Listens::Nowhere,
        stays: true,
        ..rdmacm("udpong -b 127.0.0.1 -p PORT", "udpong -s 127.0.0.1 -p PORT -S 100 -C 20")
    },
    Rehearsed {
        known: &[
            GIVEN_UP,
            &[
                known(Provocation::RefusedObjects, NO_TIME_OUT, ANY),
                Known {
                    with: Some(Provocation::LateAddresses),
                    ..known(Provocation::RefusedConnections, NO_TIME_OUT, ANY)
                },
                known(Provocation::RemovedDevices, NO_TIME_OUT, "all that can be taken away"),
            ],
        ],
        suppressed: Some("acked-too-much fio"),
        ..ends(
            "fio --name=server --ioengine=rdma --port=PORT --rw=read --bs=4k --size=256k",
            "fio --name=client --ioengine=rdma --hostname=127.0.0.1 --port=PORT --rw=write --bs=4k --size=256k \
             --iodepth=4 --verb=write",
            "fio",
        )
    },
    Rehearsed {
        stays: true,
        has_sockets: true,
        known: &[&[
            known(Provocation::RefusedObjects, TRIES_FOR_EVER, ANY),
            known(Provocation::RefusedPosts, TRIES_FOR_EVER, ANY),
            Known {
                with: Some(Provocation::LateAddresses),
                ..known(Provocation::RefusedReceives, TRIES_FOR_EVER, ANY)
            },
            known(Provocation::RefusedConnections, TRIES_FOR_EVER, "all: any step may fail"),
            known(Provocation::FailedRequests, TRIES_FOR_EVER, ANY),
            known(Provocation::RemovedDevices, TRIES_FOR_EVER, "all that can be taken away"),
            known(Provocation::GonePeers, NO_TIME_OUT, ANY_GONE),
        ]],
        ..ends(
            "redis-server --port PORT --bind 127.0.0.1 --appendonly no",
            "redis-benchmark -p PORT -n 40 -c 4 -q -t set,get",
            "redis-server",
        )
    },
];

/// A program whose two ends are of the same package.
const fn ends(server: &'static str, client: &'static str, package: &'static str) -> Rehearsed {
    Rehearsed {
        server,
        client: Some(client),
        package,
        listens: Listens::Anywhere,
        stays: false,
        has_sockets: false,
        known: &[],
        suppressed: None,
    }
}

const fn ping_pong(server: &'static str, client: &'static str) -> Rehearsed {
    ends(server, client, "ibverbs-utils")
}

const fn perftest(server: &'static str, client: &'static str) -> Rehearsed {
    ends(server, client, "perftest")
}

const fn rdmacm(server: &'static str, client: &'static str) -> Rehearsed {
    ends(server, client, "rdmacm-utils")
}
