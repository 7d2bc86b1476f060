/* Mistakes with ids and events of rdma_cm. Each mistake has a correct twin. The first argument names the mistake, the
   second is "wrong" or "right". Lines that a finding names are marked. */
#include <pthread.h>

#include "../cm.h"
#include "channel.h"

/* An id that has asked another one for a connection, and the event of the request. */
struct asked {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *active;
	struct rdma_cm_event *request;
};

static struct asked ask(void)
{
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 6, .qp_num = 1};
	struct asked asked = {.channel = rdma_create_event_channel()};
	struct sockaddr_storage address;

	CHECK(asked.channel);
	asked.listener = listener(asked.channel, AF_INET, RDMA_PS_TCP, &address);
	asked.active = resolved(asked.channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_connect(asked.active, &param));
	asked.request = next(asked.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	return asked;
}

/* The request was rejected. */
static void end(struct asked *asked)
{
	expect(asked->channel, RDMA_CM_EVENT_REJECTED);
	CHECK(!rdma_destroy_id(asked->active) && !rdma_destroy_id(asked->listener));
	rdma_destroy_event_channel(asked->channel);
}

/* An id, and the event that its address is resolved. */
static struct rdma_cm_event *found(struct rdma_event_channel *channel, struct rdma_cm_id **id, enum rdma_port_space ps)
{
	struct sockaddr_storage address;

	loopback(AF_INET, &address);
	CHECK(channel && !rdma_create_id(channel, id, NULL, ps));
	CHECK(!rdma_resolve_addr(*id, NULL, (struct sockaddr *)&address, 2000));
	return next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}

static void own_ack(int wrong)
{
	if (wrong)
		end_when_found();

	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	event = found(channel, &id, RDMA_PS_TCP); /* got */
	if (!wrong)
		CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(id)); /* waits */
	rdma_destroy_event_channel(channel);
}

/* Joins a group and leaves it. */
static void group_left(int wrong)
{
	if (wrong)
		end_when_found();

	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef4d0007)};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(!rdma_ack_cm_event(found(channel, &id, RDMA_PS_UDP)));
	CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
	event = next(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	if (!wrong)
		CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_leave_multicast(id, (struct sockaddr *)&group));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void *acknowledges_late(void *event)
{
	usleep(1300000);
	CHECK(!rdma_ack_cm_event(event));
	return NULL;
}

static void waits_for_ack(int wrong)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	pthread_t thread;

	event = found(channel, &id, RDMA_PS_TCP); /* got */
	if (wrong)
		CHECK(!pthread_create(&thread, NULL, acknowledges_late, event));
	else
		CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(id)); /* waits */
	CHECK(!wrong || !pthread_join(thread, NULL));
	rdma_destroy_event_channel(channel);
}

static void never_acked(int wrong)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	event = found(channel, &id, RDMA_PS_TCP); /* got */
	if (wrong)
		exit(0);
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void used_after_ack(int wrong)
{
	struct asked asked = ask(); /* got */
	const void *data = asked.request->param.conn.private_data;
	struct rdma_cm_id *passive = asked.request->id;

	if (!wrong)
		CHECK(!rdma_reject(passive, data, 6));
	CHECK(!rdma_ack_cm_event(asked.request)); /* acknowledged */
	if (wrong) {
		CHECK(rdma_reject(passive, data, 6)); /* used */
		CHECK(!rdma_reject(passive, NULL, 0));
	}
	/* The id of a request is no part of the event, and stays. */
	CHECK(rdma_get_src_port(passive) && !rdma_destroy_id(passive));
	end(&asked);
}

static void parameters_after_ack(int wrong)
{
	struct asked asked = ask();
	struct rdma_conn_param *param = &asked.request->param.conn, copy = *param;
	struct rdma_cm_id *passive = asked.request->id;

	copy.private_data_len = 0;
	CHECK(!rdma_ack_cm_event(asked.request));
	if (wrong)
		CHECK(rdma_accept(passive, param));
	else
		CHECK(!rdma_accept(passive, &copy));
	exit(0);
}

static void acknowledged_twice(int wrong)
{
	struct asked asked = ask();
	struct rdma_cm_id *passive = asked.request->id;

	CHECK(!rdma_ack_cm_event(asked.request));
	if (wrong)
		CHECK(rdma_ack_cm_event(asked.request));
	CHECK(!rdma_reject(passive, NULL, 0) && !rdma_destroy_id(passive));
	end(&asked);
}

/* The peer rejects, and the wrong form sends all the same. */
static void posted_after_error(int wrong)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_qp_init_attr init = small(IBV_QPT_RC);
	struct ibv_sge data = {.length = 4};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = &data, .num_sge = 1};
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 6};
	struct rdma_cm_id *listening, *active;
	struct sockaddr_storage address;
	struct rdma_cm_event *request;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	CHECK(channel);
	listening = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	active = resolved(channel, RDMA_PS_TCP, &address);
	init.cap.max_inline_data = 4;
	CHECK(!rdma_create_qp(active, NULL, &init) && !rdma_connect(active, &param));
	request = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!rdma_reject(request->id, NULL, 0) && !rdma_destroy_id(request->id) && !rdma_ack_cm_event(request));
	expect(channel, RDMA_CM_EVENT_REJECTED);
	data.addr = (uintptr_t)"lost";
	if (wrong) {
		CHECK(!ibv_post_send(active->qp, &send, &bad)); /* posted */
		polled(active->send_cq, 1);
	} else {
		CHECK(!ibv_poll_cq(active->send_cq, 1, &wc));
	}
	rdma_destroy_qp(active);
	CHECK(!rdma_destroy_id(active) && !rdma_destroy_id(listening));
	rdma_destroy_event_channel(channel);
}

static void used_after_destroy(int wrong)
{
	struct asked asked = ask();
	struct rdma_cm_id *passive = asked.request->id;

	CHECK(!rdma_ack_cm_event(asked.request) && !rdma_reject(passive, NULL, 0));
	if (!wrong)
		CHECK(rdma_get_src_port(passive));
	CHECK(!rdma_destroy_id(passive)); /* destroyed */
	if (wrong)
		CHECK(!rdma_get_src_port(passive)); /* used */
	end(&asked);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"own-ack", own_ack},
		{"group-left", group_left},
		{"waits-for-ack", waits_for_ack},
		{"never-acked", never_acked},
		{"used-after-ack", used_after_ack},
		{"parameters-after-ack", parameters_after_ack},
		{"acknowledged-twice", acknowledged_twice},
		{"posted-after-error", posted_after_error},
		{"used-after-destroy", used_after_destroy},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
