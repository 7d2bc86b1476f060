/* A program that is refused twice, for what only "transom explain" tells. */
#include <infiniband/verbs.h>

#include "check.h"

int main(void)
{
    static char memory[4096];
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    for (int time = 0; time < 2; time++) {
        CHECK(!ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_REMOTE_WRITE));
        CHECK(errno == EINVAL);
    }
    puts("ok - refused");
    return 0;
}
