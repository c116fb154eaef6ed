/* Loaded into a server with LD_PRELOAD: makes the disk below one folder fail or be slow.

   ACCODA_DISK_FOLDER   whose files are concerned
   ACCODA_DISK_CONTROL  a file that says what happens now, read again at each call:
                        "<fsync errno> <fsync ms> <write errno> <limit> <once>", each a number.
                        0 as an errno: no error. `limit`: bytes that every file may have in any case; a write
                        fails where it makes a file longer than it is and than that. `once`: 1 if only one sync
                        fails, as Linux reports a failed write-back once; the control file is removed then
   ACCODA_DISK_NOT      suffixes, separated by ":"; files that end in one are left alone, e.g. a server's log

   The control file is small and in the page cache: reading it costs a few microseconds. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int sync_error, sync_ms, write_error;
    long long limit;
    int once;
} Control;

static int (*real_open)(const char *, int, ...);
static ssize_t (*real_read)(int, void *, size_t);
static int (*real_close)(int);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static int (*real_fallocate)(int, int, off_t, off_t);
static int (*real_posix_fallocate)(int, off_t, off_t);
static const char *folder, *control, *excluded;
static size_t folder_size;

/* A server may write its title over its environment. */
static const char *copy_of(const char *name) {
    const char *value = getenv(name);
    return value ? strdup(value) : NULL;
}

__attribute__((constructor)) static void find_real(void) {
    real_open = dlsym(RTLD_NEXT, "open");
    real_read = dlsym(RTLD_NEXT, "read");
    real_close = dlsym(RTLD_NEXT, "close");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_pwritev = dlsym(RTLD_NEXT, "pwritev");
    real_fallocate = dlsym(RTLD_NEXT, "fallocate");
    real_posix_fallocate = dlsym(RTLD_NEXT, "posix_fallocate");
    folder = copy_of("ACCODA_DISK_FOLDER");
    control = copy_of("ACCODA_DISK_CONTROL");
    excluded = copy_of("ACCODA_DISK_NOT");
    folder_size = folder ? strlen(folder) : 0;
}

/* What is to happen now. A missing or unreadable file: nothing. errno is as before. */
static int read_control(Control *now) {
    int before = errno, found = 0;
    char text[128];
    int fd = folder && control ? real_open(control, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        ssize_t size = real_read(fd, text, sizeof text - 1);
        real_close(fd);
        if (size > 0) {
            text[size] = 0;
            found = 5 == sscanf(text, "%d %d %d %lld %d", &now->sync_error, &now->sync_ms, &now->write_error,
                                &now->limit, &now->once);
        }
    }
    errno = before;
    return found && (now->sync_error || now->sync_ms || now->write_error);
}

static int ends_in_excluded(const char *path) {
    char list[256], *rest = list, *suffix;
    if (!excluded || strlen(excluded) >= sizeof list) return 0;
    strcpy(list, excluded);
    while ((suffix = strsep(&rest, ":"))) {
        size_t size = strlen(suffix), whole = strlen(path);
        if (size && whole >= size && !strcmp(path + whole - size, suffix)) return 1;
    }
    return 0;
}

/* Whether a descriptor is a plain file below the folder. */
static int concerns(int fd) {
    char link[64], path[PATH_MAX];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    errno = before;
    if (size <= 0) return 0;
    path[size] = 0;
    return !strncmp(path, folder, folder_size) && (path[folder_size] == '/' || !path[folder_size])
        && !ends_in_excluded(path);
}

/* 0, or the errno with which a write of `size` bytes at `offset` fails (-1: where the descriptor stands). */
static int refused(int fd, size_t size, off_t offset) {
    Control now;
    struct stat about;
    if (!read_control(&now) || !now.write_error || !concerns(fd)) return 0;
    int before = errno;
    if (fstat(fd, &about) || !S_ISREG(about.st_mode)) { errno = before; return 0; }
    if (offset < 0) {
        int flags = fcntl(fd, F_GETFL);
        offset = flags >= 0 && (flags & O_APPEND) ? about.st_size : lseek(fd, 0, SEEK_CUR);
    }
    errno = before;
    /* What lies within a file that is there has its space already. */
    if (offset + (off_t)size <= about.st_size || offset + (off_t)size <= now.limit) return 0;
    return now.write_error;
}

static int sync_result(int fd) {
    Control now;
    if (!read_control(&now) || !(now.sync_error || now.sync_ms) || !concerns(fd)) return 0;
    if (now.sync_ms > 0) {
        struct timespec nap = {now.sync_ms / 1000, (now.sync_ms % 1000) * 1000000L};
        int before = errno;
        while (nanosleep(&nap, &nap) && errno == EINTR) {}
        errno = before;
    }
    /* Of those who come at the same moment, the one that removes the file has the error. */
    if (now.sync_error && now.once && unlink(control)) return 0;
    return now.sync_error;
}

static size_t length_of(const struct iovec *pieces, int count) {
    size_t sum = 0;
    for (int n = 0; n < count; n++) sum += pieces[n].iov_len;
    return sum;
}

/* As `refused`, for a descriptor whose writes are syncs too. */
static int write_result(int fd, size_t size, off_t offset) {
    int error = refused(fd, size, offset);
    if (!error) {
        int before = errno, flags = fcntl(fd, F_GETFL);
        errno = before;
        if (flags >= 0 && (flags & (O_SYNC | O_DSYNC))) error = sync_result(fd);
    }
    return error;
}

#define FAIL_IF(problem) do { int error_ = (problem); if (error_) { errno = error_; return -1; } } while (0)

int fsync(int fd) { FAIL_IF(sync_result(fd)); return real_fsync(fd); }

int fdatasync(int fd) { FAIL_IF(sync_result(fd)); return real_fdatasync(fd); }

ssize_t write(int fd, const void *data, size_t size) {
    FAIL_IF(write_result(fd, size, -1));
    return real_write(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    FAIL_IF(write_result(fd, size, offset));
    return real_pwrite(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    FAIL_IF(write_result(fd, length_of(pieces, count), -1));
    return real_writev(fd, pieces, count);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
    FAIL_IF(write_result(fd, length_of(pieces, count), offset));
    return real_pwritev(fd, pieces, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off_t offset) {
    return pwritev(fd, pieces, count, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
    FAIL_IF(refused(fd, size, offset));
    return real_fallocate(fd, mode, offset, size);
}

int fallocate64(int fd, int mode, off_t offset, off_t size) { return fallocate(fd, mode, offset, size); }

int posix_fallocate(int fd, off_t offset, off_t size) { /* gives the error itself */
    int error = refused(fd, size, offset);
    return error ? error : real_posix_fallocate(fd, offset, size);
}

int posix_fallocate64(int fd, off_t offset, off_t size) { return posix_fallocate(fd, offset, size); }
