//! What `<rdma/rdma_user_cm.h>` gives.

layouts! {
    rdma_ucm_cmd_hdr = "struct rdma_ucm_cmd_hdr" {
        cmd, in_ => "in", out,
    }
    rdma_ucm_create_id = "struct rdma_ucm_create_id" {
        uid, response, ps, qp_type, reserved,
    }
    rdma_ucm_create_id_resp = "struct rdma_ucm_create_id_resp" {
        id,
    }
    rdma_ucm_destroy_id = "struct rdma_ucm_destroy_id" {
        response, id, reserved,
    }
    rdma_ucm_destroy_id_resp = "struct rdma_ucm_destroy_id_resp" {
        events_reported,
    }
    rdma_ucm_bind_ip = "struct rdma_ucm_bind_ip" {
        response, addr, id,
    }
    rdma_ucm_bind = "struct rdma_ucm_bind" {
        id, addr_size, reserved, addr,
    }
    rdma_ucm_resolve_ip = "struct rdma_ucm_resolve_ip" {
        src_addr, dst_addr, id, timeout_ms,
    }
    rdma_ucm_resolve_addr = "struct rdma_ucm_resolve_addr" {
        id, timeout_ms, src_size, dst_size, reserved, src_addr, dst_addr,
    }
    rdma_ucm_resolve_route = "struct rdma_ucm_resolve_route" {
        id, timeout_ms,
    }
    rdma_ucm_query = "struct rdma_ucm_query" {
        response, id, option,
    }
    rdma_ucm_query_route_resp = "struct rdma_ucm_query_route_resp" {
        node_guid, ib_route, src_addr, dst_addr, num_paths, port_num, reserved, ibdev_index,
        reserved1,
    }
    rdma_ucm_query_addr_resp = "struct rdma_ucm_query_addr_resp" {
        node_guid, port_num, reserved, pkey, src_size, dst_size, src_addr, dst_addr, ibdev_index,
        reserved1,
    }
    rdma_ucm_query_path_resp = "struct rdma_ucm_query_path_resp" {
        num_paths, reserved,
    }
    rdma_ucm_conn_param = "struct rdma_ucm_conn_param" {
        qp_num, qkey, private_data, private_data_len, srq, responder_resources, initiator_depth,
        flow_control, retry_count, rnr_retry_count, valid,
    }
    rdma_ucm_ud_param = "struct rdma_ucm_ud_param" {
        qp_num, qkey, ah_attr, private_data, private_data_len, reserved,
    }
    rdma_ucm_ece = "struct rdma_ucm_ece" {
        vendor_id, attr_mod,
    }
    rdma_ucm_connect = "struct rdma_ucm_connect" {
        conn_param, id, reserved, ece,
    }
    rdma_ucm_listen = "struct rdma_ucm_listen" {
        id, backlog,
    }
    rdma_ucm_accept = "struct rdma_ucm_accept" {
        uid, conn_param, id, reserved, ece,
    }
    rdma_ucm_reject = "struct rdma_ucm_reject" {
        id, private_data_len, reason, reserved, private_data,
    }
    rdma_ucm_disconnect = "struct rdma_ucm_disconnect" {
        id,
    }
    rdma_ucm_init_qp_attr = "struct rdma_ucm_init_qp_attr" {
        response, id, qp_state,
    }
    rdma_ucm_notify = "struct rdma_ucm_notify" {
        id, event,
    }
    rdma_ucm_join_ip_mcast = "struct rdma_ucm_join_ip_mcast" {
        response, uid, addr, id,
    }
    rdma_ucm_join_mcast = "struct rdma_ucm_join_mcast" {
        response, uid, id, addr_size, join_flags, addr,
    }
    rdma_ucm_get_event = "struct rdma_ucm_get_event" {
        response,
    }
    rdma_ucm_event_resp = "struct rdma_ucm_event_resp" {
        uid, id, event, status, param, reserved, ece,
    }
    rdma_ucm_set_option = "struct rdma_ucm_set_option" {
        optval, id, level, optname, optlen,
    }
    rdma_ucm_migrate_id = "struct rdma_ucm_migrate_id" {
        response, id, fd,
    }
    rdma_ucm_migrate_resp = "struct rdma_ucm_migrate_resp" {
        events_reported,
    }
    ib_uverbs_global_route = "struct ib_uverbs_global_route" {
        dgid, flow_label, sgid_index, hop_limit, traffic_class, reserved,
    }
    ib_uverbs_ah_attr = "struct ib_uverbs_ah_attr" {
        grh, dlid, sl, src_path_bits, static_rate, is_global, port_num, reserved,
    }
    ib_uverbs_qp_attr = "struct ib_uverbs_qp_attr" {
        qp_attr_mask, qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn,
        dest_qp_num, qp_access_flags, ah_attr, alt_ah_attr, max_send_wr, max_recv_wr, max_send_sge,
        max_recv_sge, max_inline_data, pkey_index, alt_pkey_index, en_sqd_async_notify,
        sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout,
        retry_cnt, rnr_retry, alt_port_num, alt_timeout, reserved,
    }
    ib_user_path_rec = "struct ib_user_path_rec" {
        dgid, sgid, dlid, slid, raw_traffic, flow_label, reversible, mtu, pkey, hop_limit,
        traffic_class, numb_path, sl, mtu_selector, rate_selector, rate, packet_life_time_selector,
        packet_life_time, preference,
    }
    ib_path_rec_data = "struct ib_path_rec_data" {
        flags, reserved, path_rec,
    }
    rdma_ucm_event_param = "__typeof__(((struct rdma_ucm_event_resp *)0)->param)" {
        conn, ud,
    }
}

constants! {
    RDMA_MAX_PRIVATE_DATA, RDMA_USER_CM_ABI_VERSION, RDMA_USER_CM_CMD_ACCEPT,
    RDMA_USER_CM_CMD_BIND, RDMA_USER_CM_CMD_BIND_IP, RDMA_USER_CM_CMD_CONNECT,
    RDMA_USER_CM_CMD_CREATE_ID, RDMA_USER_CM_CMD_DESTROY_ID, RDMA_USER_CM_CMD_DISCONNECT,
    RDMA_USER_CM_CMD_GET_EVENT, RDMA_USER_CM_CMD_GET_OPTION, RDMA_USER_CM_CMD_INIT_QP_ATTR,
    RDMA_USER_CM_CMD_JOIN_IP_MCAST, RDMA_USER_CM_CMD_JOIN_MCAST, RDMA_USER_CM_CMD_LEAVE_MCAST,
    RDMA_USER_CM_CMD_LISTEN, RDMA_USER_CM_CMD_MIGRATE_ID, RDMA_USER_CM_CMD_NOTIFY,
    RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_CMD_QUERY_ROUTE, RDMA_USER_CM_CMD_REJECT,
    RDMA_USER_CM_CMD_RESOLVE_ADDR, RDMA_USER_CM_CMD_RESOLVE_IP, RDMA_USER_CM_CMD_RESOLVE_ROUTE,
    RDMA_USER_CM_CMD_SET_OPTION, RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_GID,
    RDMA_USER_CM_QUERY_PATH,
}
