/*
 * Connections as a C program makes them by <rdma/rdma_cma.h>: what librdmacm does on its own, between
 * the program and the commands. One process is both ends, over 127.0.0.1 and ::1.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "cm.h"
#include "descriptors.h"

static enum ibv_qp_state state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* Rules: CM-03, CM-09, CM-32, CM-34, CM-53 */
static void connection(int family)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.private_data = "asks", .private_data_len = 4};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct sockaddr_storage address;
	struct rdma_cm_id *listen, *active, *passive;
	struct rdma_cm_event *event;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	char bytes[32] = "";

	CHECK(channel);
	listen = listener(channel, family, RDMA_PS_TCP, &address);
	active = resolved(channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(active, NULL, &attr));
	CHECK(state(active->qp) == IBV_QPS_INIT && active->pd && active->send_cq && active->recv_cq);
	CHECK(rdma_create_qp(active, NULL, &attr) && errno == EINVAL);
	param.responder_resources = param.initiator_depth = RDMA_MAX_RESP_RES;
	param.retry_count = param.rnr_retry_count = 7;
	CHECK(!rdma_connect(active, &param));

	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	CHECK(event->listen_id == listen && passive->context == (void *)7);
	CHECK(event->param.conn.private_data_len == 56);
	CHECK(!memcmp(event->param.conn.private_data, "asks", 5));
	CHECK(event->param.conn.qp_num == active->qp->qp_num);
	CHECK(passive->verbs == active->verbs && passive->port_num == 1);
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(passive, NULL, &attr));
	mr = rdma_reg_msgs(passive, bytes, sizeof(bytes));
	CHECK(mr && !rdma_post_recv(passive, NULL, bytes, 16, mr));
	CHECK(!rdma_accept(passive, NULL));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(state(passive->qp) == IBV_QPS_RTS && state(active->qp) == IBV_QPS_INIT);

	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(state(active->qp) == IBV_QPS_RTS);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	strcpy(bytes + 16, "over");
	CHECK(!rdma_post_send(active, NULL, bytes + 16, 16, mr, 0));
	CHECK(rdma_get_send_comp(active, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(passive, &wc) == 1 && !strcmp(bytes, "over"));

	CHECK(!rdma_post_recv(passive, NULL, bytes, 16, mr));
	CHECK(!rdma_disconnect(active) && state(active->qp) == IBV_QPS_ERR);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(passive) && state(passive->qp) == IBV_QPS_ERR);
	CHECK(rdma_get_recv_comp(passive, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_dereg_mr(mr));
	rdma_destroy_qp(passive);
	CHECK(!passive->qp && !passive->recv_cq && !passive->recv_cq_channel);
	rdma_destroy_ep(active);
	CHECK(!rdma_destroy_id(passive) && !rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown(family == AF_INET ? "a connection over IPv4" : "a connection over IPv6");
}

/* Rules: CM-07, CM-33, CM-53, CM-54 */
static void refused(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct sockaddr_storage address;
	struct rdma_cm_id *listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	struct rdma_cm_id *active = resolved(channel, RDMA_PS_TCP, &address);
	struct rdma_conn_param param = {.responder_resources = 254};
	struct rdma_cm_event *event;
	char bytes[64] = "";

	CHECK(rdma_connect(active, NULL) && errno == EINVAL);
	CHECK(rdma_connect(active, &param) && errno == EINVAL);
	param.responder_resources = 1;
	CHECK(!rdma_create_qp(active, NULL, &attr));
	param.private_data = bytes;
	param.private_data_len = 57;
	CHECK(rdma_connect(active, &param) && errno == EINVAL);
	/* Without a pointer there are no data, whatever their length is said to be. */
	param.private_data = NULL;
	CHECK(!rdma_connect(active, &param));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->param.conn.private_data_len == 56);
	CHECK(!memcmp(event->param.conn.private_data, bytes, 56));
	CHECK(!rdma_reject(event->id, "no", 2) && !rdma_destroy_id(event->id));
	CHECK(!rdma_ack_cm_event(event));
	event = next(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == active && event->status == 28);
	CHECK(event->param.conn.private_data_len == 148);
	CHECK(!memcmp(event->param.conn.private_data, "no", 3));
	CHECK(state(active->qp) == IBV_QPS_ERR);
	CHECK(!rdma_ack_cm_event(event));
	rdma_destroy_qp(active);
	CHECK(!rdma_destroy_id(active) && !rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("a refusal has its reason and data, and the queue pair is in error");
}

/* Rules: CM-03, CM-34, CM-53 */
static void own_queue_pairs(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage address;
	struct rdma_cm_id *listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	struct rdma_cm_id *active = resolved(channel, RDMA_PS_TCP, &address);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct ibv_pd *pd = ibv_alloc_pd(active->verbs);
	struct ibv_cq *cq = ibv_create_cq(active->verbs, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = small(IBV_QPT_RC);
	struct rdma_cm_id *ids[2] = {active};
	struct rdma_cm_event *event;
	struct ibv_qp *qps[2];
	enum ibv_qp_state s;
	int i, mask;

	init.send_cq = init.recv_cq = cq;
	for (i = 0; i < 2; i++)
		CHECK((qps[i] = ibv_create_qp(pd, &init)));
	param.qp_num = qps[0]->qp_num;
	CHECK(!rdma_connect(active, &param));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	ids[1] = event->id;
	CHECK(event->param.conn.qp_num == qps[0]->qp_num && !rdma_ack_cm_event(event));
	for (i = 1; i >= 0; i--) {
		for (s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
			struct ibv_qp_attr attr = {.qp_state = s};

			CHECK(!rdma_init_qp_attr(ids[i], &attr, &mask) && attr.qp_state == s);
			CHECK(!ibv_modify_qp(qps[i], &attr, mask));
		}
		if (i == 1) {
			param.qp_num = qps[1]->qp_num;
			CHECK(!rdma_accept(ids[1], &param));
			event = next(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
			CHECK(event->id == active && event->param.conn.qp_num == qps[1]->qp_num);
			CHECK(!rdma_ack_cm_event(event));
		} else {
			CHECK(!rdma_establish(active));
		}
	}
	event = next(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == ids[1] && !rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(active));
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_destroy_id(ids[1]) && !rdma_destroy_id(listen));
	for (i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(qps[i]));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	rdma_destroy_event_channel(channel);
	shown("queue pairs of the program's own");
}

static void *serve(void *listen)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_get_request(listen, &id));
	CHECK(id->qp && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!memcmp(id->event->param.conn.private_data, "first, second", 14));
	CHECK(!rdma_accept(id, NULL) && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(id) && id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_ep(id);
	return NULL;
}

/* Rules: CM-07, CM-51 */
static void endpoints(void)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	static const char long_one[249];
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *res;
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_cm_id *listen, *id;
	pthread_t server;
	char port[6];

	CHECK(!rdma_getaddrinfo("127.0.0.1", "0", &hints, &res));
	CHECK(!rdma_create_ep(&listen, res, NULL, &attr) && !rdma_listen(listen, 0));
	rdma_freeaddrinfo(res);
	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(listen)));
	CHECK(!pthread_create(&server, NULL, serve, listen));

	hints.ai_flags = 0;
	CHECK(!rdma_getaddrinfo("127.0.0.1", port, &hints, &res));
	/* What the answer has to connect with comes before what the program gives. */
	res->ai_connect = "first, ";
	res->ai_connect_len = 7;
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_ep(&id, res, NULL, &attr) && id->qp);
	res->ai_connect = NULL;
	res->ai_connect_len = 0;
	param.private_data = long_one;
	param.private_data_len = sizeof(long_one);
	CHECK(rdma_connect(id, &param) && errno == EINVAL);
	param.private_data = "second";
	param.private_data_len = 6;
	CHECK(!rdma_connect(id, &param) && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(id));
	rdma_destroy_ep(id);
	CHECK(!pthread_join(server, NULL));
	rdma_destroy_ep(listen);

	/* Nobody listens there now. */
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_ep(&id, res, NULL, &attr));
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED && id->event->status == 8);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
	shown("synchronous ids, made in one call");
}

