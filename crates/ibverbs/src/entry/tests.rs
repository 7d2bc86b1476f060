use std::cell::Cell;
use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use transom_abi::*;

use super::*;
use crate::*;

thread_local! {
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Panics once in the next verb of this thread, if a test wants it.
pub(super) fn panic_if_wanted() {
    assert!(!WANTED.take(), "a test wants it");
}

/// Marks the process that a test has started for itself. All devices of a process fail together, so such a test needs
/// its own process.
const ALONE: &str = "TRANSOM_TEST_ALONE";

#[expect(clippy::disallowed_methods, reason = "a test's own variable")]
fn alone(test: &str, body: fn()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let this = std::env::current_exe().expect("a test has a path");
    let test = format!("entry::tests::{test}");
    let status = Command::new(this).args(["--exact", &test]).env(ALONE, "1").status();
    assert!(status.expect("it starts").success());
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Two contexts of a device, and one object of each kind.
struct Fixture {
    contexts: [*mut ibv_context; 2],
    pd: *mut ibv_pd,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    polled: *mut ibv_cq_ex,
    qp: *mut ibv_qp,
    srq: *mut ibv_srq,
    mr: *mut ibv_mr,
    mw: *mut ibv_mw,
    dm: *mut ibv_dm,
    td: *mut ibv_td,
    ah: *mut ibv_ah,
    attr: ibv_ah_attr,
}

const TIMEOUT: Duration = Duration::from_secs(30);

/// The registered memory.
static MEMORY: [u64; 8] = [0; 8];

impl Fixture {
    fn new() -> Self {
        // SAFETY: the objects are live, and the values belong to this function.
        unsafe {
            let list = ibv_get_device_list(null_mut());
            // The background thread drops a failed device a moment after the others.
            let start = Instant::now();
            let mut first = ibv_open_device(*list);
            while first.is_null() && errno() == libc::EIO && start.elapsed() < TIMEOUT {
                std::thread::yield_now();
                first = ibv_open_device(*list);
            }
            let contexts = [first, ibv_open_device(*list)];
            assert!(contexts.iter().all(|context| !context.is_null()), "errno {}", errno());
            ibv_free_device_list(list);
            let [context, other] = contexts;
            for context in [context, other] {
                libc::fcntl((*context).async_fd, libc::F_SETFL, libc::O_NONBLOCK);
            }
            let pd = ibv_alloc_pd(context);
            let channel = ibv_create_comp_channel(context);
            let cq = ibv_create_cq(context, 8, null_mut(), channel, 0);
            let attr = &mut ibv_cq_init_attr_ex { cqe: 8, ..Default::default() };
            assert_eq!((*context).ops.req_notify_cq.unwrap()(cq, 0), 0);
            libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK);
            let polled = verbs(context).create_cq_ex.unwrap()(context, attr);
            let cap = ibv_qp_cap { max_send_wr: 8, max_recv_wr: 8, ..Default::default() };
            let init = &mut ibv_qp_init_attr_ex {
                send_cq: cq,
                recv_cq: cq,
                qp_type: IBV_QPT_RC,
                cap,
                comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                send_ops_flags: IBV_QP_EX_WITH_SEND.into(),
                pd,
                ..Default::default()
            };
            let qp = verbs(context).create_qp_ex.unwrap()(context, init);
            let attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
            let srq = ibv_create_srq(pd, &mut ibv_srq_init_attr { attr, ..Default::default() });
            let mr = ibv_reg_mr(pd, MEMORY.as_ptr().cast_mut().cast(), 64, 0);
            let mw = (*context).ops.alloc_mw.unwrap()(pd, IBV_MW_TYPE_2);
            let dm = &mut ibv_alloc_dm_attr { length: 8, ..Default::default() };
            let dm = verbs(context).alloc_dm.unwrap()(context, dm);
            let td = verbs(context).alloc_td.unwrap()(context, &mut Default::default());
            let mut attr = ibv_ah_attr { port_num: 1, is_global: 1, ..Default::default() };
            attr.grh.dgid = ibv_gid { raw: LOOPBACK_GID };
            let ah = ibv_create_ah(pd, &mut attr);
            let made = [pd.cast::<u8>(), channel.cast(), cq.cast(), polled.cast(), qp.cast()];
            let made = made.into_iter().chain([srq.cast(), mr.cast(), mw.cast(), dm.cast()]);
            for (at, object) in made.chain([td.cast(), ah.cast()]).enumerate() {
                assert!(!object.is_null(), "object {at}: errno {}", errno());
            }
            Self { contexts, pd, channel, cq, polled, qp, srq, mr, mw, dm, td, ah, attr }
        }
    }

    /// Ends everything, and checks that each verb succeeds.
    fn end(self) {
        // SAFETY: the objects are live, and each is ended once.
        let answers = unsafe {
            let ops = &(*self.contexts[0]).ops;
            let verbs = verbs(self.contexts[0]);
            [
                ibv_destroy_ah(self.ah),
                ibv_destroy_qp(self.qp),
                ibv_destroy_srq(self.srq),
                ibv_destroy_cq(self.cq),
                ibv_destroy_cq(self.polled.cast()),
                ibv_destroy_comp_channel(self.channel),
                ops.dealloc_mw.unwrap()(self.mw),
                ibv_dereg_mr(self.mr),
                verbs.free_dm.unwrap()(self.dm),
                verbs.dealloc_td.unwrap()(self.td),
                ibv_dealloc_pd(self.pd),
                ibv_close_device(self.contexts[0]),
                ibv_close_device(self.contexts[1]),
            ]
        };
        assert_eq!(answers, [0; 13]);
    }

    /// Checks a program's view of a failed device: each context gets one event, no verb works any more, and everything
    /// can be ended.
    fn expect_failed(self, after: &str) {
        // SAFETY: the objects are live, and the values belong to this function.
        unsafe {
            for context in self.contexts {
                let event = &mut ibv_async_event::default();
                assert_eq!(ibv_get_async_event(context, event), 0, "{after}");
                assert_eq!(event.event_type, IBV_EVENT_DEVICE_FATAL, "{after}");
                ibv_ack_async_event(event);
                assert_eq!((ibv_get_async_event(context, event), errno()), (-1, libc::EAGAIN));
            }
            // A thread that waits for completions must wake.
            let (mut cq, mut cq_context) = (null_mut(), null_mut());
            assert_eq!(ibv_get_cq_event(self.channel, &mut cq, &mut cq_context), 0, "{after}");
            assert_eq!(cq, self.cq);
            ibv_ack_cq_events(cq, 1);
            let again = all_verbs();
            for (name, call) in again.into_iter().filter(|(name, _)| !is_done_always(name)) {
                assert_eq!((call(&self), errno()), (true, libc::EIO), "{name} after {after}");
            }
            let start = (*extended(self.qp)).wr_start.unwrap();
            for _ in 0..2 {
                // A begin does not wait for the end of the batch before.
                start(extended(self.qp));
            }
        }
        self.end();
    }
}

/// Whether a verb works also after the device has failed.
fn is_done_always(name: &str) -> bool {
    name.contains("destroy") || name.contains("list")
}

unsafe fn verbs<'a>(context: *mut ibv_context) -> &'a verbs_context {
    // SAFETY: the caller has it from `ibv_open_device`.
    unsafe { &*context.byte_sub(std::mem::offset_of!(verbs_context, context)).cast() }
}

fn extended(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    qp.cast()
}

/// A verb's name, and a call with valid arguments. The call returns whether the verb has failed.
type Call = (&'static str, fn(&Fixture) -> bool);

/// Verbs of each convention, and from each place where C finds verbs.
fn all_verbs() -> Vec<Call> {
    macro_rules! calls {
        ($(($name:literal, $fixture:ident => $call:expr)),+ $(,)?) => {
            // SAFETY: the objects are live, and the values belong to this function.
            vec![$(($name, #[allow(unused_unsafe)] |$fixture: &Fixture| unsafe { $call })),+]
        };
    }
    const EIO: c_int = libc::EIO;
    calls![
        ("ibv_get_device_list", _w => ibv_get_device_list(null_mut()).is_null()),
        ("ibv_open_device", w => ibv_open_device((*w.contexts[0]).device).is_null()),
        ("ibv_query_device", w => {
            let mut attr = std::mem::MaybeUninit::uninit();
            ibv_query_device(w.contexts[0], attr.as_mut_ptr()) == EIO
        }),
        ("ibv_query_port", w => ibv_query_port(w.contexts[0], 1, &mut Default::default()) == EIO),
        ("ibv_query_gid", w => ibv_query_gid(w.contexts[0], 1, 0, &mut ibv_gid { raw: [0; 16] }) == -1),
        ("ibv_query_pkey", w => ibv_query_pkey(w.contexts[0], 1, 0, &mut 0) == -1),
        ("ibv_alloc_pd", w => ibv_alloc_pd(w.contexts[0]).is_null()),
        ("ibv_create_comp_channel", w => ibv_create_comp_channel(w.contexts[0]).is_null()),
        ("ibv_create_cq", w => {
            ibv_create_cq(w.contexts[0], 1, null_mut(), null_mut(), 0).is_null()
        }),
        ("ibv_resize_cq", w => ibv_resize_cq(w.cq, 9) == EIO),
        ("ibv_create_qp", w => {
            let (send_cq, recv_cq, qp_type) = (w.cq, w.cq, IBV_QPT_RC);
            let init = ibv_qp_init_attr { send_cq, recv_cq, qp_type, ..Default::default() };
            ibv_create_qp(w.pd, &mut { init }).is_null()
        }),
        ("ibv_modify_qp", w => ibv_modify_qp(w.qp, &mut Default::default(), 0) == EIO),
        ("ibv_query_qp", w => {
            ibv_query_qp(w.qp, &mut Default::default(), 0, &mut Default::default()) == EIO
        }),
        ("ibv_query_srq", w => ibv_query_srq(w.srq, &mut Default::default()) == EIO),
        ("ibv_reg_mr", w => ibv_reg_mr(w.pd, MEMORY.as_ptr().cast_mut().cast(), 8, 0).is_null()),
        ("ibv_rereg_mr", w => ibv_rereg_mr(w.mr, 4, null_mut(), null_mut(), 0, 0) < 0),
        ("ibv_create_ah", w => ibv_create_ah(w.pd, &mut { w.attr }).is_null()),
        ("ibv_alloc_null_mr", w => verbs(w.contexts[0]).alloc_null_mr.unwrap()(w.pd).is_null()),
        ("ibv_alloc_mw", w => {
            (*w.contexts[0]).ops.alloc_mw.unwrap()(w.pd, IBV_MW_TYPE_1).is_null()
        }),
        ("ibv_bind_mw", w => {
            (*w.contexts[0]).ops.bind_mw.unwrap()(w.qp, w.mw, &mut Default::default()) == EIO
        }),
        ("ibv_post_send", w => {
            let (wr, bad) = (&mut ibv_send_wr::default(), &mut null_mut());
            let posted = (*w.contexts[0]).ops.post_send.unwrap()(w.qp, wr, bad);
            posted == EIO && *bad == &raw mut *wr
        }),
        ("ibv_post_recv", w => {
            let (wr, bad) = (&mut ibv_recv_wr::default(), &mut null_mut());
            let posted = (*w.contexts[0]).ops.post_recv.unwrap()(w.qp, wr, bad);
            posted == EIO && *bad == &raw mut *wr
        }),
        ("ibv_post_srq_recv", w => {
            let (wr, bad) = (&mut ibv_recv_wr::default(), &mut null_mut());
            let posted = (*w.contexts[0]).ops.post_srq_recv.unwrap()(w.srq, wr, bad);
            posted == EIO && *bad == &raw mut *wr
        }),
        ("ibv_post_srq_ops", w => {
            let (wr, bad) = (&mut ibv_ops_wr::default(), &mut null_mut());
            verbs(w.contexts[0]).post_srq_ops.unwrap()(w.srq, wr, bad) == EIO
        }),
        ("ibv_poll_cq", w => {
            (*w.contexts[0]).ops.poll_cq.unwrap()(w.cq, 1, &mut Default::default()) < 0
        }),
        ("ibv_start_poll", w => {
            (*w.polled).start_poll.unwrap()(w.polled, &mut Default::default()) == EIO
        }),
        ("ibv_req_notify_cq", w => {
            (*w.contexts[0]).ops.req_notify_cq.unwrap()(w.cq, 0) == EIO
        }),
        ("ibv_wr_complete", w => {
            (*extended(w.qp)).wr_complete.unwrap()(extended(w.qp)) == EIO
        }),
        ("ibv_memcpy_to_dm", w => {
            (*w.dm).memcpy_to_dm.unwrap()(w.dm, 0, MEMORY.as_ptr().cast(), 8) == EIO
        }),
        ("ibv_destroy_qp", w => ibv_destroy_qp(w.qp) == EIO),
        ("ibv_destroy_cq", w => ibv_destroy_cq(w.polled.cast()) == EIO),
        ("a provider's command", _w => private::ibv_cmd_alloc_pd() == EIO),
    ]
}

/// After a panic in a verb, the program gets an error and goes on. It can end all its objects, and even begin again.
/// Rules: AE-09
#[test]
fn a_panic_in_any_verb_is_an_error_of_the_device() {
    alone("a_panic_in_any_verb_is_an_error_of_the_device", || {
        for (name, call) in all_verbs() {
            let fixture = Fixture::new();
            WANTED.set(true);
            assert!(call(&fixture), "{name}");
            assert_eq!(errno(), libc::EIO, "{name}");
            fixture.expect_failed(name);
        }
        Fixture::new().end();
    });
}

/// A panic releases the lock of a queue that is being polled, a turn at polling, and an open batch.
/// Rules: AE-09
#[test]
fn a_panic_leaves_nothing_locked() {
    alone("a_panic_leaves_nothing_locked", || {
        let fixture = Fixture::new();
        // SAFETY: the objects are live, and the values belong to this function.
        unsafe {
            let mut attr =
                ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 1, ..Default::default() };
            let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            assert_eq!(ibv_modify_qp(fixture.qp, &mut attr, init as c_int), 0);
            let wr = &mut ibv_recv_wr::default();
            let post = (*fixture.contexts[0]).ops.post_recv.unwrap();
            assert_eq!(post(fixture.qp, wr, &mut null_mut()), 0);
            attr.qp_state = IBV_QPS_ERR;
            assert_eq!(ibv_modify_qp(fixture.qp, &mut attr, IBV_QP_STATE as c_int), 0);
            let qp = extended(fixture.qp);
            (*qp).wr_start.unwrap()(qp);
            // It panics on the completion of the flushed receive.
            let queue = cq::of(fixture.cq).expect("it is live");
            let polled = guarded("ibv_poll_cq", || {
                let _turn = queue.poller.begin();
                queue.adapter.poll(&queue.cq, 1, |_, _| panic!("a test wants it"));
                Ok(())
            });
            assert_eq!(polled, Err(libc::EIO));
            assert_eq!((*qp).wr_complete.unwrap()(qp), libc::EIO);
        }
        fixture.expect_failed("a panic with locks held");
    });
}

/// Functions that C calls without a guard. They only read their arguments, or return a constant.
const BY_THEMSELVES: [&str; 16] = [
    "ibv_free_device_list",
    "ibv_get_device_name",
    "ibv_get_device_guid",
    "ibv_get_device_index",
    "ibv_get_sysfs_path",
    "ibv_query_port",
    "ibv_query_qp_data_in_order",
    "ibv_reg_buf_mr",
    "ibv_wr_opcode_str",
    "ibv_register_driver",
    "verbs_open_device",
    "__ioctl_final_num_attrs",
    "end_poll",
    "read_tm_info",
    "transom_rdma_cm_own_work",
    "transom_rdma_cm_why",
];

/// Every function that C calls goes through a guard, or is known to need none.
#[test]
fn every_verb_comes_in_by_a_guard() {
    const WAYS: [&str; 14] = [
        "guarded(",
        "guarded_always(",
        "errno_of(",
        "errno_always(",
        "pointer_of(",
        "pointer_always(",
        "number_of(",
        "number_always(",
        "effect_always(",
        "build(",
        "on_value(",
        "read(\"ibv_read",
        "register_ex(",
        "arm_by(",
    ];
    // Functions in these files only read their arguments. Those in the last files, for checked, audited, rehearsed
    // and sanitized processes and for the system, report a call and pass it on to the function with the guard.
    const FILES: [&str; 10] = [
        "strings.rs",
        "marshal.rs",
        "fork.rs",
        "tests.rs",
        "check.rs",
        "checked.rs",
        "checked_ex.rs",
        "exposure.rs",
        "rehearsed.rs",
        "watched.rs",
    ];
    let (mut files, mut seen) = (Vec::new(), 0);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    list(&source, &mut files);
    // The check has a guard of its own, in `Checker::tell`, and so has the account, in `Auditor::tell`: a panic ends
    // them and not the call.
    let guarded = ["check", "exposure"].map(|folder| source.join(folder));
    let is_exempt = |file: &Path| {
        guarded.iter().any(|folder| file.starts_with(folder))
            || FILES.iter().any(|name| file.ends_with(name))
    };
    for file in files.iter().filter(|file| !is_exempt(file)) {
        let text = fs::read_to_string(file).expect("a source file");
        for part in text.split("extern \"C").skip(1) {
            let Some(after) = part.trim_start_matches("-unwind").strip_prefix("\" fn ") else {
                continue;
            };
            let name = after.split(['(', '<']).next().expect("a name");
            let body = after.split("\n}\n").next().expect("a body");
            let known = BY_THEMSELVES.contains(&name) || name.starts_with('$');
            seen += 1;
            let guarded = known || WAYS.iter().any(|way| body.contains(way));
            assert!(guarded, "{name} in {}", file.display());
        }
    }
    assert!(seen > 100, "only {seen} functions are seen");
}

fn list(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
}
