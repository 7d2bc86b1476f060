/* A program of ordinary sockets with librspreload.so before it: what the functions of descriptors, of waiting and of
   processes do where some of the descriptors stand for rsockets. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sleeps.h"

static void shown(const char *what)
{
	printf("ok - %s\n", what);
}

/* What stands for an rsocket is no socket of the system's. */
static int is_rsocket(int fd)
{
	char path[64], what[64];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, what, sizeof(what) - 1);
	CHECK(length > 0);
	what[length] = 0;
	return !strstr(what, "socket:");
}

static int listening(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(listener >= 0 && is_rsocket(listener));
	CHECK(!bind(listener, (void *)address, length) && !listen(listener, 8));
	CHECK(!getsockname(listener, (void *)address, &length));
	return listener;
}

static void pair(int ends[2])
{
	struct sockaddr_in address;
	int listener = listening(&address);

	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(ends[0], (void *)&address, sizeof(address)));
	ends[1] = accept(listener, NULL, NULL);
	CHECK(ends[1] >= 0 && is_rsocket(ends[0]) && is_rsocket(ends[1]) && !close(listener));
}

/* One byte each way. To a connected stream, addresses mean nothing. */
static void works(int ends[2])
{
	struct sockaddr_in anywhere = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct iovec one = {"x", 1};
	struct msghdr message = {.msg_name = &anywhere, .msg_namelen = sizeof(anywhere), .msg_iov = &one, .msg_iovlen = 1};

	for (int at = 0; at < 2; at++) {
		char byte = 0;

		CHECK(sendto(ends[at], "x", 1, 0, (void *)&anywhere, sizeof(anywhere)) == 1);
		CHECK(recv(ends[!at], &byte, 1, 0) == 1 && byte == 'x');
		CHECK(sendmsg(ends[at], &message, 0) == 1 && recv(ends[!at], &byte, 1, 0) == 1 && byte == 'x');
		byte = 0;
		CHECK(send(ends[at], "x", 1, 0) == 1 && recv(ends[!at], &byte, 1, 0) == 1 && byte == 'x');
	}
}

/* A set for so many descriptors that ends where the program has no more memory. */
static fd_set *short_set(int count)
{
	const long page = sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(pages != MAP_FAILED && !mprotect(pages + page, page, PROT_NONE));
	return (fd_set *)(pages + page - (count + 63) / 64 * 8);
}

static void sets_are_as_long_as_they_are(int ends[2])
{
	fd_set *read = short_set(64), *write = short_set(64);
	struct timeval time = {.tv_sec = 60};
	char byte;

	CHECK(ends[0] < 64 && ends[1] < 64);
	FD_SET(ends[0], read);
	FD_SET(ends[1], write);
	CHECK(select(64, read, write, NULL, &time) == 1);
	CHECK(!FD_ISSET(ends[0], read) && FD_ISSET(ends[1], write));
	/* What is left of it; the machine may have others run meanwhile. */
	CHECK(time.tv_sec > 0 && time.tv_sec < 60);
	CHECK(send(ends[1], "x", 1, 0) == 1);
	FD_SET(ends[0], read);
	CHECK(pselect(64, read, NULL, NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], read));
	CHECK(recv(ends[0], &byte, 1, 0) == 1);
	time = (struct timeval){.tv_usec = 1500000};
	CHECK(select(64, read, NULL, NULL, &time) == 0 && !FD_ISSET(ends[0], read));
	CHECK(!time.tv_sec && !time.tv_usec);
	FD_SET(ends[0], read);
	CHECK(select(FD_SETSIZE + 1, read, NULL, NULL, &time) == -1 && errno == EINVAL);
	shown("select leaves alone what lies behind its sets");
}

static volatile sig_atomic_t signals;

static void counts(int signal)
{
	(void)signal;
	signals++;
}