/* Rules: CM-30, CM-33, CM-53 */
static void datagrams(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_qp_init_attr attr = small(IBV_QPT_UD);
	struct sockaddr_storage address;
	struct rdma_cm_id *listen = listener(channel, AF_INET6, RDMA_PS_UDP, &address);
	struct rdma_cm_id *active = resolved(channel, RDMA_PS_UDP, &address), *passive;
	struct rdma_conn_param param = {.private_data = "data", .private_data_len = 4};
	struct rdma_cm_event *event;

	CHECK(active->qp_type == IBV_QPT_UD && !rdma_create_qp(active, NULL, &attr));
	CHECK(state(active->qp) == IBV_QPS_RTS);
	CHECK(!rdma_connect(active, &param));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->param.ud.private_data_len == 180);
	CHECK(!memcmp(event->param.ud.private_data, "data", 5));
	passive = event->id;
	attr = small(IBV_QPT_UD);
	CHECK(!rdma_create_qp(passive, NULL, &attr));
	param.qp_num = passive->qp->qp_num;
	CHECK(!rdma_accept(passive, &param) && !rdma_ack_cm_event(event));
	event = next(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == active && event->param.ud.qp_num == passive->qp->qp_num);
	CHECK(event->param.ud.qkey == RDMA_UDP_QKEY && event->param.ud.ah_attr.is_global);
	CHECK(!rdma_ack_cm_event(event));
	rdma_destroy_qp(active);
	rdma_destroy_qp(passive);
	CHECK(!rdma_destroy_id(active) && !rdma_destroy_id(passive));
	/* Who refuses may say why. */
	active = resolved(channel, RDMA_PS_UDP, &address);
	CHECK(!rdma_connect(active, &param));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!rdma_reject(event->id, "no", 2) && !rdma_destroy_id(event->id));
	CHECK(!rdma_ack_cm_event(event));
	event = next(channel, RDMA_CM_EVENT_UNREACHABLE);
	CHECK(event->id == active && event->status == 2);
	CHECK(event->param.ud.private_data_len == 136);
	CHECK(!memcmp(event->param.ud.private_data, "no", 3));
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(active) && !rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("an end of datagrams is found");
}

