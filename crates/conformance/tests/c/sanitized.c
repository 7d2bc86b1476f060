/* What sanitizers see of the device: each case but those named right_* has one mistake in its use of memory.
   Compiled with the sanitizer that is to see it, or plainly, for valgrind. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <netinet/in.h>

#include "check.h"

#define SIZE 64
/* A message that the device does not put into a ring. */
#define LONG (128 << 10)
#define RIGHTS                                                                                     \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                  \
     IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
/* The device to open. */
static int device;

/* What one end of a connection tells the other. */
struct end {
    uint32_t qp, rkey;
    uint64_t address;
    union ibv_gid gid;
};

static void open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_device_attr attr;

    CHECK(list && list[0]);
    context = ibv_open_device(list[device]);
    CHECK(context);
    ibv_free_device_list(list);
    CHECK(!ibv_query_device(context, &attr));
    CHECK(attr.max_qp > 0);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(pd && cq);
}

static struct ibv_qp *make(void)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);

    CHECK(qp);
    return qp;
}

/* The index of an IPv4 address that other hosts reach, if there is one. */
static int gid_index;

static struct end end_of(struct ibv_qp *qp, struct ibv_mr *mr)
{
    struct end end = { .qp = qp->qp_num, .rkey = mr->rkey, .address = (uintptr_t)mr->addr };

    while (getenv("OTHER_HOST")) {
        CHECK(!ibv_query_gid(context, 1, gid_index, &end.gid));
        if (end.gid.raw[10] == 0xff && end.gid.raw[12] != 127)
            return end;
        gid_index++;
    }
    CHECK(!ibv_query_gid(context, 1, gid_index, &end.gid));
    return end;
}

static void join(struct ibv_qp *qp, struct end *to)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS,
    };

    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
        .ah_attr = {
            .port_num = 1, .is_global = 1,
            .grh = { .dgid = to->gid, .sgid_index = gid_index, .hop_limit = 1 },
        },
    };
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    /* A second: beside programs that spin, the other end may get no processor for long. */
    attr.timeout = 18;
    attr.max_rd_atomic = 1;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_mr *covers(void *memory, size_t size)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, size, RIGHTS);

    CHECK(mr);
    return mr;
}

static __attribute__((noinline)) void post_the_receive(struct ibv_qp *qp, struct ibv_mr *mr,
                                                       uint64_t wr_id)
{
    struct ibv_sge sge = { (uintptr_t)mr->addr, mr->length, mr->lkey };
    struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

    CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static __attribute__((noinline)) void post_it(struct ibv_qp *qp, enum ibv_wr_opcode opcode,
                                              struct ibv_mr *mr, uint32_t length,
                                              struct end *remote)
{
    struct ibv_sge sge = { (uintptr_t)mr->addr, length, mr->lkey };
    struct ibv_send_wr wr = {
        .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
    }, *bad;

    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = remote->address;
        wr.wr.atomic.rkey = remote->rkey;
        wr.wr.atomic.compare_add = 1;
    } else if (remote) {
        wr.wr.rdma.remote_addr = remote->address;
        wr.wr.rdma.rkey = remote->rkey;
    }
    CHECK(!ibv_post_send(qp, &wr, &bad));
}

static struct ibv_wc poll_one(void)
{
    struct ibv_wc wc;
    int count;

    while (!(count = ibv_poll_cq(cq, 1, &wc)))
        ;
    CHECK(count == 1);
    return wc;
}

static void complete(int count)
{
    while (count--) {
        struct ibv_wc wc = poll_one();

        CHECK(wc.status == IBV_WC_SUCCESS);
        CHECK(wc.opcode != IBV_WC_RECV || wc.byte_len > 0);
    }
}

/* Two queue pairs of this process that are connected, each with a block of memory. */
static struct ibv_qp *near, *far;
static char *here, *there;
static struct ibv_mr *mine, *theirs;
static struct end remote;

static void connect_two(void)
{
    struct end end;

    open_device();
    near = make();
    far = make();
    here = malloc(SIZE);
    there = malloc(SIZE);
    mine = covers(here, SIZE);
    theirs = covers(there, SIZE);
    remote = end_of(far, theirs);
    end = end_of(near, mine);
    join(near, &remote);
    join(far, &end);
}

static __attribute__((noinline)) void change(char *buffer) { buffer[3]++; }
static __attribute__((noinline)) void give_back(char *buffer) { free(buffer); }

