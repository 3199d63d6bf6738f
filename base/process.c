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

/* The beginning of the file @path, ended with a null byte; false when there is none. */
static bool read_beginning(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, text, size - 1);
	close(fd);
	if (length <= 0)
		return false;
	text[length] = '\0';
	return true;
}

uint64_t process_start_ticks(int pid, bool *ret_zombie)
{
	char path[40], text[1024], *field;

	if (ret_zombie)
		*ret_zombie = false;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (!read_beginning(path, text, sizeof(text)))
		return 0;
	/* The name (field 2) may hold blanks and brackets: count from its last bracket, which ends field 2. */
	field = strrchr(text, ')');
	if (ret_zombie)
		*ret_zombie = field && field[1] && field[2] == 'Z';
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	return field ? strtoull(field + 1, NULL, 10) : 0;
}

const char *process_thread_name(int thread, char name[THREAD_NAME_BYTES])
{
	char path[48], text[THREAD_NAME_BYTES + 1]; /* the file ends with a line feed */

	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", thread);
	if (!read_beginning(path, text, sizeof(text)))
		strcpy(text, "?");
	text[strcspn(text, "\n")] = '\0';
	snprintf(name, THREAD_NAME_BYTES, "%.*s", THREAD_NAME_BYTES - 1, text);
	return name;
}

uint64_t process_new_id(void)
{
	uint64_t id = 0;

	if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != (ssize_t)sizeof(id) || !id)
		id = process_start_ticks(getpid(), NULL) << 24 ^ (uint64_t)getpid();
	return id;
}
