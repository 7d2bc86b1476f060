/* A process that outlives the one that started it, as a daemon does, lets nobody look into it, and has written over its
 * environment. It says so, and with each line it reads whether the device's files are there. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "check.h"

extern char **environ;

int main(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0)
        return 0;
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    for (char **variable = environ; *variable; variable++)
        memset(*variable, 0, strlen(*variable));
    /* The descriptors of others too, as daemons do. */
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    puts("ready");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        int file = open("/sys/class/infiniband/transom0/node_guid", O_RDONLY);
        puts(file >= 0 ? "there" : "gone");
        fflush(stdout);
        if (file >= 0)
            close(file);
    }
    return 0;
}
