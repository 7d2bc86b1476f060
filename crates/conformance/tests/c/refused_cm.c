/* Calls of librdmacm that are refused: which one, and what it answered, a line each. Then it waits for its
   standard input to end, so that it can be asked why. */

#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

/* Every function takes whole numbers and pointers only, six at most. */
typedef long (*any_function)(long, long, long, long, long, long);

static void told(const char *function)
{
    printf("%s %d\n", function, errno);
    errno = 0;
}

/* Each function, with arguments of nothing: nulls and zeroes, and of a socket the descriptor -1. */
static void of_nothing(int count, char **names)
{
    for (int at = 0; at < count; at++) {
        any_function function = (any_function)dlsym(RTLD_DEFAULT, names[at]);
        CHECK(function != NULL);
        errno = 0;
        if (!strcmp(names[at], "rpoll"))
            function(0, 1, 0, 0, 0, 0);
        else if (!strncmp(names[at], "rdma_", 5) || !strcmp(names[at], "rsocket"))
            function(0, 0, 0, 0, 0, 0);
        else
            function(-1, 0, 0, 0, 0, 0);
        told(names[at]);
    }
}

/* Those that need nothing but descriptors, when none is left. */
static void without_descriptors(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rlimit none = {0, 0};
    CHECK(channel != NULL && setrlimit(RLIMIT_NOFILE, &none) == 0);
    errno = 0;
    CHECK(rdma_create_event_channel() == NULL);
    told("rdma_create_event_channel");
    CHECK(rdma_get_devices(NULL) == NULL);
    told("rdma_get_devices");
}

/* Calls of ids in states that do not allow them. */
static void too_early(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id, *other;
    struct rdma_conn_param param = {0};
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    CHECK(channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP) == 0);
    errno = 0;
    CHECK(rdma_connect(id, &param) != 0);
    told("rdma_connect");
    CHECK(rdma_resolve_route(id, 1000) != 0);
    told("rdma_resolve_route");
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&far) != 0);
    told("rdma_bind_addr");
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&here) == 0);
    CHECK(rdma_listen(id, 1) == 0);
    CHECK(rdma_listen(id, 1) != 0);
    told("rdma_listen");
    here.sin_port = rdma_get_src_port(id);
    CHECK(rdma_bind_addr(other, (struct sockaddr *)&here) != 0);
    told("rdma_bind_addr");
    CHECK(rdma_reject(id, NULL, 0) != 0);
    told("rdma_reject");
}

static struct rdma_cm_event *fetched;

static void *ends(void *id)
{
    CHECK(rdma_destroy_id(id) == 0);
    return NULL;
}

/* An id is destroyed, an event of which is acknowledged only when standard input ends. */
static pthread_t waits(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_cm_id *id;
    pthread_t thread;
    CHECK(channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000) == 0);
    CHECK(rdma_get_cm_event(channel, &fetched) == 0);
    CHECK(pthread_create(&thread, NULL, ends, id) == 0);
    return thread;
}

int main(int count, char **words)
{
    pthread_t thread = 0;
    CHECK(count > 1);
    if (!strcmp(words[1], "of-nothing"))
        of_nothing(count - 2, words + 2);
    else if (!strcmp(words[1], "without-descriptors"))
        without_descriptors();
    else if (!strcmp(words[1], "too-early"))
        too_early();
    else
        thread = waits();
    printf("done\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    if (fetched)
        CHECK(rdma_ack_cm_event(fetched) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}