static void a_signal_that_waits_is_let_in(int ends[2])
{
	struct sigaction action = {.sa_handler = counts};
	struct pollfd polled = {.fd = ends[0], .events = POLLIN};
	sigset_t blocked, old;
	fd_set read;
	char byte;

	CHECK(!sigaction(SIGUSR1, &action, NULL) && !sigemptyset(&blocked) && !sigaddset(&blocked, SIGUSR1));
	CHECK(!sigprocmask(SIG_BLOCK, &blocked, &old) && !raise(SIGUSR1));
	/* It came before the wait, which would have no end. */
	CHECK(ppoll(&polled, 1, NULL, &old) == -1 && errno == EINTR && signals == 1);
	CHECK(!raise(SIGUSR1));
	FD_ZERO(&read);
	FD_SET(ends[0], &read);
	CHECK(pselect(ends[0] + 1, &read, NULL, NULL, NULL, &old) == -1 && errno == EINTR && signals == 2);
	/* One that nobody would be told of does not end it, and what is there is told first. */
	CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR && !raise(SIGUSR1));
	CHECK(ppoll(&polled, 1, &(struct timespec){.tv_nsec = 1000}, &old) == 0);
	CHECK(!sigaction(SIGUSR1, &action, NULL) && send(ends[1], "x", 1, 0) == 1);
	CHECK(poll(&polled, 1, -1) == 1 && !raise(SIGUSR1));
	CHECK(ppoll(&polled, 1, NULL, &old) == 1 && polled.revents == POLLIN && signals == 2);
	CHECK(recv(ends[0], &byte, 1, 0) == 1);
	CHECK(!sigprocmask(SIG_SETMASK, &old, &blocked) && signals == 3 && sigismember(&blocked, SIGUSR1));
	shown("a signal that came before ppoll or pselect ends it");
}

static void a_child_before_exec_changes_nothing(int ends[2])
{
	int other[2], status;
	pid_t child;

	pair(other);
	child = vfork();
	if (child == 0) {
		close(ends[0]);
		dup2(ends[1], other[0]);
		close_range(other[1], other[1], 0);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	works(ends);
	works(other);
	CHECK(!close(other[0]) && !close(other[1]));
	shown("a child that closes what it inherited, until it calls exec, closes nothing of its parent's");
}

static void a_forked_child_has_its_own(int ends[2])
{
	struct sockaddr_in address;
	int listener = listening(&address), accepted, status;
	char byte;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		int own = socket(AF_INET, SOCK_STREAM, 0);

		alarm(60);
		CHECK(own >= 0 && is_rsocket(own));
		CHECK(send(ends[0], "x", 1, MSG_NOSIGNAL) == -1 && recv(ends[0], &byte, 1, 0) == -1);
		CHECK(!close(ends[0]));
		CHECK(!connect(own, (void *)&address, sizeof(address)) && is_rsocket(own));
		CHECK(send(own, "y", 1, 0) == 1);
		/* With sockets of its own and its parent's, in the middle of something. */
		exit(0);
	}
	accepted = accept(listener, NULL, NULL);
	CHECK(accepted >= 0 && is_rsocket(accepted));
	CHECK(recv(accepted, &byte, 1, 0) == 1 && byte == 'y' && recv(accepted, &byte, 1, 0) == 0);
	CHECK(waitpid(child, &status, 0) == child && !status);
	works(ends);
	CHECK(!close(accepted) && !close(listener));
	shown("a forked child has no rsocket of its parent's, and can have its own");
}

/* What programs built with _FORTIFY_SOURCE call, with the bytes that there are. */
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room);

