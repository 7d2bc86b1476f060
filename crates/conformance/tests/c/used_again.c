/*
 * A program that does not know what becomes of its memory: it registers some of it, sends from and to it again and
 * again, and forks. The memory is mapped once that pays, while threads of the program are in system calls that fill
 * it, none of which fails. With an argument it stays where it is. Prints one line for each behaviour.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "to_itself.h"

#define PART 4096
#define MESSAGES 2000

/* A message is sent from the first part to the second; the third is filled by system calls. */
static unsigned char *memory;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static atomic_int enough;

static void *fill(void *unused)
{
    uint64_t number, *at = (uint64_t *)(memory + 2 * PART);
    int ends[2];

    (void)unused;
    CHECK(!pipe(ends));
    for (number = 1; !enough; number++) {
        CHECK(write(ends[1], &number, sizeof(number)) == sizeof(number));
        CHECK(read(ends[0], at, sizeof(*at)) == sizeof(*at));
        CHECK(*at == number);
    }
    return NULL;
}

/* Whether the first part lies where other processes have it too. */
static int is_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;

    CHECK(maps);
    while (fgets(line, sizeof(line), maps)) {
        unsigned long long start, end;

        CHECK(sscanf(line, "%llx-%llx", &start, &end) == 2);
        if (start <= (uintptr_t)memory && (uintptr_t)memory < end)
            found = strstr(line, "transom-pages") != NULL;
    }
    fclose(maps);
    return found;
}

static void send_messages(void)
{
    struct ibv_sge from = { .addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey };
    struct ibv_sge to = { .addr = (uintptr_t)memory + PART, .length = 8, .lkey = mr->lkey };
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
                                .send_flags = IBV_SEND_SIGNALED }, *bad_send;
    struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;
    uint64_t number;

    for (number = 1; number <= MESSAGES; number++) {
        int completed = 0;

        memcpy(memory, &number, sizeof(number));
        CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
        CHECK(!ibv_post_send(qp, &send, &bad_send));
        while (completed < 2) {
            struct ibv_wc wc;
            int found = ibv_poll_cq(cq, 1, &wc);

            CHECK(found >= 0 && (!found || wc.status == IBV_WC_SUCCESS));
            completed += found;
        }
        CHECK(!memcmp(memory + PART, &number, sizeof(number)));
    }
}

int main(int count, char **arguments)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(devices[0]);
    int stays = count > 1, status;
    pthread_t filling;
    struct ibv_pd *pd;
    pid_t child;

    (void)arguments;
    CHECK(context && (pd = ibv_alloc_pd(context)));
    CHECK(!posix_memalign((void **)&memory, PART, 3 * PART));
    memset(memory, 0, 3 * PART);
    CHECK((cq = ibv_create_cq(context, 8, NULL, NULL, 0)));
    CHECK((mr = ibv_reg_mr(pd, memory, 3 * PART, IBV_ACCESS_LOCAL_WRITE)));
    qp = to_itself(pd, cq);
    CHECK(!pthread_create(&filling, NULL, fill, NULL));
    CHECK(!is_mapped());
    send_messages();
    /* The thread that moves it may be behind. */
    while (!stays && !is_mapped())
        send_messages();
    CHECK(is_mapped() == !stays);
    puts("ok - messages arrive, and what they use is mapped where that can be");

    child = fork();
    CHECK(child >= 0);
    if (!child)
        _exit(memory[0] == memory[PART] ? 7 : 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    send_messages();
    puts("ok - a child has its own, and the parent goes on");

    enough = 1;
    CHECK(!pthread_join(filling, NULL));
    CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
    CHECK(!is_mapped() && !memcmp(memory, memory + PART, 8));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
    free(memory);
    puts("ok - when the region has ended it is ordinary memory again");
    return 0;
}
