/* base/file_room.c
 * System calls alone; allocates nothing. */
#include "base/file_room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

static bool is_past_limit(uint64_t bytes)
{
	struct rlimit limit;

	return bytes > INT64_MAX || (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur);
}

int file_allocate(int fd, uint64_t bytes)
{
	int error;

	if (is_past_limit(bytes))
		return EFBIG;
	do {
		error = posix_fallocate(fd, 0, (off_t)bytes);
	} while (error == EINTR);
	return error;
}

int file_extend(int fd, uint64_t bytes)
{
	if (is_past_limit(bytes))
		return EFBIG;
	while (ftruncate(fd, (off_t)bytes)) {
		if (errno != EINTR)
			return errno;
	}
	return 0;
}
