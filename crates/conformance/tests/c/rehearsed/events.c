/*
 * Programs that rely on luck with events, each with its right form, as in moments.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../checked/pair.h"

/* Whether an event comes within so many milliseconds. */
static int comes(int fd, int within)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	const int count = poll(&readable, 1, within);

	CHECK(count >= 0);
	return count;
}

static void take(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *user;

	CHECK(!ibv_get_cq_event(channel, &cq, &user));
	ibv_ack_cq_events(cq, 1);
}

/* Polls for a while, and takes the event that came meanwhile. Then it waits for something new, for a while. Wrong: takes
   each event for a sign that there is a completion. */
static void takes_for_new(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
	struct ibv_cq *cq = channel ? ibv_create_cq(pair.context, 4, NULL, channel, 0) : NULL;
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_qp *qp = cq ? ibv_create_qp(pair.pd, &init) : NULL;
	struct ibv_wc wc;

	CHECK(qp);
	connect_to(qp, pair.context, qp->qp_num);
	receive_on(qp, 2);
	CHECK(!ibv_req_notify_cq(cq, 0));
	CHECK(!ibv_post_send(qp, &send, &bad));
	polled(cq, 2);
	if (comes(channel->fd, 0))
		take(channel);
	CHECK(!ibv_req_notify_cq(cq, 0));
	if (comes(channel->fd, 60)) {
		const int count = ibv_poll_cq(cq, 1, &wc);

		take(channel);
		CHECK(count == 1 || (!wrong && !count));
	}
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
	end_pair(&pair);
}

/* Waits for completions of two queues by one channel, and works a little between them. Wrong: takes one event for each
   time that it is woken, although it is woken only when something new comes. */
static void one_of_two_queues(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	const int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct ibv_cq *queues[2];
	struct ibv_qp *qps[2];
	int taken = 0;

	CHECK(channel && epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &event));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};

		queues[i] = init.send_cq = init.recv_cq = ibv_create_cq(pair.context, 4, NULL, channel, 0);
		CHECK(queues[i]);
		qps[i] = ibv_create_qp(pair.pd, &init);
		CHECK(qps[i] && !ibv_req_notify_cq(queues[i], 0));
		connect_to(qps[i], pair.context, qps[i]->qp_num);
	}
	for (int round = 0; round < 2 || taken < 2; round++) {
		if (round < 2) {
			receive_on(qps[round], 2);
			marker_on(qps[round], 1);
		}
		if (epoll_wait(epoll, &event, 1, round < 2 ? 5 : -1) != 1)
			continue;
		do {
			take(channel);
			taken++;
		} while (!wrong && comes(channel->fd, 0));
	}
	for (int i = 0; i < 2; i++) {
		polled(queues[i], 2);
		CHECK(!ibv_destroy_qp(qps[i]) && !ibv_destroy_cq(queues[i]));
	}
	CHECK(!ibv_destroy_comp_channel(channel) && !close(epoll));
	end_pair(&pair);
}

/* Takes asynchronous events; how many. */
static int take_asynchronous(struct ibv_context *context, int most)
{
	struct ibv_async_event event;
	int count = 0;

	while (count < most && !ibv_get_async_event(context, &event)) {
		CHECK(event.event_type == IBV_EVENT_SQ_DRAINED);
		ibv_ack_async_event(&event);
		count++;
	}
	CHECK(count || errno == EAGAIN);
	return count;
}

/* Drains two send queues, and looks for events after each. Wrong: takes one event for each time that it is woken, although
   it is woken only when something new comes. */
static void one_a_wake_up(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	const int file = pair.context->async_fd, epoll = epoll_create1(EPOLL_CLOEXEC);
	int taken = 0;

	CHECK(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event));
	CHECK(!fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr drains = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};

		CHECK(!ibv_modify_qp(pair.ends[i], &drains, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
		if (epoll_wait(epoll, &event, 1, 10) == 1)
			taken += take_asynchronous(pair.context, wrong ? 1 : 2);
	}
	while (taken < 2) {
		CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
		taken += take_asynchronous(pair.context, wrong ? 1 : 2);
	}
	close(epoll);
	end_pair(&pair);
}

/* Takes events of the port. Returns whether it is down then. */
static int is_down(struct ibv_context *context, int most, int was_down)
{
	struct ibv_async_event event;

	for (int i = 0; i < most && !ibv_get_async_event(context, &event); i++) {
		if (event.event_type == IBV_EVENT_PORT_ERR)
			was_down = 1;
		if (event.event_type == IBV_EVENT_PORT_ACTIVE)
			was_down = 0;
		ibv_ack_async_event(&event);
	}
	return was_down;
}

/* Works, looks whether the port is down, and waits then until it is up. Wrong: takes one event for each time that it is
   woken. */
static void waits_for_the_port(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	const int file = pair.context->async_fd, epoll = epoll_create1(EPOLL_CLOEXEC);
	int down = 0;

	CHECK(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event));
	CHECK(!fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK));
	CHECK(!try_write(&pair, 1, IBV_SEND_SIGNALED));
	polled(pair.cq, 1);
	/* Other work. */
	CHECK(!poll(NULL, 0, 3));
	if (epoll_wait(epoll, &event, 1, 0) == 1)
		down = is_down(pair.context, wrong ? 1 : DEPTH, down);
	while (down) {
		CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
		down = is_down(pair.context, wrong ? 1 : DEPTH, down);
	}
	close(epoll);
	end_pair(&pair);
}

/* Waits for a SEND and a WRITE. Wrong: looks only whether completions are there. Right: gives both up if the device is
   gone, and then the SEND may still wait for a receive. */
static void polls_for_ever(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_wc wc;
	int count = 0, found = 0;

	send_on(pair.ends[0], 1, IBV_SEND_SIGNALED);
	if (try_write(&pair, 2, IBV_SEND_SIGNALED)) {
		if (!wrong) {
			end_pair(&pair);
			CHECK(0);
		}
	} else {
		receive_on(pair.ends[1], 3);
	}
	while (found < 3 && (wrong || count >= 0)) {
		count = ibv_poll_cq(pair.cq, 1, &wc);
		found += count > 0;
	}
	end_pair(&pair);
	CHECK(found == 3);
}

static const struct mistake mistakes[] = {
	{"takes-for-new", takes_for_new},
	{"one-of-two-queues", one_of_two_queues},
	{"one-a-wake-up", one_a_wake_up},
	{"waits-for-the-port", waits_for_the_port},
	{"polls-for-ever", polls_for_ever},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
