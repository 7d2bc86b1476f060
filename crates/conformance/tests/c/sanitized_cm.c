/* What AddressSanitizer and MemorySanitizer see of events of rdma_cm: each case but right_all has one mistake with what
   an event had in it, or with what it will have. Compiled with one of them. */
#include "cm.h"

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listens, *active, *passive;
static struct rdma_cm_event *request;
static const char *data;

/* A request for a connection, with private data, is there. */
static void ask(const char *with)
{
    struct rdma_conn_param param = {.private_data = with, .private_data_len = 6, .qp_num = 1};
    struct sockaddr_storage address;

    channel = rdma_create_event_channel();
    listens = listener(channel, AF_INET, RDMA_PS_TCP, &address);
    active = resolved(channel, RDMA_PS_TCP, &address);
    CHECK(!rdma_connect(active, &param));
    request = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    data = request->param.conn.private_data;
    passive = request->id;
}

static __attribute__((noinline)) void acknowledge(void)
{
    CHECK(!rdma_ack_cm_event(request));
}

static __attribute__((noinline)) void look(void)
{
    CHECK(data[0] == 'h');
}

static __attribute__((noinline)) void reject(void)
{
    CHECK(!rdma_reject(passive, data, 6));
}

static __attribute__((noinline)) void end(void)
{
    CHECK(!rdma_destroy_id(passive));
}

static __attribute__((noinline)) void asks_with_what_it_never_wrote(void)
{
    char *half = malloc(6);

    memset(half, 'h', 3);
    ask(half);
}

static void right_all(void)
{
    look();
    reject();
    acknowledge();
    end();
    request = next(channel, RDMA_CM_EVENT_REJECTED);
    data = request->param.conn.private_data;
    look();
    acknowledge();
    CHECK(!rdma_destroy_id(active) && !rdma_destroy_id(listens));
    rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";

    if (!strcmp(name, "asks_with_what_it_never_wrote")) {
        asks_with_what_it_never_wrote();
        return 0;
    }
    ask("hello");
    if (!strcmp(name, "right_all")) {
        right_all();
        return 0;
    }
    acknowledge();
    if (!strcmp(name, "looks_after_it_acknowledged"))
        look();
    else if (!strcmp(name, "rejects_after_it_acknowledged"))
        reject();
    else if (!strcmp(name, "acknowledges_twice"))
        acknowledge();
    else
        end();
    if (!strcmp(name, "rejects_after_the_end"))
        CHECK(!rdma_reject(passive, NULL, 0));
    return 0;
}
