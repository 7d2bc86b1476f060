/*
 * What programs hear of beside connections and their ends: by the part that is asked for. One process is
 * both ends, over 127.0.0.1 and ::1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <unistd.h>

#include "cm.h"
#include "in_time.h"

/* Of librdmacm since 1.4, which the packaged headers may not have. */
#define ADDRINFO_RESOLVED 16
#define ADDRINFO_ERROR 17
#define USER 18

static int (*resolve_addrinfo)(struct rdma_cm_id *, const char *, const char *,
			       const struct rdma_addrinfo *);
static int (*query_addrinfo)(struct rdma_cm_id *, struct rdma_addrinfo **);
static int (*write_cm_event)(struct rdma_cm_id *, enum rdma_cm_event_type, int, uint64_t);

/* A queue pair of the program's own, in INIT. */
static struct ibv_qp *own_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr init = small(IBV_QPT_RC);
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	CHECK(init.send_cq && (qp = ibv_create_qp(id->pd, &init)));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS));
	return qp;
}

static void end_queue_pair(struct ibv_qp *qp)
{
	struct ibv_cq *cq = qp->send_cq;

	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

/* Rules: CM-40 */
static void enhanced(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_ece ece = {.vendor_id = 0x15b3, .options = 0x71}, seen = {0};
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_id *listen, *active, *passive;
	struct sockaddr_storage address;
	struct rdma_cm_event *event;
	struct ibv_qp *qps[2];
	int i;

	listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	active = resolved(channel, RDMA_PS_TCP, &address);
	qps[0] = own_queue_pair(active);
	param.qp_num = qps[0]->qp_num;
	CHECK(!rdma_set_local_ece(active, &ece) && !rdma_connect(active, &param));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	CHECK(!rdma_get_remote_ece(passive, &seen));
	CHECK(seen.vendor_id == 0x15b3 && seen.options == 0x71 && !seen.comp_mask);
	CHECK(!rdma_ack_cm_event(event));
	qps[1] = own_queue_pair(passive);
	param.qp_num = qps[1]->qp_num;
	ece.options = 0x10;
	CHECK(!rdma_set_local_ece(passive, &ece) && !rdma_accept(passive, &param));
	expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(!rdma_get_remote_ece(active, &seen));
	CHECK(seen.vendor_id == 0x15b3 && seen.options == 0x10);
	CHECK(!rdma_establish(active));
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_destroy_id(active));
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_destroy_id(passive));
	shown("both ends see what the other's adapter offers");

	/* Who offers nothing, or what only another vendor knows, is answered so. */
	for (i = 0; i < 2; i++) {
		struct ibv_qp_init_attr attr = small(IBV_QPT_RC);

		active = resolved(channel, RDMA_PS_TCP, &address);
		param.qp_num = qps[0]->qp_num;
		CHECK(i == 0 || !rdma_set_local_ece(active, &ece));
		CHECK(!rdma_connect(active, &param));
		event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		passive = event->id;
		CHECK(!rdma_create_qp(passive, NULL, &attr) && !rdma_accept(passive, NULL));
		CHECK(!rdma_ack_cm_event(event));
		expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
		seen.options = 1;
		CHECK(!rdma_get_remote_ece(active, &seen) && !seen.options);
		CHECK(seen.vendor_id == (i == 0 ? 0 : ece.vendor_id));
		/* Without a pointer there are no data, whatever their length is said to be. */
		CHECK(!rdma_reject(active, NULL, 5) && !rdma_destroy_id(active));
		expect(channel, RDMA_CM_EVENT_REJECTED);
		rdma_destroy_ep(passive);
	}
	shown("an answer is of the vendor that has asked");

	active = resolved(channel, RDMA_PS_TCP, &address);
	param.qp_num = qps[0]->qp_num;
	CHECK(!rdma_set_local_ece(active, &ece) && !rdma_connect(active, &param));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!rdma_reject_ece(event->id, "not that", 8) && !rdma_destroy_id(event->id));
	CHECK(!rdma_ack_cm_event(event));
	event = next(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == active && event->status == 35);
	CHECK(!memcmp(event->param.conn.private_data, "not that", 9));
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(active));
	end_queue_pair(qps[0]);
	end_queue_pair(qps[1]);
	CHECK(!rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("what an adapter offers can be refused");
}

