/*
 * A C program that cancels its threads: one that waits for an event ends, one that works goes on
 * until it asks for its end itself, so that it leaves nothing locked. Prints one line for each
 * behaviour; the first that is not as it should be ends the program.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "to_itself.h"

#define ROUNDS 2000

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static atomic_int rounds;

static void *wait_for_a_completion_event(void *unused)
{
    struct ibv_cq *of;
    void *about;

    ibv_get_cq_event(channel, &of, &about);
    return unused;
}

static void *wait_for_an_asynchronous_event(void *unused)
{
    struct ibv_async_event event;

    ibv_get_async_event(context, &event);
    return unused;
}

/* A message of nothing to ourselves, and both its completions. */
static void send_one(void)
{
    struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
    struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad_send;
    struct ibv_wc wc[2];
    int left = 2, came;

    CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
    CHECK(!ibv_post_send(qp, &send, &bad_send));
    for (; left > 0; left -= came) {
        came = ibv_poll_cq(cq, left, wc);
        CHECK(came >= 0);
        for (int i = 0; i < came; i++)
            CHECK(wc[i].status == IBV_WC_SUCCESS);
    }
}

static void *work(void *unused)
{
    while (rounds < ROUNDS) {
        send_one();
        rounds++;
    }
    for (;;)
        pthread_testcancel();
    return unused;
}

/* The library looks into files for this, where a thread could be cancelled, with something locked. */
static void *register_and_deregister(void *pd)
{
    static char memory[4096];

    while (rounds < ROUNDS) {
        struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);

        CHECK(mr && !ibv_dereg_mr(mr));
        rounds++;
    }
    for (;;)
        pthread_testcancel();
    return pd;
}

static void cancel(pthread_t thread)
{
    void *result;

    CHECK(!pthread_cancel(thread));
    CHECK(!pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED);
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_pd *pd;
    pthread_t thread;

    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    CHECK(pd && channel);
    cq = ibv_create_cq(context, 16, NULL, channel, 0);
    CHECK(cq);
    qp = to_itself(pd, cq);

    CHECK(!pthread_create(&thread, NULL, wait_for_a_completion_event, NULL));
    cancel(thread);
    puts("ok - a thread that waits for a completion event is cancelled");
    CHECK(!pthread_create(&thread, NULL, wait_for_an_asynchronous_event, NULL));
    cancel(thread);
    puts("ok - a thread that waits for an asynchronous event is cancelled");

    CHECK(!pthread_create(&thread, NULL, work, NULL));
    while (rounds == 0)
        ;
    cancel(thread);
    CHECK(rounds == ROUNDS);
    send_one();
    puts("ok - a thread that posts and polls is not cancelled there");

    rounds = 0;
    CHECK(!pthread_create(&thread, NULL, register_and_deregister, pd));
    while (rounds == 0)
        ;
    cancel(thread);
    CHECK(rounds == ROUNDS);
    puts("ok - a thread that registers memory is not cancelled there");

    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
    CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    return 0;
}
