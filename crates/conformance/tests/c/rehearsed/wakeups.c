/* Public bugs of threads that sleep although there is something to do. */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "corpus.h"

/* How long the wrong form sleeps, in milliseconds. It would sleep for ever. */
enum { LONG_SLEEP = 100 };

struct sleeper {
	struct pair pair;
	struct ibv_comp_channel *channel;
	struct ibv_cq *sent, *received;
	struct ibv_qp *qp;
};

static struct ibv_cq *queue_of(struct sleeper *sleeper)
{
	struct ibv_cq *cq = ibv_create_cq(sleeper->pair.context, DEPTH, NULL, sleeper->channel, 0);

	CHECK(cq);
	return cq;
}

static struct sleeper begin(void)
{
	struct sleeper sleeper = {.pair = pair_of(IBV_QPT_RC)};

	sleeper.channel = ibv_create_comp_channel(sleeper.pair.context);
	CHECK(sleeper.channel);
	sleeper.sent = queue_of(&sleeper);
	sleeper.received = queue_of(&sleeper);
	sleeper.qp = to_itself(&sleeper.pair, sleeper.sent, sleeper.received, NULL);
	return sleeper;
}

static void end(struct sleeper *sleeper)
{
	CHECK(!ibv_destroy_qp(sleeper->qp) && !ibv_destroy_cq(sleeper->sent) && !ibv_destroy_cq(sleeper->received));
	CHECK(!ibv_destroy_comp_channel(sleeper->channel));
	end_pair(&sleeper->pair);
}

static void arm(struct ibv_cq *cq)
{
	CHECK(!ibv_req_notify_cq(cq, 0));
}

/* Sleeps until an event comes, and takes it. If something happens to the device, the program ends. */
static void sleep_in(struct sleeper *sleeper, int wrong)
{
	struct pollfd readable[] = {{.fd = sleeper->channel->fd, .events = POLLIN},
				    {.fd = sleeper->pair.context->async_fd, .events = POLLIN}};
	struct ibv_cq *cq;
	void *user;

	CHECK(poll(readable, 2, wrong ? LONG_SLEEP : -1) > 0 && !readable[1].revents);
	CHECK(!ibv_get_cq_event(sleeper->channel, &cq, &user));
	ibv_ack_cq_events(cq, 1);
}

static int take(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	const int count = ibv_poll_cq(cq, 1, &wc);

	CHECK(count >= 0 && (!count || wc.status == IBV_WC_SUCCESS));
	return count;
}

/* Waits for what is sent and for what is received. A message comes between the look at its queue and the arming.
   Wrong: looks only at the other queue again. */
static void looks_at_one(int wrong)
{
	struct sleeper sleeper = begin();
	int is_here;

	receive_on(sleeper.qp, 1);
	CHECK(!take(sleeper.received) && !take(sleeper.sent));
	send_on(sleeper.qp, 2, 0);
	arm(sleeper.sent);
	arm(sleeper.received);
	is_here = take(wrong ? sleeper.sent : sleeper.received);
	while (!is_here) {
		sleep_in(&sleeper, wrong);
		is_here = take(sleeper.received);
	}
	end(&sleeper);
}

/* Waits for a completion. Wrong: does not look again after it has asked for the event. */
static void sleeps_at_once(int wrong)
{
	struct sleeper sleeper = begin();
	int has_ended;

	write_to(&sleeper.pair, sleeper.qp, 0, 1024);
	arm(sleeper.sent);
	has_ended = wrong ? 0 : take(sleeper.sent);
	while (!has_ended) {
		sleep_in(&sleeper, wrong);
		has_ended = take(sleeper.sent);
	}
	end(&sleeper);
}

/* Takes completions two at a time. Wrong: goes to sleep beside the rest. */
static void leaves_the_rest(int wrong)
{
	struct sleeper sleeper = begin();
	int left = 5;

	arm(sleeper.sent);
	for (int i = 0; i < left; i++)
		write_to(&sleeper.pair, sleeper.qp, 0, 1024);
	while (left) {
		struct ibv_wc wc[2];
		int count;

		sleep_in(&sleeper, wrong);
		arm(sleeper.sent);
		do {
			count = ibv_poll_cq(sleeper.sent, 2, wc);
			CHECK(count >= 0 && (!count || wc[0].status == IBV_WC_SUCCESS));
			left -= count;
		} while (count && !wrong);
	}
	end(&sleeper);
}

