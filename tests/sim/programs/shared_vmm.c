/* tests/sim/programs/shared_vmm.c [import FD]
 * A program exports a handle as a descriptor, starts itself anew (fork and exec), sends the descriptor over a socket, and both
 * see the same bytes; each has plain memory of its own beside it. */
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

static const size_t bytes = 4 * MIB;
static const CUmemAccessDesc both_ways = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void send_fd(int to, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = {0};
	char byte = 0;
	struct iovec one = {&byte, 1};
	struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(int));
	SHOW(sendmsg(to, &message, 0) == 1);
}

static int receive_fd(int from)
{
	char room[CMSG_SPACE(sizeof(int))], byte;
	struct iovec one = {&byte, 1};
	struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	int fd = -1;

	if (recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return fd;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
	CUdeviceptr at;

	NEED(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	NEED(cuMemMap(at, bytes, 0, handle, 0));
	NEED(cuMemSetAccess(at, bytes, &both_ways, 1));
	return at;
}

static int import(int from)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at, plain;
	int fd = receive_fd(from);

	program_start();
	NEED(cuMemAlloc(&plain, 2 * MIB));
	printf("child: import -> %d\n", (int)cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
		CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	at = map(handle);
	program_show_bytes("child sees", at, bytes);
	TRY(cuMemsetD8(at + 1, 0x99, 1000));
	TRY(cuMemcpyDtoD(plain, at, 2 * MIB));
	TRY(cuMemUnmap(at, bytes));
	TRY(cuMemRelease(handle));
	return 5;
}

int main(int argc, char **argv)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at, plain;
	int sockets[2], fd, status;
	pid_t child;

	if (argc > 2)
		return import(atoi(argv[2]));
	program_start();
	NEED(cuMemAlloc(&plain, 6 * MIB));
	NEED(cuMemCreate(&handle, bytes, &prop, 0));
	at = map(handle);
	NEED(cuMemsetD32(at, 0x12345678, bytes / 4));
	TRY(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets))
		return 1;
	child = fork();
	if (child == 0) {
		char number[12];

		snprintf(number, sizeof(number), "%d", sockets[1]);
		execl(argv[0], argv[0], "import", number, (char *)NULL);
		_exit(127);
	}
	send_fd(sockets[0], fd);
	SHOW(waitpid(child, &status, 0) == child);
	printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	program_show_bytes("parent sees", at, bytes);
	TRY(cuMemUnmap(at, bytes));
	TRY(cuMemRelease(handle));
	TRY(cuMemFree(plain));
	return 0;
}
