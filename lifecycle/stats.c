/* lifecycle/stats.c
 * The page is written with relaxed atomics by many threads; peaks may miss a moment between two updates, never a byte. */
#include "lifecycle/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"

static char file_path[512]; /* of this process's page; empty when it is private */

const char *stats_native_name(enum stats_native kind)
{
	static const char *const names[STATS_NATIVE_COUNT] = {
		[STATS_NATIVE_SMALL] = "small", [STATS_NATIVE_CAPTURE] = "capture", [STATS_NATIVE_REFUSED] = "refused",
		[STATS_NATIVE_PITCHED] = "pitched", [STATS_NATIVE_MANAGED] = "uvm", [STATS_NATIVE_POOL] = "pool",
		[STATS_NATIVE_ARRAY] = "array", [STATS_NATIVE_VMM] = "vmm", [STATS_NATIVE_PINNED] = "pinned",
	};

	return names[kind];
}

static bool path_of(char *buffer, size_t bytes, const char *dir, int pid)
{
	int length = snprintf(buffer, bytes, "%s/proc-%d.stats", dir, pid);

	return length > 0 && (size_t)length < bytes;
}

static void fill_identity(struct stats_page *page, const char *role)
{
	int fd;

	page->version = STATS_VERSION;
	page->size_bytes = sizeof(*page);
	page->pid = (int32_t)getpid();
	page->state = STATS_RUNNING;
	page->start_ticks = process_start_ticks(page->pid, NULL);
	for (size_t i = 0; role && role[i] && i < sizeof(page->role) - 1; i++)
		page->role[i] = role[i];
	fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t length = read(fd, page->comm, sizeof(page->comm) - 1);

		close(fd);
		if (length > 0 && page->comm[length - 1] == '\n')
			page->comm[length - 1] = '\0';
	}
	/* Last: a reader that sees the magic sees a whole page. */
	__atomic_store_n(&page->magic, STATS_MAGIC, __ATOMIC_RELEASE);
}

static struct stats_page *map_page(int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *page = mmap(NULL, sizeof(struct stats_page), PROT_READ | PROT_WRITE, flags, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

static struct stats_page *create_shared(const char *dir)
{
	struct stats_page *page = NULL;
	int fd;

	if (!path_of(file_path, sizeof(file_path), dir, (int)getpid()))
		goto none;
	/* An earlier process of this pid may have been killed and left its file. */
	unlink(file_path);
	fd = open(file_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		goto none;
	if (posix_fallocate(fd, 0, sizeof(struct stats_page)) == 0)
		page = map_page(fd);
	close(fd);
	if (page)
		return page;
	unlink(file_path);
none:
	file_path[0] = '\0';
	return NULL;
}

struct stats_page *stats_create(const char *dir, const char *role, bool *ret_shared)
{
	static struct stats_page last_resort;
	struct stats_page *page = dir && *dir ? create_shared(dir) : NULL;

	*ret_shared = page != NULL;
	if (!page)
		page = map_page(-1);
	if (!page)
		page = &last_resort;
	fill_identity(page, role);
	return page;
}

void stats_close(struct stats_page *page, bool keep_file)
{
	if (!page)
		return;
	__atomic_store_n(&page->state, STATS_ENDED, __ATOMIC_RELEASE);
	if (file_path[0] && !keep_file)
		unlink(file_path);
}

struct stats_page *stats_after_fork(struct stats_page *parent_page)
{
	struct stats_page *page = parent_page;

	/* In place: a wrapper that a signal interrupted before it forked still holds the pointer. */
	if (file_path[0] && mmap(parent_page, sizeof(*page), PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return parent_page;
	file_path[0] = '\0';
	memset(page, 0, sizeof(*page));
	page->version = STATS_VERSION;
	page->size_bytes = sizeof(*page);
	return page;
}

const struct stats_page *stats_open(const char *dir, int pid)
{
	const struct stats_page *page;
	char path[512];
	struct stat status;
	int fd;

	if (!path_of(path, sizeof(path), dir, pid)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || (size_t)status.st_size < sizeof(*page)) {
		close(fd);
		errno = EINVAL;
		return NULL;
	}
	page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return NULL;
	if (__atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) != STATS_MAGIC) {
		stats_unmap(page);
		errno = EINVAL;
		return NULL;
	}
	if (page->version != STATS_VERSION || page->size_bytes != sizeof(*page)) {
		stats_unmap(page);
		errno = EPROTO;
		return NULL;
	}
	return page;
}

void stats_unmap(const struct stats_page *page)
{
	if (page)
		munmap((void *)(uintptr_t)page, sizeof(*page));
}

void stats_add(struct stats_bytes *counter, uint64_t bytes)
{
	uint64_t now = __atomic_add_fetch(&counter->bytes, bytes, __ATOMIC_RELAXED);
	uint64_t peak = __atomic_load_n(&counter->peak_bytes, __ATOMIC_RELAXED);

	while (now > peak &&
	       !__atomic_compare_exchange_n(&counter->peak_bytes, &peak, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	__atomic_fetch_add(&counter->count, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&counter->total_count, 1, __ATOMIC_RELAXED);
}

void stats_sub(struct stats_bytes *counter, uint64_t bytes)
{
	__atomic_fetch_sub(&counter->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&counter->count, 1, __ATOMIC_RELAXED);
}
