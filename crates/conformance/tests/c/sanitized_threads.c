/* What ThreadSanitizer sees of threads that use rdma_cm and rsockets: each case but those named right_* has one mistake
   in what the threads do. Compiled with it. */
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cm.h"
#include "sanitized.h"

#define SIZE 4096

/* An end of a connection: an id with a channel, whose events a thread of its own takes. What one thread has written for
   another, only rdma_cm hands over. */
struct end {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_mr *mr;
    char *buffer, secret;
    int changes_too_early;
};

static struct end client, server;
static struct rdma_conn_param param = {
    .private_data = "hello", .private_data_len = 6, .retry_count = 7, .rnr_retry_count = 7,
};

static void with_queues(struct end *end, struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attr = small(IBV_QPT_RC);

    end->id = id;
    CHECK(!rdma_create_qp(id, NULL, &attr));
    CHECK((end->buffer = calloc(1, SIZE)));
    CHECK((end->mr = rdma_reg_msgs(id, end->buffer, SIZE)));
    CHECK(!rdma_post_recv(id, NULL, end->buffer, SIZE, end->mr));
}

static __attribute__((noinline)) void send_it(struct end *end)
{
    struct ibv_wc wc;

    memset(end->buffer, 5, SIZE);
    CHECK(!rdma_post_send(end->id, NULL, end->buffer, SIZE, end->mr, 0));
    if (end->changes_too_early)
        change(end->buffer + 3);
    CHECK(rdma_get_send_comp(end->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    change(end->buffer);
}

static void receive_it(struct end *end)
{
    struct ibv_wc wc;

    CHECK(rdma_get_recv_comp(end->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(look(end->buffer) == 5);
}

/* Does what an event asks for. True if it is the last. */
static int happened(struct end *end, const struct rdma_cm_event *event)
{
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        CHECK(event->id->context == end && look(&end->secret) == 1);
        CHECK(!rdma_resolve_route(event->id, 2000));
        return 0;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        with_queues(end, event->id);
        CHECK(!rdma_connect(event->id, &param));
        return 0;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        CHECK(!strcmp(event->param.conn.private_data, "hello"));
        CHECK(look(&client.secret) == 1);
        change(&client.secret);
        with_queues(end, event->id);
        CHECK(!rdma_accept(event->id, &param));
        return 0;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (end == &server) {
            send_it(end);
            return 0;
        }
        CHECK(look(&end->secret) == 2);
        receive_it(end);
        change(&end->secret);
        CHECK(!rdma_disconnect(end->id));
        return 0;
    case RDMA_CM_EVENT_DISCONNECTED:
        CHECK(look(&client.secret) == 3);
        if (end == &server)
            CHECK(!rdma_disconnect(end->id));
        return 1;
    default:
        return 0;
    }
}

static void *take_events(void *argument)
{
    struct end *end = argument;
    struct rdma_cm_event *event;

    for (int last = 0; !last;) {
        CHECK(!rdma_get_cm_event(end->channel, &event));
        last = happened(end, event);
        CHECK(!rdma_ack_cm_event(event));
    }
    return NULL;
}

static void finish(struct end *end)
{
    CHECK(!rdma_dereg_mr(end->mr));
    rdma_destroy_qp(end->id);
    CHECK(!rdma_destroy_id(end->id));
    free(end->buffer);
}

static void right_connection(void)
{
    struct sockaddr_storage address;
    struct rdma_cm_id *listens, *active;
    pthread_t threads[2];

    CHECK((client.channel = rdma_create_event_channel()));
    CHECK((server.channel = rdma_create_event_channel()));
    CHECK(!pthread_create(&threads[0], NULL, take_events, &server));
    CHECK(!pthread_create(&threads[1], NULL, take_events, &client));
    listens = listener(server.channel, AF_INET, RDMA_PS_TCP, &address);
    CHECK(!rdma_create_id(client.channel, &active, &client, RDMA_PS_TCP));
    client.secret = 1;
    CHECK(!rdma_resolve_addr(active, NULL, (struct sockaddr *)&address, 2000));
    CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL));
    finish(&client);
    finish(&server);
    CHECK(!rdma_destroy_id(listens));
    rdma_destroy_event_channel(client.channel);
    rdma_destroy_event_channel(server.channel);
}

static void changed_before_it_completed(void)
{
    server.changes_too_early = 1;
    right_connection();
}

/* Two threads with one event. */
static struct rdma_cm_event *event;

static void *looks_at_it(void *secret)
{
    CHECK(event->status == 0);
    change(secret);
    say_so();
    return NULL;
}

static void *acknowledges_it(void *secret)
{
    looks_at_it(secret);
    CHECK(!rdma_ack_cm_event(event));
    return NULL;
}

/* The end of an id waits for the thread that has its event. */
static void with_one_event(void *(*with)(void *), int too_early)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_storage address;
    struct rdma_cm_id *id;
    char *secret = calloc(1, 8);
    pthread_t thread;

    loopback(AF_INET, &address);
    ((struct sockaddr_in *)&address)->sin_port = htons(9);
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
    event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!pthread_create(&thread, NULL, with, secret));
    if (too_early) {
        wait_until_said();
        CHECK(!rdma_ack_cm_event(event));
    }
    CHECK(!rdma_destroy_id(id));
    if (!too_early)
        change(secret);
    CHECK(!pthread_join(thread, NULL));
    free(secret);
    rdma_destroy_event_channel(channel);
}

static void right_end(void) { with_one_event(acknowledges_it, 0); }
static void acknowledged_before_another_looked(void) { with_one_event(looks_at_it, 1); }

/* A pair of sockets. */
static int near, far;
static char *shared;