static void right_all(void)
{
    memset(here, 1, SIZE);
    for (int round = 0; round < 3; round++) {
        post_the_receive(far, theirs, 3);
        post_it(near, IBV_WR_SEND, mine, SIZE, NULL);
        complete(2);
        change(here);
        change(there);
        post_it(near, IBV_WR_RDMA_WRITE, mine, SIZE, &remote);
        complete(1);
        CHECK(!memcmp(here, there, SIZE));
        change(there);
        post_it(near, IBV_WR_RDMA_READ, mine, SIZE, &remote);
        complete(1);
        CHECK(!memcmp(here, there, SIZE));
        post_it(near, IBV_WR_ATOMIC_FETCH_AND_ADD, mine, 8, &remote);
        complete(1);
        change(here);
        change(there);
    }
    CHECK(!ibv_dereg_mr(theirs));
    give_back(there);
}

static void changed_before_it_completed(void)
{
    memset(here, 1, SIZE);
    post_the_receive(far, theirs, 3);
    post_it(near, IBV_WR_SEND, mine, SIZE, NULL);
    change(here);
    complete(2);
}

static void read_before_it_completed(void)
{
    volatile char *arrived = there;

    memset(here, 1, SIZE);
    there[3] = 0;
    post_the_receive(far, theirs, 3);
    post_it(near, IBV_WR_SEND, mine, SIZE, NULL);
    change((char *)arrived);
    complete(2);
}

static void freed_before_it_came(void)
{
    memset(here, 1, SIZE);
    post_the_receive(far, theirs, 3);
    give_back(there);
    post_it(near, IBV_WR_SEND, mine, SIZE, NULL);
    complete(2);
}

static void beyond_the_block(void)
{
    struct ibv_mr *more = covers(there, SIZE + 16), *both;

    both = covers(malloc(2 * SIZE), 2 * SIZE);
    memset(both->addr, 1, 2 * SIZE);
    post_the_receive(far, more, 3);
    post_it(near, IBV_WR_SEND, both, SIZE + 8, NULL);
    complete(2);
}

static void never_written(void)
{
    memset(here, 1, SIZE / 2);
    post_the_receive(far, theirs, 3);
    post_it(near, IBV_WR_SEND, mine, SIZE, NULL);
    complete(2);
}

/* What has come is as good as written. */
static void right_what_came(void)
{
    memset(here, 1, SIZE);
    post_the_receive(far, theirs, 3);
    post_it(near, IBV_WR_SEND, mine, SIZE, NULL);
    complete(2);
    if (there[5] == 1)
        puts("it came");
}

static struct ibv_wc failed(void)
{
    struct end wrong = remote;

    wrong.rkey ^= 0x100;
    memset(here, 1, SIZE);
    post_it(near, IBV_WR_RDMA_WRITE, mine, SIZE, &wrong);
    return poll_one();
}

static void opcode_of_a_failure(void)
{
    struct ibv_wc wc = failed();

    if (wc.opcode == IBV_WC_RDMA_WRITE)
        puts("a WRITE");
}

static void right_failure(void)
{
    struct ibv_wc wc = failed();

    CHECK(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 7 && wc.qp_num == near->qp_num);
}

/* Two processes, which meet by a socket. */
static int peer;
/* Room for a long message. */
static char *room;

static void tell(const void *what, size_t size) { CHECK(write(peer, what, size) == (ssize_t)size); }
static void hear(void *what, size_t size)
{
    CHECK(recv(peer, what, size, MSG_WAITALL) == (ssize_t)size);
}

static void stop(pid_t process)
{
    char path[32], state = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", process);
    CHECK(!kill(process, SIGSTOP));
    while (state != 'T') {
        FILE *file = fopen(path, "r");

        CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && !fclose(file));
    }
}

static __attribute__((noinline)) void send_a_long_message(int gives_it_back)
{
    char *message = malloc(LONG);
    struct ibv_mr *mr = covers(message, LONG);

    memset(message, 5, LONG);
    if (gives_it_back)
        give_back(message);
    post_it(near, IBV_WR_SEND, mr, LONG, NULL);
    complete(1);
}

/* An atomic, which finds 41. While its target is stopped, it cannot be done. */
static void add_one(struct end *to, int target_is_stopped)
{
    struct ibv_wc wc;
    uint64_t old;
    int too_early = 0;

    if (target_is_stopped)
        stop(getppid());
    post_it(near, IBV_WR_ATOMIC_FETCH_AND_ADD, mine, sizeof old, to);
    if (target_is_stopped) {
        too_early = ibv_poll_cq(cq, 1, &wc);
        CHECK(!kill(getppid(), SIGCONT));
    }
    CHECK(!too_early);
    complete(1);
    memcpy(&old, here, sizeof old);
    CHECK(old == 41);
}

/* The other process: does what the word says to this one's memory. Otherwise it writes what it has into it, and tells
   that it has. */
