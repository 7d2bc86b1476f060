//! What `<rdma/rdma_cma.h>` and `<rdma/rsocket.h>` give.

layouts! {
    rdma_ib_addr = "struct rdma_ib_addr" {
        sgid, dgid, pkey,
    }
    rdma_addr = "struct rdma_addr" {

        src.src_addr => "src_addr", src.src_sin => "src_sin", src.src_sin6 => "src_sin6", src.src_storage => "src_storage",
        dst.dst_addr => "dst_addr", dst.dst_sin => "dst_sin", dst.dst_sin6 => "dst_sin6", dst.dst_storage => "dst_storage",
        addr,
    }
    rdma_route = "struct rdma_route" {
        addr, path_rec, num_paths,
    }
    rdma_event_channel = "struct rdma_event_channel" {
        fd,
    }
    rdma_cm_id = "struct rdma_cm_id" {
        verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
        recv_cq_channel, recv_cq, srq, pd, qp_type,
    }
    rdma_conn_param = "struct rdma_conn_param" {
        private_data, private_data_len, responder_resources, initiator_depth, flow_control,
        retry_count, rnr_retry_count, srq, qp_num,
    }
    rdma_ud_param = "struct rdma_ud_param" {
        private_data, private_data_len, ah_attr, qp_num, qkey,
    }
    rdma_cm_event = "struct rdma_cm_event" {
        id, listen_id, event, status, param,
    }
    rdma_addrinfo = "struct rdma_addrinfo" {
        ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr,
        ai_dst_addr, ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route, ai_connect_len,
        ai_connect, ai_next,
    }
    rdma_cm_join_mc_attr_ex = "struct rdma_cm_join_mc_attr_ex" {
        comp_mask, join_flags, addr,
    }
    ibv_sa_path_rec = "struct ibv_sa_path_rec" {
        dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible,
        numb_path, pkey, sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector,
        packet_life_time, preference,
    }
    ibv_path_record = "struct ibv_path_record" {
        service_id, dgid, sgid, dlid, slid, flowlabel_hoplimit, tclass, reversible_numpath, pkey,
        qosclass_sl, mtu, rate, packetlifetime, preference, reserved,
    }
    ibv_path_data = "struct ibv_path_data" {
        flags, reserved, path,
    }
    rdma_addr_addr = "__typeof__(((struct rdma_addr *)0)->addr)" {
        ibaddr,
    }
    rdma_cm_event_param = "__typeof__(((struct rdma_cm_event *)0)->param)" {
        conn, ud,
    }
    sockaddr = "struct sockaddr" {
        sa_family, sa_data,
    }
    sockaddr_in = "struct sockaddr_in" {
        sin_family, sin_port, sin_addr, sin_zero,
    }
    sockaddr_in6 = "struct sockaddr_in6" {
        sin6_family, sin6_port, sin6_flowinfo, sin6_addr, sin6_scope_id,
    }
    sockaddr_storage = "struct sockaddr_storage" {
        ss_family,
    }
}

enums! {
    rdma_cm_event_type, rdma_cm_join_mc_attr_mask, rdma_cm_mc_join_flags, rdma_port_space,
}

constants! {
    IBV_PATH_FLAG_ALTERNATE, IBV_PATH_FLAG_BIDIRECTIONAL, IBV_PATH_FLAG_GMP, IBV_PATH_FLAG_INBOUND,
    IBV_PATH_FLAG_INBOUND_REVERSE, IBV_PATH_FLAG_OUTBOUND, IBV_PATH_FLAG_PRIMARY,
    IBV_PATH_RECORD_REVERSIBLE, RAI_FAMILY, RAI_NOROUTE, RAI_NUMERICHOST, RAI_PASSIVE,
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_TIMEWAIT_EXIT,
    RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
    RDMA_CM_JOIN_MC_ATTR_RESERVED, RDMA_IB_IP_PORT_MASK, RDMA_IB_IP_PS_MASK, RDMA_IB_IP_PS_TCP,
    RDMA_IB_IP_PS_UDP, RDMA_IB_PS_IB, RDMA_INLINE, RDMA_IOMAPSIZE, RDMA_MAX_INIT_DEPTH,
    RDMA_MAX_RESP_RES, RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_RESERVED,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID,
    RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_ROUTE,
    RDMA_RQSIZE, RDMA_SQSIZE, RDMA_UDP_QKEY, SOL_RDMA,
}
