/* A plugin that frees what it is given; loaded with RTLD_DEEPBIND it does so by the C library's own function, past what
 * is preloaded. */
#include <stdlib.h>

void release(void *block)
{
    free(block);
}
