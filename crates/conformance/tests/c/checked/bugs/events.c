/* Bugs of kinds C and F: events of completion queues. spec/bugs.md names the programs that had them. The lines that a
   finding names are marked. */
#include <fcntl.h>
#include <poll.h>

#include "../channel.h"

/* Gets an event, and destroys the queue before it acknowledges the event. */
static void event_not_acknowledged(int wrong)
{
	if (wrong)
		end_when_found();

	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);

	arm(pair.cq);
	message(&pair);
	get_event(channel); /* here */
	polled(pair.cq, 2);
	if (!wrong)
		ibv_ack_cq_events(pair.cq, 1);
	end_with(&pair, channel); /* here */
}

/* Acknowledges events of two queues with the queue of the last event. */
static void acknowledged_with_the_last(int wrong)
{
	if (wrong)
		end_when_found();

	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct ibv_cq *queues[2] = {pair.cq, ibv_create_cq(pair.context, DEPTH, NULL, channel, 0)}, *queue;
	void *context;

	CHECK(queues[1]);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {.send_cq = queues[i], .recv_cq = queues[i], .qp_type = IBV_QPT_RC,
						.cap = {DEPTH / 2, DEPTH / 2, 1, 1, 0}};

		CHECK(!ibv_destroy_qp(pair.ends[i]));
		pair.ends[i] = ibv_create_qp(pair.pd, &init);
		CHECK(pair.ends[i]);
		arm(queues[i]);
	}
	for (int i = 0; i < 2; i++)
		connect_to(pair.ends[i], pair.context, pair.ends[!i]->qp_num);
	message(&pair);
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_get_cq_event(channel, &queue, &context));
		polled(queue, 1);
		if (!wrong)
			ibv_ack_cq_events(queue, 1);
	}
	if (wrong)
		ibv_ack_cq_events(queue, 2); /* here */
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(pair.ends[i]));
		pair.ends[i] = NULL;
	}
	CHECK(!ibv_destroy_cq(queues[1]));
	end_with(&pair, channel);
}

/* A handler takes one completion for each event, and asks for the next event when it finds the queue empty. Without an
   event it does not look into the queue. */
static void one_completion_for_each_event(int wrong)
{
	if (wrong)
		end_when_found();

	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct pollfd readable = {.events = POLLIN};
	struct ibv_cq *queue;
	struct ibv_wc wc;
	void *context;
	int got;

	readable.fd = channel->fd;
	CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	arm(pair.cq);
	message(&pair);
	for (int completed = 0; completed < 2;) {
		CHECK(poll(&readable, 1, -1) == 1);
		CHECK(!ibv_get_cq_event(channel, &queue, &context)); /* here */
		ibv_ack_cq_events(queue, 1);
		if (!wrong)
			arm(queue);
		do {
			got = ibv_poll_cq(queue, 1, &wc);
			completed += got;
		} while (got && !wrong);
		if (wrong && !got)
			arm(queue);
	}
	end_with(&pair, channel);
}

static struct {
	struct ibv_cq *cq;
	int commands, handled, wrong;
} server;

static void handle(void);

/* The state of the connection has changed, so its handler is called, at once or later. */
static void update(void)
{
	if (server.wrong)
		handle();
}

static void handle(void)
{
	struct ibv_wc wc;

	CHECK(!server.commands); /* here */
	while (ibv_poll_cq(server.cq, 1, &wc) > 0)
		server.commands++;
	while (server.commands) {
		update();
		server.commands--;
		server.handled++;
	}
}

/* A handler is entered again before it has carried out the commands that it has parsed. */
static void handler_entered_again(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	server.cq = pair.cq;
	server.wrong = wrong;
	receive_on(pair.ends[1], 2);
	send_on(pair.ends[0], 1, IBV_SEND_SIGNALED);
	while (server.handled < 2)
		handle();
	end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"event-not-acknowledged", event_not_acknowledged},
		{"acknowledged-with-the-last", acknowledged_with_the_last},
		{"one-completion-for-each-event", one_completion_for_each_event},
		{"handler-entered-again", handler_entered_again},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