static void connect_sockets(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listens = rsocket(AF_INET, SOCK_STREAM, 0);

    CHECK(!rbind(listens, (struct sockaddr *)&address, size) && !rlisten(listens, 1));
    CHECK(!rgetsockname(listens, (struct sockaddr *)&address, &size));
    near = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(!rconnect(near, (struct sockaddr *)&address, size));
    far = raccept(listens, NULL, NULL);
    CHECK(far >= 0 && !rclose(listens));
}

static void send_all(int socket, const void *buffer, size_t size)
{
    CHECK(rsend(socket, buffer, size, 0) == (ssize_t)size);
}

static void receive_all(int socket, void *buffer, size_t size)
{
    CHECK(rrecv(socket, buffer, size, MSG_WAITALL) == (ssize_t)size);
}

/* Answers each message with what it points to, which only the message has handed over. */
static void *answers(void *unused)
{
    char *got = malloc(SIZE), *message;

    for (;;) {
        struct pollfd entry = {.fd = far, .events = POLLIN};

        CHECK(rpoll(&entry, 1, -1) == 1);
        receive_all(far, &message, sizeof(message));
        if (!message)
            break;
        receive_all(far, got, SIZE);
        CHECK(message[0] == got[0]);
        change(message);
        send_all(far, message, SIZE);
    }
    free(got);
    return unused;
}

static void right_sockets(void)
{
    char *message = malloc(SIZE), *got = malloc(SIZE), *none = NULL;
    pthread_t thread;

    connect_sockets();
    CHECK(!pthread_create(&thread, NULL, answers, NULL));
    for (int round = 1; round < 50; round++) {
        memset(message, round, SIZE);
        send_all(near, &message, sizeof(message));
        send_all(near, message, SIZE);
        receive_all(near, got, SIZE);
        CHECK(got[0] == (char)(round + 1) && message[0] == got[0]);
    }
    send_all(near, &none, sizeof(none));
    CHECK(!pthread_join(thread, NULL));
    CHECK(!rclose(near) && !rclose(far));
    free(message);
    free(got);
}

static void *sends_it(void *unused)
{
    send_all(near, shared, SIZE);
    return unused;
}

static void *receives_into_it(void *unused)
{
    receive_all(far, shared, SIZE);
    return unused;
}

/* Both have it at once. */
static void while_another(void *(*has_it)(void *))
{
    pthread_t thread;

    connect_sockets();
    shared = calloc(1, SIZE);
    if (has_it == receives_into_it)
        sends_it(NULL);
    CHECK(!pthread_create(&thread, NULL, has_it, NULL));
    change(shared + 3);
    CHECK(!pthread_join(thread, NULL));
}

static void changed_while_it_is_sent(void) { while_another(sends_it); }
static void changed_while_it_is_received(void) { while_another(receives_into_it); }

/* Changes it, then says so by the sockets. */
static void *hands_it_over(void *unused)
{
    change(shared);
    send_all(near, "over", 4);
    say_so();
    return unused;
}

/* At the sockets over which it is handed, or at others, which have nothing. */
static void while_polling(void (*polls)(int socket), int at_others)
{
    struct pollfd entry = {.events = POLLIN};
    pthread_t thread;

    connect_sockets();
    entry.fd = far;
    CHECK(!rpoll(&entry, 1, 0));
    connect_sockets();
    shared = calloc(1, SIZE);
    CHECK(!pthread_create(&thread, NULL, hands_it_over, NULL));
    wait_until_said();
    polls(at_others ? entry.fd : far);
    change(shared);
    CHECK(!pthread_join(thread, NULL));
}

static void polls_until_it_comes(int socket)
{
    struct pollfd entry = {.fd = socket, .events = POLLIN};

    CHECK(rpoll(&entry, 1, -1) == 1 && entry.revents == POLLIN);
}

static void selects_until_it_comes(int socket)
{
    fd_set set;

    FD_ZERO(&set);
    FD_SET(socket, &set);
    CHECK(rselect(socket + 1, &set, NULL, NULL, NULL) == 1);
}

/* Nothing has come there, and a pipe has room. */
static void polls_and_hears_of_a_pipe(int socket)
{
    struct pollfd entries[2] = {{.fd = socket, .events = POLLIN}, {.events = POLLOUT}};
    int ends[2];

    CHECK(!rpoll(NULL, 0, 0) && !rpoll(entries, 1, 0));
    CHECK(!pipe(ends));
    entries[1].fd = ends[1];
    CHECK(rpoll(entries, 2, -1) == 1 && !entries[0].revents);
}

static void selects_and_hears_nothing(int socket)
{
    struct timeval now = {0, 0};
    fd_set set;

    FD_ZERO(&set);
    FD_SET(socket, &set);
    CHECK(!rselect(socket + 1, &set, NULL, NULL, &now));
}

static void right_poll(void) { while_polling(polls_until_it_comes, 0); }
static void right_select(void) { while_polling(selects_until_it_comes, 0); }
static void poll_heard_of_a_pipe(void) { while_polling(polls_and_hears_of_a_pipe, 1); }
static void select_heard_nothing(void) { while_polling(selects_and_hears_nothing, 1); }

static const struct named_case cases[] = {
    CASE(right_connection),
    CASE(changed_before_it_completed),
    CASE(right_end),
    CASE(acknowledged_before_another_looked),
    CASE(right_poll),
    CASE(right_select),
    CASE(poll_heard_of_a_pipe),
    CASE(select_heard_nothing),
    CASE(right_sockets),
    CASE(changed_while_it_is_sent),
    CASE(changed_while_it_is_received),
};

int main(int argc, char **argv)
{
    RUN_CASE(cases, argc, argv);
    puts("end");
    return 0;
}