/* Rules: CM-39 */
static void groups(int family)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_qp_init_attr attr;
	struct rdma_cm_join_mc_attr_ex join = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
	};
	struct sockaddr_in6 group6 = {.sin6_family = AF_INET6};
	struct sockaddr_in group4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef4d0006)};
	struct sockaddr *group = family == AF_INET ? (void *)&group4 : (void *)&group6;
	struct sockaddr_storage address;
	struct rdma_cm_id *member, *sender;
	struct rdma_cm_event *event;
	struct rdma_ud_param ud;
	char bytes[64] = "";
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	CHECK(inet_pton(AF_INET6, "ff0e::4d:6", &group6.sin6_addr) == 1);
	loopback(family, &address);
	CHECK(!rdma_create_id(channel, &member, NULL, RDMA_PS_UDP));
	CHECK(!rdma_create_id(channel, &sender, NULL, RDMA_PS_UDP));
	/* Bound to a loopback address an id has no device: the way there finds it. */
	CHECK(!rdma_resolve_addr(member, NULL, (struct sockaddr *)&address, 2000));
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_addr(sender, NULL, (struct sockaddr *)&address, 2000));
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	attr = small(IBV_QPT_UD);
	CHECK(!rdma_create_qp(member, NULL, &attr));
	attr = small(IBV_QPT_UD);
	CHECK(!rdma_create_qp(sender, NULL, &attr));
	mr = rdma_reg_msgs(member, bytes, sizeof(bytes));
	CHECK(mr && !rdma_post_recv(member, NULL, bytes, 44, mr));

	CHECK(!rdma_join_multicast(member, group, &join));
	event = next(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	ud = event->param.ud;
	CHECK(event->id == member && ud.private_data == &join);
	CHECK(ud.qp_num == 0xffffff && ud.qkey == RDMA_UDP_QKEY);
	CHECK(ud.ah_attr.is_global && ud.ah_attr.grh.hop_limit == 64 && ud.ah_attr.port_num == 1);
	if (family == AF_INET6)
		CHECK(!memcmp(&ud.ah_attr.grh.dgid, &group6.sin6_addr, 16));
	else
		CHECK(!memcmp(ud.ah_attr.grh.dgid.raw + 12, &group4.sin_addr, 4));
	CHECK(!rdma_ack_cm_event(event));
	/* Who only sends to it is not attached. */
	join.addr = group;
	CHECK(!rdma_join_multicast_ex(sender, &join, NULL));
	expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);

	CHECK((ah = ibv_create_ah(sender->pd, &ud.ah_attr)));
	strcpy(bytes + 60, "all");
	CHECK(!rdma_post_ud_send(sender, NULL, bytes + 60, 4, mr, 0, ah, ud.qp_num));
	CHECK(rdma_get_send_comp(sender, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(member, &wc) == 1 && wc.byte_len == 44);
	CHECK(!strcmp(bytes + 40, "all"));
	CHECK(!ibv_destroy_ah(ah) && !rdma_dereg_mr(mr));
	CHECK(!rdma_leave_multicast(member, group) && !rdma_leave_multicast(sender, group));
	CHECK(rdma_leave_multicast(member, group) && errno == EADDRNOTAVAIL);
	rdma_destroy_qp(member);
	rdma_destroy_qp(sender);
	CHECK(!rdma_destroy_id(member) && !rdma_destroy_id(sender));
	rdma_destroy_event_channel(channel);
	shown(family == AF_INET ? "a group of IPv4" : "a group of IPv6");
}

/* Rules: CM-58 */
static void own_events(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
	enum rdma_port_space spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP};
	struct rdma_addrinfo *found;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	uint64_t argument;
	int i;

	resolve_addrinfo = dlsym(RTLD_DEFAULT, "rdma_resolve_addrinfo");
	query_addrinfo = dlsym(RTLD_DEFAULT, "rdma_query_addrinfo");
	write_cm_event = dlsym(RTLD_DEFAULT, "rdma_write_cm_event");
	CHECK(resolve_addrinfo && query_addrinfo && write_cm_event);
	for (i = 0; i < 2; i++) {
		CHECK(!rdma_create_id(channel, &id, NULL, spaces[i]));
		CHECK(!write_cm_event(id, USER, -5, 0x123456789abcdefull));
		event = next(channel, USER);
		memcpy(&argument, &event->param, sizeof(argument));
		CHECK(event->id == id && event->status == -5 && argument == 0x123456789abcdefull);
		CHECK(!rdma_ack_cm_event(event));
		CHECK(write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0) && errno == EINVAL);
		/* It goes with its id. */
		CHECK(!write_cm_event(id, USER, 0, 0) && !rdma_destroy_id(id));
	}
	shown("an event of the program's own");

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(query_addrinfo(id, &found) && errno == ENODATA);
	CHECK(!resolve_addrinfo(id, "127.0.0.1", "7471", &hints));
	event = next(channel, ADDRINFO_RESOLVED);
	CHECK(event->id == id && !event->status && !rdma_ack_cm_event(event));
	CHECK(!query_addrinfo(id, &found) && found->ai_dst_len == sizeof(struct sockaddr_in));
	CHECK(!rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000));
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_get_dst_port(id) == htons(7471));
	rdma_freeaddrinfo(found);
	CHECK(!resolve_addrinfo(id, "no.such.host", "7471", &hints));
	event = next(channel, ADDRINFO_ERROR);
	CHECK(event->status == EAI_NONAME && !rdma_ack_cm_event(event));
	CHECK(query_addrinfo(id, &found) && errno == ENODATA);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	shown("a name is looked up, and an event says so");
}

