/* Bugs of kind C: events of rdma_cm. spec/bugs.md names the programs that had them. Marked lines are in the finding. */
#include "../channel.h"

#include "../../cm.h"

/* Both ends of a connection. All events come to one channel, and one thread. */
struct ends {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listen, *active, *passive;
};

static struct ends connected(void)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct ends ends = {.channel = rdma_create_event_channel()};
	struct sockaddr_storage address;
	struct rdma_cm_event *event;

	CHECK(ends.channel);
	ends.listen = listener(ends.channel, AF_INET, RDMA_PS_TCP, &address);
	ends.active = resolved(ends.channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(ends.active, NULL, &attr) && !rdma_connect(ends.active, &param));
	event = next(ends.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	ends.passive = event->id;
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(ends.passive, NULL, &attr) && !rdma_accept(ends.passive, NULL));
	CHECK(!rdma_ack_cm_event(event));
	expect(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
	expect(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
	return ends;
}

static void end_id(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id)); /* waits in end_id */
}

/* A connection is refused. The error path destroys everything, but does not acknowledge the event. */
static void error_event_kept(int wrong)
{
	if (wrong)
		end_when_found();

	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct sockaddr_storage address;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(channel);
	id = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	CHECK(!rdma_destroy_id(id));
	id = resolved(channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(id, NULL, &attr) && !rdma_connect(id, &param));
	event = next(channel, RDMA_CM_EVENT_REJECTED); /* here */
	if (!wrong)
		CHECK(!rdma_ack_cm_event(event));
	end_id(id); /* here */
	rdma_destroy_event_channel(channel);
}

/* The handler of an event destroys the connection of the event. The event is acknowledged after the handler. */
static void destroyed_by_its_handler(int wrong)
{
	if (wrong)
		end_when_found();

	struct ends ends = connected();
	struct rdma_cm_event *event;

	CHECK(!rdma_disconnect(ends.active));
	event = next(ends.channel, RDMA_CM_EVENT_DISCONNECTED); /* here */
	CHECK(event->id == ends.passive);
	if (!wrong)
		CHECK(!rdma_ack_cm_event(event));
	end_id(ends.passive); /* here */
	if (wrong)
		CHECK(!rdma_ack_cm_event(event));
	expect(ends.channel, RDMA_CM_EVENT_DISCONNECTED);
	end_id(ends.active);
	CHECK(!rdma_destroy_id(ends.listen));
	rdma_destroy_event_channel(ends.channel);
}

/* Puts events of other connections aside for later, and destroys a connection before its event's turn. */
static void event_put_aside(int wrong)
{
	if (wrong)
		end_when_found();

	struct ends ends = connected();
	struct rdma_cm_event *aside[2];

	CHECK(!rdma_disconnect(ends.active) && !rdma_disconnect(ends.passive));
	for (int i = 0; i < 2; i++)
		aside[i] = next(ends.channel, RDMA_CM_EVENT_DISCONNECTED); /* here */
	for (int i = 0; i < 2 && !wrong; i++)
		CHECK(!rdma_ack_cm_event(aside[i]));
	end_id(ends.active); /* here */
	end_id(ends.passive);
	CHECK(!rdma_destroy_id(ends.listen));
	rdma_destroy_event_channel(ends.channel);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"error-event-kept", error_event_kept},
		{"destroyed-by-its-handler", destroyed_by_its_handler},
		{"event-put-aside", event_put_aside},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