/* Rules: CM-51 */
static void requests_of_a_synchronous_listener(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct sockaddr_storage address;
	struct rdma_cm_id *listen, *active;
	struct rdma_cm_event *event;

	listen = listener(NULL, AF_INET, RDMA_PS_TCP, &address);
	active = resolved(channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(active, NULL, &attr) && !rdma_connect(active, NULL));
	event = next(listen->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->listen_id == listen && event->id->channel != listen->channel);
	/* It has a channel of its own already. */
	CHECK(rdma_migrate_id(event->id, NULL) && errno == EINVAL);
	CHECK(!rdma_reject(event->id, NULL, 0));
	expect(channel, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(event->id);
	CHECK(!rdma_ack_cm_event(event));
	rdma_destroy_ep(active);
	CHECK(!rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("a request of a synchronous listener, whoever fetches it");
}

/* A queue pair cannot be brought up. What its peer does then ends no connection. Rules: CM-32 */
static void failed(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct pollfd ready = {.fd = other->fd, .events = POLLIN};
	struct sockaddr_storage address;
	struct rdma_cm_id *listen, *active;
	struct rdma_cm_event *event;

	listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	active = resolved(other, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(active, NULL, &attr) && !rdma_connect(active, NULL));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(event->id, NULL, &attr) && !rdma_accept(event->id, NULL));
	CHECK(!ibv_modify_qp(active->qp, &error, IBV_QP_STATE));
	expect(other, RDMA_CM_EVENT_CONNECT_ERROR);
	rdma_destroy_ep(event->id);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(poll(&ready, 1, 10000) == 1 && !fcntl(other->fd, F_SETFL, O_NONBLOCK));
	CHECK(rdma_get_cm_event(other, &event) && errno == EAGAIN);
	rdma_destroy_ep(active);
	CHECK(!rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(other);
	shown("a connection that fails ends once");
}

/* Rules: CM-53 */
static void own_queues(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *res;
	struct ibv_srq_init_attr_ex no_type = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq_init_attr plain = {.attr = no_type.attr};
	struct ibv_qp_init_attr_ex receives = {.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_cm_id *id;
	struct ibv_cq *cq;

	CHECK(!rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res));
	CHECK(!rdma_create_ep(&id, res, NULL, NULL));
	CHECK(rdma_create_srq_ex(id, &no_type) && errno == EINVAL && !id->srq);
	CHECK(!rdma_create_srq(id, NULL, &plain) && !rdma_create_qp(id, NULL, &attr));
	CHECK(id->srq && id->recv_cq && id->send_cq && id->qp->srq == id->srq);
	/* Only a shared receive queue of XRC keeps a completion queue. */
	rdma_destroy_qp(id);
	CHECK(id->srq && !id->recv_cq && !id->recv_cq_channel && !id->send_cq);
	CHECK((cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0)));
	attr = small(IBV_QPT_RC);
	attr.send_cq = attr.recv_cq = cq;
	CHECK(!rdma_create_qp(id, NULL, &attr));
	rdma_destroy_ep(id);
	CHECK(!ibv_destroy_cq(cq));

	res->ai_port_space = RDMA_PS_IB;
	res->ai_qp_type = IBV_QPT_XRC_RECV;
	CHECK(!rdma_create_ep(&id, res, NULL, NULL) && id->qp_type == IBV_QPT_XRC_RECV);
	CHECK(!rdma_create_qp_ex(id, &receives) && receives.xrcd);
	CHECK(receives.comp_mask & IBV_QP_INIT_ATTR_XRCD);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
	shown("queues that the library makes for an id, and the program's own");
}

struct held {
	struct rdma_cm_event *event;
	int acknowledged;
};

static void *acknowledge(void *held)
{
	struct held *it = held;

	__atomic_store_n(&it->acknowledged, 1, __ATOMIC_SEQ_CST);
	CHECK(!rdma_ack_cm_event(it->event));
	return NULL;
}

static void *wait_for_event(void *channel)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(channel, &event);
	return NULL;
}

