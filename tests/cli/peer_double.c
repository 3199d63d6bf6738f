/* tests/cli/peer_double.c
 * Preloaded: whoever is at the other end of a socket is of another user. Machines where tests run have one user. */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int getsockopt(int fd, int level, int option, void *value, socklen_t *bytes)
{
	long result = syscall(SYS_getsockopt, fd, level, option, value, bytes);

	if (result == 0 && level == SOL_SOCKET && option == SO_PEERCRED)
		((struct ucred *)value)->uid++;
	return (int)result;
}
