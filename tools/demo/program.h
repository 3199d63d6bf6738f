/* tools/demo/program.h
 * What the programs of the paper's iteration share: device objects that are allocated, filled, computed on and
 * compared, and the words that a driver process says on the standard input. Plain driver API; nothing here knows of
 * Sublet. A program is started as `NAME [--cached-segments] FOLDER OBJECT=BYTES...` and answers each line of its input
 * with lines of its own and "done":
 *
 *   same OBJECT BYTES SUM    every byte is as this program left it; `other` in place of `same`: it is not
 *   result SUM               what the phase came to
 *   released BYTES           the allocator's cache went back to the driver, because that had no room
 *   no-room OBJECT BYTES     the driver had no memory left; the program ends with status 3 */
#ifndef SUBLET_TOOLS_DEMO_PROGRAM_H
#define SUBLET_TOOLS_DEMO_PROGRAM_H

#include <stdint.h>
#include <stdio.h>

#include <cuda.h>

/* Ends the program with the driver's name for what went wrong. */
#define CHECK(call) check(call, #call)
void check(CUresult result, const char *call);

struct object {
	const char *name;
	size_t bytes;	      /* as asked for on the command line */
	size_t used_bytes;    /* of the allocation, in whole words */
	size_t segment_bytes; /* of the allocation: more than used_bytes when it came out of the cache */
	CUdeviceptr address;  /* 0: not allocated */
	uint64_t sum;	      /* over every byte, as last written */
};

/* One line of the input. */
struct order {
	char phase[16]; /* "end" when there is no line any more */
	unsigned iteration;
	uint64_t number; /* what another role came to, or percents */
};

/* Reads the command line, opens the driver and its kernels. */
void program_open(int argc, char **argv);
const char *program_folder(void);
/* The object of that name, which the command line must have. */
struct object *program_object(const char *name);
/* True until the input ends. */
int program_next(struct order *ret_order);
void program_result(uint64_t sum);
void program_done(void);

/* Allocates @percent of the object. */
void object_take(struct object *object, unsigned percent);
/* Frees it, or keeps it for the next one under --cached-segments, as caching allocators do. */
void object_give(struct object *object);
/* Every word from @seed and its place. */
void object_fill(struct object *object, uint64_t seed);
/* Every word changed on the device, by @number. */
void object_compute(struct object *object, uint64_t number);
void object_write(struct object *object, size_t offset, const void *from, size_t bytes);
/* The bytes, as they are on the device; caller frees. */
void *object_read(const struct object *object);
/* Notes the sum over every byte, after a change; returns it. */
uint64_t object_note(struct object *object);
/* Compares every byte with what was noted, and says so; returns the sum. */
uint64_t object_compare(struct object *object);

/* One number of two, not symmetric. */
uint64_t mixed(uint64_t one, uint64_t other);

#endif
