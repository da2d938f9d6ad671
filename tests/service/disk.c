/* Stands between a process and the C library, and sees what the process does to files under a folder.
 *
 *   DISK_ROOT  the folder
 *   DISK_LOG   a file to which each operation is appended, with what was written, before it is done
 *
 * disk_full(n): from the n-th operation on that needs room, there is none; 0 for a disk that is large enough again. Of
 * the first write that finds none, half is done, as on a real disk. disk_count(): how many have needed room so far.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *root;
static size_t root_length;
static int record = -1;
static long needed, full_from;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

struct entry { char what; uint32_t name, other; int64_t offset; uint64_t size; } __attribute__((packed));

__attribute__((constructor)) static void begin(void) {
    root = getenv("DISK_ROOT");
    const char *file = getenv("DISK_LOG");
    root_length = root ? strlen(root) : 0;
    if (root && file && *file)
        record = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

void disk_full(long from) { needed = 0; full_from = from; }
long disk_count(void) { return needed; }

static int below(const char *path) {
    return root && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* The absolute name of a path, in a buffer; whether it is below the root. Its folder exists, the file need not. */
static int named(int folder, const char *path, char *name) {
    char here[PATH_MAX], link[64];
    if (!root || !path) return 0;
    if (path[0] == '/') { snprintf(name, PATH_MAX, "%s", path); return below(name); }
    if (folder == AT_FDCWD) { if (!getcwd(here, sizeof here)) return 0; }
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, here, sizeof here - 1);
        if (n < 0) return 0;
        here[n] = 0;
    }
    snprintf(name, PATH_MAX, "%s/%s", here, path);
    return below(name);
}

static int open_as(int file, char *name) {
    char link[64];
    if (!root) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, name, PATH_MAX - 1);
    if (n < 0) return 0;
    name[n] = 0;
    return below(name) && !(n > 10 && !strcmp(name + n - 10, " (deleted)")) && !strstr(name, "-shm");
}

static void note(char what, const char *name, const char *other, int64_t offset, const void *data, uint64_t size) {
    if (record < 0) return;
    struct entry head = {what, strlen(name), other ? strlen(other) : 0, offset, size};
    struct iovec parts[4] = {{&head, sizeof head}, {(void *)name, head.name}, {(void *)other, head.other},
                             {(void *)data, data ? size : 0}};
    pthread_mutex_lock(&one_at_a_time);
    syscall(SYS_writev, record, parts, 4);
    pthread_mutex_unlock(&one_at_a_time);
}

/* Whether there is no room for one more operation; *half says whether half of it is done. */
static int no_room(int *half) {
    long now = __atomic_add_fetch(&needed, 1, __ATOMIC_SEQ_CST);
    *half = now == full_from;
    return full_from && now >= full_from;
}

static int opening(int folder, const char *path, int flags, mode_t mode) {
    char name[PATH_MAX];
    struct stat there;
    int half;
    if (named(folder, path, name) && !strstr(name, "-shm") && (flags & (O_CREAT | O_TRUNC))) {
        int is_new = syscall(SYS_newfstatat, folder, path, &there, 0) != 0;
        if (is_new && (flags & O_CREAT) && no_room(&half)) { errno = ENOSPC; return -1; }
        int made = syscall(SYS_openat, folder, path, flags, mode);
        if (made >= 0 && is_new) note('c', name, NULL, mode, NULL, 0);
        else if (made >= 0 && (flags & O_TRUNC)) note('t', name, NULL, 0, NULL, 0);
        return made;
    }
    return syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE(flags) mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); \
    mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) { MODE(flags) return opening(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opening(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return opening(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return opening(folder, path, flags, mode); }

static ssize_t writing(int file, const void *data, size_t size, off_t offset, int at) {
    char name[PATH_MAX];
    int half;
    if (open_as(file, name)) {
        struct stat now;
        fstat(file, &now);
        off_t place = at ? offset : (fcntl(file, F_GETFL) & O_APPEND) ? now.st_size : lseek(file, 0, SEEK_CUR);
        if (place + (off_t)size > now.st_size && no_room(&half)) {
            if (!half || size < 2) { errno = ENOSPC; return -1; }
            size /= 2;
        }
        note('w', name, NULL, place, data, size);
    }
    return at ? syscall(SYS_pwrite64, file, data, size, offset) : syscall(SYS_write, file, data, size);
}
ssize_t write(int file, const void *data, size_t size) { return writing(file, data, size, 0, 0); }
ssize_t pwrite(int file, const void *data, size_t size, off_t offset) { return writing(file, data, size, offset, 1); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) { return writing(file, data, size, offset, 1); }

/* What copies files without showing their bytes is refused, so that the caller reads and writes them. */
ssize_t sendfile(int out, int in, off_t *offset, size_t size) { errno = EINVAL; return -1; }
ssize_t sendfile64(int out, int in, off64_t *offset, size_t size) { errno = EINVAL; return -1; }
ssize_t copy_file_range(int in, off64_t *a, int out, off64_t *b, size_t size, unsigned flags) { errno = EINVAL; return -1; }

static void forcing(int file) {
    char name[PATH_MAX];
    if (open_as(file, name)) note('s', name, NULL, 0, NULL, 0);
}
int fsync(int file) { forcing(file); return syscall(SYS_fsync, file); }
int fdatasync(int file) { forcing(file); return syscall(SYS_fdatasync, file); }

static int cutting(int file, off_t size) {
    char name[PATH_MAX];
    if (open_as(file, name)) note('t', name, NULL, size, NULL, 0);
    return syscall(SYS_ftruncate, file, size);
}
int ftruncate(int file, off_t size) { return cutting(file, size); }
int ftruncate64(int file, off64_t size) { return cutting(file, size); }

static int removing(int folder, const char *path, int flags) {
    char name[PATH_MAX];
    int inside = named(folder, path, name) && !strstr(name, "-shm"), done = syscall(SYS_unlinkat, folder, path, flags);
    if (!done && inside) note(flags & AT_REMOVEDIR ? 'd' : 'u', name, NULL, 0, NULL, 0);
    return done;
}
int unlink(const char *path) { return removing(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return removing(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int folder, const char *path, int flags) { return removing(folder, path, flags); }

static int moving(int from, const char *path, int to, const char *other) {
    char name[PATH_MAX], next[PATH_MAX];
    int inside = named(from, path, name) & named(to, other, next), done = syscall(SYS_renameat, from, path, to, other);
    if (!done && inside) note('r', name, next, 0, NULL, 0);
    return done;
}
int rename(const char *path, const char *other) { return moving(AT_FDCWD, path, AT_FDCWD, other); }
int renameat(int from, const char *path, int to, const char *other) { return moving(from, path, to, other); }

static int linking(int from, const char *path, int to, const char *other, int flags) {
    char name[PATH_MAX], next[PATH_MAX];
    int inside = named(from, path, name) & named(to, other, next);
    int done = syscall(SYS_linkat, from, path, to, other, flags);
    if (!done && inside) note('l', name, next, 0, NULL, 0);
    return done;
}
int link(const char *path, const char *other) { return linking(AT_FDCWD, path, AT_FDCWD, other, 0); }
int linkat(int from, const char *path, int to, const char *other, int flags) {
    return linking(from, path, to, other, flags);
}

int mkdir(const char *path, mode_t mode) {
    char name[PATH_MAX];
    int half;
    if (named(AT_FDCWD, path, name) && no_room(&half)) { errno = ENOSPC; return -1; }
    int done = syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (!done && named(AT_FDCWD, path, name)) note('m', name, NULL, mode, NULL, 0);
    return done;
}
