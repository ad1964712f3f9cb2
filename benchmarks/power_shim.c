/* Records every change of files under POWER_ROOT, in order, to the file POWER_LOG. For LD_PRELOAD.

   A record: a line "op inode offset length length1 length2\n", then two paths, then the bytes written, as long as the line
   says. One lock around each call and its record makes their order the order in the log. Directories are known
   by path, files by inode. What the kernel copies itself (sendfile, copy_file_range, splice) is read back after the call.
   Shared writable mappings are recorded as "map": their changes are invisible, so the reader refuses them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char root[PATH_MAX];
static size_t root_length;
static int log_file = -1;

static long raw_open(const char *path, int flags, int mode) { return syscall(SYS_openat, AT_FDCWD, path, flags, mode); }

__attribute__((constructor)) static void begin(void) {
  const char *folder = getenv("POWER_ROOT"), *log = getenv("POWER_LOG");
  if (!folder || !log) return;
  snprintf(root, sizeof root, "%s", folder);
  root_length = strlen(root);
  log_file = (int)raw_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *bytes, size_t length) {
  const char *at = bytes;
  while (length) {
    long done = syscall(SYS_write, log_file, at, length);
    if (done <= 0) abort();
    at += done, length -= (size_t)done;
  }
}

static int inside(const char *path) {
  return log_file >= 0 && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* The path of an open file; empty if it is not inside. */
static int path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = 0;
  return length > 0 && inside(path);
}

/* The absolute path of a name; parents are taken as they are spelled. */
static int path_at(int folder, const char *name, char *path) {
  char base[PATH_MAX];
  if (name[0] == '/') {
    snprintf(path, PATH_MAX, "%s", name);
  } else {
    if (folder == AT_FDCWD) {
      if (!getcwd(base, sizeof base)) base[0] = 0;
    } else {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
      long length = syscall(SYS_readlinkat, AT_FDCWD, link, base, PATH_MAX - 1);
      base[length > 0 ? length : 0] = 0;
    }
    if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) abort();
  }
  return inside(path);
}

static void note(const char *op, unsigned long inode, long offset, size_t length, const char *one, const char *two) {
  char line[128];
  size_t n1 = one ? strlen(one) : 0, n2 = two ? strlen(two) : 0;
  int n = snprintf(line, sizeof line, "%s %lu %ld %zu %zu %zu\n", op, inode, offset, length, n1, n2);
  put(line, (size_t)n);
  put(one, n1);
  put(two, n2);
}

static unsigned long inode_of(int fd, long *size, int *is_folder) {
  struct stat status;
  if (fstat(fd, &status)) abort();
  if (size) *size = status.st_size;
  if (is_folder) *is_folder = S_ISDIR(status.st_mode);
  return status.st_ino;
}

/* A marker of the program itself: what it was told is safe from here on. */
void power_acknowledge(const char *text) {
  if (log_file < 0) return;
  pthread_mutex_lock(&lock);
  note("ack", 0, 0, strlen(text), NULL, NULL);
  put(text, strlen(text));
  pthread_mutex_unlock(&lock);
}

static int open_inside(const char *path, int folder, const char *name, int flags, int mode) {
  struct stat before;
  int existed = !fstatat(folder, name, &before, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0);
  int fd = (int)syscall(SYS_openat, folder, name, flags, mode);
  if (fd < 0) return fd;
  int saved = errno;
  if ((flags & O_TMPFILE) == O_TMPFILE) note("unknown", 0, 0, 0, "O_TMPFILE", NULL);
  else if (!existed && flags & O_CREAT) note("create", inode_of(fd, NULL, NULL), 0, 0, path, NULL);
  else if (flags & O_TRUNC && before.st_size) note("truncate", inode_of(fd, NULL, NULL), 0, 0, path, NULL);
  errno = saved;
  return fd;
}

static int do_open(int folder, const char *name, int flags, int mode) {
  char path[PATH_MAX];
  if (log_file < 0 || !path_at(folder, name, path)) return (int)syscall(SYS_openat, folder, name, flags, mode);
  pthread_mutex_lock(&lock);
  int fd = open_inside(path, folder, name, flags, mode);
  pthread_mutex_unlock(&lock);
  return fd;
}

#define MODE(flags, last)                                              \
  int mode = 0;                                                        \
  if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {       \
    va_list rest;                                                      \
    va_start(rest, last);                                              \
    mode = va_arg(rest, int);                                          \
    va_end(rest);                                                      \
  }

