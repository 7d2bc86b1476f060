/*
 * Looks at the device's files through every function of the C library that takes a path, by the names
 * that compiled programs have. Prints nothing if all of them find what is there; the first that does
 * not ends the program.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "check.h"

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/transom0"
#define TYPE DEVICE "/node_type"
#define PARENT "/sys/devices/transom-rdma"
#define VERBS "/sys/class/infiniband_verbs/uverbs0"
#define LINK VERBS "/device"
#define NODE "/dev/infiniband/uverbs0"

/* Of _FORTIFY_SOURCE, and of programs built before glibc 2.33. */
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);
char *__realpath_chk(const char *, char *, size_t);
int __xstat(int, const char *, struct stat *);
int __xstat64(int, const char *, struct stat64 *);
int __lxstat(int, const char *, struct stat *);
int __lxstat64(int, const char *, struct stat64 *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __fxstatat64(int, int, const char *, struct stat64 *, int);

static int says_ca(int file)
{
    char text[16] = "";
    int right = file >= 0 && read(file, text, sizeof text - 1) == 6 && !strcmp(text, "1: CA\n");
    close(file);
    return right;
}

static int says_ca_too(FILE *file)
{
    char text[16] = "";
    int right = file && fgets(text, sizeof text, file) && !strcmp(text, "1: CA\n");
    if (file)
        fclose(file);
    return right;
}

static void opening(int root)
{
    CHECK(says_ca(open(TYPE, O_RDONLY)));
    CHECK(says_ca(open64(TYPE, O_RDONLY | O_CLOEXEC)));
    CHECK(says_ca(__open_2(TYPE, O_RDONLY)));
    CHECK(says_ca(__open64_2(TYPE, O_RDONLY)));
    CHECK(says_ca(openat(root, TYPE + 1, O_RDONLY)));
    CHECK(says_ca(openat64(-1, TYPE, O_RDONLY)));
    CHECK(says_ca(__openat_2(root, TYPE + 1, O_RDONLY)));
    CHECK(says_ca(__openat64_2(root, TYPE + 1, O_RDONLY)));
    CHECK(says_ca_too(fopen(TYPE, "r")));
    CHECK(says_ca_too(fopen64(TYPE, "r")));
    CHECK(says_ca_too(freopen(TYPE, "r", fopen("/dev/null", "r"))));
    CHECK(says_ca_too(freopen64(TYPE, "r", fopen("/dev/null", "r"))));
    int device = open(CLASS, O_RDONLY | O_DIRECTORY);
    CHECK(says_ca(openat(device, "transom0/node_type", O_RDONLY)));
    close(device);
    device = open(NODE, O_RDWR);
    CHECK(device >= 0 && write(device, "word", 4) == 4);
    close(device);
    CHECK(open(DEVICE "/no_such_attribute", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(openat(root, TYPE + 1, O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
}

static void asking(int root)
{
    CHECK(access(NODE, R_OK | W_OK) == 0);
    CHECK(eaccess(NODE, R_OK | W_OK) == 0);
    CHECK(euidaccess(TYPE, R_OK) == 0);
    CHECK(faccessat(root, NODE + 1, R_OK | W_OK, 0) == 0);

    struct stat found;
    struct stat64 found64;
    CHECK(stat(NODE, &found) == 0 && S_ISCHR(found.st_mode));
    CHECK(stat64(NODE, &found64) == 0 && S_ISCHR(found64.st_mode));
    CHECK(lstat(TYPE, &found) == 0 && S_ISREG(found.st_mode));
    CHECK(lstat64(LINK, &found64) == 0 && S_ISLNK(found64.st_mode));
    CHECK(fstatat(root, NODE + 1, &found, 0) == 0 && S_ISCHR(found.st_mode));
    CHECK(fstatat64(root, LINK + 1, &found64, 0) == 0 && S_ISDIR(found64.st_mode));
    CHECK(__xstat(1, NODE, &found) == 0 && S_ISCHR(found.st_mode));
    CHECK(__xstat64(1, NODE, &found64) == 0 && S_ISCHR(found64.st_mode));
    CHECK(__lxstat(1, LINK, &found) == 0 && S_ISLNK(found.st_mode));
    CHECK(__lxstat64(1, LINK, &found64) == 0 && S_ISLNK(found64.st_mode));
    CHECK(__fxstatat(1, root, NODE + 1, &found, 0) == 0 && S_ISCHR(found.st_mode));
    CHECK(__fxstatat64(1, root, NODE + 1, &found64, 0) == 0 && S_ISCHR(found64.st_mode));
    struct statx foundx;
    CHECK(statx(AT_FDCWD, NODE, 0, STATX_TYPE, &foundx) == 0 && S_ISCHR(foundx.stx_mode));
    struct statfs system;
    struct statfs64 system64;
    CHECK(statfs(CLASS, &system) == 0 && statfs64(CLASS, &system64) == 0);
    struct statvfs volume;
    struct statvfs64 volume64;
    CHECK(statvfs(CLASS, &volume) == 0 && statvfs64(CLASS, &volume64) == 0);
    const int watches = inotify_init1(IN_CLOEXEC);
    CHECK(watches >= 0 && inotify_add_watch(watches, TYPE, IN_MODIFY) >= 0 && close(watches) == 0);

    /* Pointers to nothing, and into the kernel. */
    const char *volatile nowhere[] = { NULL, (char *)1, (char *)4096, (char *)-1, (char *)INTPTR_MIN };
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        CHECK(access(nowhere[i], F_OK) == -1 && errno == EFAULT);
        CHECK(open(nowhere[i], O_RDONLY) == -1 && errno == EFAULT);
    }

    char text[64];
    CHECK(getxattr(TYPE, "user.none", text, sizeof text) == -1 && errno != ENOENT);
    CHECK(lgetxattr(TYPE, "user.none", text, sizeof text) == -1 && errno != ENOENT);
    CHECK(listxattr(TYPE, text, sizeof text) >= 0 || errno != ENOENT);
    CHECK(llistxattr(TYPE, text, sizeof text) >= 0 || errno != ENOENT);
}

static void listing(int root)
{
    DIR *directory = opendir(CLASS);
    CHECK(directory != NULL);
    struct dirent *entry;
    do
        entry = readdir(directory);
    while (entry && entry->d_name[0] == '.');
    CHECK(entry && !strcmp(entry->d_name, "transom0"));
    closedir(directory);
    struct dirent **names;
    struct dirent64 **names64;
    CHECK(scandir(CLASS, &names, NULL, alphasort) == 3 && !strcmp(names[2]->d_name, "transom0"));
    CHECK(scandir64(CLASS, &names64, NULL, alphasort64) == 3);
    CHECK(scandirat(root, CLASS + 1, &names, NULL, alphasort) == 3);
    CHECK(scandirat64(root, CLASS + 1, &names64, NULL, alphasort64) == 3);
}

static void following(int root)
{
    const char target[] = "../../../transom-rdma";
    const ssize_t length = sizeof target - 1;
    char text[PATH_MAX];
    CHECK(readlink(LINK, text, sizeof text) == length && !memcmp(text, target, length));
    CHECK(__readlink_chk(LINK, text, sizeof text, sizeof text) == length);
    CHECK(readlinkat(root, LINK + 1, text, sizeof text) == length);
    CHECK(__readlinkat_chk(root, LINK + 1, text, sizeof text, sizeof text) == length);

    CHECK(realpath(LINK, text) == text && !strcmp(text, PARENT));
    CHECK(__realpath_chk(DEVICE "/../transom0", text, sizeof text));
    CHECK(!strcmp(text, PARENT "/infiniband/transom0"));
    char *found = realpath(TYPE, NULL);
    CHECK(found && !strcmp(found, PARENT "/infiniband/transom0/node_type"));
    free(found);
    found = canonicalize_file_name("/sys/class/net/../infiniband");
    CHECK(found && !strcmp(found, CLASS));
    free(found);
    CHECK(realpath(NODE, text) && !strcmp(text, "/dev/null"));
    CHECK(realpath(CLASS "/mlx5_0", text) == NULL && errno == ENOENT);

    /* What is above a link is above where it leads. */
    CHECK(realpath(DEVICE "/../..", text) && !strcmp(text, PARENT));
    CHECK(access(DEVICE "/../../numa_node", R_OK) == 0);
    CHECK(access(DEVICE "/device/infiniband/transom0/ports/1/lid", R_OK) == 0);
    CHECK(access(VERBS "/device/local_cpus", R_OK) == 0);
    struct stat class, parent;
    CHECK(lstat(DEVICE, &class) == 0 && S_ISLNK(class.st_mode));
    CHECK(lstat(DEVICE "/", &class) == 0 && S_ISDIR(class.st_mode));
    CHECK(stat(DEVICE "/../..", &class) == 0 && stat(PARENT, &parent) == 0);
    CHECK(class.st_ino == parent.st_ino && class.st_dev == parent.st_dev);
    /* And the kernel has the same above a place. */
    CHECK(access(DEVICE "/../../../system/cpu/online", R_OK) == 0);
    CHECK(access(CLASS "/../net/lo/ifindex", R_OK) == 0);

    /* Nobody writes there, not even by accident. */
    CHECK(access(TYPE, W_OK) == -1 && access(CLASS, W_OK) == -1 && access(DEVICE, W_OK) == -1);
    CHECK(open(TYPE, O_WRONLY) == -1 && open(DEVICE "/new", O_WRONLY | O_CREAT, 0600) == -1);

    CHECK(chdir("/sys/class") == 0 && says_ca(open("infiniband/transom0/node_type", O_RDONLY)));
    CHECK(chdir(DEVICE) == 0 && says_ca(open("node_type", O_RDONLY)));
    CHECK(says_ca(open("../../infiniband/transom0/node_type", O_RDONLY)));
    CHECK(access("device/numa_node", R_OK) == 0);
}

static void *wait_for_a_writer(void *path)
{
    open(path, O_RDONLY);
    return path;
}

/* A thread may be cancelled in a function that waits, as in the C library's own. */
static void cancelling(void)
{
    char folder[] = "/tmp/transom-test-XXXXXX", path[sizeof folder + 8];
    pthread_t thread;
    void *result;

    CHECK(mkdtemp(folder));
    sprintf(path, "%s/pipe", folder);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(!pthread_create(&thread, NULL, wait_for_a_writer, path));
    CHECK(!pthread_cancel(thread));
    CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

int main(void)
{
    CHECK(errno == 0);
    int root = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(root >= 0);
    opening(root);
    asking(root);
    listing(root);
    following(root);
    cancelling();
    return 0;
}
