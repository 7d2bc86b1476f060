/* What AddressSanitizer and MemorySanitizer see of rsockets: each case but right_all has one mistake with a buffer.
   Compiled with one of them. */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"

#define SIZE 4096

static int near, far;
static char *buffer;

static void connect_two(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in peer, own;
    socklen_t size = sizeof(address);
    int listens = rsocket(AF_INET, SOCK_STREAM, 0);

    CHECK(!rbind(listens, (struct sockaddr *)&address, size) && !rlisten(listens, 1));
    CHECK(!rgetsockname(listens, (struct sockaddr *)&address, &size));
    near = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(!rconnect(near, (struct sockaddr *)&address, size));
    far = raccept(listens, (struct sockaddr *)&peer, &size);
    CHECK(far >= 0 && size == sizeof(peer));
    CHECK(!rgetsockname(near, (struct sockaddr *)&own, &size));
    CHECK(own.sin_port == peer.sin_port && own.sin_addr.s_addr == peer.sin_addr.s_addr);
    CHECK(!rclose(listens));
}

static __attribute__((noinline)) void give_back(void) { free(buffer); }

static __attribute__((noinline)) void send_all(size_t size)
{
    CHECK(rsend(near, buffer, size, 0) == (ssize_t)size);
}

static __attribute__((noinline)) void receive_all(size_t size)
{
    CHECK(rrecv(far, buffer, size, MSG_WAITALL) == (ssize_t)size);
}

static void ready_to_read(int socket)
{
    struct pollfd entry = {.fd = socket, .events = POLLIN};

    CHECK(rpoll(&entry, 1, -1) == 1 && entry.revents == POLLIN);
}

/* Both what goes inline and what goes by the ring. */
static void right_all(void)
{
    const size_t sizes[] = {1, 16, SIZE};
    char *received = malloc(SIZE), *sent = buffer;
    int value;
    socklen_t size = sizeof(value);

    memset(sent, 3, SIZE);
    for (int at = 0; at < 3; at++) {
        buffer = sent;
        send_all(sizes[at]);
        ready_to_read(far);
        buffer = received;
        receive_all(sizes[at]);
        CHECK(!memcmp(received, sent, sizes[at]));
    }
    CHECK(!rgetsockopt(far, SOL_SOCKET, SO_SNDBUF, &value, &size) && value > 0 && size == 4);
    CHECK(!rclose(near) && rrecv(far, received, 1, 0) == 0 && !rclose(far));
}

static __attribute__((noinline)) void sends_what_it_never_wrote(size_t size)
{
    memset(buffer, 1, size / 2);
    send_all(size);
}

static __attribute__((noinline)) void sends_what_it_gave_back(size_t size)
{
    memset(buffer, 1, SIZE);
    give_back();
    send_all(size);
}

static __attribute__((noinline)) void receives_into_what_it_gave_back(size_t size)
{
    memset(buffer, 1, SIZE);
    send_all(size);
    give_back();
    receive_all(size);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    size_t size = strstr(name, "_inline") ? 16 : SIZE;

    buffer = malloc(SIZE);
    connect_two();
    if (!strcmp(name, "right_all"))
        right_all();
    else if (!strncmp(name, "sends_what_it_never_wrote", 25))
        sends_what_it_never_wrote(size);
    else if (!strncmp(name, "sends_what_it_gave_back", 23))
        sends_what_it_gave_back(size);
    else
        receives_into_what_it_gave_back(size);
    return 0;
}
