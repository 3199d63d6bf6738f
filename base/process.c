/* base/process.c
 * System calls that return at once; allocates nothing. */
#include "base/process.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

uint64_t process_start_ticks(int pid, bool *ret_zombie)
{
	char path[40], text[1024], *field;
	ssize_t length;
	int fd;

	if (ret_zombie)
		*ret_zombie = false;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return 0;
	text[length] = '\0';
	/* The name (field 2) may hold blanks and brackets: count from its last bracket, which ends field 2. */
	field = strrchr(text, ')');
	if (ret_zombie)
		*ret_zombie = field && field[1] && field[2] == 'Z';
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	return field ? strtoull(field + 1, NULL, 10) : 0;
}

uint64_t process_new_id(void)
{
	uint64_t id = 0;

	if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != (ssize_t)sizeof(id) || !id)
		id = process_start_ticks(getpid(), NULL) << 24 ^ (uint64_t)getpid();
	return id;
}
