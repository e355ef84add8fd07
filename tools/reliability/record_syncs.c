/* LD_PRELOAD shim: records what a process makes durable below one folder.
 *
 * Before fsync and fdatasync the content of the file, or the names in the folder, is copied to
 * KOPI_SYNCS_TO; after the call has succeeded a line says so in KOPI_SYNCS_TO/log. A line is also
 * written before an answer with status 201 is sent. Lines of all processes are in one order.
 *
 *   F <inode> <copy>    the bytes of a file are durable
 *   D <inode> <copy>    the names in a folder are durable: lines of "<inode> <d|f> <name>"
 *   A                   an answer with status 201 is about to be sent
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *folder(void) { return getenv("KOPI_SYNCS_OF"); }
static const char *target(void) { return getenv("KOPI_SYNCS_TO"); }
static atomic_long copies;

static void note(const char *line) {
    char path[4096];
    snprintf(path, sizeof path, "%s/log", target());
    int log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log >= 0) {
        if (write(log, line, strlen(line)) < 0) abort();
        close(log);
    }
}

static int is_below(int fd) {
    char link[64], path[4096];
    if (!folder() || !target()) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strncmp(path, folder(), strlen(folder())) == 0;
}

static void copy_file(int fd, const char *to) {
    char link[64], buffer[65536];
    ssize_t count;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int in = open(link, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (in >= 0 && out >= 0 && (count = read(in, buffer, sizeof buffer)) > 0)
        if (write(out, buffer, count) != count) abort();
    if (in >= 0) close(in);
    if (out >= 0) close(out);
}

static void copy_names(int fd, const char *to) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    DIR *names = opendir(link);
    FILE *out = fopen(to, "we");
    struct dirent *entry;
    while (names && out && (entry = readdir(names)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            fprintf(out, "%lu %c %s\n", (unsigned long)entry->d_ino, entry->d_type == DT_DIR ? 'd' : 'f',
                    entry->d_name);
    if (names) closedir(names);
    if (out) fclose(out);
}

static int recorded(int fd, const char *symbol) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, symbol);
    struct stat what;
    char name[128], copy[4096], line[512];
    if (!is_below(fd) || fstat(fd, &what)) return real(fd);
    snprintf(name, sizeof name, "%d-%ld", getpid(), atomic_fetch_add(&copies, 1));
    snprintf(copy, sizeof copy, "%s/%s", target(), name);
    if (S_ISDIR(what.st_mode)) copy_names(fd, copy);
    else copy_file(fd, copy);
    int result = real(fd);
    if (result == 0) {
        snprintf(line, sizeof line, "%c %lu %s\n", S_ISDIR(what.st_mode) ? 'D' : 'F',
                 (unsigned long)what.st_ino, name);
        note(line);
    }
    return result;
}

int fsync(int fd) { return recorded(fd, "fsync"); }
int fdatasync(int fd) { return recorded(fd, "fdatasync"); }

static void heed(const void *data, size_t size) {
    if (target() && size >= 12 && memcmp(data, "HTTP/1.1 201", 12) == 0) note("A\n");
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    ssize_t (*real)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");
    heed(data, size);
    return real(fd, data, size, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    ssize_t (*real)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");
    if (message->msg_iovlen > 0) heed(message->msg_iov[0].iov_base, message->msg_iov[0].iov_len);
    return real(fd, message, flags);
}