static void more_is_polled_than_there_is_room_for(void)
{
	struct pollfd polled[2] = {{.fd = -1}, {.fd = -1}};
	const struct timespec at_once = {0};

	CHECK(__poll_chk(polled, 2, 0, sizeof(polled)) == 0);
	CHECK(__ppoll_chk(polled, 2, &at_once, NULL, sizeof(polled)) == 0);
	for (int at = 0; at < 2; at++) {
		pid_t child = fork();
		int status;

		CHECK(child >= 0);
		if (child == 0) {
			prctl(PR_SET_DUMPABLE, 0);
			if (at)
				__ppoll_chk(polled, 2, &at_once, NULL, sizeof(polled) - 1);
			else
				__poll_chk(polled, 2, 0, sizeof(polled) - 1);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
	shown("a program that polls more than it has room for ends there");
}

static void other_names(void)
{
	int ends[2], name, next;
	char byte;

	pair(ends);
	name = dup(ends[0]);
	CHECK(name >= 0 && dup2(999, name) == -1 && errno == EBADF);
	CHECK(!close(ends[0]) && send(name, "x", 1, 0) == 1 && recv(ends[1], &byte, 1, 0) == 1);
	CHECK(!close_range(name, name, 0) && recv(ends[1], &byte, 1, 0) == 0);
	/* The number is free for something else. */
	next = open("/dev/zero", O_RDONLY);
	CHECK(next >= 0 && dup2(next, name) == name && read(name, &byte, 1) == 1 && byte == 0);
	CHECK(!close(name) && (next == name || !close(next)) && !close(ends[1]));
	shown("an rsocket is closed with its last name, by whatever closes that");
}

static void change(int set, int what, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};

	CHECK(!epoll_ctl(set, what, fd, &event));
}

/* Nothing, or this of one descriptor. */
static void tells(int set, int fd, uint32_t events)
{
	struct epoll_event event[4];
	int count = epoll_wait(set, event, 4, events ? 60000 : 20);

	CHECK(count == (events ? 1 : 0));
	CHECK(!events || (event[0].events == events && event[0].data.fd == fd));
}

struct waiter {
	int set;
	_Atomic pid_t waits;
	struct epoll_event event;
};

static void *waits(void *argument)
{
	struct waiter *waiter = argument;

	waiter->waits = gettid();
	CHECK(epoll_wait(waiter->set, &waiter->event, 1, -1) == 1);
	return NULL;
}

static void sets_of_epoll(void)
{
	const int set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event events[2];
	struct waiter waiter = {.set = set};
	int ends[2], other[2], third[2], tube[2], fds[2], name;
	pthread_t thread;
	sigset_t blocked, old;
	char bytes[8];

	pair(ends);
	works(ends);
	CHECK(set >= 0 && !pipe(tube));
	/* As long as it is so. */
	change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT);
	tells(set, ends[0], EPOLLOUT), tells(set, ends[0], EPOLLOUT);
	change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN);
	tells(set, -1, 0);
	CHECK(send(ends[1], "ab", 2, 0) == 2);
	tells(set, ends[0], EPOLLIN), tells(set, ends[0], EPOLLIN);
	CHECK(recv(ends[0], bytes, 8, 0) == 2);
	tells(set, -1, 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], events) == -1 && errno == EEXIST);
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[1], events) == -1 && errno == ENOENT);
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[1], NULL) == -1 && errno == ENOENT);
	CHECK(epoll_ctl(ends[1], EPOLL_CTL_ADD, ends[0], events) == -1);
	CHECK(epoll_wait(set, events, 0, 0) == -1 && errno == EINVAL);
	/* Others beside it, in turn where there is room for one. */
	change(set, EPOLL_CTL_ADD, tube[0], EPOLLIN);
	CHECK(write(tube[1], "x", 1) == 1);
	tells(set, tube[0], EPOLLIN);
	CHECK(send(ends[1], "ab", 2, 0) == 2);
	while (epoll_wait(set, events, 2, -1) != 2)
		continue;
	for (int i = 0; i < 2; i++) {
		CHECK(epoll_wait(set, &events[i], 1, -1) == 1);
		fds[i] = events[i].data.fd;
	}
	CHECK(fds[0] != fds[1] && read(tube[0], bytes, 8) == 1 && recv(ends[0], bytes, 8, 0) == 2);
	/* Once, and again when it was read from; once for all. */
	change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLOUT | EPOLLET);
	tells(set, ends[0], EPOLLOUT), tells(set, -1, 0);
	CHECK(send(ends[1], "abcd", 4, 0) == 4);
	tells(set, ends[0], EPOLLIN), tells(set, -1, 0);
	CHECK(recv(ends[0], bytes, 2, 0) == 2);
	tells(set, ends[0], EPOLLIN);
	CHECK(recv(ends[0], bytes, 2, 0) == 2 && recv(ends[0], bytes, 2, MSG_DONTWAIT) == -1);
	tells(set, -1, 0);
	CHECK(send(ends[1], "ab", 2, 0) == 2);
	tells(set, ends[0], EPOLLIN);
	change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT);
	tells(set, ends[0], EPOLLIN), tells(set, -1, 0);
	change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN);
	tells(set, ends[0], EPOLLIN);
	CHECK(recv(ends[0], bytes, 8, 0) == 2);
	/* A thread that waits is told of what is added meanwhile; a signal ends it. */
	pair(other);
	works(other);
	CHECK(!pthread_create(&thread, NULL, waits, &waiter));
	while (!waiter.waits)
		sched_yield();
	change(set, EPOLL_CTL_ADD, other[0], EPOLLOUT);
	CHECK(!pthread_join(thread, NULL) && waiter.event.data.fd == other[0]);
	change(set, EPOLL_CTL_DEL, other[0], 0);
	CHECK(!sigemptyset(&blocked) && !sigaddset(&blocked, SIGUSR1));
	CHECK(!sigprocmask(SIG_BLOCK, &blocked, &old) && !raise(SIGUSR1));
	CHECK(epoll_pwait(set, events, 2, -1, &old) == -1 && errno == EINTR);
	CHECK(!sigprocmask(SIG_SETMASK, &old, NULL));
	/* The end is told unasked, and that once too. */
	pair(third);
	works(third);
	change(set, EPOLL_CTL_ADD, third[0], EPOLLONESHOT);
	CHECK(!shutdown(third[0], SHUT_WR));
	tells(set, -1, 0);
	CHECK(!close(third[1]));
	tells(set, third[0], EPOLLHUP), tells(set, -1, 0);
	CHECK(!close(third[0]));
	/* A closed descriptor is no longer in it, and neither is a new one with the same number. */
	change(set, EPOLL_CTL_ADD, other[0], EPOLLOUT);
	CHECK(!close(other[0]));
	tells(set, -1, 0);
	CHECK(dup2(ends[1], other[0]) == other[0]);
	tells(set, -1, 0);
	change(set, EPOLL_CTL_ADD, other[0], EPOLLOUT);
	tells(set, other[0], EPOLLOUT);
	CHECK(!close(other[0]) && !close(set) && epoll_wait(set, events, 2, 0) == -1 && errno == EBADF);
	name = epoll_create1(0);
	CHECK(name == set && epoll_wait(name, events, 2, 0) == 0);
	CHECK(!close(name) && !close(other[1]) && !close(ends[0]) && !close(ends[1]));
	CHECK(!close(tube[0]) && !close(tube[1]));
	shown("a set of epoll has rsockets among others");
}

