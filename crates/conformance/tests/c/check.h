/* How the programs here say that something is not as it should be, and end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
