//! The functions of librdmacm over the software device.

use transom_rdmacm::{CheckCalls, ExplainCalls, FileCalls, Provider, Source, Verbs};

/// The linked verbs, and the connection manager of their device.
pub(super) enum Linked {}

impl Source for Linked {
    fn provider() -> Result<&'static Provider, &'static str> {
        static PROVIDER: Provider = Provider::new(VERBS, CONNECTION_MANAGER);
        Ok(&PROVIDER)
    }
}

const CONNECTION_MANAGER: FileCalls = FileCalls {
    open: transom_ibverbs::transom_rdma_cm_open,
    write: transom_ibverbs::transom_rdma_cm_write,
    close: transom_ibverbs::transom_rdma_cm_close,
    explain: Some(ExplainCalls {
        why: transom_ibverbs::transom_rdma_cm_why,
        refused: transom_ibverbs::transom_rdma_cm_refused,
    }),
    check: Some(CheckCalls {
        watched: transom_ibverbs::transom_rdma_cm_watched,
        id_made: transom_ibverbs::transom_rdma_cm_id_made,
        id_ended: transom_ibverbs::transom_rdma_cm_id_ended,
        event_got: transom_ibverbs::transom_rdma_cm_event_got,
        event_acked: transom_ibverbs::transom_rdma_cm_event_acked,
        event_freed: transom_ibverbs::transom_rdma_cm_event_freed,
        used: transom_ibverbs::transom_rdma_cm_used,
        given: transom_ibverbs::transom_rdma_cm_given,
        waits: transom_ibverbs::transom_rdma_cm_waits,
        own_work: transom_ibverbs::transom_rdma_cm_own_work,
    }),
};

/// The linked verbs, in the form that librdmacm's functions need.
const VERBS: Verbs = {
    macro_rules! linked {
        ($($name:ident)*) => { Verbs { $($name: transom_ibverbs::$name,)* } };
    }
    linked! {
        ibv_get_device_list ibv_free_device_list ibv_get_device_guid ibv_get_device_index
        ibv_open_device ibv_query_device ibv_alloc_pd ibv_dealloc_pd ibv_create_comp_channel
        ibv_destroy_comp_channel ibv_create_cq ibv_destroy_cq ibv_create_srq ibv_destroy_srq
        ibv_create_qp ibv_modify_qp ibv_destroy_qp ibv_attach_mcast ibv_detach_mcast ibv_query_ece
        ibv_set_ece ibv_reg_mr ibv_dereg_mr ibv_create_ah ibv_destroy_ah ibv_get_cq_event
        ibv_ack_cq_events ibv_query_gid
    }
};