static void a_set_that_is_waited_for_gets_its_first(void)
{
	struct waiter waiter = {.set = epoll_create1(EPOLL_CLOEXEC)};
	pthread_t thread;
	int ends[2];

	pair(ends);
	works(ends);
	CHECK(waiter.set >= 0 && !pthread_create(&thread, NULL, waits, &waiter));
	while (!waiter.waits || !sleeps(waiter.waits))
		sched_yield();
	change(waiter.set, EPOLL_CTL_ADD, ends[0], EPOLLIN);
	CHECK(send(ends[1], "x", 1, 0) == 1 && !pthread_join(thread, NULL));
	CHECK(waiter.event.events == EPOLLIN && waiter.event.data.fd == ends[0]);
	CHECK(!close(waiter.set) && !close(ends[0]) && !close(ends[1]));
	shown("a thread that waits for a set hears of the first rsocket in it, and of nothing else");
}

/* An event loop may add by another descriptor of its set than it waits by. */
static void a_set_is_the_same_by_each_of_its_names(void)
{
	int ends[2], other[2];
	char byte;

	pair(ends);
	pair(other);
	works(ends);
	works(other);
	for (int how = 0; how < 8; how++) {
		const int set = how & 1 ? epoll_create(1) : epoll_create1(EPOLL_CLOEXEC);
		int name = how & 2 ? dup(set) : fcntl(set, F_DUPFD_CLOEXEC, 3);
		const int adds = how & 4 ? set : name, waits_by = how & 4 ? name : set;
		struct waiter waiter = {.set = waits_by};
		pthread_t thread;

		CHECK(set >= 0 && name >= 0);
		change(adds, EPOLL_CTL_ADD, ends[0], EPOLLIN);
		tells(waits_by, -1, 0);
		CHECK(send(ends[1], "x", 1, 0) == 1);
		tells(waits_by, ends[0], EPOLLIN), tells(adds, ends[0], EPOLLIN);
		CHECK(recv(ends[0], &byte, 1, 0) == 1);
		tells(waits_by, -1, 0);
		/* It lives until its last name is closed, and no other set gets what is its. */
		CHECK(!close(adds) && (name = epoll_create1(0)) == adds);
		change(name, EPOLL_CTL_ADD, other[0], EPOLLIN);
		CHECK(send(ends[1], "x", 1, 0) == 1);
		tells(waits_by, ends[0], EPOLLIN), tells(name, -1, 0);
		CHECK(recv(ends[0], &byte, 1, 0) == 1 && dup2(waits_by, name) == name);
		tells(name, -1, 0);
		/* By that name there is a rsocket more, while a thread waits by the other. */
		CHECK(!pthread_create(&thread, NULL, waits, &waiter));
		while (!waiter.waits || !sleeps(waiter.waits))
			sched_yield();
		change(name, EPOLL_CTL_ADD, other[0], EPOLLOUT);
		CHECK(!pthread_join(thread, NULL) && waiter.event.data.fd == other[0]);
		change(waits_by, EPOLL_CTL_DEL, other[0], 0);
		CHECK(!close(name) && epoll_wait(name, &waiter.event, 1, 0) == -1 && errno == EBADF);
		CHECK(send(ends[1], "x", 1, 0) == 1);
		tells(waits_by, ends[0], EPOLLIN);
		CHECK(recv(ends[0], &byte, 1, 0) == 1 && !close(waits_by));
	}
	CHECK(!close(ends[0]) && !close(ends[1]) && !close(other[0]) && !close(other[1]));
	shown("a set of epoll is the same by each of its descriptors");
}

