/*
 * A C program that sleeps until there are completions, without a look between asking to be told and
 * sleeping, as UCX does. Prints one line for each behaviour; the first that is not as it should be
 * ends the program.
 */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "check.h"
#include "to_itself.h"

#define MESSAGES 1000

static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static atomic_int taken, enough;

/* A message of nothing to ourselves: two completions. */
static void send_one(void)
{
    struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
    struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad_send;

    CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
    CHECK(!ibv_post_send(qp, &send, &bad_send));
}

static void take(void)
{
    struct ibv_wc wc;

    while (ibv_poll_cq(cq, 1, &wc) > 0) {
        CHECK(wc.status == IBV_WC_SUCCESS);
        taken++;
    }
}

static void sleep_until_told(void)
{
    struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
    struct ibv_cq *of;
    void *about;

    CHECK(!ibv_req_notify_cq(cq, 0));
    CHECK(poll(&fd, 1, 20000) == 1);
    while (!ibv_get_cq_event(channel, &of, &about)) {
        CHECK(of == cq);
        ibv_ack_cq_events(cq, 1);
    }
    CHECK(errno == EAGAIN);
}

/* Until the other thread has been told often enough: what is polled before it asks tells it nothing. */
static void *send_and_take(void *unused)
{
    while (!enough) {
        taken = 0;
        send_one();
        while (taken < 2)
            take();
    }
    return unused;
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context;
    struct ibv_pd *pd;
    pthread_t thread;

    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    CHECK(pd && channel);
    CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
    cq = ibv_create_cq(context, 16, NULL, channel, 0);
    CHECK(cq);
    qp = to_itself(pd, cq);

    /* Rules: CQ-10 */
    for (int sent = 0; sent < MESSAGES; sent++) {
        send_one();
        while (taken < 2 * (sent + 1)) {
            sleep_until_told();
            take();
        }
    }
    puts("ok - a thread is told of what it has not polled");

    /* Rules: CQ-10 */
    CHECK(!pthread_create(&thread, NULL, send_and_take, NULL));
    for (int told = 0; told < MESSAGES; told++)
        sleep_until_told();
    enough = 1;
    CHECK(!pthread_join(thread, NULL));
    puts("ok - a thread is told of what another one has not polled");

    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
    CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    return 0;
}