/* The RTU is lost. Rules: CM-47 */
static void early_data(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_id *listen, *active, *passive;
	struct sockaddr_storage address;
	struct rdma_cm_event *event;
	char bytes[32] = "";
	struct ibv_mr *mr;
	struct ibv_wc wc;

	listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	active = resolved(channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(active, NULL, &attr) && !rdma_connect(active, &param));
	CHECK(rdma_notify(active, IBV_EVENT_COMM_EST) && errno == EINVAL);
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(passive, NULL, &attr));
	mr = rdma_reg_msgs(passive, bytes, sizeof(bytes));
	CHECK(mr && !rdma_post_recv(passive, NULL, bytes, 16, mr));
	CHECK(!rdma_accept(passive, NULL) && !rdma_ack_cm_event(event));
	event = next(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == active && !rdma_ack_cm_event(event));
	strcpy(bytes + 16, "early");
	CHECK(!rdma_post_send(active, NULL, bytes + 16, 16, mr, 0));
	CHECK(rdma_get_recv_comp(passive, &wc) == 1 && !strcmp(bytes, "early"));
	CHECK(rdma_notify(passive, IBV_EVENT_QP_FATAL) && errno == EINVAL);
	CHECK(!rdma_notify(passive, IBV_EVENT_COMM_EST));
	event = next(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == passive && !rdma_ack_cm_event(event));
	CHECK(rdma_notify(passive, IBV_EVENT_COMM_EST) && errno == EISCONN);
	CHECK(rdma_get_send_comp(active, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!rdma_dereg_mr(mr));
	rdma_destroy_ep(active);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_ep(passive);
	CHECK(!rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("data that come before the RTU establish the connection");
}

/* Rules: CM-57 */
static void by_gid(void)
{
	struct rdma_addrinfo *found, hints = {
		.ai_flags = RAI_NUMERICHOST | RAI_FAMILY | RAI_PASSIVE,
		.ai_family = 27,
		.ai_port_space = RDMA_PS_TCP,
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	CHECK(!rdma_getaddrinfo("::ffff:127.0.0.1", "7471", &hints, &found));
	CHECK(found->ai_family == 27 && found->ai_src_len == 48 && !found->ai_dst_len);
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(id, found->ai_src_addr) && errno == ENODEV);
	CHECK(rdma_resolve_addr(id, NULL, found->ai_src_addr, 2000) && errno == ENODEV);
	rdma_freeaddrinfo(found);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	shown("no id has an address of InfiniBand");
}

/* Every kind of id that there is: what it is bound to is written behind. */
enum { LISTENS, ANYWHERE, UNBOUND, RESOLVED, ACTIVE, PASSIVE, DATAGRAMS, ASKS, ALL };

static void make_all(struct rdma_event_channel *channel, struct rdma_cm_id *ids[ALL])
{
	struct sockaddr_in anywhere = {.sin_family = AF_INET};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_conn_param param = {.retry_count = 7};
	struct sockaddr_storage address, other;
	struct rdma_cm_event *event;

	ids[LISTENS] = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_id(channel, &ids[ANYWHERE], NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(ids[ANYWHERE], (struct sockaddr *)&anywhere));
	CHECK(!rdma_listen(ids[ANYWHERE], 1));
	CHECK(!rdma_create_id(channel, &ids[UNBOUND], NULL, RDMA_PS_TCP));
	ids[RESOLVED] = resolved(channel, RDMA_PS_TCP, &address);
	ids[ACTIVE] = resolved(channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(ids[ACTIVE], NULL, &attr) && !rdma_connect(ids[ACTIVE], &param));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	ids[PASSIVE] = event->id;
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(ids[PASSIVE], NULL, &attr));
	CHECK(!rdma_accept(ids[PASSIVE], NULL) && !rdma_ack_cm_event(event));
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	ids[DATAGRAMS] = listener(channel, AF_INET6, RDMA_PS_UDP, &other);
	/* Its request is never fetched: it waits at the listener. */
	CHECK(!rdma_migrate_id(ids[LISTENS], rdma_create_event_channel()));
	ids[ASKS] = resolved(channel, RDMA_PS_TCP, &address);
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(ids[ASKS], NULL, &attr) && !rdma_connect(ids[ASKS], &param));
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	CHECK(rdma_get_cm_event(channel, &event) && errno == EAGAIN);
	CHECK(!fcntl(channel->fd, F_SETFL, 0));
}