int open(const char *name, int flags, ...) { MODE(flags, flags) return do_open(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags, flags) return do_open(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE(flags, flags) return do_open(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags, flags) return do_open(folder, name, flags, mode); }
int creat(const char *name, mode_t mode) { return do_open(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, (int)mode); }
int __open_2(const char *name, int flags) { return do_open(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return do_open(AT_FDCWD, name, flags, 0); }
int __openat_2(int folder, const char *name, int flags) { return do_open(folder, name, flags, 0); }
int __openat64_2(int folder, const char *name, int flags) { return do_open(folder, name, flags, 0); }
int creat64(const char *name, mode_t mode) { return creat(name, mode); }

/* After a call that may have changed a file: its bytes at `offset`, read back where the caller does not have them. */
static void written(int fd, const char *path, long offset, long length, const void *bytes) {
  int saved = errno;
  char link[64], *copy = NULL;
  if (!bytes) {
    copy = malloc((size_t)length);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long reader = raw_open(link, O_RDONLY | O_CLOEXEC, 0);
    if (!copy || reader < 0 || syscall(SYS_pread64, reader, copy, length, offset) != length) abort();
    syscall(SYS_close, reader);
    bytes = copy;
  }
  note("write", inode_of(fd, NULL, NULL), offset, (size_t)length, path, NULL);
  put(bytes, (size_t)length);
  free(copy);
  errno = saved;
}

/* Runs `call` under the lock. If the file is inside and the result is positive, records that many bytes at `where`. */
#define WRITING(fd, call, where, bytes)                                                  \
  char path[PATH_MAX];                                                                   \
  if (log_file < 0 || !path_of(fd, path)) return call;                                   \
  pthread_mutex_lock(&lock);                                                             \
  ssize_t done = call;                                                                   \
  if (done > 0) {                                                                        \
    off_t at = (where);                                                                  \
    written(fd, path, at < 0 ? lseek(fd, 0, SEEK_CUR) - done : at, done, bytes);         \
  }                                                                                      \
  pthread_mutex_unlock(&lock);                                                           \
  return done;

ssize_t write(int fd, const void *bytes, size_t size) {
  if (fd == log_file) return syscall(SYS_write, fd, bytes, size);
  WRITING(fd, syscall(SYS_write, fd, bytes, size), -1, bytes)
}
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
  WRITING(fd, syscall(SYS_pwrite64, fd, bytes, size, offset), offset, bytes)
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
  WRITING(fd, syscall(SYS_pwrite64, fd, bytes, size, offset), offset, bytes)
}
ssize_t writev(int fd, const struct iovec *parts, int count) { WRITING(fd, syscall(SYS_writev, fd, parts, count), -1, NULL) }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
  WRITING(fd, syscall(SYS_pwritev, fd, parts, count, offset, 0), offset, NULL)
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
  WRITING(fd, syscall(SYS_pwritev, fd, parts, count, offset, 0), offset, NULL)
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
  WRITING(fd, syscall(SYS_pwritev2, fd, parts, count, offset, 0, flags), offset, NULL)
}
ssize_t sendfile(int out, int in, off_t *offset, size_t count) { WRITING(out, syscall(SYS_sendfile, out, in, offset, count), -1, NULL) }
ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) { WRITING(out, syscall(SYS_sendfile, out, in, offset, count), -1, NULL) }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
  off64_t start = to ? *to : -1;
  WRITING(out, syscall(SYS_copy_file_range, in, from, out, to, count, flags), start, NULL)
}
ssize_t splice(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
  off64_t start = to ? *to : -1;
  WRITING(out, syscall(SYS_splice, in, from, out, to, count, flags), start, NULL)
}

/* Runs `call`, and records the size that the file has afterwards. */
#define SIZING(fd, call)                                                \
  char path[PATH_MAX];                                                  \
  if (log_file < 0 || !path_of(fd, path)) return call;                  \
  pthread_mutex_lock(&lock);                                            \
  int result = (int)(call), saved = errno;                              \
  long size;                                                            \
  unsigned long inode = inode_of(fd, &size, NULL);                      \
  if (!result) note("truncate", inode, size, 0, path, NULL);            \
  errno = saved;                                                        \
  pthread_mutex_unlock(&lock);                                          \
  return result;

