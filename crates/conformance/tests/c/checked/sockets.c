/* A correct program with rsocket(7). The queue pairs and regions below it are the library's. */
#include <arpa/inet.h>
#include <rdma/rsocket.h>

#include "pair.h"

/* A socket that is bound to a free port of 127.0.0.1. Sets the address. */
static int bound(int type, struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int socket = rsocket(AF_INET, type, 0);

	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(socket >= 0 && !rbind(socket, (void *)address, length));
	CHECK(!rgetsockname(socket, (void *)address, &length));
	return socket;
}

/* Closes both ends while bytes are on their way. */
static void stream(int keeps)
{
	struct sockaddr_in address;
	int listener = bound(SOCK_STREAM, &address), ends[2];

	CHECK(!rlisten(listener, 1));
	ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(!rconnect(ends[0], (void *)&address, sizeof(address)));
	ends[1] = raccept(listener, NULL, NULL);
	CHECK(ends[1] >= 0 && rsend(ends[0], memory, sizeof(memory), 0) == sizeof(memory));
	CHECK(rrecv(ends[1], memory, 1, MSG_WAITALL) == 1);
	if (keeps)
		return;
	CHECK(!rclose(ends[1]) && !rclose(ends[0]) && !rclose(listener));
}

static void datagrams(int keeps)
{
	struct sockaddr_in address;
	int ends[2] = {bound(SOCK_DGRAM, &address), bound(SOCK_DGRAM, &(struct sockaddr_in){0})};

	CHECK(rsendto(ends[1], memory, 64, 0, (void *)&address, sizeof(address)) == 64);
	CHECK(rrecv(ends[0], memory, 64, 0) == 64);
	if (keeps)
		return;
	CHECK(!rclose(ends[1]) && !rclose(ends[0]));
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"stream", stream},
		{"datagrams", datagrams},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
