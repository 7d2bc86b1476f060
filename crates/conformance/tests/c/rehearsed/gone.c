/*
 * Programs of rdma_cm whose peers go without a word, each with its right form, as in connections.c. Both ends of a
 * connection are of one process, so each is the other's peer.
 */
#include <poll.h>

#include "../cm.h"

enum { POSTS = 60, TRIES = 4 };

static char memory[64];
/* For events of the listening side, and of the other one. */
static struct rdma_event_channel *channels[2];
static struct rdma_cm_id *active, *passive;
static struct sockaddr_storage address;

static int make_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = small(IBV_QPT_RC);

	return rdma_create_qp(id, NULL, &init);
}

/* The next event, but for changes of addresses. NULL if none comes within so many milliseconds, or ever if negative. */
static struct rdma_cm_event *within(int milliseconds)
{
	struct pollfd readable[2];
	struct rdma_cm_event *event;

	for (int i = 0; i < 2; i++)
		readable[i] = (struct pollfd){.fd = channels[i]->fd, .events = POLLIN};
	while (poll(readable, 2, milliseconds) > 0) {
		CHECK(!rdma_get_cm_event(channels[!readable[0].revents], &event));
		if (event->event != RDMA_CM_EVENT_ADDR_CHANGE)
			return event;
		CHECK(!rdma_ack_cm_event(event));
	}
	return NULL;
}

/* The listening side takes a request. Who sent it may have given up meanwhile, at any moment here. Then no request is
   left: the library cannot bring a queue pair to INIT for it, nor accept it. */
static void accept_from(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = {.retry_count = 7};

	if (make_queue_pair(id)) {
		CHECK(errno == EINVAL);
	} else if (rdma_accept(id, &param)) {
		CHECK(errno == EINVAL);
		rdma_destroy_qp(id);
	} else {
		passive = id;
		return;
	}
	CHECK(!rdma_destroy_id(id));
}

/* Tries to connect to the listener. Returns the event that says what has come of it. */
static enum rdma_cm_event_type connects(int patience, int *status)
{
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_event *event;
	int established = 0;

	channels[1] = rdma_create_event_channel();
	CHECK(channels[1]);
	active = resolved(channels[1], RDMA_PS_TCP, &address);
	CHECK(!make_queue_pair(active));
	CHECK(!rdma_connect(active, &param));
	while ((event = within(patience))) {
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type kind = event->event;

		*status = event->status;
		CHECK(!rdma_ack_cm_event(event));
		if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
			accept_from(id);
		} else if (kind == RDMA_CM_EVENT_ESTABLISHED && ++established == 2) {
			return kind;
		} else if (kind != RDMA_CM_EVENT_ESTABLISHED && id == active) {
			return kind;
		}
	}
	return RDMA_CM_EVENT_CONNECT_ERROR;
}

static void begin(void)
{
	int status;

	channels[0] = rdma_create_event_channel();
	CHECK(channels[0]);
	listener(channels[0], AF_INET, RDMA_PS_TCP, &address);
	CHECK(connects(-1, &status) == RDMA_CM_EVENT_ESTABLISHED);
}

/* Whether a request completes soon. */
static int completes(void)
{
	struct ibv_wc wc;

	for (int i = 0; i < 100; i++) {
		const int count = ibv_poll_cq(active->send_cq, 1, &wc);

		if (count)
			return count == 1 && wc.status == IBV_WC_SUCCESS;
		poll(NULL, 0, 1);
	}
	return 0;
}

/* Posts requests, at each of which the peers may go, and ends the connection. */
static void post_and_disconnect(void)
{
	struct ibv_mr *mr = rdma_reg_write(active, memory, sizeof(memory));

	CHECK(mr);
	for (int i = 0; i < POSTS; i++) {
		CHECK(!rdma_post_write(active, NULL, memory, 8, mr, 0, (uintptr_t)memory + 8, mr->rkey));
		if (!completes())
			break;
	}
	CHECK(!rdma_disconnect(active));
}

/* Takes an event: the passive end confirms that the connection has ended. */
static void take(struct rdma_cm_event *event)
{
	if (event->id == passive && event->event == RDMA_CM_EVENT_DISCONNECTED)
		CHECK(!rdma_disconnect(passive));
	CHECK(!rdma_ack_cm_event(event));
}

/* Ends a connection. Wrong: waits for both ends to hear of it, however long that takes. */
static void waits_for_both(int wrong)
{
	struct rdma_cm_event *event;

	begin();
	post_and_disconnect();
	for (int heard = 0; heard < 2;) {
		event = within(wrong ? -1 : 300);
		if (!event)
			return;
		heard += event->event == RDMA_CM_EVENT_DISCONNECTED;
		take(event);
	}
}

/* Ends a connection (a public bug, spec/rehearsed-bugs.md). Wrong: takes DISCONNECTED for the peer's confirmation, and
   waits for the peer's own end. Right: looks at the status, which says whether the peer has answered. */
static void unconfirmed(int wrong)
{
	struct rdma_cm_event *event;

	begin();
	post_and_disconnect();
	for (int heard = 0; heard < 2;) {
		event = within(-1);
		if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL || (!wrong && event->status))
			return;
		heard += event->event == RDMA_CM_EVENT_DISCONNECTED;
		take(event);
	}
}

/* Connects again after a connection has ended. Wrong: waits for it to succeed. Right: tries again if it does not. */
static void connects_again(int wrong)
{
	struct rdma_cm_event *event;
	int status;

	begin();
	post_and_disconnect();
	while ((event = within(300)))
		take(event);
	for (int i = 0; i < TRIES; i++) {
		if (connects(2000, &status) == RDMA_CM_EVENT_ESTABLISHED)
			return;
		while (wrong)
			poll(NULL, 0, -1);
	}
	abort();
}

static void say(FILE *list, const char *end, enum rdma_cm_event_type kind, int status)
{
	CHECK(fprintf(list, "%s %s %d\n", end, rdma_event_str(kind), status) > 0);
}

/* Says what comes after the peers have gone, and of each try to connect again. */
static void tell(const char *file)
{
	FILE *list = fopen(file, "w");
	struct rdma_cm_event *event;
	enum rdma_cm_event_type kind;
	int status;

	begin();
	post_and_disconnect();
	while ((event = within(2000))) {
		say(list, event->id == active ? "active" : "passive", event->event, event->status);
		take(event);
	}
	for (int i = 0; i < TRIES; i++) {
		kind = connects(2000, &status);
		say(list, "again", kind, status);
		if (kind == RDMA_CM_EVENT_ESTABLISHED)
			break;
	}
	CHECK(!fclose(list));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	if (!strcmp(argv[1], "tell"))
		tell(argv[2]);
	else if (!strcmp(argv[1], "waits-for-both"))
		waits_for_both(!strcmp(argv[2], "wrong"));
	else if (!strcmp(argv[1], "unconfirmed"))
		unconfirmed(!strcmp(argv[2], "wrong"));
	else if (!strcmp(argv[1], "connects-again"))
		connects_again(!strcmp(argv[2], "wrong"));
	else
		return 2;
	return 0;
}