/* What a program is told of once, it is not told of again because it asks for errors. */
static void errors_are_asked_for(void)
{
	const int set = epoll_create1(EPOLL_CLOEXEC);
	struct msghdr message = {0};
	char byte;
	int ends[2];

	pair(ends);
	works(ends);
	change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLET);
	CHECK(send(ends[1], "x", 1, 0) == 1);
	tells(set, ends[0], EPOLLIN);
	CHECK(recvmsg(ends[0], &message, MSG_ERRQUEUE) == -1 && errno == EAGAIN);
	tells(set, -1, 0);
	CHECK(recv(ends[0], &byte, 1, 0) == 1 && byte == 'x');
	CHECK(!close(set) && !close(ends[0]) && !close(ends[1]));
	shown("who asks for errors takes nothing, and does not wait");
}

static void a_socket_takes_the_lowest_descriptor(void)
{
	struct pollfd asked = {.events = POLLIN};
	struct rlimit before, none;
	struct sockaddr_in address;
	char byte;
	int low, fd, client;

	CHECK((low = dup(0)) >= 0 && !close(low));
	CHECK((fd = socket(AF_INET, SOCK_STREAM, 0)) == low && is_rsocket(fd));
	CHECK(!close(fd));
	asked.fd = listening(&address);
	CHECK((client = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	CHECK(!connect(client, (void *)&address, sizeof(address)) && poll(&asked, 1, -1) == 1);
	/* None is left. What cannot be accepted stays. */
	CHECK((low = dup(0)) >= 0 && !close(low) && !getrlimit(RLIMIT_NOFILE, &before));
	none = (struct rlimit){low, before.rlim_max};
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	CHECK(accept(asked.fd, NULL, NULL) == -1 && errno == EMFILE);
	CHECK(!setrlimit(RLIMIT_NOFILE, &before));
	CHECK((fd = accept(asked.fd, NULL, NULL)) == low && is_rsocket(fd));
	CHECK(send(client, "x", 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1 && byte == 'x');
	CHECK(!close(fd) && !close(client) && !close(asked.fd));
	shown("a socket has the lowest free descriptor, and a connection waits until there is one");
}

static void what_came_before_the_end_is_read(void)
{
	struct linger without = {0, -1};
	char room[CMSG_SPACE(sizeof(int))], bytes[8];
	struct iovec part = {bytes, sizeof(bytes)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
				 .msg_controllen = sizeof(room), .msg_flags = 77};
	struct pollfd came = {.events = POLLIN | POLLRDHUP};
	int ends[2];

	pair(ends);
	works(ends);
	CHECK(recvmsg(ends[0], &message, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(message.msg_controllen == sizeof(room) && message.msg_flags == 77);
	CHECK(!setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &without, sizeof(without)));
	CHECK(send(ends[1], "early", 5, 0) == 5);
	came.fd = ends[0];
	CHECK(poll(&came, 1, -1) == 1 && came.revents == POLLIN);
	CHECK(!shutdown(ends[0], SHUT_RD));
	CHECK(poll(&came, 1, -1) == 1 && came.revents == (POLLIN | POLLRDHUP));
	CHECK(recv(ends[0], bytes, sizeof(bytes), 0) == 5 && !memcmp(bytes, "early", 5));
	CHECK(recv(ends[0], bytes, sizeof(bytes), 0) == 0);
	CHECK(recvmsg(ends[0], &message, 0) == 0 && message.msg_controllen == 0);
	CHECK(!close(ends[0]) && !close(ends[1]));
	shown("what came before the program shut its end down is read");
}

static atomic_int broken;

static void counts_broken(int signal)
{
	(void)signal;
	broken++;
}

static void a_write_without_a_reader_is_told_of_by_a_signal(void)
{
	struct sigaction action = {.sa_handler = counts_broken};
	struct iovec part = {"x", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	int ends[2], idle;
	char byte;

	pair(ends);
	works(ends);
	CHECK(!sigaction(SIGPIPE, &action, NULL) && !shutdown(ends[0], SHUT_WR));
	CHECK(send(ends[0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(sendmsg(ends[0], &message, MSG_NOSIGNAL) == -1 && errno == EPIPE && broken == 0);
	CHECK(send(ends[0], "x", 1, 0) == -1 && errno == EPIPE && broken == 1);
	CHECK(write(ends[0], "x", 1) == -1 && errno == EPIPE && broken == 2);
	CHECK(writev(ends[0], &part, 1) == -1 && errno == EPIPE && broken == 3);
	CHECK(sendmsg(ends[0], &message, 0) == -1 && errno == EPIPE && broken == 4);
	CHECK(sendto(ends[0], "x", 1, 0, NULL, 0) == -1 && errno == EPIPE && broken == 5);
	/* One that was never connected has no reader either. */
	idle = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(idle >= 0 && send(idle, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && broken == 5);
	CHECK(write(idle, "x", 1) == -1 && errno == EPIPE && broken == 6);
	CHECK(recv(idle, &byte, 1, 0) == -1 && errno == ENOTCONN && broken == 6 && !close(idle));
	action.sa_handler = SIG_DFL;
	CHECK(!sigaction(SIGPIPE, &action, NULL) && !close(ends[0]) && !close(ends[1]));
	shown("a write that nobody can read raises SIGPIPE, unless it says otherwise");
}

static atomic_int handled;

static void closes_another(int signal)
{
	(void)signal;
	close(dup(0));
	handled++;
}

/* close(2) may be called by a handler, wherever the signal comes. */
static void a_handler_may_close_a_descriptor(void)
{
	const int set = epoll_create1(EPOLL_CLOEXEC);
	struct sigaction action = {.sa_handler = closes_another, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 200}, {0, 200}}, never = {0};
	struct epoll_event event;
	int ends[2];

	pair(ends);
	works(ends);
	CHECK(set >= 0 && !sigaction(SIGALRM, &action, NULL));
	change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN);
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	while (handled < 500) {
		change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN);
		CHECK(epoll_wait(set, &event, 1, 0) == 0 || errno == EINTR);
	}
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	action.sa_handler = SIG_DFL;
	CHECK(!sigaction(SIGALRM, &action, NULL) && !close(set) && !close(ends[0]) && !close(ends[1]));
	shown("a handler may close a descriptor while its thread is in a set of epoll");
}

static int number_of(int fd, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);

	CHECK(!getsockopt(fd, level, name, &value, &length));
	return value;
}

/* A connection to where nobody listens by rsockets: a server without librspreload.so. */
static void the_other_way(void)
{
	const int on = 1, seconds = 77;
	struct timeval time = {.tv_sec = 9};
	struct sockaddr_in server = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, own = server, peer;
	socklen_t length = sizeof(server);
	const int set = epoll_create1(0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), name = dup(fd), status, ends[2];
	int inherited = socket(AF_INET, SOCK_STREAM, 0);
	int plain[2];
	char line[16] = {0};

	CHECK(!pipe(plain));
	if (vfork() == 0) {
		dup2(plain[1], 1);
		unsetenv("LD_PRELOAD");
		execlp("python3", "python3", "-c",
		       "import socket\n"
		       "s = socket.create_server(('127.0.0.1', 0))\n"
		       "print(s.getsockname()[1], flush=True)\n"
		       "c, a = s.accept()\n"
		       "c.sendall(b'%d\\n' % a[1])\n"
		       "c.recv(1)\n",
		       NULL);
		_exit(1);
	}
	CHECK(read(plain[0], line, sizeof(line) - 1) > 0);
	server.sin_port = htons(atoi(line));
	CHECK(fd >= 0 && is_rsocket(fd) && !setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)));
	CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds)));
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	change(set, EPOLL_CTL_ADD, fd, EPOLLIN);
	CHECK(!bind(fd, (void *)&own, sizeof(own)) && !getsockname(fd, (void *)&own, &length));
	CHECK(!connect(fd, (void *)&server, sizeof(server)));
	CHECK(!is_rsocket(fd) && !is_rsocket(name));
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(name, F_GETFD) == 0);
	/* One that a program which is begun by this one is to have. */
	CHECK(is_rsocket(inherited) && fcntl(inherited, F_GETFD) == 0);
	CHECK(!connect(inherited, (void *)&server, sizeof(server)) && !is_rsocket(inherited));
	CHECK(fcntl(inherited, F_GETFD) == 0 && !close(inherited));
	CHECK(number_of(fd, SOL_SOCKET, SO_KEEPALIVE) == 1 && number_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 77);
	CHECK(number_of(fd, IPPROTO_TCP, TCP_NODELAY) == 0);
	length = sizeof(time), time.tv_sec = 0;
	CHECK(!getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length) && time.tv_sec == 9);
	length = sizeof(peer);
	CHECK(!getsockname(fd, (void *)&peer, &length) && peer.sin_port == own.sin_port);
	memset(line, 0, sizeof(line));
	tells(set, fd, EPOLLIN);
	CHECK(read(name, line, sizeof(line) - 1) > 0 && atoi(line) == ntohs(own.sin_port));
	CHECK(write(fd, "x", 1) == 1 && wait(&status) > 0 && !status && !close(fd) && !close(name) && !close(set));
	pair(ends);
	works(ends);
	CHECK(!close(ends[0]) && !close(ends[1]));
	shown("a socket of the system's is as the rsocket was in whose place it is");
}

