/*
 * Loads a module apart from everything else, as Python does, and asks it for its device. Then it
 * loads libibverbs itself by each name that programs use, if the device is not the module's own.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static void ask(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle != NULL);
    struct ibv_device **(*list)(int *) = dlsym(handle, "ibv_get_device_list");
    const char *(*name)(struct ibv_device *) = dlsym(handle, "ibv_get_device_name");
    struct ibv_context *(*open)(struct ibv_device *) = dlsym(handle, "ibv_open_device");
    CHECK(list && name && open);
    int count = 0;
    struct ibv_device **devices = list(&count);
    CHECK(devices && count == 1);
    printf("%s: %s%s\n", library, name(devices[0]), open(devices[0]) ? ", opened" : "");
}

int main(void)
{
    void *module = dlopen("module.so", RTLD_NOW | RTLD_LOCAL);
    if (!module)
        puts(dlerror());
    CHECK(module != NULL);
    void (*say_device)(const char *) = dlsym(module, "say_device");
    CHECK(say_device != NULL);
    fflush(stdout);
    say_device("module");
    struct ibv_device **(*list)(int *) = dlsym(RTLD_DEFAULT, "ibv_get_device_list");
    if (list) {
        ask("libibverbs.so");
        ask("libibverbs.so.1");
    }
    return 0;
}
