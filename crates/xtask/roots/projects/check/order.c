/* A test that passes. With WRONG in the environment it makes a mistake that fails nowhere: it frees the
 * protection domain while a region is in it, and does not look at the answer. */
#include <infiniband/verbs.h>
#include <stdlib.h>

int main(void)
{
    static char memory[4096];
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    struct ibv_mr *mr = pd ? ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (!mr)
        return 1;
    if (getenv("WRONG"))
        ibv_dealloc_pd(pd);
    ibv_dereg_mr(mr);
    if (!getenv("WRONG"))
        ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(devices);
    return 0;
}
