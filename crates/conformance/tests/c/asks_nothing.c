/* A program without any use for RDMA. */
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *text = strdup("text");
    int right = text && !strcmp(text, "text");
    free(text);
    return right ? 0 : 1;
}
