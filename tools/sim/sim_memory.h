/* tools/sim/sim_memory.h
 * What the files about memory outside VMM share: chunks of physical memory, the table of blocks that programs hold, pools.
 * sim_lock is held by the caller unless said otherwise. */
#ifndef SUBLET_TOOLS_SIM_SIM_MEMORY_H
#define SUBLET_TOOLS_SIM_SIM_MEMORY_H

#include "tools/sim/sim_priv.h"

/* ---- chunks (sim_chunk.c) ---- */
struct sim_range {
	uint64_t offset, bytes;
	uint64_t serial;		   /* names this use of the range */
	const struct sim_stream *freed_on; /* freed in the order of this stream, which has not come there yet */
};
struct sim_chunk {
	uint64_t address, bytes, physical;
	int location, fd;
	struct sim_pool *pool; /* NULL: plain memory */
	struct sim_range *ranges; /* in use, by offset */
	size_t range_count, range_capacity;
	struct sim_chunk *next;
};
/* @bytes rounded up to pages; NULL: no room on the machine, or no memory here. */
struct sim_chunk *sim_chunk_new(int location, uint64_t bytes, struct sim_pool *pool);
void sim_chunk_free(struct sim_chunk *chunk);
/* @stream: whose pending frees may be used again; NULL: none. */
bool sim_chunk_take(struct sim_chunk *chunk, uint64_t bytes, const struct sim_stream *stream, uint64_t *ret_address);
void sim_chunk_return(struct sim_chunk *chunk, uint64_t address);
/* The range stays until sim_chunk_settle with the serial number returned; a later taker may have it before. */
uint64_t sim_chunk_return_later(struct sim_chunk *chunk, uint64_t address, const struct sim_stream *stream);
void sim_chunk_settle(struct sim_chunk *chunk, uint64_t serial);
/* A shared mapping of @fd at a 2 MiB boundary; NULL: no. */
void *sim_map_aligned(uint64_t bytes, int fd);
/* The memfd behind physical memory, -1: no. */
int sim_physical_file(uint64_t physical, uint64_t bytes);

/* ---- blocks (sim_memory.c) ---- */
/* A block over @chunk (which may be NULL) in the table. NULL: no memory. */
struct sim_block *sim_block_new(uint64_t address, uint64_t bytes, enum sim_kind kind, struct sim_context *context,
	struct sim_chunk *chunk);
/* The block that begins at @address and is of one of @kinds (bits), out of the table; the caller frees it. NULL: none. */
struct sim_block *sim_block_take_out(uint64_t address, unsigned kinds);
#define SIM_BIT(kind) (1u << (kind))
struct sim_block *sim_block_between(uint64_t address, uint64_t end); /* the first that touches the range */
struct sim_block *sim_block_each(size_t *position); /* the block at *position, which moves on; NULL: no more */

/* ---- pools (sim_pool.c) ---- */
void sim_pool_release_block(struct sim_block *block); /* its range goes back now */
void sim_pools_drop_all(void);
uint32_t sim_pool_readable(const struct sim_block *block); /* bits of the devices that may touch it */
CUmemoryPool sim_pool_handle(const struct sim_block *block);
/* These take sim_lock: the properties of a pool of this process, a pool of another one, is it one? */
bool sim_pool_props(CUmemoryPool pool, CUmemPoolProps *ret_props);
CUmemoryPool sim_pool_import(const CUmemPoolProps *props);
bool sim_pool_imported(CUmemoryPool pool);

/* ---- arrays (sim_array.c) ---- */
void sim_arrays_drop(const struct sim_context *context); /* those of @context, all for NULL */

/* ---- legacy IPC (sim_ipc.c) ---- */
void sim_ipc_release_block(struct sim_block *block);
bool sim_ipc_from_pool(const struct sim_block *block);

#endif