/* Waits until a WRITE has ended. Who needs a place in the send queue takes completions too. Wrong: without telling. */
static void taken_by_another(int wrong)
{
	struct sleeper sleeper = begin();

	for (int i = 0; i < ROUNDS; i++) {
		int has_ended;

		write_to(&sleeper.pair, sleeper.qp, 0, 1024);
		has_ended = take(sleeper.sent);
		if (take(sleeper.sent) && !wrong)
			has_ended = 1;
		if (has_ended)
			continue;
		arm(sleeper.sent);
		while (!take(sleeper.sent))
			sleep_in(&sleeper, wrong);
	}
	end(&sleeper);
}

/* A set with a descriptor that tells once that it has become readable. */
static int edge_of(int descriptor)
{
	struct epoll_event readable = {.events = EPOLLIN | EPOLLET};
	const int set = epoll_create1(0);

	CHECK(set >= 0 && !fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK));
	CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &readable));
	return set;
}

/* Whether the set tells of something in so many milliseconds. */
static int wakes(int set, int milliseconds)
{
	struct epoll_event readable;
	const int count = epoll_wait(set, &readable, 1, milliseconds);

	CHECK(count >= 0);
	return count;
}

/* Takes a completion event, if there is one. */
static int take_event(struct sleeper *sleeper)
{
	struct ibv_cq *cq;
	void *user;

	if (ibv_get_cq_event(sleeper->channel, &cq, &user))
		return 0;
	ibv_ack_cq_events(cq, 1);
	return 1;
}

/* Takes an asynchronous event, if there is one. One that tells of no queue pair ends the program. */
static int take_notice(struct sleeper *sleeper)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(sleeper->pair.context, &event))
		return 0;
	ibv_ack_async_event(&event);
	CHECK(event.event_type == IBV_EVENT_SQ_DRAINED);
	return 1;
}

/* Has two things happen, each of which is told of. Does not wait long for the first before it begins the second. Wrong:
   takes one of what it is told each time that it is woken. */
static void woken(int wrong, struct sleeper *sleeper, int descriptor, void (*begin_one)(struct sleeper *, int),
		  int (*take_one)(struct sleeper *))
{
	const int set = edge_of(descriptor);
	int begun = 0, told = 0;

	while (told < 2) {
		if (begun < 2)
			begin_one(sleeper, begun++);
		if (!wakes(set, begun < 2 ? 0 : wrong ? LONG_SLEEP : 10 * LONG_SLEEP))
			CHECK(begun < 2);
		while (take_one(sleeper)) {
			told++;
			if (wrong)
				break;
		}
	}
	CHECK(!close(set));
}

static void begin_write(struct sleeper *sleeper, int which)
{
	struct ibv_qp *to = which ? sleeper->pair.ends[0] : sleeper->qp;

	write_to(&sleeper->pair, to, 0, 1024);
}

static void one_event_a_wake(int wrong)
{
	struct sleeper sleeper = begin();
	struct ibv_qp *other = to_itself(&sleeper.pair, sleeper.received, sleeper.received, NULL);

	CHECK(!ibv_destroy_qp(sleeper.pair.ends[0]));
	sleeper.pair.ends[0] = other;
	arm(sleeper.sent);
	arm(sleeper.received);
	woken(wrong, &sleeper, sleeper.channel->fd, begin_write, take_event);
	await(sleeper.sent, 1);
	await(sleeper.received, 1);
	CHECK(!ibv_destroy_qp(other));
	sleeper.pair.ends[0] = NULL;
	end(&sleeper);
}

static void begin_drain(struct sleeper *sleeper, int which)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};

	CHECK(!ibv_modify_qp(sleeper->pair.ends[which], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
}

static void one_notice_a_wake(int wrong)
{
	struct sleeper sleeper = begin();

	woken(wrong, &sleeper, sleeper.pair.context->async_fd, begin_drain, take_notice);
	end(&sleeper);
}

static const struct mistake mistakes[] = {
	{"looks-at-one", looks_at_one},
	{"sleeps-at-once", sleeps_at_once},
	{"leaves-the-rest", leaves_the_rest},
	{"taken-by-another", taken_by_another},
	{"one-event-a-wake", one_event_a_wake},
	{"one-notice-a-wake", one_notice_a_wake},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
