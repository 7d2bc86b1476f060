/*
 * Reads all that a peer has written to a stream socket of rsockets, after the peer has closed it. Nothing of it may be
 * lost, and no reset may come before its end.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <string.h>
#include <sys/socket.h>

#include "../check.h"

enum { ROUNDS = 8, LENGTH = 1000 };

static struct sockaddr_in address = {.sin_family = AF_INET};

/* Connects, writes, and closes. */
static void *writes(void *nothing)
{
	char bytes[LENGTH];
	const int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	memset(bytes, 7, LENGTH);
	CHECK(fd >= 0 && !rconnect(fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK(rsend(fd, bytes, LENGTH, 0) == LENGTH);
	CHECK(!rclose(fd));
	return nothing;
}

/* Reads up to the end, which the peer has sent, without waiting for anything. */
static void reads(int fd)
{
	char bytes[LENGTH];
	ssize_t got = 1;
	size_t all = 0;

	while (got > 0 || (got < 0 && errno == EAGAIN)) {
		got = rrecv(fd, bytes, LENGTH, MSG_DONTWAIT);
		if (got > 0)
			all += (size_t)got;
	}
	/* A peer that is gone may be told of by a reset, behind its data. */
	CHECK(all == LENGTH && (got == 0 || errno == ECONNRESET));
	CHECK(!rclose(fd));
}

int main(void)
{
	socklen_t length = sizeof(address);
	const int listener = rsocket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(listener >= 0 && !rbind(listener, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!rgetsockname(listener, (struct sockaddr *)&address, &length) && !rlisten(listener, 1));
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t writer;
		int fd;

		CHECK(!pthread_create(&writer, NULL, writes, NULL));
		fd = raccept(listener, NULL, NULL);
		CHECK(fd >= 0);
		CHECK(!pthread_join(writer, NULL));
		reads(fd);
	}
	CHECK(!rclose(listener));
	return 0;
}
