/* tests/unit/scratch.h
 * A folder of a test and its end. */
#ifndef SUBLET_TESTS_UNIT_SCRATCH_H
#define SUBLET_TESTS_UNIT_SCRATCH_H

#include <ftw.h>
#include <stdio.h>

static int scratch_remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	return remove(path);
}

static void scratch_remove(const char *folder)
{
	nftw(folder, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
