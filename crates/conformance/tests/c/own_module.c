/* A module that is linked with a libibverbs under another name. */
#include <infiniband/verbs.h>
#include <stdio.h>

void say_device(const char *who);

void say_device(const char *who)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    printf("%s: %s", who, list && count ? ibv_get_device_name(list[0]) : "none");
    struct ibv_context *context = list && count ? ibv_open_device(list[0]) : NULL;
    printf("%s\n", context && ibv_close_device(context) == 0 ? ", opened" : "");
    ibv_free_device_list(list);
}
