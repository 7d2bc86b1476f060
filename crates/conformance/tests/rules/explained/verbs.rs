//! No verb answers an errno without a sentence: each of them is called wrongly, and what is told of it is looked for.
//! Which there are, the sources say: one that is new must be here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::ptr::{null, null_mut};

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::processes::{Way, alone};
use transom_ibverbs::*;
use transom_system::registry::Registry;

/// A verb, and a call that it refuses.
pub(super) type Refused = (&'static str, Box<dyn Fn()>);

/// Declares calls of exported verbs with these arguments.
macro_rules! calls {
    ($($name:ident($($argument:expr),*);)+) => {
        vec![$((
            stringify!($name),
            Box::new(|| {
                // Not all of them are unsafe.
                #[allow(unused_unsafe)]
                // SAFETY: every verb refuses null.
                let _ = unsafe { $name($($argument),*) };
            }) as Box<dyn Fn()>,
        )),+]
    };
}

fn exported() -> Vec<Refused> {
    calls! {
        _ibv_query_comp_cntr_caps(null_mut(), null_mut(), 0);
        _ibv_query_gid_ex(null_mut(), 1, 0, null_mut(), 0, 0);
        _ibv_query_gid_table(null_mut(), null_mut(), 0, 0, 0);
        ibv_alloc_buf(null_mut(), 8, null_mut());
        ibv_alloc_dmah(null_mut(), null_mut());
        ibv_alloc_pd(null_mut());
        ibv_attach_mcast(null_mut(), null(), 0);
        ibv_close_device(null_mut());
        ibv_create_ah(null_mut(), null_mut());
        ibv_create_ah_from_wc(null_mut(), null_mut(), null_mut(), 1);
        ibv_create_comp_channel(null_mut());
        ibv_create_comp_cntr(null_mut(), null_mut());
        ibv_create_cq(null_mut(), 1, null_mut(), null_mut(), 0);
        ibv_create_qp(null_mut(), null_mut());
        ibv_create_srq(null_mut(), null_mut());
        ibv_dealloc_dmah(null_mut());
        ibv_dealloc_pd(null_mut());
        ibv_dereg_mr(null_mut());
        ibv_destroy_ah(null_mut());
        ibv_destroy_comp_channel(null_mut());
        ibv_destroy_comp_cntr(null_mut());
        ibv_destroy_cq(null_mut());
        ibv_destroy_qp(null_mut());
        ibv_destroy_srq(null_mut());
        ibv_detach_mcast(null_mut(), null(), 0);
        ibv_dm_export_dmabuf_fd(null_mut());
        ibv_export_buf_dmabuf_fd(null_mut());
        ibv_get_async_event(null_mut(), null_mut());
        ibv_get_cq_event(null_mut(), null_mut(), null_mut());
        ibv_get_device_guid(null_mut());
        ibv_get_device_index(null_mut());
        ibv_get_device_name(null_mut());
        ibv_get_pkey_index(null_mut(), 1, 0);
        ibv_import_device(-1);
        ibv_import_dm(null_mut(), 0);
        ibv_import_mr(null_mut(), 0);
        ibv_import_pd(null_mut(), 0);
        ibv_inc_comp_cntr(null_mut(), 1);
        ibv_inc_err_comp_cntr(null_mut(), 1);
        ibv_init_ah_from_wc(null_mut(), 1, null_mut(), null_mut(), null_mut());
        ibv_modify_qp(null_mut(), null_mut(), 0);
        ibv_modify_srq(null_mut(), null_mut(), 0);
        ibv_open_device(null_mut());
        ibv_qp_attach_comp_cntr(null_mut(), null_mut(), null_mut());
        ibv_qp_to_qp_ex(null_mut());
        ibv_query_device(null_mut(), null_mut());
        ibv_query_ece(null_mut(), null_mut());
        ibv_query_gid(null_mut(), 1, 0, null_mut());
        ibv_query_gid_type(null_mut(), 1, 0, null_mut());
        ibv_query_pkey(null_mut(), 1, 0, null_mut());
        ibv_query_port(null_mut(), 1, null_mut());
        ibv_query_port_speed(null_mut(), 1, null_mut());
        ibv_query_qp(null_mut(), null_mut(), 0, null_mut());
        ibv_query_srq(null_mut(), null_mut());
        ibv_read_comp_cntr(null_mut(), null_mut());
        ibv_read_err_comp_cntr(null_mut(), null_mut());
        ibv_read_sysfs_file(null(), null(), null_mut(), 0);
        ibv_reg_buf_mr(null_mut(), null_mut(), null_mut(), 0, 0);
        ibv_reg_dmabuf_mr(null_mut(), 0, 0, 0, -1, 0);
        ibv_reg_mr(null_mut(), null_mut(), 0, 0);
        ibv_reg_mr_ex(null_mut(), null());
        ibv_reg_mr_iova(null_mut(), null_mut(), 0, 0, 0);
        ibv_reg_mr_iova2(null_mut(), null_mut(), 0, 0, 0);
        ibv_rereg_mr(null_mut(), 0, null_mut(), null_mut(), 0, 0);
        ibv_resize_cq(null_mut(), 1);
        ibv_resolve_eth_l2_from_gid(null_mut(), null_mut(), null_mut(), null_mut());
        ibv_set_comp_cntr(null_mut(), 0);
        ibv_set_ece(null_mut(), null_mut());
        ibv_set_err_comp_cntr(null_mut(), 0);
    }
}

/// Exported functions that answer no errno, or none but for want of memory.
const WITHOUT: &[&str] = &[
    "ibv_ack_async_event",
    "ibv_ack_cq_events",
    "ibv_copy_ah_attr_from_kern",
    "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern",
    "ibv_dofork_range",
    "ibv_dontfork_range",
    "ibv_event_type_str",
    "ibv_fork_init",
    "ibv_free_buf",
    "ibv_free_device_list",
    "ibv_get_device_list",
    "ibv_get_sysfs_path",
    "ibv_is_fork_initialized",
    "ibv_node_type_str",
    "ibv_port_state_str",
    "ibv_query_qp_data_in_order",
    "ibv_rate_to_mbps",
    "ibv_rate_to_mult",
    "ibv_unimport_dm",
    "ibv_unimport_mr",
    "ibv_unimport_pd",
    "ibv_wc_status_str",
    "mbps_to_ibv_rate",
    "mult_to_ibv_rate",
];

/// Declares calls of a context's operations: the field, the verb, the arguments.
macro_rules! operations {
    ($context:ident: $($field:ident = $name:literal($($argument:expr),*);)+) => {
        vec![$((
            concat!(stringify!($field), " ", $name),
            Box::new(move || {
                let operation = $context.$field.expect("it is there");
                // SAFETY: every verb refuses null.
                let _ = unsafe { operation($($argument),*) };
            }) as Box<dyn Fn()>,
        )),+]
    };
}

fn operations(context: *mut ibv_context) -> Vec<Refused> {
    // SAFETY: an open context.
    let plain = unsafe { (*context).ops };
    let mut all: Vec<Refused> = operations! { plain:
        alloc_mw = "ibv_alloc_mw"(null_mut(), IBV_MW_TYPE_1);
        bind_mw = "ibv_bind_mw"(null_mut(), null_mut(), null_mut());
        dealloc_mw = "ibv_dealloc_mw"(null_mut());
        poll_cq = "ibv_poll_cq"(null_mut(), 1, null_mut());
        req_notify_cq = "ibv_req_notify_cq"(null_mut(), 0);
        post_srq_recv = "ibv_post_srq_recv"(null_mut(), null_mut(), null_mut());
        post_send = "ibv_post_send"(null_mut(), null_mut(), null_mut());
        post_recv = "ibv_post_recv"(null_mut(), null_mut(), null_mut());
    };
    let verbs = verbs(context);
    all.extend(operations! { verbs:
        query_port = "ibv_query_port"(null_mut(), 1, null_mut(), 0);
        advise_mr = "ibv_advise_mr"(null_mut(), 0, 0, null_mut(), 0);
        alloc_null_mr = "ibv_alloc_null_mr"(null_mut());
        reg_dm_mr = "ibv_reg_dm_mr"(null_mut(), null_mut(), 0, 0, 0);
        alloc_dm = "ibv_alloc_dm"(null_mut(), null_mut());
        free_dm = "ibv_free_dm"(null_mut());
        alloc_parent_domain = "ibv_alloc_parent_domain"(null_mut(), null_mut());
        dealloc_td = "ibv_dealloc_td"(null_mut());
        alloc_td = "ibv_alloc_td"(null_mut(), null_mut());
        create_srq_ex = "ibv_create_srq_ex"(null_mut(), null_mut());
        get_srq_num = "ibv_get_srq_num"(null_mut(), null_mut());
        post_srq_ops = "ibv_post_srq_ops"(null_mut(), &mut ibv_ops_wr::default(), null_mut());
        open_xrcd = "ibv_open_xrcd"(null_mut(), null_mut());
        close_xrcd = "ibv_close_xrcd"(null_mut());
        open_qp = "ibv_open_qp"(null_mut(), null_mut());
        create_qp_ex = "ibv_create_qp_ex"(null_mut(), null_mut());
        query_device_ex = "ibv_query_device_ex"(null_mut(), null(), null_mut(), 0);
        query_rt_values = "ibv_query_rt_values"(null_mut(), null_mut());
        create_cq_ex = "ibv_create_cq_ex"(null_mut(), null_mut());
        modify_cq = "ibv_modify_cq"(null_mut(), null_mut());
    });
    all
}

/// The text of a source of this workspace.
pub(super) fn source(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// What of it stands between two marks.
fn between(file: &str, begin: &str, end: &str) -> String {
    let text = source(file);
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{file} has no {begin}"));
    rest.split_once(end).unwrap_or_else(|| panic!("{file} has no {end}")).0.to_owned()
}

/// Asserts that each is told of under its name.
pub(super) fn each_is_told_of(slot: u8, calls: &[Refused]) {
    let registry = Registry::open().expect("the registry");
    for (name, call) in calls {
        let verb = name.rsplit(' ').next().expect("a name");
        call();
        let told = registry.refused_calls(slot);
        let found = told.iter().rev().find(|record| record.call.verb.to_string() == verb);
        let found = found.unwrap_or_else(|| panic!("{verb} tells nothing: {told:#?}"));
        let sentence = found.call.to_string();
        let errno = found.call.errno_name();
        assert!(found.call.errno > 0 && !errno.starts_with("errno"), "{sentence}");
        // A program may call it by a macro of another name.
        let called = match verb {
            "ibv_reg_mr_iova2" => "ibv_reg_mr",
            verb => verb.trim_start_matches('_'),
        };
        assert!(sentence.starts_with(&format!("{called} answered {errno}")), "{sentence}");
    }
}

/// Rules: EX-04
#[test]
fn every_verb_that_is_refused_is_told_of() {
    fn every_verb() {
        let listed = between("crates/libibverbs/src/lib.rs", "export! {", "}");
        // One has always been among the private symbols.
        let listed = listed.split_whitespace().chain(["ibv_query_gid_type"]);
        // What librdmacm asks is told under the names of its own functions.
        let listed = listed.filter(|name| !name.starts_with("transom_rdma_cm_"));
        let listed: BTreeSet<&str> = listed.collect();
        let exported = exported();
        let known = exported.iter().map(|(name, _)| *name).chain(WITHOUT.iter().copied());
        assert_eq!(known.collect::<BTreeSet<_>>(), listed);

        let end = End::new(Default::default());
        let slot = transom_device::qp::QpNumber::from_bits(transom_conformance::queues::number(
            end.qp(IBV_QPT_RC),
        ))
        .slot();
        let operations = operations(end.context);
        let fields =
            between("crates/ibverbs/src/operations.rs", "pub(crate) fn operations(", "\n}\n");
        let fields = fields.split(',').filter_map(|part| part.trim().split_once(": Some("));
        let fields: BTreeSet<_> = fields
            .map(|(field, _)| field.rsplit([' ', '\n', '{']).next().expect("a name").to_owned())
            .collect();
        let called = operations.iter().map(|(name, _)| name.split(' ').next().expect("a name"));
        assert_eq!(called.map(str::to_owned).collect::<BTreeSet<_>>(), fields);

        each_is_told_of(slot, &exported);
        each_is_told_of(slot, &operations);
    }
    alone(
        transom_conformance::path_of!("every_verb_that_is_refused_is_told_of"),
        Way::Direct,
        every_verb,
    );
}

/// Who begins no batch, and what is wrong with one.
/// Rules: EX-04, PS-14
#[test]
fn a_batch_that_is_not_posted_is_told_of() {
    use transom_conformance::explained::explained;
    use transom_conformance::queues::number;
    let end = End::new(Default::default());
    let cap = ibv_qp_cap { max_send_wr: 2, max_inline_data: 16, ..end.init(IBV_QPT_RC).cap };
    let mut init = ibv_qp_init_attr_ex {
        send_cq: end.cq,
        recv_cq: end.cq,
        cap,
        qp_type: IBV_QPT_RC,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: end.pd,
        send_ops_flags: IBV_QP_EX_WITH_SEND.into(),
        ..Default::default()
    };
    let create = verbs(end.context).create_qp_ex.expect("it is there");
    // SAFETY: live objects.
    let qp = unsafe { create(end.context, &mut init) };
    assert!(!qp.is_null());
    let inline = u64::from(init.cap.max_inline_data);
    connect(qp, end.qp(IBV_QPT_RC));
    // SAFETY: a live queue pair that was created for it.
    let extended = unsafe { ibv_qp_to_qp_ex(qp) };
    let complete = |build: &dyn Fn(&ibv_qp_ex)| {
        // SAFETY: as above.
        unsafe {
            let it = &*extended;
            it.wr_start.expect("there")(extended);
            build(it);
            it.wr_complete.expect("there")(extended)
        }
    };
    let told = |words: &str| {
        let told = explained(number(qp), 0);
        let last = told.last().expect("it is told");
        assert!(last.starts_with("ibv_wr_complete on QP ") && last.contains(words), "{last}");
    };
    // SAFETY: as above, of the same thread.
    unsafe {
        assert_eq!(complete(&|it| it.wr_rdma_read.expect("there")(extended, 1, 1)), libc::EINVAL);
        told("was created without IBV_QP_EX_WITH_RDMA_READ in its send_ops_flags");
        let long = vec![0_u8; inline as usize + 1];
        let send_long = |it: &ibv_qp_ex| {
            it.wr_send.expect("there")(extended);
            it.wr_set_inline_data.expect("there")(
                extended,
                long.as_ptr().cast_mut().cast(),
                long.len(),
            );
        };
        assert_eq!(complete(&send_long), libc::EINVAL);
        told(&format!("the inline length is {}, and may be at most {inline}", inline + 1));
        let many = |it: &ibv_qp_ex| {
            for _ in 0..=init.cap.max_send_wr {
                it.wr_send.expect("there")(extended);
            }
        };
        assert_eq!(complete(&many), libc::ENOMEM);
        told("the length of the batch is ");
    }
}
