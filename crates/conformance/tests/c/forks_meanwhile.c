/*
 * A program forks while another thread of it is inside a verb, and its children have devices of their own. The argument
 * says what the other threads do: "open" devices, "make" objects, or "listen", as the thread of an rsocket that listens
 * does by itself.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { FORKS = 40 };

static struct ibv_device **devices;
static atomic_int is_over;

static void make_objects(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
    static char bytes[64];
    struct ibv_mr *mr;

    CHECK(channel && pd && cq && (mr = ibv_reg_mr(pd, bytes, sizeof(bytes), 0)));
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_destroy_comp_channel(channel));
}

static void *opens(void *unused)
{
    while (!is_over) {
        struct ibv_context *context = ibv_open_device(devices[0]);

        CHECK(context && !ibv_close_device(context));
    }
    return unused;
}

static void *makes(void *context)
{
    while (!is_over)
        make_objects(context);
    return NULL;
}

static int listening(struct sockaddr_in *address)
{
    socklen_t length = sizeof(*address);
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);

    *address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    CHECK(listener >= 0 && !rbind(listener, (void *)address, length));
    CHECK(!rgetsockname(listener, (void *)address, &length) && !rlisten(listener, 64));
    return listener;
}

static int connected(const struct sockaddr_in *address)
{
    const int end = rsocket(AF_INET, SOCK_STREAM, 0);

    CHECK(end >= 0 && !rconnect(end, (void *)address, sizeof(*address)));
    return end;
}

/* What a child does with a device of its own. A lock that no thread of it will free would keep it for ever. */
static void child(int has_sockets)
{
    alarm(60);
    if (has_sockets) {
        struct sockaddr_in address;
        const int listener = listening(&address), end = connected(&address);

        CHECK(!rclose(end) && !rclose(listener));
    } else {
        struct ibv_context *context = ibv_open_device(devices[0]);

        CHECK(context);
        make_objects(context);
        CHECK(!ibv_close_device(context));
    }
    _exit(0);
}

static void fork_once(int has_sockets)
{
    const pid_t made = fork();
    int status;

    CHECK(made >= 0);
    if (made == 0)
        child(has_sockets);
    CHECK(waitpid(made, &status, 0) == made && !status);
}

static void with_verbs(int opening)
{
    struct ibv_context *context = NULL;
    pthread_t threads[2];

    CHECK((devices = ibv_get_device_list(NULL)) && devices[0]);
    /* A library that has opened nothing yet does not hear of forks. */
    CHECK((context = ibv_open_device(devices[0])) && !ibv_close_device(context));
    context = NULL;
    CHECK(opening || (context = ibv_open_device(devices[0])));
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_create(&threads[at], NULL, opening ? opens : makes, context));
    for (int at = 0; at < FORKS; at++)
        fork_once(0);
    is_over = 1;
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_join(threads[at], NULL));
    CHECK(!context || !ibv_close_device(context));
    ibv_free_device_list(devices);
}

/* Clients that come from another process, and go again. */
static pid_t crowd(int addresses[2])
{
    const pid_t made = fork();
    struct sockaddr_in address;

    CHECK(made >= 0);
    if (made > 0)
        return made;
    CHECK(!close(addresses[1]) && read(addresses[0], &address, sizeof(address)) == sizeof(address));
    for (;;)
        rclose(connected(&address));
}

static void with_sockets(void)
{
    struct sockaddr_in address;
    int addresses[2], listener, status;
    pid_t clients;

    CHECK(!pipe(addresses));
    clients = crowd(addresses);
    listener = listening(&address);
    CHECK(write(addresses[1], &address, sizeof(address)) == sizeof(address));
    for (int at = 0; at < FORKS; at++) {
        const int accepted = raccept(listener, NULL, NULL);

        CHECK(accepted >= 0);
        fork_once(1);
        CHECK(!rclose(accepted));
    }
    CHECK(!kill(clients, SIGKILL) && waitpid(clients, &status, 0) == clients);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !rclose(listener));
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    if (!strcmp(arguments[1], "listen"))
        with_sockets();
    else
        with_verbs(!strcmp(arguments[1], "open"));
    printf("ok - %d children had what they needed\n", FORKS);
    return 0;
}