static void other(void)
{
    struct end end, to;
    char word;

    open_device();
    near = make();
    here = malloc(SIZE);
    memset(here, 5, SIZE);
    mine = covers(here, SIZE);
    end = end_of(near, mine);
    tell(&end, sizeof end);
    hear(&to, sizeof to);
    join(near, &to);
    hear(&word, 1);
    if (word == 'l' || word == 'f') {
        send_a_long_message(word == 'f');
        exit(0);
    }
    if (word == 'o')
        give_back(here);
    if (word == 's')
        stop(getppid());
    if (word == 'a' || word == 't') {
        add_one(&to, word == 't');
    } else {
        post_it(near, word == 'r' ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, mine, SIZE, &to);
        complete(1);
    }
    if (word == 's')
        CHECK(!kill(getppid(), SIGCONT));
    post_it(near, IBV_WR_SEND, mine, 1, NULL);
    complete(1);
    tell(&word, 1);
    exit(0);
}

static void other_at(const char *port)
{
    struct sockaddr_in any = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(port)),
    };
    const char *elsewhere = getenv("OTHER_HOST");

    peer = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!connect(peer, (struct sockaddr *)&any, sizeof any));
    if (elsewhere) {
        const int host = open(elsewhere, O_RDONLY | O_CLOEXEC);

        CHECK(host >= 0 && !setns(host, CLONE_NEWNET));
    }
    other();
}

/* The other process may be one without the sanitizer, or on another host. */
static void meet_another(void)
{
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof any;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct end end;

    CHECK(!bind(listener, (struct sockaddr *)&any, size) && !listen(listener, 1));
    CHECK(!getsockname(listener, (struct sockaddr *)&any, &size));
    if (!fork()) {
        const char *plain = getenv("PEER");
        char port[8];

        snprintf(port, sizeof port, "%d", ntohs(any.sin_port));
        if (plain) {
            execl(plain, plain, "other", port, NULL);
            _exit(1);
        }
        other_at(port);
    }
    peer = accept(listener, NULL, NULL);
    CHECK(peer >= 0);
    open_device();
    far = make();
    there = malloc(SIZE);
    memset(there, 0, SIZE);
    theirs = covers(there, SIZE);
    here = room ? room : malloc(SIZE);
    mine = covers(here, room ? LONG : SIZE);
    hear(&end, sizeof end);
    join(far, &end);
    post_the_receive(far, mine, 3);
    end = end_of(far, theirs);
    tell(&end, sizeof end);
}

static void right_told_by_a_socket(void)
{
    meet_another();
    change(there);
    tell("w", 1);
    hear(here + 8, 1);
    CHECK(there[3] == 5);
    complete(1);
    wait(NULL);
}

static void right_told_by_a_message(void)
{
    meet_another();
    change(there);
    tell("w", 1);
    complete(1);
    CHECK(there[3] == 5);
    wait(NULL);
}

/* Nothing says that it has come but that it is there. */
static __attribute__((noinline)) void look_until_it_is_there(volatile char *at)
{
    while (*at != 5)
        ;
}

static void told_by_nothing(void)
{
    meet_another();
    tell("w", 1);
    look_until_it_is_there(there + 3);
    complete(1);
    wait(NULL);
}

/* Two queue pairs of this process, one of them at another device. That it has changed orders nothing. */
static int has_changed;

static void *writes_it(void *unused)
{
    while (!__atomic_load_n(&has_changed, __ATOMIC_RELAXED))
        ;
    post_it(near, IBV_WR_RDMA_WRITE, mine, SIZE, &remote);
    complete(1);
    return unused;
}

static void changed_before_another_wrote_it(void)
{
    struct ibv_port_attr port;
    struct ibv_cq *queue;
    pthread_t thread;
    struct end end;

    CHECK(!setenv("TRANSOM_DEVICES", "one;two", 1));
    open_device();
    near = make();
    here = calloc(1, SIZE);
    mine = covers(here, SIZE);
    end = end_of(near, mine);
    queue = cq;
    device = 1;
    open_device();
    far = make();
    there = calloc(1, SIZE);
    theirs = covers(there, SIZE);
    remote = end_of(far, theirs);
    cq = queue;
    join(near, &remote);
    join(far, &end);
    CHECK(near->qp_num >> 16 != far->qp_num >> 16);
    CHECK(!pthread_create(&thread, NULL, writes_it, NULL));
    change(there);
    CHECK(!ibv_query_port(context, 1, &port));
    __atomic_store_n(&has_changed, 1, __ATOMIC_RELAXED);
    CHECK(!pthread_join(thread, NULL));
}

static void freed_before_a_write(void)
{
    meet_another();
    give_back(there);
    tell("w", 1);
    complete(1);
    wait(NULL);
}

