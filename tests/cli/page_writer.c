/* tests/cli/page_writer.c
 * Stands in for a preloaded process where a test is about its page alone: does with the counters what its words say.
 *   managed=BYTES small=BYTES pinned=BYTES   count an allocation
 *   free=BYTES                               end of a managed one
 *   unknown=COUNT                            look-ups that no list knows
 *   sleep=MS  say=TEXT  exit=STATUS  kill    wait, print a line, end, end by SIGKILL
 *   exec                                     become a new program, which does what the words behind say */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lifecycle/stats.h"

int main(int argc, char **argv)
{
	const char *follow = getenv("SUBLET_FOLLOW");
	struct stats_page *page;
	int status = 0;
	bool shared;

	page = stats_create(getenv("SUBLET_SESSION"), getenv("SUBLET_ROLE"), getenv("SUBLET_RUN"), &shared);
	if (!shared)
		return 99;
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		unsigned long long number = value ? strtoull(value + 1, NULL, 10) : 0;

		if (strncmp(argv[i], "managed=", 8) == 0)
			stats_add(&page->device[0].managed, number);
		else if (strncmp(argv[i], "small=", 6) == 0)
			stats_add(&page->device[1].native[STATS_NATIVE_SMALL], number);
		else if (strncmp(argv[i], "pinned=", 7) == 0)
			stats_add(&page->device[0].native[STATS_NATIVE_PINNED], number);
		else if (strncmp(argv[i], "free=", 5) == 0)
			stats_sub(&page->device[0].managed, number);
		else if (strncmp(argv[i], "unknown=", 8) == 0)
			page->lookups_unknown = number;
		else if (strncmp(argv[i], "sleep=", 6) == 0)
			usleep((useconds_t)number * 1000);
		else if (strncmp(argv[i], "say=", 4) == 0)
			puts(value + 1), fflush(stdout);
		else if (strncmp(argv[i], "exit=", 5) == 0)
			status = (int)number;
		else if (strcmp(argv[i], "kill") == 0)
			kill(getpid(), SIGKILL);
		else if (strcmp(argv[i], "exec") == 0)
			execv("/proc/self/exe", argv + i);
		else
			return 98;
	}
	stats_close(page, follow && *follow);
	return status;
}
