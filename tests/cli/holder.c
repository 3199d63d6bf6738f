/* tests/cli/holder.c
 * A program that has device memory and does what it is told: `holder MIB...` makes an allocation of each size, fills it, says
 * "ready", and then takes words from the standard input, answering each with a line: "check" compares every byte, "alloc"
 * makes one more of 4 MiB, "fork" makes a child that outlives it, "clone" one that no fork handler knows of, "close" closes every descriptor from 3 up and opens others
 * in their place, "files" says whether those others are as they were, "end" ends. It knows nothing of Sublet. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cuda.h>

enum { ALLOCATIONS = 64, PIECE = 1 << 20, LAST_FILE = 1023 };

static CUdeviceptr address[ALLOCATIONS];
static size_t bytes[ALLOCATIONS];
static int count;
static unsigned char piece[PIECE], seen[PIECE];

static void check(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	printf("%s failed: %d\n", what, (int)result);
	exit(3);
}

static void pattern(int which, size_t offset)
{
	for (size_t i = 0; i < PIECE / 8; i++) {
		uint64_t word = ((uint64_t)which << 56) ^ (offset + i * 8) * 0x9e3779b97f4a7c15ull;

		memcpy(piece + i * 8, &word, 8);
	}
}

static void allocate(size_t size)
{
	check(cuMemAlloc(&address[count], size), "cuMemAlloc");
	bytes[count] = size;
	for (size_t at = 0; at < size; at += PIECE) {
		pattern(count, at);
		check(cuMemcpyHtoD(address[count] + at, piece, PIECE), "cuMemcpyHtoD");
	}
	count++;
}

static const char *compare(void)
{
	for (int i = 0; i < count; i++) {
		for (size_t at = 0; at < bytes[i]; at += PIECE) {
			pattern(i, at);
			check(cuMemcpyDtoH(seen, address[i] + at, PIECE), "cuMemcpyDtoH");
			if (memcmp(piece, seen, PIECE) != 0)
				return "other bytes";
		}
	}
	return "same bytes";
}

/* What a daemon does, and then goes on to use the numbers. */
static const char *close_files(void)
{
	closefrom(3);
	while (open("files", O_RDWR | O_CREAT | O_APPEND, 0600) < LAST_FILE)
		;
	return "closed";
}

static const char *look_at_files(void)
{
	struct stat status;

	for (int fd = 3; fd <= LAST_FILE; fd++)
		if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_size)
			return "changed";
	return "as they were";
}

static const char *make_child(bool with_handlers)
{
	static char text[32];
	pid_t child = with_handlers ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (child == 0) {
		fclose(stdin);
		fclose(stdout);
		fclose(stderr);
		sleep(20);
		_exit(0);
	}
	snprintf(text, sizeof(text), "%d", (int)child);
	return text;
}

int main(int argc, char **argv)
{
	CUcontext context;
	char word[16];

	setvbuf(stdout, NULL, _IOLBF, 0);
	check(cuInit(0), "cuInit");
	check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	for (int i = 1; i < argc; i++)
		allocate((size_t)atoi(argv[i]) << 20);
	puts("ready");
	while (scanf("%15s", word) == 1) {
		if (strcmp(word, "check") == 0)
			puts(compare());
		else if (strcmp(word, "alloc") == 0)
			allocate(4 << 20), puts("allocated");
		else if (strcmp(word, "fork") == 0)
			puts(make_child(true));
		else if (strcmp(word, "clone") == 0)
			puts(make_child(false));
		else if (strcmp(word, "close") == 0)
			puts(close_files());
		else if (strcmp(word, "files") == 0)
			puts(look_at_files());
		else
			break;
	}
	return 0;
}