int ftruncate(int fd, off_t length) { SIZING(fd, syscall(SYS_ftruncate, fd, length)) }
int ftruncate64(int fd, off64_t length) { SIZING(fd, syscall(SYS_ftruncate, fd, length)) }
int posix_fallocate(int fd, off_t offset, off_t length) { SIZING(fd, syscall(SYS_fallocate, fd, 0, offset, length) ? errno : 0) }
int posix_fallocate64(int fd, off64_t offset, off64_t length) { SIZING(fd, syscall(SYS_fallocate, fd, 0, offset, length) ? errno : 0) }
int fallocate(int fd, int mode, off_t offset, off_t length) {
  char where[PATH_MAX];
  if (log_file >= 0 && mode & ~1 && path_of(fd, where)) note("unknown", 0, 0, 0, "fallocate with a mode", NULL);
  SIZING(fd, syscall(SYS_fallocate, fd, mode, offset, length))
}
int truncate(const char *name, off_t size) {
  int fd = open(name, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  int result = ftruncate(fd, size);
  close(fd);
  return result;
}
int truncate64(const char *name, off64_t size) { return truncate(name, size); }

/* Runs `call`, and records an operation on names if it succeeds. */
#define NAMING(op, folder, name, call)                                  \
  char path[PATH_MAX];                                                  \
  if (log_file < 0 || !path_at(folder, name, path)) return (int)(call); \
  pthread_mutex_lock(&lock);                                            \
  int result = (int)(call), saved = errno;                              \
  if (!result) note(op, 0, 0, 0, path, NULL);                           \
  errno = saved;                                                        \
  pthread_mutex_unlock(&lock);                                          \
  return result;

#define PAIRING(op, from_folder, from, to_folder, to, call)                                  \
  char one[PATH_MAX], two[PATH_MAX];                                                         \
  int first = log_file >= 0 && path_at(from_folder, from, one);                              \
  int second = log_file >= 0 && path_at(to_folder, to, two);                                 \
  if (!first && !second) return (int)(call);                                                 \
  pthread_mutex_lock(&lock);                                                                 \
  int result = (int)(call), saved = errno;                                                   \
  if (!result) note(first && second ? op : "unknown", 0, 0, 0, one, two);                    \
  errno = saved;                                                                             \
  pthread_mutex_unlock(&lock);                                                               \
  return result;

int unlink(const char *name) { NAMING("unlink", AT_FDCWD, name, syscall(SYS_unlink, name)) }
int unlinkat(int folder, const char *name, int flags) { NAMING("unlink", folder, name, syscall(SYS_unlinkat, folder, name, flags)) }
int rmdir(const char *name) { NAMING("unlink", AT_FDCWD, name, syscall(SYS_rmdir, name)) }
int remove(const char *name) {
  int result = unlink(name);
  return result && (errno == EISDIR || errno == EPERM) ? rmdir(name) : result;
}
int mkdir(const char *name, mode_t mode) { NAMING("mkdir", AT_FDCWD, name, syscall(SYS_mkdir, name, mode)) }
int mkdirat(int folder, const char *name, mode_t mode) { NAMING("mkdir", folder, name, syscall(SYS_mkdirat, folder, name, mode)) }
int symlink(const char *target, const char *name) { NAMING("unknown", AT_FDCWD, name, syscall(SYS_symlink, target, name)) }
int rename(const char *from, const char *to) { PAIRING("rename", AT_FDCWD, from, AT_FDCWD, to, syscall(SYS_rename, from, to)) }
int renameat(int folder, const char *from, int other, const char *to) {
  PAIRING("rename", folder, from, other, to, syscall(SYS_renameat, folder, from, other, to))
}
int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
  PAIRING(flags & ~1u ? "unknown" : "rename", folder, from, other, to, syscall(SYS_renameat2, folder, from, other, to, flags))
}
int link(const char *from, const char *to) { PAIRING("link", AT_FDCWD, from, AT_FDCWD, to, syscall(SYS_link, from, to)) }
int linkat(int folder, const char *from, int other, const char *to, int flags) {
  PAIRING("link", folder, from, other, to, syscall(SYS_linkat, folder, from, other, to, flags))
}

#define SYNCING(fd, call)                                                               \
  char path[PATH_MAX];                                                                  \
  if (log_file < 0 || !path_of(fd, path)) return (int)(call);                           \
  pthread_mutex_lock(&lock);                                                            \
  int is_folder, result = (int)(call), saved = errno;                                   \
  unsigned long inode = inode_of(fd, NULL, &is_folder);                                 \
  if (!result) note(is_folder ? "fsync-folder" : "fsync", inode, 0, 0, path, NULL);     \
  errno = saved;                                                                        \
  pthread_mutex_unlock(&lock);                                                          \
  return result;

int fsync(int fd) { SYNCING(fd, syscall(SYS_fsync, fd)) }
int fdatasync(int fd) { SYNCING(fd, syscall(SYS_fdatasync, fd)) }

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  char path[PATH_MAX];
  if (log_file >= 0 && fd >= 0 && flags & MAP_SHARED && protection & PROT_WRITE && path_of(fd, path)) {
    pthread_mutex_lock(&lock);
    note("map", inode_of(fd, NULL, NULL), 0, 0, path, NULL);
    pthread_mutex_unlock(&lock);
  }
  return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset) {
  return mmap(address, length, protection, flags, fd, offset);
}
