/* Preloaded: a quota for one folder, where the kernel has none to test with. $QUOTA_FOLDER may hold $QUOTA_BYTES;
 * past that write() says EDQUOT, removing files makes room again, and statvfs() shows nothing of it, as on a file
 * server. Directories and empty files cost nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static __thread long long used;

static int add(const char *path, const struct stat *found, int kind, struct FTW *where)
{
    (void)path, (void)where;
    used += kind == FTW_F ? found->st_size : 0;
    return 0;
}

/* How many of `wanted` bytes this descriptor may take. */
static size_t allowed(int descriptor, size_t wanted)
{
    const char *folder = getenv("QUOTA_FOLDER"), *most = getenv("QUOTA_BYTES");
    char link[64], path[PATH_MAX];
    struct stat found;
    if (!folder || !most || fstat(descriptor, &found) || !S_ISREG(found.st_mode))
        return wanted;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path);
    if (length < (ssize_t)strlen(folder) || strncmp(path, folder, strlen(folder)))
        return wanted;
    used = 0;
    nftw(folder, add, 16, FTW_PHYS);
    for (int other = 0; other < 1024; other++) { /* deleted files that this process holds open count, too */
        snprintf(link, sizeof link, "/proc/self/fd/%d", other);
        if (!fstat(other, &found) && S_ISREG(found.st_mode) && !found.st_nlink &&
            readlink(link, path, sizeof path) > (ssize_t)strlen(folder) && !strncmp(path, folder, strlen(folder)))
            used += found.st_size;
    }
    long long left = atoll(most) - used;
    return left < 0 ? 0 : (size_t)left < wanted ? (size_t)left : wanted;
}

ssize_t write(int descriptor, const void *data, size_t count)
{
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    size_t taken = allowed(descriptor, count);
    if (count && !taken) {
        errno = EDQUOT;
        return -1;
    }
    return real(descriptor, data, taken);
}

ssize_t writev(int descriptor, const struct iovec *pieces, int count)
{
    ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");
    size_t wanted = 0;
    for (int i = 0; i < count; i++)
        wanted += pieces[i].iov_len;
    if (allowed(descriptor, wanted) == wanted)
        return real(descriptor, pieces, count);
    while (count > 1 && !pieces->iov_len)
        pieces++, count--;
    return write(descriptor, pieces->iov_base, pieces->iov_len);
}
