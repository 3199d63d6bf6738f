/* base/file_room.h
 * Room of a file that this process has just made and that will be mapped. Past the limit of file sizes (RLIMIT_FSIZE, `ulimit -f`) the
 * kernel does not only refuse it: it sends SIGXFSZ, which ends a process that did not ask for any of this. So the limit is looked at
 * first. A signal that comes in the middle is no refusal either. */
#ifndef SUBLET_BASE_FILE_ROOM_H
#define SUBLET_BASE_FILE_ROOM_H

#include <stdint.h>

/* Have @bytes of the empty file @fd allocated, so that a later store into its mapping needs no more room. 0, or what errno would be;
 * EFBIG: past the limit. */
int file_allocate(int fd, uint64_t bytes);

/* Give the empty file @fd @bytes, without room for them. Returns as file_allocate. */
int file_extend(int fd, uint64_t bytes);

#endif
