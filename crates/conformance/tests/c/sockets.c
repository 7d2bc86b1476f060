/*
 * rsocket(7) as a C program uses it: streams and datagrams over 127.0.0.1 and ::1, both ends in one process
 * but for a peer that is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sleeps.h"

static void shown(const char *what)
{
	printf("ok - %s\n", what);
}

/* An address of this host, with its length. */
static socklen_t here(int family, uint16_t port, struct sockaddr_storage *address)
{
	struct sockaddr_in *v4 = (void *)address;
	struct sockaddr_in6 *v6 = (void *)address;

	memset(address, 0, sizeof(*address));
	address->ss_family = family;
	if (family == AF_INET) {
		v4->sin_port = port;
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(*v4);
	}
	v6->sin6_port = port;
	v6->sin6_addr = in6addr_loopback;
	return sizeof(*v6);
}

/* A socket bound to a free port of this host, whose address is told. */
static int bound(int family, int type, struct sockaddr_storage *address, socklen_t *length)
{
	int socket = rsocket(family, type, 0);

	CHECK(socket >= 0);
	*length = here(family, 0, address);
	CHECK(!rbind(socket, (void *)address, *length));
	*length = sizeof(*address);
	CHECK(!rgetsockname(socket, (void *)address, length));
	return socket;
}

static int listening(int family, struct sockaddr_storage *address, socklen_t *length)
{
	int listener = bound(family, SOCK_STREAM, address, length);

	CHECK(!rlisten(listener, 128));
	return listener;
}

/* Two ends of a stream. Connecting does not wait for the other end to accept, but for the first. */
static void pair(int family, int ends[2])
{
	static int listeners[AF_MAX];
	struct sockaddr_storage address, peer, own;
	socklen_t length = sizeof(address), other = sizeof(peer), mine = sizeof(own);
	int listener = listeners[family];

	if (!listener)
		listener = listeners[family] = listening(family, &address, &length);
	CHECK(!rgetsockname(listener, (void *)&address, &length));

	ends[0] = rsocket(family, SOCK_STREAM, 0);
	CHECK(ends[0] >= 0 && !rconnect(ends[0], (void *)&address, length));
	ends[1] = raccept(listener, (void *)&peer, &other);
	CHECK(ends[1] >= 0);
	CHECK(!rgetsockname(ends[0], (void *)&own, &mine));
	CHECK(mine == other && !memcmp(&own, &peer, mine));
	other = sizeof(peer);
	CHECK(!rgetpeername(ends[0], (void *)&peer, &other));
	CHECK(other == length && !memcmp(&peer, &address, length));
}

static void closed(int ends[2])
{
	CHECK(!rclose(ends[0]) && !rclose(ends[1]));
}

