/* Where the memory of this process is from. */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* Whether some memory is shared with peers of the device. It takes none itself. */
static int is_shared(const void *memory)
{
    static char text[1 << 20];
    size_t length = 0;
    ssize_t part;
    int shared = -1, file = open("/proc/self/maps", O_RDONLY);
    CHECK(file >= 0);
    while ((part = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += part;
    CHECK(part == 0 && length < sizeof text - 1);
    close(file);
    text[length] = 0;
    for (char *line = text; line && *line && shared < 0;) {
        char *end = strchr(line, '\n'), *rest;
        uintptr_t first = strtoul(line, &rest, 16), last = strtoul(rest + 1, NULL, 16);
        if (end)
            *end++ = 0;
        if (first <= (uintptr_t)memory && (uintptr_t)memory < last)
            shared = strstr(line, "transom-shared") != NULL;
        line = end;
    }
    CHECK(shared >= 0);
    return shared;
}