static void freed_before_a_read(void)
{
    meet_another();
    give_back(there);
    tell("r", 1);
    complete(1);
    wait(NULL);
}

static void freed_before_an_atomic(void)
{
    meet_another();
    give_back(there);
    tell("a", 1);
    complete(1);
    wait(NULL);
}

/* The other process has freed what it writes from. */
static void freed_before_it_was_written(void)
{
    int status;

    meet_another();
    tell("o", 1);
    wait(&status);
    CHECK(!status);
}

static void freed_before_it_was_written_here(void)
{
    memset(here, 1, SIZE);
    give_back(here);
    post_it(near, IBV_WR_RDMA_WRITE, mine, SIZE, &remote);
    complete(1);
}

static void an_atomic(const char *word)
{
    uint64_t value = 41;

    meet_another();
    memcpy(there, &value, sizeof value);
    tell(word, 1);
    complete(1);
    memcpy(&value, there, sizeof value);
    CHECK(value == 42);
    wait(NULL);
}

static void right_atomic(void) { an_atomic("a"); }
static void right_atomic_when_it_goes_on(void) { an_atomic("t"); }

/* A WRITE does not need this process. */
static void right_while_it_is_stopped(void)
{
    meet_another();
    tell("s", 1);
    complete(1);
    CHECK(there[3] == 5);
    wait(NULL);
}

static void long_message(const char *word)
{
    char *message = malloc(LONG);
    int status;

    room = message;
    meet_another();
    tell(word, 1);
    wait(&status);
    CHECK(!status);
    complete(1);
    CHECK(message[0] == 5 && message[LONG - 1] == 5);
}

static void right_long_message(void) { long_message("l"); }
static void freed_before_it_was_sent(void) { long_message("f"); }

/* Threads that send to each other, each with a queue pair and completion queue of its own. */
#define THREADS 4
#define ROUNDS 200
static pthread_barrier_t all;
static struct end ends[THREADS];

static void *one_of_many(void *argument)
{
    int me = (int)(intptr_t)argument, next = me ^ 1;
    struct ibv_cq *own = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = own, .recv_cq = own, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    char *out = malloc(SIZE), *in = malloc(SIZE);
    struct ibv_mr *from = covers(out, SIZE), *to = covers(in, SIZE);

    CHECK(own && qp);
    ends[me] = end_of(qp, to);
    pthread_barrier_wait(&all);
    join(qp, &ends[next]);
    post_the_receive(qp, to, 0);
    pthread_barrier_wait(&all);
    for (int round = 1; round <= ROUNDS; round++) {
        struct ibv_wc wc;
        int left = 2;

        memset(out, round, SIZE);
        post_it(qp, IBV_WR_SEND, from, SIZE, NULL);
        while (left)
            if (ibv_poll_cq(own, 1, &wc)) {
                CHECK(wc.status == IBV_WC_SUCCESS);
                left--;
            }
        CHECK(in[9] == (char)round);
        post_the_receive(qp, to, round);
    }
    pthread_barrier_wait(&all);
    CHECK(!ibv_destroy_qp(qp));
    CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
    free(out);
    free(in);
    return NULL;
}

static void right_threads(void)
{
    pthread_t threads[THREADS];

    open_device();
    pthread_barrier_init(&all, NULL, THREADS);
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, one_of_many, (void *)i));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

#define CASE(name, two) { #name, name, two }
static const struct {
    const char *name;
    void (*run)(void);
    int two;
} cases[] = {
    CASE(right_all, 1),
    CASE(changed_before_it_completed, 1),
    CASE(read_before_it_completed, 1),
    CASE(freed_before_it_came, 1),
    CASE(beyond_the_block, 1),
    CASE(never_written, 1),
    CASE(right_what_came, 1),
    CASE(opcode_of_a_failure, 1),
    CASE(right_failure, 1),
    CASE(right_told_by_a_socket, 0),
    CASE(right_told_by_a_message, 0),
    CASE(told_by_nothing, 0),
    CASE(changed_before_another_wrote_it, 0),
    CASE(freed_before_a_write, 0),
    CASE(freed_before_a_read, 0),
    CASE(freed_before_an_atomic, 0),
    CASE(freed_before_it_was_written, 0),
    CASE(freed_before_it_was_written_here, 1),
    CASE(right_atomic, 0),
    CASE(right_atomic_when_it_goes_on, 0),
    CASE(right_while_it_is_stopped, 0),
    CASE(right_long_message, 0),
    CASE(freed_before_it_was_sent, 0),
    CASE(right_threads, 0),
};

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "other"))
        other_at(argv[2]);
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]))
            continue;
        if (cases[i].two)
            connect_two();
        cases[i].run();
        puts("end");
        return 0;
    }
    fputs("which case?\n", stderr);
    return 2;
}