static uint32_t random_of(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* One direction of a stream: so many bytes, in pieces of all sizes, each byte as its place says. */
#define STREAMED 3000000

struct direction {
	int socket;
	uint64_t seed;
};

static uint8_t byte_at(uint64_t seed, size_t at)
{
	return (at * 2654435761u >> 7) + seed;
}

static void *sends(void *argument)
{
	struct direction *direction = argument;
	uint64_t state = direction->seed;
	static __thread uint8_t piece[200000];
	size_t at = 0;

	while (at < STREAMED) {
		size_t size = random_of(&state) % (random_of(&state) % 3 ? 100 : sizeof(piece)) + 1;

		if (size > STREAMED - at)
			size = STREAMED - at;
		for (size_t i = 0; i < size; i++)
			piece[i] = byte_at(direction->seed, at + i);
		CHECK(rsend(direction->socket, piece, size, 0) == (ssize_t)size);
		at += size;
	}
	CHECK(!rshutdown(direction->socket, SHUT_WR));
	CHECK(rsend(direction->socket, piece, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	return NULL;
}

static void *receives(void *argument)
{
	struct direction *direction = argument;
	uint64_t state = ~direction->seed;
	static __thread uint8_t piece[300000];
	size_t at = 0;
	ssize_t got;

	while ((got = rrecv(direction->socket, piece, random_of(&state) % sizeof(piece) + 1, 0)) > 0) {
		for (ssize_t i = 0; i < got; i++)
			CHECK(piece[i] == byte_at(direction->seed, at + i));
		at += got;
	}
	CHECK(got == 0 && at == STREAMED);
	return NULL;
}

/* Rules: CM-59, CM-61 */
static void streams_both_ways(int family)
{
	struct direction there = {.seed = 17}, back = {.seed = 99}, from_there, from_back;
	pthread_t threads[4];
	int ends[2];

	pair(family, ends);
	from_there = there, from_back = back;
	there.socket = from_back.socket = ends[0];
	back.socket = from_there.socket = ends[1];
	CHECK(!pthread_create(&threads[0], NULL, sends, &there));
	CHECK(!pthread_create(&threads[1], NULL, sends, &back));
	CHECK(!pthread_create(&threads[2], NULL, receives, &from_there));
	CHECK(!pthread_create(&threads[3], NULL, receives, &from_back));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	closed(ends);
	shown("both ends send three million bytes at once, then have sent all");
}

/* Rules: CM-59, CM-61 */
static void ends_of_a_stream(void)
{
	struct linger at_once = {.l_onoff = 1};
	struct pollfd polled;
	char bytes[8];
	int ends[2];

	pair(AF_INET, ends);
	CHECK(rsend(ends[0], "abcdef", 6, 0) == 6);
	CHECK(rrecv(ends[1], bytes, 3, MSG_PEEK) == 3 && !memcmp(bytes, "abc", 3));
	CHECK(rrecv(ends[1], bytes, 6, MSG_WAITALL) == 6 && !memcmp(bytes, "abcdef", 6));
	CHECK(rrecv(ends[1], bytes, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(rsend(ends[0], "last", 4, 0) == 4 && !rclose(ends[0]));
	CHECK(rrecv(ends[1], bytes, 8, 0) == 4 && !memcmp(bytes, "last", 4));
	CHECK(rrecv(ends[1], bytes, 8, 0) == 0 && rrecv(ends[1], bytes, 8, 0) == 0);
	polled = (struct pollfd){ends[1], POLLIN | POLLRDHUP, 0};
	CHECK(rpoll(&polled, 1, -1) == 1 && polled.revents & POLLIN && polled.revents & POLLRDHUP);
	CHECK(rsend(ends[1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(!rclose(ends[1]));
	shown("what was sent before the end is read, then the end");

	pair(AF_INET, ends);
	CHECK(!rsetsockopt(ends[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
	CHECK(!rclose(ends[0]));
	CHECK(rrecv(ends[1], bytes, 8, 0) == -1 && errno == ECONNRESET);
	CHECK(rrecv(ends[1], bytes, 8, 0) == 0);
	CHECK(!rclose(ends[1]));
	shown("an end without a word resets the connection");
}

static void *sends_more_than_there_is_room_for(void *argument)
{
	static char much[1 << 20];
	ssize_t sent = rsend(*(int *)argument, much, sizeof(much), 0);

	CHECK(sent > 0 && sent < (ssize_t)sizeof(much));
	return NULL;
}

/* Rules: CM-61 */
static void an_end_is_told_behind_what_was_moved(void)
{
	struct linger at_once = {.l_onoff = 1};
	pthread_t thread;
	char bytes[8];
	int ends[2];

	pair(AF_INET, ends);
	CHECK(rsend(ends[0], "abc", 3, 0) == 3 && rrecv(ends[1], bytes, 8, MSG_PEEK) == 3);
	CHECK(!rsetsockopt(ends[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
	CHECK(!rclose(ends[0]));
	CHECK(rrecv(ends[1], bytes, 8, MSG_WAITALL) == 3);
	CHECK(rrecv(ends[1], bytes, 8, 0) == -1 && errno == ECONNRESET);
	CHECK(rrecv(ends[1], bytes, 8, 0) == 0 && !rclose(ends[1]));

	pair(AF_INET, ends);
	CHECK(!pthread_create(&thread, NULL, sends_more_than_there_is_room_for, &ends[1]));
	CHECK(rrecv(ends[0], bytes, 8, MSG_WAITALL) == 8);
	CHECK(!rsetsockopt(ends[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
	CHECK(!rclose(ends[0]) && !pthread_join(thread, NULL));
	CHECK(rrecv(ends[1], bytes, 8, 0) == -1 && errno == ECONNRESET);
	CHECK(rrecv(ends[1], bytes, 8, 0) == 0 && !rclose(ends[1]));
	shown("a call that has moved something leaves the end to the next");
}

/* Rules: CM-61 */
static void both_ends_shut_down(void)
{
	for (int how = SHUT_WR; how <= SHUT_RDWR; how++) {
		struct pollfd happened = {.events = POLLIN}, polled = {0};
		socklen_t length = sizeof(int);
		int ends[2], error = -1;
		char byte;

		pair(AF_INET, ends);
		happened.fd = polled.fd = ends[1];
		if (how == SHUT_WR) {
			CHECK(!rshutdown(ends[0], SHUT_WR) && rrecv(ends[1], &byte, 1, 0) == 0);
		}
		CHECK(!rshutdown(ends[1], how) && rrecv(ends[0], &byte, 1, 0) == 0);
		/* What has happened until now is taken; then comes the end of the connection. */
		CHECK(rpoll(&polled, 1, 0) >= 0);
		CHECK(!rclose(ends[0]) && poll(&happened, 1, -1) == 1);
		CHECK(!rgetsockopt(ends[1], SOL_SOCKET, SO_ERROR, &error, &length) && error == 0);
		CHECK(rpoll(&polled, 1, -1) == 1 && polled.revents == POLLHUP);
		CHECK(rrecv(ends[1], &byte, 1, 0) == 0);
		CHECK(rsend(ends[1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
		CHECK(!rclose(ends[1]));
	}
	shown("an end that has shut down both ways sees no error when the other closes");
}

static void *waits_for_data(void *argument)
{
	char byte;

	CHECK(rrecv(*(int *)argument, &byte, 1, 0) == 0);
	return NULL;
}

/* Rules: CM-61 */
static void shutting_down_wakes(void)
{
	pthread_t thread;
	int ends[2];

	pair(AF_INET, ends);
	CHECK(!pthread_create(&thread, NULL, waits_for_data, &ends[1]));
	CHECK(!rshutdown(ends[1], SHUT_RD) && !pthread_join(thread, NULL));
	/* What comes now is dropped, however much. */
	for (int i = 0; i < 100; i++) {
		static char much[10000];
		struct pollfd reader = {ends[1], POLLIN, 0};

		CHECK(rpoll(&reader, 1, 0) == 1);
		CHECK(rsend(ends[0], much, sizeof(much), MSG_DONTWAIT) != 0);
	}
	closed(ends);
	shown("shutting down wakes who reads");
}

struct reader {
	int socket;
	_Atomic pid_t thread;
	atomic_int ended;
	ssize_t length;
	int error;
};

static void *reads(void *argument)
{
	struct reader *reader = argument;
	char byte;

	reader->length = rrecv(reader->socket, &byte, 1, 0);
	reader->error = errno;
	reader->ended = 1;
	return NULL;
}

static void *reads_and_says_who_it_is(void *argument)
{
	struct reader *reader = argument;

	reader->thread = gettid();
	return reads(reader);
}

/* Rules: CM-60, CM-61 */
static void waking_takes_no_descriptor(void)
{
	struct rlimit before, none;
	struct reader reader = {0};
	pthread_t thread;
	int ends[2];

	pair(AF_INET, ends);
	reader.socket = ends[1];
	CHECK(!pthread_create(&thread, NULL, reads_and_says_who_it_is, &reader));
	while (!reader.thread || !sleeps(reader.thread))
		continue;
	CHECK(!getrlimit(RLIMIT_NOFILE, &before));
	none = before;
	/* The lowest that is free. */
	none.rlim_cur = dup(ends[0]);
	CHECK(!close(none.rlim_cur) && !setrlimit(RLIMIT_NOFILE, &none));
	CHECK(dup(ends[0]) == -1 && errno == EMFILE);
	CHECK(!rshutdown(ends[1], SHUT_RD) && !pthread_join(thread, NULL) && reader.length == 0);
	CHECK(!setrlimit(RLIMIT_NOFILE, &before));
	closed(ends);
	shown("who waits is woken though there are no descriptors left");
}

static void *waits_to_accept(void *argument)
{
	struct reader *reader = argument;

	reader->thread = gettid();
	CHECK(raccept(reader->socket, NULL, NULL) == -1 && errno == EINVAL);
	return NULL;
}

/* Rules: CM-61 */
static void a_listener_shuts_down(void)
{
	struct sockaddr_storage address, again;
	socklen_t length;
	struct reader waiter = {.socket = listening(AF_INET, &address, &length)};
	int socket = rsocket(AF_INET, SOCK_STREAM, 0), accepted;
	pthread_t thread;

	CHECK(!rshutdown(waiter.socket, SHUT_WR));
	CHECK(!pthread_create(&thread, NULL, waits_to_accept, &waiter));
	while (!waiter.thread || !sleeps(waiter.thread))
		continue;
	CHECK(!rshutdown(waiter.socket, SHUT_RD) && !pthread_join(thread, NULL));
	CHECK(rconnect(socket, (void *)&address, length) == -1 && errno == ECONNREFUSED);
	/* It has its address still, and can listen there again. */
	CHECK(!rlisten(waiter.socket, 1) && !rgetsockname(waiter.socket, (void *)&again, &length));
	CHECK(!memcmp(&again, &address, length) && !rconnect(socket, (void *)&address, length));
	CHECK((accepted = raccept(waiter.socket, NULL, NULL)) >= 0);
	CHECK(!rclose(accepted) && !rclose(socket) && !rclose(waiter.socket));
	shown("a listener that is shut down lets go who waits to accept");
}

/* Rules: CM-59, CM-60 */
static void connecting(void)
{
	struct sockaddr_storage address;
	socklen_t length = here(AF_INET, htons(9), &address), size = sizeof(int);
	int socket = rsocket(AF_INET, SOCK_STREAM, 0), listener, error = -1;
	struct pollfd polled = {.events = POLLOUT};

	CHECK(rconnect(socket, (void *)&address, length) == -1 && errno == ECONNREFUSED);
	listener = listening(AF_INET, &address, &length);
	CHECK(!rconnect(socket, (void *)&address, length));
	CHECK(!rclose(socket));

	socket = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(rfcntl(socket, F_GETFL) & O_NONBLOCK);
	CHECK(rconnect(socket, (void *)&address, length) == 0 || errno == EINPROGRESS);
	polled.fd = socket;
	CHECK(rpoll(&polled, 1, -1) == 1 && polled.revents == POLLOUT);
	CHECK(!rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) && error == 0);
	CHECK(rconnect(socket, (void *)&address, length) == -1 && errno == EISCONN);
	CHECK(!rclose(socket) && !rclose(listener));

	socket = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(rconnect(socket, (void *)&address, length) == -1);
	if (errno == EINPROGRESS) {
		polled.fd = socket;
		CHECK(rpoll(&polled, 1, -1) == 1 && polled.revents & POLLERR);
		CHECK(!rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size));
		CHECK(error == ECONNREFUSED);
	} else {
		CHECK(errno == ECONNREFUSED);
	}
	CHECK(!rclose(socket));
	shown("connecting waits, or goes on while it is waited for, or is refused");
}

/* Rules: CM-60 */
static void connecting_again(void)
{
	struct sockaddr_storage nowhere, address, own;
	socklen_t length, other, size = sizeof(int);
	/* It does not listen yet, so who connects to it waits for a moment. */
	int silent = bound(AF_INET, SOCK_STREAM, &nowhere, &length);
	int socket = bound(AF_INET, SOCK_STREAM, &own, &other), listener, error = -1, on = 1, sharing;
	struct pollfd polled = {.fd = socket, .events = POLLOUT};

	CHECK(!rfcntl(socket, F_SETFL, O_NONBLOCK));
	CHECK(rconnect(socket, (void *)&nowhere, length) == -1 && errno == EINPROGRESS);
	other = sizeof(address);
	CHECK(rgetpeername(socket, (void *)&address, &other) == -1 && errno == ENOTCONN);
	CHECK(rpoll(&polled, 1, -1) == 1 && polled.revents & POLLERR);
	/* Who asks by connecting again is told, and of nothing that is over. */
	CHECK(rconnect(socket, (void *)&nowhere, length) == -1 && errno == ECONNREFUSED);
	listener = listening(AF_INET, &address, &length);
	CHECK(!rconnect(socket, (void *)&address, length) || errno == EINPROGRESS);
	CHECK(rpoll(&polled, 1, -1) == 1 && polled.revents == POLLOUT);
	CHECK(!rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) && error == 0);
	CHECK(!rclose(socket));

	/* A port that is shared is shared after that too. */
	socket = rsocket(AF_INET, SOCK_STREAM, 0), sharing = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(!rsetsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	CHECK(!rsetsockopt(sharing, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	other = here(AF_INET, 0, &own);
	CHECK(!rbind(sharing, (void *)&own, other) && !rgetsockname(sharing, (void *)&own, &other));
	CHECK(!rbind(socket, (void *)&own, other));
	CHECK(rconnect(socket, (void *)&nowhere, length) == -1 && errno == ECONNREFUSED);
	CHECK(!rconnect(socket, (void *)&address, length));
	CHECK(!rclose(socket) && !rclose(sharing));

	/* The port that was chosen for the attempt goes with it. */
	socket = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(rconnect(socket, (void *)&nowhere, length) == -1 && errno == ECONNREFUSED);
	other = sizeof(own);
	CHECK(!rgetsockname(socket, (void *)&own, &other) && !((struct sockaddr_in *)&own)->sin_port);
	CHECK(!rclose(socket) && !rclose(listener) && !rclose(silent));
	shown("a socket that could not be connected says so, and can be connected again");
}

struct connect {
	int socket;
	struct sockaddr_storage to;
	socklen_t length;
	int error;
};

static void *connects(void *argument)
{
	struct connect *connect = argument;

	CHECK(rconnect(connect->socket, (void *)&connect->to, connect->length) == -1);
	connect->error = errno;
	return NULL;
}

/* Rules: CM-60, CM-61 */
static void a_connect_is_given_up(void)
{
	static const int ways[] = {SHUT_RD, SHUT_WR, SHUT_RDWR};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *silent;
	struct rdma_cm_event *event;
	struct connect connect = {0};
	struct sockaddr_storage address;
	socklen_t length, size = sizeof(int);
	int listener = listening(AF_INET, &address, &length);

	/* It hears of who connects, and never answers. */
	CHECK(channel && !rdma_create_id(channel, &silent, NULL, RDMA_PS_TCP));
	connect.length = here(AF_INET, 0, &connect.to);
	CHECK(!rdma_bind_addr(silent, (void *)&connect.to) && !rdma_listen(silent, 8));
	here(AF_INET, rdma_get_src_port(silent), &connect.to);
	alarm(60);
	for (int at = 0; at < 6; at++) {
		const int waits = at < 3;
		struct pollfd polled = {.events = POLLIN};
		struct rdma_cm_id *request;
		pthread_t thread;

		connect.socket = polled.fd = rsocket(AF_INET, SOCK_STREAM | (waits ? 0 : SOCK_NONBLOCK), 0);
		CHECK(connect.socket >= 0);
		CHECK(rshutdown(connect.socket, ways[at % 3]) == -1 && errno == ENOTCONN);
		if (waits)
			CHECK(!pthread_create(&thread, NULL, connects, &connect));
		else
			connects(&connect);
		CHECK(!rdma_get_cm_event(channel, &event));
		CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
		request = event->id;
		CHECK(waits || connect.error == EINPROGRESS);
		CHECK(!rshutdown(connect.socket, ways[at % 3]));
		if (waits) {
			CHECK(!pthread_join(thread, NULL) && connect.error == ECONNRESET);
		} else {
			CHECK(rpoll(&polled, 1, -1) == 1);
			CHECK((polled.revents & (POLLIN | POLLERR | POLLHUP)) == (POLLIN | POLLERR | POLLHUP));
			CHECK(!rgetsockopt(connect.socket, SOL_SOCKET, SO_ERROR, &connect.error, &size));
			CHECK(connect.error == ECONNRESET);
		}
		CHECK(rshutdown(connect.socket, SHUT_RDWR) == -1);
		/* As every connect that has failed, it can be tried elsewhere. */
		CHECK(!rfcntl(connect.socket, F_SETFL, 0));
		CHECK(!rconnect(connect.socket, (void *)&address, length) && !rclose(connect.socket));
		CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(request));
	}
	alarm(0);
	CHECK(!rdma_destroy_id(silent) && !rclose(listener));
	rdma_destroy_event_channel(channel);
	shown("a connect is given up by shutting the socket down");
}

/* Rules: CM-60 */
static void what_is_not_wanted(void)
{
	struct msghdr message = {0};
	char bytes[8];
	int ends[2];

	pair(AF_INET, ends);
	CHECK(rsend(ends[0], "abcdefgh", 8, 0) == 8);
	CHECK(rrecv(ends[1], NULL, 3, MSG_PEEK | MSG_TRUNC) == 3);
	CHECK(rrecv(ends[1], NULL, 3, MSG_TRUNC) == 3);
	memset(bytes, '.', sizeof(bytes));
	CHECK(rrecv(ends[1], bytes, 2, MSG_TRUNC | MSG_WAITALL) == 2 && bytes[0] == '.');
	/* Errors have no queue, and who asks does not wait, and takes nothing. */
	CHECK(rrecvmsg(ends[1], &message, MSG_ERRQUEUE) == -1 && errno == EAGAIN);
	CHECK(rrecv(ends[1], bytes, 8, MSG_ERRQUEUE) == -1 && errno == EAGAIN);
	CHECK(rrecv(ends[1], bytes, 8, 0) == 3 && !memcmp(bytes, "fgh", 3));
	CHECK(rrecv(ends[1], bytes, 8, MSG_ERRQUEUE) == -1 && errno == EAGAIN);
	closed(ends);
	shown("bytes are taken without room for them, and errors are asked for without waiting");
}

/* Rules: CM-60 */
static void many_at_once(void)
{
	enum { MANY = 40 };
	const long page = sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pollfd polled[MANY + 1];
	int ends[MANY][2], tube[2], count;
	fd_set readable, *at_the_end;
	char byte;

	CHECK(!pipe(tube));
	for (int i = 0; i < MANY; i++) {
		pair(AF_INET, ends[i]);
		polled[i] = (struct pollfd){ends[i][1], POLLIN, 0};
	}
	polled[MANY] = (struct pollfd){tube[0], POLLIN, 0};
	CHECK(rpoll(polled, MANY + 1, 0) == 0 && rpoll(polled, MANY + 1, 20) == 0);
	for (int i = 0; i < MANY; i += 13) {
		CHECK(rsend(ends[i][0], "x", 1, 0) == 1);
		CHECK(rpoll(polled, MANY + 1, -1) == 1 && polled[i].revents == POLLIN);
		CHECK(rrecv(ends[i][1], &byte, 1, 0) == 1);
	}
	CHECK(write(tube[1], "x", 1) == 1 && rsend(ends[3][0], "x", 1, 0) == 1);
	polled[3].events = POLLIN;
	while (rpoll(polled, MANY + 1, -1) != 2)
		continue;
	CHECK(polled[MANY].revents == POLLIN && polled[3].revents == POLLIN);
	FD_ZERO(&readable);
	FD_SET(tube[0], &readable);
	FD_SET(ends[3][1], &readable);
	FD_SET(ends[4][1], &readable);
	CHECK(rselect(FD_SETSIZE, &readable, NULL, NULL, NULL) == 2);
	CHECK(FD_ISSET(tube[0], &readable) && FD_ISSET(ends[3][1], &readable));
	/* A set that is no longer than the count says, with no more memory behind it. */
	CHECK(pages != MAP_FAILED && !mprotect(pages + page, page, PROT_NONE));
	count = ends[4][1] + 1;
	at_the_end = (fd_set *)(pages + page - (count + 63) / 64 * 8);
	FD_SET(ends[3][1], at_the_end);
	FD_SET(ends[4][1], at_the_end);
	CHECK(rselect(count, at_the_end, NULL, NULL, NULL) == 1);
	CHECK(FD_ISSET(ends[3][1], at_the_end) && !FD_ISSET(ends[4][1], at_the_end));
	CHECK(!munmap(pages, 2 * page));
	for (int i = 0; i < MANY; i++)
		closed(ends[i]);
	close(tube[0]), close(tube[1]);
	shown("forty sockets and a pipe are waited for together");
}

/* Nanoseconds that this thread, or the process, has used the processor. */
static int64_t processor(clockid_t of)
{
	struct timespec time;

	CHECK(!clock_gettime(of, &time));
	return time.tv_sec * (int64_t)1000000000 + time.tv_nsec;
}

/* Rules: CM-60 */
static void not_asked_for(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	int listener = listening(AF_INET, &address, &length), socket = rsocket(AF_INET, SOCK_STREAM, 0);
	struct pollfd polled = {.fd = listener, .events = POLLIN};
	int64_t begun;

	CHECK(!rconnect(socket, (void *)&address, length) && rpoll(&polled, 1, -1) == 1);
	polled.events = 0;
	begun = processor(CLOCK_THREAD_CPUTIME_ID);
	CHECK(rpoll(&polled, 1, 300) == 0);
	CHECK(processor(CLOCK_THREAD_CPUTIME_ID) < begun + 100000000);
	CHECK(!rclose(socket) && !rclose(listener));
	shown("who waits for something else sleeps while there is something to accept");
}

static atomic_int accepted_by_any;

static void *accepts_all(void *listener)
{
	int socket;

	while ((socket = raccept(*(int *)listener, NULL, NULL)) >= 0) {
		CHECK(!rclose(socket));
		accepted_by_any++;
	}
	CHECK(errno == EINVAL);
	return NULL;
}

static void *reads_to_the_end(void *socket)
{
	char byte;

	while (rrecv(*(int *)socket, &byte, 1, 0) > 0)
		continue;
	return NULL;
}

/* Those who wait for one socket sleep, also after something has come that was not for all of them. */
/* Rules: CM-60 */
static void many_wait_for_one(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	int listener = listening(AF_INET, &address, &length), socket = rsocket(AF_INET, SOCK_STREAM, 0), ends[2];
	pthread_t threads[6];
	int64_t begun;

	pair(AF_INET, ends);
	for (int i = 0; i < 3; i++) {
		CHECK(!pthread_create(&threads[i], NULL, accepts_all, &listener));
		CHECK(!pthread_create(&threads[3 + i], NULL, reads_to_the_end, &ends[1]));
	}
	CHECK(!rconnect(socket, (void *)&address, length) && rsend(ends[0], "x", 1, 0) == 1);
	while (!accepted_by_any)
		sched_yield();
	begun = processor(CLOCK_PROCESS_CPUTIME_ID);
	poll(NULL, 0, 300);
	CHECK(processor(CLOCK_PROCESS_CPUTIME_ID) < begun + 100000000);
	CHECK(!rshutdown(listener, SHUT_RD) && !rshutdown(ends[0], SHUT_WR));
	for (int i = 0; i < 6; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(!rclose(socket) && !rclose(listener));
	closed(ends);
	shown("threads that wait for one socket sleep");
}

/* Rules: CM-60 */
static void times(void)
{
	struct timeval time = {.tv_usec = 20000};
	static char much[1 << 20];
	char byte;
	int ends[2];

	pair(AF_INET, ends);
	CHECK(!rsetsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	CHECK(!rsetsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)));
	CHECK(rrecv(ends[0], &byte, 1, 0) == -1 && errno == EAGAIN);
	/* More than there is room for. */
	CHECK(rsend(ends[0], much, sizeof(much), 0) < (ssize_t)sizeof(much));
	CHECK(rsend(ends[0], much, sizeof(much), 0) == -1 && errno == EAGAIN);
	closed(ends);
	shown("a call waits no longer than it may");
}

/* Rules: CM-60 */
static void options(void)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0), value, ends[2];
	const unsigned char one = 0x10;
	socklen_t length = sizeof(value);
	struct ibv_path_data path;
	static const struct {
		int level, name, set, got;
	} all[] = {
		{SOL_SOCKET, SO_SNDBUF, 100000, 100000}, {SOL_SOCKET, SO_RCVBUF, 50000, 50000},
		{SOL_SOCKET, SO_REUSEADDR, 1, 1},	 {SOL_SOCKET, SO_KEEPALIVE, 1, 1},
		{SOL_SOCKET, SO_OOBINLINE, 1, 1},	 {IPPROTO_TCP, TCP_NODELAY, 1, 1},
		{SOL_RDMA, RDMA_SQSIZE, 100, 100},	 {SOL_RDMA, RDMA_RQSIZE, 50, 50},
		{SOL_RDMA, RDMA_INLINE, 16, 16},	 {SOL_RDMA, RDMA_IOMAPSIZE, 100, 100},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		value = all[i].set;
		CHECK(!rsetsockopt(socket, all[i].level, all[i].name, &value, sizeof(value)));
		value = -1;
		CHECK(!rgetsockopt(socket, all[i].level, all[i].name, &value, &length));
		CHECK(value == all[i].got && length == sizeof(value));
	}
	CHECK(!rgetsockopt(socket, SOL_SOCKET, SO_TYPE, &value, &length) && value == SOCK_STREAM);
	/* Options of IPv4 may have one byte, and no others. */
	CHECK(!rsetsockopt(socket, IPPROTO_IP, IP_TOS, &one, 1));
	CHECK(!rgetsockopt(socket, IPPROTO_IP, IP_TOS, &value, &length) && value == one);
	CHECK(rsetsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &one, 1) == -1 && errno == EINVAL);
	CHECK(rgetsockopt(socket, 4711, 1, &value, &length) == -1 && errno == ENOPROTOOPT);
	CHECK(!rclose(socket));
	pair(AF_INET, ends);
	CHECK(!rgetsockopt(ends[0], IPPROTO_TCP, TCP_MAXSEG, &value, &length) && value >= 256);
	length = sizeof(path);
	CHECK(!rgetsockopt(ends[0], SOL_RDMA, RDMA_ROUTE, &path, &length));
	CHECK(length == sizeof(path));
	closed(ends);
	shown("options are as they were set");
}

/* Rules: CM-62 */
static void memory_of_the_peer(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	int listener = listening(AF_INET, &address, &length), ends[2], room = 8;
	static char target[10000], source[10000];
	char byte;

	memset(source, 0x5A, sizeof(source));
	CHECK(!rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &room, sizeof(room)));
	ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(!rsetsockopt(ends[0], SOL_RDMA, RDMA_IOMAPSIZE, &room, sizeof(room)));
	CHECK(!rconnect(ends[0], (void *)&address, length));
	ends[1] = raccept(listener, NULL, NULL);
	CHECK(ends[1] >= 0);
	CHECK(riomap(ends[1], target, sizeof(target), PROT_WRITE, 0, 1000) == 1000);
	CHECK(rsend(ends[1], "m", 1, 0) == 1 && rrecv(ends[0], &byte, 1, 0) == 1);
	CHECK(riowrite(ends[0], source, 100, 3000, 0) == 100);
	CHECK(riowrite(ends[0], source, sizeof(source), 10000, 0) == 1000);
	CHECK((ssize_t)riowrite(ends[0], source, 1, 999, 0) == -1 && errno == EINVAL);
	CHECK(rsend(ends[0], "w", 1, 0) == 1 && rrecv(ends[1], &byte, 1, 0) == 1);
	CHECK(target[1999] == 0 && target[2000] == 0x5A && target[2099] == 0x5A);
	CHECK(target[2100] == 0 && target[8999] == 0 && target[9000] == 0x5A);
	CHECK(!riounmap(ends[1], target, sizeof(target)));
	CHECK(rsend(ends[1], "u", 1, 0) == 1 && rrecv(ends[0], &byte, 1, 0) == 1);
	CHECK((ssize_t)riowrite(ends[0], source, 1, 3000, 0) == -1 && errno == EINVAL);
	closed(ends);
	CHECK(!rclose(listener));
	shown("memory is written to by the offset that it is mapped at");
}

/* Rules: CM-60, CM-62 */
static void options_before_accepting(void)
{
	static char target[100];
	int had = 0, room = 8;

	/* A machine that is busy may take longer than the request waits. */
	for (int try = 0; try < 20 && !had; try++) {
		struct sockaddr_storage address;
		socklen_t length;
		int listener = listening(AF_INET, &address, &length), ends[2];
		struct pollfd polled = {.events = POLLOUT};

		ends[0] = polled.fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(rconnect(ends[0], (void *)&address, length) == 0 || errno == EINPROGRESS);
		/* The request has come, and is not answered yet. */
		rpoll(&polled, 1, 20);
		CHECK(!rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &room, sizeof(room)));
		ends[1] = raccept(listener, NULL, NULL);
		CHECK(ends[1] >= 0 && rpoll(&polled, 1, -1) == 1 && polled.revents == POLLOUT);
		had = riomap(ends[0], target, sizeof(target), PROT_WRITE, 0, 0) == 0;
		closed(ends);
		CHECK(!rclose(listener));
	}
	CHECK(had);
	shown("what is set before the first socket is accepted, it has");
}

/* Rules: CM-63 */
static void datagrams(int family)
{
	struct sockaddr_storage one, other, from;
	socklen_t lengths[2], length;
	int sockets[2] = {bound(family, SOCK_DGRAM, &one, &lengths[0]),
			  bound(family, SOCK_DGRAM, &other, &lengths[1])};
	static uint8_t sent[9000], got[9000];
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	uint64_t state = 5;
	int third;

	for (int i = 0; i < 500; i++) {
		/* Some are longer than a message between queue pairs. */
		size_t size = random_of(&state) % (i % 50 ? 900 : sizeof(sent));

		for (size_t at = 0; at < size; at++)
			sent[at] = byte_at(i, at);
		CHECK(rsendto(sockets[0], sent, size, 0, (void *)&other, lengths[1]) ==
		      (ssize_t)size);
		length = sizeof(from);
		CHECK(rrecvfrom(sockets[1], got, sizeof(got), 0, (void *)&from, &length) ==
		      (ssize_t)size);
		CHECK(length == lengths[0] && !memcmp(&from, &one, length));
		CHECK(!memcmp(got, sent, size));
	}
	CHECK(!rconnect(sockets[1], (void *)&one, lengths[0]));
	CHECK(rsend(sockets[1], "back", 4, 0) == 4);
	CHECK(rrecv(sockets[0], got, 2, MSG_TRUNC) == 4 && !memcmp(got, "ba", 2));
	CHECK(rrecv(sockets[0], got, 2, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(rsend(sockets[0], "x", 1, 0) == -1 && errno == EDESTADDRREQ);
	CHECK(rsendto(sockets[0], "", 0, 0, (void *)&other, lengths[1]) == 0);
	CHECK(rrecv(sockets[1], got, 2, 0) == 0);
	/* Who is connected to nobody any more hears everybody. */
	CHECK(!rconnect(sockets[1], &nobody, sizeof(nobody)));
	third = bound(family, SOCK_DGRAM, &one, &length);
	CHECK(rsendto(third, "third", 5, 0, (void *)&other, lengths[1]) == 5);
	CHECK(rrecv(sockets[1], got, 8, 0) == 5 && !memcmp(got, "third", 5));
	CHECK(!rclose(third));
	closed(sockets);
	shown("datagrams arrive whole, and say where they are from");
}

/* Rules: CM-63 */
static void datagrams_of_an_unbound_socket(int family)
{
	struct sockaddr_storage address, first, from;
	socklen_t length, other;
	int bound_one = bound(family, SOCK_DGRAM, &address, &length), socket = rsocket(family, SOCK_DGRAM, 0);
	char byte;

	CHECK(socket >= 0);
	/* The first goes by UDP, and those behind its answer between queue pairs. */
	for (int i = 0; i < 10; i++) {
		CHECK(rsendto(socket, "x", 1, 0, (void *)&address, length) == 1);
		other = sizeof(from);
		CHECK(rrecvfrom(bound_one, &byte, 1, 0, (void *)&from, &other) == 1);
		if (i == 0)
			first = from;
		CHECK(!memcmp(&from, &first, other));
		CHECK(rsendto(bound_one, "y", 1, 0, (void *)&from, other) == 1);
		CHECK(rrecv(socket, &byte, 1, 0) == 1 && byte == 'y');
	}
	other = sizeof(from);
	CHECK(!rgetsockname(socket, (void *)&from, &other));
	CHECK(!memcmp(from.__ss_padding, first.__ss_padding, 2));
	CHECK(!rclose(socket) && !rclose(bound_one));
	shown("datagrams of a socket that is not bound say where they are from");
}

/* Rules: CM-64 */
static void refused(void)
{
	struct sockaddr_storage address;
	socklen_t length = here(AF_INET, 0, &address);
	int socket = rsocket(AF_INET, SOCK_STREAM, 0), tube[2];
	static struct iovec many[1025];
	struct msghdr message = {.msg_iov = many, .msg_iovlen = 1025};
	char bytes[8];

	CHECK(rsocket(AF_UNIX, SOCK_STREAM, 0) == -1 && errno == EAFNOSUPPORT);
	CHECK(rsocket(AF_INET, SOCK_RAW, 0) == -1 && errno == ESOCKTNOSUPPORT);
	CHECK(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP) == -1 && errno == EPROTONOSUPPORT);
	CHECK(!pipe(tube));
	CHECK(rrecv(tube[0], bytes, 8, 0) == -1 && errno == EBADF);
	CHECK(rclose(tube[0]) == -1 && errno == EBADF && !close(tube[0]) && !close(tube[1]));
	CHECK(rclose(-1) == -1 && errno == EBADF && rclose(1 << 30) == -1 && errno == EBADF);
	CHECK(rrecv(socket, bytes, 8, 0) == -1 && errno == ENOTCONN);
	CHECK(rsend(socket, bytes, 8, 0) == -1 && errno == ENOTCONN);
	CHECK(rshutdown(socket, SHUT_WR) == -1 && errno == ENOTCONN);
	CHECK(rshutdown(socket, 7) == -1 && errno == EINVAL);
	CHECK(raccept(socket, NULL, NULL) == -1 && errno == EINVAL);
	CHECK(rgetpeername(socket, (void *)&address, &length) == -1 && errno == ENOTCONN);
	length = here(AF_INET6, 0, &address);
	CHECK(rbind(socket, (void *)&address, length) == -1 && errno == EAFNOSUPPORT);
	length = here(AF_INET, 0, &address);
	CHECK(rbind(socket, (void *)&address, 3) == -1 && errno == EINVAL);
	CHECK(rbind(socket, NULL, length) == -1 && errno == EINVAL);
	CHECK(rbind(socket, (void *)&address, length) == 0);
	CHECK(rbind(socket, (void *)&address, length) == -1 && errno == EINVAL);
	CHECK(rfcntl(socket, F_DUPFD, 0) == -1 && errno == EINVAL);
	CHECK(riomap(socket, bytes, 8, PROT_WRITE, 0, -1) == -1 && errno == ENOTCONN);
	CHECK(rpoll(NULL, 1, 0) == -1 && errno == EFAULT);
	CHECK(rsendmsg(socket, &message, 0) == -1 && errno == EMSGSIZE);
	CHECK(rrecvmsg(socket, &message, 0) == -1 && errno == EMSGSIZE);
	CHECK(rwritev(socket, many, 1025) == -1 && errno == EINVAL);
	CHECK(!rclose(socket) && rclose(socket) == -1 && errno == EBADF);
	shown("what makes no sense has its errno");
}

/* Sizes that the program chooses, with more than there is memory for. */
/* Rules: CM-64 */
static void too_much(void)
{
	const size_t much = (size_t)1 << 30;
	uint8_t *bytes = mmap(NULL, much, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int stream = rsocket(AF_INET, SOCK_STREAM, 0), socket;
	struct pollfd *polled = (void *)bytes;
	struct rlimit unlimited, limit;
	struct sockaddr_storage address;
	socklen_t length;
	long pages;
	FILE *statm = fopen("/proc/self/statm", "r");

	CHECK(bytes != MAP_FAILED && stream >= 0 && statm);
	socket = bound(AF_INET, SOCK_DGRAM, &address, &length);
	CHECK(!getrlimit(RLIMIT_AS, &unlimited) && fscanf(statm, "%ld", &pages) == 1 && !fclose(statm));
	limit = unlimited;
	limit.rlim_cur = pages * sysconf(_SC_PAGESIZE) + (8 << 20);
	CHECK(!setrlimit(RLIMIT_AS, &limit));
	CHECK(rsetsockopt(stream, SOL_RDMA, RDMA_ROUTE, bytes, much) == -1 && errno == ENOMEM);
	CHECK(rsendto(socket, bytes, much, 0, (void *)&address, length) == -1 && errno == EMSGSIZE);
	CHECK(rsendto(socket, bytes, 65536, 0, (void *)&address, length) == -1 && errno == EMSGSIZE);
	CHECK(rpoll(polled, much / sizeof(*polled), 0) == -1 && errno == ENOMEM);
	CHECK(rpoll(polled, (nfds_t)-1, 0) == -1 && errno == ENOMEM);
	CHECK(!setrlimit(RLIMIT_AS, &unlimited));
	CHECK(!rclose(stream) && !rclose(socket) && !munmap(bytes, much));
	shown("more than there is memory for is refused");
}

/* A peer of another protocol is refused; one that claims data it was not let send ends its connection. */
/* Rules: CM-59, CM-64 */
static void strange_peers(void)
{
	struct ibv_send_wr *bad, claim = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
	struct sockaddr_storage address;
	socklen_t length;
	int listener = listening(AF_INET, &address, &length), socket;
	static uint8_t told[40], lists[64];
	struct rdma_conn_param param = {.private_data = told, .private_data_len = sizeof(told)};
	char byte;

	for (int version = 2; version > 0; version--) {
		struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1};
		struct rdma_cm_id *id;
		struct ibv_mr *mr;
		uint64_t place = htobe64((uintptr_t)lists);
		uint32_t key;

		attr.cap.max_send_wr = attr.cap.max_recv_wr = 8;
		attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
		CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
		CHECK(!rdma_resolve_addr(id, NULL, (void *)&address, 2000));
		CHECK(!rdma_resolve_route(id, 2000) && !rdma_create_qp(id, NULL, &attr));
		CHECK((mr = rdma_reg_write(id, lists, sizeof(lists))));
		for (int i = 0; i < 8; i++)
			CHECK(!rdma_post_recv(id, NULL, lists, 0, mr));
		key = htonl(mr->rkey);
		told[0] = version, told[3] = 10, told[23] = 2;
		memcpy(told + 8, &place, sizeof(place)), memcpy(told + 16, &key, sizeof(key));
		if (version != 1) {
			CHECK(rdma_connect(id, &param) == -1 && errno == ECONNREFUSED);
		} else {
			CHECK(!rdma_connect(id, &param));
			socket = raccept(listener, NULL, NULL);
			claim.imm_data = htonl(1 << 20);
			CHECK(socket >= 0 && !ibv_post_send(id->qp, &claim, &bad));
			CHECK(rrecv(socket, &byte, 1, 0) == -1 && errno == EPROTO);
			CHECK(rrecv(socket, &byte, 1, 0) == 0 && !rclose(socket));
		}
		rdma_destroy_qp(id);
		CHECK(!rdma_dereg_mr(mr) && !rdma_destroy_id(id));
	}
	CHECK(!rclose(listener));
	shown("a peer that breaks the protocol ends its connection alone");
}

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	CHECK(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* In kilobytes. */
static long resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages;

	CHECK(file && fscanf(file, "%*d %ld", &pages) == 1 && !fclose(file));
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Rules: CM-64 */
static void nothing_is_left(void)
{
	int before = 0, ends[2];
	long memory = 0;
	char byte;

	for (int i = 0; i < 550; i++) {
		if (i == 50)
			before = descriptors(), memory = resident();
		pair(AF_INET, ends);
		CHECK(rsend(ends[0], "x", 1, 0) == 1 && rrecv(ends[1], &byte, 1, 0) == 1);
		closed(ends);
	}
	/* The device's thread may have one of its own open for a moment, now or then. */
	for (int look = 0; look < 1000 && descriptors() > before; look++)
		usleep(1000);
	CHECK(descriptors() <= before);
	/* A socket has a quarter of a megabyte of rings. */
	CHECK(resident() < memory + 20000);
	shown("a thousand sockets leave neither descriptors nor memory");
}

/* Rules: CM-61 */
static void killed(int commands, pid_t child)
{
	struct sockaddr_storage address;
	socklen_t length;
	int listener = listening(AF_INET, &address, &length), socket;
	char bytes[8];

	CHECK(write(commands, &address, sizeof(address)) == sizeof(address));
	socket = raccept(listener, NULL, NULL);
	CHECK(socket >= 0);
	CHECK(rrecv(socket, bytes, 5, MSG_WAITALL) == 5 && !memcmp(bytes, "hello", 5));
	CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	CHECK(rrecv(socket, bytes, 8, 0) == -1 && errno == ECONNRESET);
	CHECK(rsend(socket, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(!rclose(socket) && !rclose(listener));
	shown("a peer that is killed resets the connection");
}

/* It connects to where it is told, and waits to be killed. */
static void to_be_killed(int commands)
{
	struct sockaddr_storage address;
	char byte;
	int socket;

	if (read(commands, &address, sizeof(address)) != sizeof(address))
		exit(0);
	socket = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(!rconnect(socket, (void *)&address, sizeof(struct sockaddr_in)));
	CHECK(rsend(socket, "hello", 5, 0) == 5);
	rrecv(socket, &byte, 1, 0);
	exit(1);
}

static volatile sig_atomic_t handled;

static void handles(int signal)
{
	(void)signal;
	handled++;
}

/* Rules: CM-60 */
static void signals(void)
{
	struct sigaction action = {.sa_handler = handles, .sa_flags = SA_RESTART}, old;
	struct timeval time = {.tv_sec = 600};
	struct reader reader = {0};
	pthread_t thread;
	int ends[2];

	pair(AF_INET, ends);
	reader.socket = ends[1];
	CHECK(!sigaction(SIGUSR1, &action, &old));
	CHECK(!pthread_create(&thread, NULL, reads, &reader));
	while (handled < 100)
		CHECK(!pthread_kill(thread, SIGUSR1));
	CHECK(!reader.ended && rsend(ends[0], "x", 1, 0) == 1);
	CHECK(!pthread_join(thread, NULL) && reader.length == 1);
	/* Not with a time, and not with a handler that is to interrupt. */
	for (int at = 0; at < 2; at++) {
		action.sa_flags = at ? SA_RESTART : 0;
		CHECK(!sigaction(SIGUSR1, &action, NULL));
		if (at)
			CHECK(!rsetsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
		reader.ended = 0;
		CHECK(!pthread_create(&thread, NULL, reads, &reader));
		while (!reader.ended)
			pthread_kill(thread, SIGUSR1);
		CHECK(!pthread_join(thread, NULL) && reader.length == -1 && reader.error == EINTR);
	}
	CHECK(!sigaction(SIGUSR1, &old, NULL));
	closed(ends);
	shown("a signal interrupts a call where it would one of sockets");
}

static void *asks_for_errors(void *argument)
{
	struct reader *reader = argument;
	socklen_t length = sizeof(int);
	int error;

	while (!reader->ended)
		CHECK(!rgetsockopt(reader->socket, SOL_SOCKET, SO_ERROR, &error, &length));
	return NULL;
}

/* Rules: CM-60, CM-61 */
static void one_who_looks_leaves_nobody_asleep(void)
{
	struct linger at_once = {.l_onoff = 1};

	for (int i = 0; i < 30; i++) {
		struct reader reader = {0};
		pthread_t threads[2];
		int ends[2];

		pair(AF_INET, ends);
		reader.socket = ends[1];
		CHECK(!pthread_create(&threads[0], NULL, reads_and_says_who_it_is, &reader));
		while (!reader.thread || !sleeps(reader.thread))
			continue;
		CHECK(!pthread_create(&threads[1], NULL, asks_for_errors, &reader));
		CHECK(!rsetsockopt(ends[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
		CHECK(!rclose(ends[0]));
		CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL));
		CHECK(reader.length == 0 || reader.error == ECONNRESET);
		CHECK(!rclose(ends[1]));
	}
	shown("a thread that waits hears of the end that another has found");
}

/* Rules: CM-60, CM-61 */
static void children(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	int ends[2], listener = listening(AF_INET, &address, &length), accepted, status;
	struct ibv_context **devices;
	char byte;
	pid_t child;

	pair(AF_INET, ends);
	devices = rdma_get_devices(NULL);
	CHECK(devices && devices[0]);
	/* On its way when the child comes. */
	CHECK(rsend(ends[0], "x", 1, 0) == 1);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct ibv_context **own = rdma_get_devices(NULL);
		int socket = rsocket(AF_INET, SOCK_STREAM, 0);
		struct ibv_pd *pd;

		alarm(60);
		CHECK(rrecv(ends[1], &byte, 1, 0) == -1 && errno == EBADF);
		CHECK(!rclose(ends[0]) && rclose(ends[0]) == -1 && errno == EBADF);
		CHECK(own && own[0] && own[0] != devices[0] && (pd = ibv_alloc_pd(own[0])) && !ibv_dealloc_pd(pd));
		CHECK(socket >= 0 && !rconnect(socket, (void *)&address, length));
		CHECK(rsend(socket, "y", 1, 0) == 1);
		exit(0);
	}
	rdma_free_devices(devices);
	accepted = raccept(listener, NULL, NULL);
	CHECK(accepted >= 0 && rrecv(accepted, &byte, 1, 0) == 1 && byte == 'y');
	CHECK(rrecv(accepted, &byte, 1, 0) == 0 && waitpid(child, &status, 0) == child && !status);
	CHECK(rrecv(ends[1], &byte, 1, 0) == 1 && byte == 'x');
	CHECK(rsend(ends[1], "z", 1, 0) == 1 && rrecv(ends[0], &byte, 1, 0) == 1 && byte == 'z');
	CHECK(!rclose(accepted) && !rclose(listener));
	closed(ends);
	shown("a forked child has its own sockets and devices, and ends none of its parent's");
}

/* Rules: CM-61 */
static void a_child_that_closes(void)
{
	struct sockaddr_storage address;
	struct reader reader = {0};
	socklen_t length;
	int listener, socket, status;
	pthread_t thread;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		alarm(60);
		/* Of what a child inherits, what wakes its parent's threads is of no use to it. */
		for (int fd = 3; fd < 1024; fd++) {
			char path[32], what[64] = {0};

			snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
			if (readlink(path, what, sizeof(what) - 1) > 0 && strstr(what, "eventfd"))
				CHECK(!close(fd));
		}
		listener = listening(AF_INET, &address, &length);
		socket = rsocket(AF_INET, SOCK_STREAM, 0);
		CHECK(!rconnect(socket, (void *)&address, length));
		CHECK((reader.socket = raccept(listener, NULL, NULL)) >= 0);
		CHECK(!pthread_create(&thread, NULL, reads_and_says_who_it_is, &reader));
		while (!reader.thread || !sleeps(reader.thread))
			continue;
		CHECK(!rshutdown(reader.socket, SHUT_RD) && !pthread_join(thread, NULL));
		exit(reader.length != 0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
	shown("a forked child that has closed what it inherited can have sockets");
}

int main(void)
{
	int commands[2];
	pid_t child;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Before this process has a device. */
	CHECK(!pipe(commands));
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(commands[1]);
		to_be_killed(commands[0]);
	}
	close(commands[0]);
	streams_both_ways(AF_INET);
	streams_both_ways(AF_INET6);
	ends_of_a_stream();
	an_end_is_told_behind_what_was_moved();
	both_ends_shut_down();
	shutting_down_wakes();
	waking_takes_no_descriptor();
	a_listener_shuts_down();
	connecting();
	connecting_again();
	a_connect_is_given_up();
	what_is_not_wanted();
	many_at_once();
	not_asked_for();
	many_wait_for_one();
	times();
	options();
	memory_of_the_peer();
	options_before_accepting();
	datagrams(AF_INET);
	datagrams(AF_INET6);
	datagrams_of_an_unbound_socket(AF_INET);
	datagrams_of_an_unbound_socket(AF_INET6);
	refused();
	too_much();
	strange_peers();
	nothing_is_left();
	signals();
	one_who_looks_leaves_nobody_asleep();
	children();
	a_child_that_closes();
	killed(commands[1], child);
	return 0;
}