/* More of them than can stand for rsockets, where a program may have so many. */
static void many_descriptors(void)
{
	enum { MOST = 1 << 16 };
	static int made[MOST + 1];
	struct rlimit before, limit;
	int count = 0, fd;

	CHECK(!getrlimit(RLIMIT_NOFILE, &before));
	limit = before;
	limit.rlim_cur = MOST + 100;
	if (limit.rlim_max < limit.rlim_cur)
		limit.rlim_max = limit.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max = before.rlim_max;
		CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	}
	while ((fd = dup(0)) >= 0 && fd < MOST)
		made[count++] = fd;
	if (fd >= 0) {
		made[count++] = fd;
		fd = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(fd >= 0 && !is_rsocket(fd) && !close(fd));
	}
	while (count > 0)
		CHECK(!close(made[--count]));
	CHECK(!setrlimit(RLIMIT_NOFILE, &before));
	shown("a program with more descriptors than can stand for rsockets has the system's");
}

int main(void)
{
	int ends[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	pair(ends);
	works(ends);
	sets_are_as_long_as_they_are(ends);
	a_signal_that_waits_is_let_in(ends);
	a_child_before_exec_changes_nothing(ends);
	a_forked_child_has_its_own(ends);
	more_is_polled_than_there_is_room_for();
	other_names();
	sets_of_epoll();
	a_set_that_is_waited_for_gets_its_first();
	a_set_is_the_same_by_each_of_its_names();
	errors_are_asked_for();
	a_handler_may_close_a_descriptor();
	a_socket_takes_the_lowest_descriptor();
	what_came_before_the_end_is_read();
	a_write_without_a_reader_is_told_of_by_a_signal();
	the_other_way();
	many_descriptors();
	CHECK(!close(ends[0]) && !close(ends[1]));
	return 0;
}
