/* lifecycle/callers/foreign.c
 * The kernel does the copying and says where memory ends. process_vm_writev on oneself, with what is foreign as the
 * *local* side: each piece costs 0.03 us there, and 0.4 us on the remote side of process_vm_readv, whose pages the
 * kernel pins one by one (Linux 6.18, 2 cores at 3 GHz: 160 pieces of 256 bytes in 10 and 70 us). Where a sandbox
 * forbids it a pipe does the same, made for the one call, since a descriptor that is kept would be the program's to
 * close. */
#include "lifecycle/callers/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum way { WAY_VM, WAY_PIPE };

static enum way way; /* atomic; only ever goes to WAY_PIPE */

static size_t by_pipe(void *to, const struct iovec *pieces, size_t count)
{
	ssize_t written, copied = 0;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return 0;
	/* never blocks: a new pipe has room for 64 KiB */
	written = writev(ends[1], pieces, (int)count);
	while (copied < written) {
		ssize_t got = read(ends[0], (char *)to + copied, (size_t)(written - copied));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		copied += got;
	}
	close(ends[0]);
	close(ends[1]);
	return (size_t)copied;
}

size_t foreign_gather(void *to, const struct iovec *pieces, size_t count)
{
	size_t total = 0;
	ssize_t copied;

	if (count > FOREIGN_PIECES_MAX)
		return 0;
	for (size_t i = 0; i < count; i++) {
		if (pieces[i].iov_len > FOREIGN_BYTES_MAX - total)
			return 0;
		total += pieces[i].iov_len;
	}
	if (__atomic_load_n(&way, __ATOMIC_RELAXED) == WAY_VM) {
		struct iovec here = {.iov_base = to, .iov_len = total};

		copied = syscall(SYS_process_vm_writev, (long)getpid(), pieces, count, &here, 1ul, 0ul);
		if (copied >= 0)
			return (size_t)copied;
		if (errno != ENOSYS && errno != EPERM && errno != EACCES)
			return 0;
		__atomic_store_n(&way, WAY_PIPE, __ATOMIC_RELAXED);
	}
	return by_pipe(to, pieces, count);
}

bool foreign_read(void *to, uint64_t address, size_t size)
{
	const struct iovec piece = foreign_piece(address, size);

	return foreign_gather(to, &piece, 1) == size;
}

bool foreign_works(void)
{
	static const uint64_t here = 0x5375626c65740a0aull;
	uint64_t copy = 0;

	return foreign_read(&copy, (uintptr_t)&here, sizeof(copy)) && copy == here;
}