/* Destroys all of them, of which nothing more is heard. */
static void end_all(struct rdma_event_channel *channel, struct rdma_cm_id *ids[ALL])
{
	struct rdma_event_channel *other = ids[LISTENS]->channel;
	struct rdma_cm_event *event;
	int i;

	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	CHECK(rdma_get_cm_event(channel, &event) && errno == EAGAIN);
	for (i = 0; i < ALL; i++)
		rdma_destroy_ep(ids[i]);
	rdma_destroy_event_channel(other);
	rdma_destroy_event_channel(channel);
}

/* Takes an event of each id but the listener, which has a channel of its own. */
static void every(struct rdma_event_channel *channel, struct rdma_cm_id *ids[ALL],
		  enum rdma_cm_event_type kind, const int expected[ALL])
{
	int i, heard[ALL] = {0}, count = 0;
	struct rdma_cm_event *event;

	for (i = 0; i < ALL; i++)
		count += expected[i];
	while (count--) {
		event = next(channel, kind);
		for (i = 0; i < ALL; i++)
			heard[i] += event->id == ids[i];
		CHECK(!event->status && !rdma_ack_cm_event(event));
	}
	CHECK(!memcmp(heard, expected, sizeof(heard)));
}

/* The device is removed once all is there. Rules: AE-09, CM-46 */
static void removal(void)
{
	const int expected[ALL] = {0, 1, 1, 1, 1, 1, 1, 1};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7};
	struct ibv_async_event async;
	struct sockaddr_storage address;
	struct rdma_cm_id *ids[ALL];
	struct rdma_cm_event *event;
	struct ibv_device_attr attr;
	struct ibv_context *verbs;

	make_all(channel, ids);
	all_is_there();
	verbs = ids[ACTIVE]->verbs;
	every(channel, ids, RDMA_CM_EVENT_DEVICE_REMOVAL, expected);
	/* The request that waited there is not shown: its new id is gone. */
	event = next(ids[LISTENS]->channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
	CHECK(event->id == ids[LISTENS] && !rdma_ack_cm_event(event));
	CHECK(!ibv_get_async_event(verbs, &async));
	CHECK(async.event_type == IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&async);
	CHECK(ibv_query_device(verbs, &attr) == EIO);
	loopback(AF_INET, &address);
	CHECK(rdma_bind_addr(ids[UNBOUND], (struct sockaddr *)&address) && errno == ENXIO);
	CHECK(rdma_listen(ids[RESOLVED], 1) && errno == ENXIO);
	CHECK(rdma_connect(ids[RESOLVED], &param) && errno == ENXIO);
	end_all(channel, ids);
	shown("the device goes, and every id hears of it");
}

/* Its addresses change hardware once all is there. Rules: CM-55 */
static void address_change(void)
{
	const int expected[ALL] = {0, 0, 0, 1, 1, 1, 1, 1};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *ids[ALL];
	struct rdma_cm_event *event;
	struct ibv_wc wc;
	char bytes[32];
	struct ibv_mr *mr;

	make_all(channel, ids);
	all_is_there();
	every(channel, ids, RDMA_CM_EVENT_ADDR_CHANGE, expected);
	expect(ids[LISTENS]->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	event = next(ids[LISTENS]->channel, RDMA_CM_EVENT_ADDR_CHANGE);
	CHECK(event->id == ids[LISTENS] && !rdma_ack_cm_event(event));
	/* It is a hint, and what is connected stays so. */
	mr = rdma_reg_msgs(ids[PASSIVE], bytes, sizeof(bytes));
	CHECK(mr && !rdma_post_recv(ids[PASSIVE], NULL, bytes, 16, mr));
	CHECK(!rdma_post_send(ids[ACTIVE], NULL, bytes + 16, 16, mr, 0));
	CHECK(rdma_get_recv_comp(ids[PASSIVE], &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!rdma_dereg_mr(mr));
	end_all(channel, ids);
	shown("addresses change, and who is bound to one hears of it");
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";

	if (!strcmp(part, "removal") || !strcmp(part, "address-change")) {
		be_in_time();
		if (!strcmp(part, "removal"))
			removal();
		else
			address_change();
	} else if (!strcmp(part, "early-data")) {
		early_data();
	} else {
		enhanced();
		groups(AF_INET);
		groups(AF_INET6);
		own_events();
		by_gid();
	}
	return 0;
}