/* Rules: CM-52 */
static void channels(void)
{
	struct rdma_event_channel *first = rdma_create_event_channel();
	struct rdma_event_channel *second = rdma_create_event_channel();
	struct pollfd ready = {.fd = first->fd, .events = POLLIN};
	struct sockaddr_storage address;
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef4d0002)};
	struct rdma_cm_event *event;
	struct held held = {0};
	struct rdma_cm_id *id;
	pthread_t thread;
	void *result;

	CHECK(!fcntl(first->fd, F_SETFL, O_NONBLOCK));
	CHECK(rdma_get_cm_event(first, &event) && errno == EAGAIN && !poll(&ready, 1, 0));
	loopback(AF_INET, &address);
	CHECK(!rdma_create_id(first, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	CHECK(poll(&ready, 1, 10000) == 1);
	/* What waits moves with the id. */
	CHECK(!rdma_migrate_id(id, second) && id->channel == second);
	CHECK(rdma_get_cm_event(first, &event) && errno == EAGAIN);
	held.event = next(second, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(held.event->id == id);
	/* Ending an id waits for its events. */
	CHECK(!pthread_create(&thread, NULL, acknowledge, &held));
	CHECK(!rdma_destroy_id(id) && __atomic_load_n(&held.acknowledged, __ATOMIC_SEQ_CST));
	CHECK(!pthread_join(thread, NULL));
	/* Leaving a group waits for the group's. */
	CHECK(!rdma_create_id(second, &id, NULL, RDMA_PS_UDP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	expect(second, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
	held.event = next(second, RDMA_CM_EVENT_MULTICAST_JOIN);
	held.acknowledged = 0;
	CHECK(!pthread_create(&thread, NULL, acknowledge, &held));
	CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
	CHECK(__atomic_load_n(&held.acknowledged, __ATOMIC_SEQ_CST));
	CHECK(!pthread_join(thread, NULL) && !rdma_destroy_id(id));
	/* What waits of an id goes with it. */
	CHECK(!rdma_create_id(first, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	CHECK(poll(&ready, 1, 10000) == 1 && !rdma_destroy_id(id) && !poll(&ready, 1, 0));
	/* A thread that waits can be cancelled, and the channel goes on. */
	CHECK(!pthread_create(&thread, NULL, wait_for_event, second));
	CHECK(!pthread_cancel(thread) && !pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
	CHECK(!rdma_create_id(second, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	expect(second, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(first);
	rdma_destroy_event_channel(second);
	shown("channels, and ids that move between them");
}

/* Rules: CM-38, CM-54 */
static void refused_calls(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage address = {.ss_family = AF_UNIX};
	struct rdma_cm_join_mc_attr_ex join = {.comp_mask = 1 << 2};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct ibv_ece ece = {0};
	struct rdma_cm_id *id, *other;
	int count, on = 1;
	struct ibv_context **devices = rdma_get_devices(&count);

	CHECK(devices && count >= 1 && devices[0] && !devices[count]);
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP) && errno == EINVAL);
	CHECK(rdma_bind_addr(id, NULL) && errno == EINVAL);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) && errno == EINVAL);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1) && errno == EINVAL);
	CHECK(rdma_create_qp(id, NULL, &attr) && errno == EINVAL);
	CHECK(rdma_connect(id, NULL) && errno == EINVAL);
	CHECK(rdma_accept(id, NULL) && errno == EINVAL);
	CHECK(rdma_disconnect(id) && errno == EINVAL);
	CHECK(rdma_get_request(id, &other) && errno == EINVAL);
	CHECK(rdma_set_local_ece(id, &ece) && errno == EINVAL);
	CHECK(rdma_join_multicast_ex(id, &join, NULL) && errno == ENOTSUP);
	join.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	CHECK(rdma_join_multicast_ex(id, &join, NULL) && errno == EINVAL);
	join.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	join.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	CHECK(rdma_join_multicast_ex(id, &join, NULL) && errno == EINVAL);
	CHECK(rdma_leave_multicast(id, (struct sockaddr *)&address) && errno == EINVAL);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof(on)));
	CHECK(errno == EINVAL);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, 77, &on, sizeof(on)) && errno == ENOSYS);
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	CHECK(rdma_get_cm_event(channel, NULL) && errno == EINVAL);
	CHECK(rdma_ack_cm_event(NULL) && errno == EINVAL && rdma_destroy_id(NULL) && errno == EINVAL);
	CHECK(!rdma_get_src_port(id) && !rdma_get_dst_port(id));
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT"));
	CHECK(!strcmp(rdma_event_str(99), "UNKNOWN EVENT"));
	loopback(AF_INET, &address);
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&address) && !id->verbs && !id->port_num);
	CHECK(rdma_create_qp(id, NULL, &attr) && errno == EINVAL);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs == devices[0] && id->port_num == 1);
	rdma_free_devices(devices);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	shown("what cannot be done is refused");
}

static void all(void)
{
	connection(AF_INET);
	connection(AF_INET6);
	refused();
	own_queue_pairs();
	endpoints();
	requests_of_a_synchronous_listener();
	failed();
	own_queues();
	datagrams();
	channels();
	refused_calls();
}

int main(int argc, char **argv)
{
	int before;

	/* The first time the device opens what it keeps. */
	all();
	before = descriptors(0);
	all();
	/* Packets are sent by more sockets with time, up to a number. */
	if (argc > 1 && !strcmp(argv[1], "packets"))
		return 0;
	/* The device's thread may have one of its own open for a moment, then and now. */
	for (int look = 0; look < 1000 && descriptors(0) > before; look++)
		usleep(1000);
	CHECK(descriptors(0) <= before || descriptors(1) <= before);
	shown("no descriptor is left over");
	return 0;
}
