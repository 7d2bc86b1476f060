/* Programs that sleep until a completion channel is readable. Each mistake has a correct twin. The first argument names
   the mistake, the second is "wrong" or "right". Lines that a finding names are marked. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "channel.h"

/* Longer than the check waits for, and shorter than a test waits. */
enum { SECONDS = 30 };

static void until_read_by_poll(struct ibv_comp_channel *channel)
{
	struct pollfd all[] = {{.fd = -1, .events = POLLIN}, {.fd = channel->fd, .events = POLLIN}};

	CHECK(poll(all, 2, -1) == 1);
}

static void until_read_by_select(struct ibv_comp_channel *channel)
{
	fd_set all;

	FD_ZERO(&all);
	FD_SET(channel->fd, &all);
	CHECK(select(channel->fd + 1, &all, NULL, NULL, NULL) == 1);
}

static void add(int epoll, int file)
{
	struct epoll_event event = {.events = EPOLLIN};

	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event));
}

static void until_read_by_epoll(struct ibv_comp_channel *channel)
{
	const int epoll = epoll_create1(0);
	struct epoll_event event;

	CHECK(epoll >= 0);
	add(epoll, channel->fd);
	CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
	close(epoll);
}

static void until_read_or_late(struct ibv_comp_channel *channel)
{
	struct pollfd one = {.fd = channel->fd, .events = POLLIN};

	CHECK(poll(&one, 1, SECONDS * 1000) == 1);
}

/* Beside a pipe that nobody writes to. */
static void until_one_is_read(struct ibv_comp_channel *channel)
{
	const int epoll = epoll_create1(0);
	struct epoll_event event;
	int pipes[2];

	CHECK(epoll >= 0 && !pipe(pipes));
	add(epoll, channel->fd);
	add(epoll, pipes[0]);
	CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
	close(epoll);
	close(pipes[0]);
	close(pipes[1]);
}

/* The program sleeps for each of two messages. In the wrong form it does not ask for an event of the second. */
static void two_messages(int wrong, void (*until_read)(struct ibv_comp_channel *))
{
	if (wrong)
		end_when_found();

	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++) {
		if (!wrong || i == 0)
			arm(pair.cq);
		CHECK(ibv_poll_cq(pair.cq, 1, &wc) == 0);
		message(&pair);
		until_read(channel);
		get_event(channel);
		ibv_ack_cq_events(pair.cq, 1);
		polled(pair.cq, 2);
	}
	end_with(&pair, channel);
}

static void sleeps_on_completions(int wrong)
{
	two_messages(wrong, until_read_by_poll); /* sleeps */
}

static void sleeps_in_select(int wrong)
{
	two_messages(wrong, until_read_by_select);
}

static void sleeps_in_epoll(int wrong)
{
	two_messages(wrong, until_read_by_epoll);
}

static void sleeps_beside(int wrong)
{
	two_messages(wrong, until_read_or_late); /* sleeps */
}

static void sleeps_beside_a_pipe(int wrong)
{
	two_messages(wrong, until_one_is_read);
}

/* Arms late, and looks at the descriptor before it takes an event: on an adapter that raises none the call returns by its
   time-out, and nothing is taken. */
static void looks_before(int takes_at_once)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct pollfd one = {.fd = channel->fd, .events = POLLIN};
	struct ibv_wc wc;

	if (takes_at_once)
		CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	for (int i = 0; i < 5; i++) {
		message(&pair);
		arm(pair.cq);
		if (!takes_at_once)
			CHECK(poll(&one, 1, SECONDS * 1000) == 1);
		get_event(channel);
		ibv_ack_cq_events(pair.cq, 1);
		while (ibv_poll_cq(pair.cq, 1, &wc) > 0)
			continue;
	}
	end_with(&pair, channel);
}

/* Between the last poll and the arming a message comes. The wrong form then sleeps for an event of it. */
static void armed_late(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct ibv_wc wc;

	CHECK(ibv_poll_cq(pair.cq, 1, &wc) == 0);
	if (!wrong)
		arm(pair.cq);
	message(&pair);
	if (wrong)
		arm(pair.cq); /* armed */
	until_read_by_epoll(channel);
	get_event(channel);
	ibv_ack_cq_events(pair.cq, 1);
	polled(pair.cq, 2);
	end_with(&pair, channel);
}

struct handed {
	struct pair *pair;
	sem_t may_begin;
	int is_slow;
};

/* Empties the queue once it is handed over. Before that it has something else to do, until the check says something. */
static void *empties(void *given)
{
	struct handed *handed = given;

	while (sem_wait(&handed->may_begin))
		CHECK(errno == EINTR);
	while (handed->is_slow && !is_found())
		usleep(10000);
	arm(handed->pair->cq);
	polled(handed->pair->cq, 2);
	message(handed->pair);
	return NULL;
}

/* One thread takes the events, and another one polls and arms. */
static void dispatches(int is_slow)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct handed handed = {.pair = &pair, .is_slow = is_slow};
	struct ibv_wc wc;
	pthread_t worker;

	CHECK(ibv_poll_cq(pair.cq, 1, &wc) == 0);
	arm(pair.cq);
	CHECK(!sem_init(&handed.may_begin, 0, 0) && !pthread_create(&worker, NULL, empties, &handed));
	message(&pair);
	get_event(channel);
	ibv_ack_cq_events(pair.cq, 1);
	CHECK(!sem_post(&handed.may_begin));
	get_event(channel);
	ibv_ack_cq_events(pair.cq, 1);
	CHECK(!pthread_join(worker, NULL));
	polled(pair.cq, 2);
	end_with(&pair, channel);
}

/* Polls once it is told to. */
static void *polls(void *given)
{
	struct handed *handed = given;

	while (sem_wait(&handed->may_begin))
		CHECK(errno == EINTR);
	polled(handed->pair->cq, 2);
	return NULL;
}

/* One thread takes the events and arms, and another one polls. */
static void arms_for_another(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct handed handed = {.pair = &pair};
	struct ibv_wc wc;
	pthread_t worker;

	CHECK(!wrong && ibv_poll_cq(pair.cq, 1, &wc) == 0);
	arm(pair.cq);
	CHECK(!sem_init(&handed.may_begin, 0, 0) && !pthread_create(&worker, NULL, polls, &handed));
	message(&pair);
	get_event(channel);
	ibv_ack_cq_events(pair.cq, 1);
	arm(pair.cq);
	until_read_by_epoll(channel);
	get_event(channel);
	ibv_ack_cq_events(pair.cq, 1);
	CHECK(!sem_post(&handed.may_begin) && !pthread_join(worker, NULL));
	end_with(&pair, channel);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"sleeps-on-completions", sleeps_on_completions},
		{"sleeps-in-select", sleeps_in_select},
		{"sleeps-in-epoll", sleeps_in_epoll},
		{"sleeps-beside", sleeps_beside},
		{"sleeps-beside-a-pipe", sleeps_beside_a_pipe},
		{"looks-before", looks_before},
		{"armed-late", armed_late},
		{"dispatches", dispatches},
		{"arms-for-another", arms_for_another},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
