/* tools/demo/program.c
 * The kernels are the simulated driver's built-in ones, so the programs run there only. Sums are taken over a copy on
 * the host. */
#include "tools/demo/program.h"

#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 16, SEGMENTS = 64, OUT_OF_ROOM = 3, WRONG_USE = 2 };
#define SEGMENT_STEP ((size_t)2 << 20) /* PyTorch's for large blocks */

/* A block that the program has freed and its allocator has not. */
struct segment {
	CUdeviceptr address;
	size_t bytes;
};

static struct object objects[OBJECTS];
static struct segment segments[SEGMENTS];
static int object_count, segment_count, caches;
static const char *folder;
static CUfunction add;

void check(CUresult result, const char *call)
{
	const char *name = "unknown error";

	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fprintf(stderr, "demo: %s: %s\n", call, name);
	exit(1);
}

static void refuse(const char *what)
{
	fprintf(stderr, "demo: %s: usage: PROGRAM [--cached-segments] FOLDER OBJECT=BYTES...\n", what);
	exit(WRONG_USE);
}

void program_open(int argc, char **argv)
{
	CUcontext context;
	CUmodule module;
	int at = 1;

	setvbuf(stdout, NULL, _IOLBF, 0);
	caches = at < argc && strcmp(argv[at], "--cached-segments") == 0;
	at += caches;
	if (at >= argc)
		refuse("no folder");
	folder = argv[at++];
	for (; at < argc && object_count < OBJECTS; at++) {
		char *equals = strchr(argv[at], '=');

		if (!equals)
			refuse(argv[at]);
		*equals = '\0';
		/* the kernels work on words */
		objects[object_count++] =
			(struct object){.name = argv[at], .bytes = strtoull(equals + 1, NULL, 10) & ~(size_t)7};
	}
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, "sublet-sim:builtin"));
	CHECK(cuModuleGetFunction(&add, module, "sim_add32"));
}

const char *program_folder(void)
{
	return folder;
}

struct object *program_object(const char *name)
{
	for (int i = 0; i < object_count; i++)
		if (strcmp(objects[i].name, name) == 0 && objects[i].bytes)
			return &objects[i];
	refuse(name);
	return NULL;
}

int program_next(struct order *order)
{
	char line[128];

	if (!fgets(line, sizeof(line), stdin))
		return 0;
	*order = (struct order){.phase = ""};
	return sscanf(line, "%15s %u %llx", order->phase, &order->iteration, (unsigned long long *)&order->number) >= 1;
}

void program_result(uint64_t sum)
{
	printf("result %016llx\n", (unsigned long long)sum);
}

void program_done(void)
{
	puts("done");
}

/* ---- memory ---- */

/* The smallest kept segment that is large enough. */
static int take_kept(struct object *object)
{
	int best = -1;

	for (int i = 0; i < segment_count; i++)
		if (segments[i].bytes >= object->used_bytes && (best < 0 || segments[i].bytes < segments[best].bytes))
			best = i;
	if (best < 0)
		return 0;
	object->address = segments[best].address;
	object->segment_bytes = segments[best].bytes;
	segments[best] = segments[--segment_count];
	return 1;
}

/* What PyTorch's allocator does when the driver has no room: all it keeps goes back, then once more. */
static size_t release_kept(void)
{
	size_t bytes = 0;

	for (; segment_count; bytes += segments[segment_count].bytes)
		CHECK(cuMemFree(segments[--segment_count].address));
	return bytes;
}

void object_take(struct object *object, unsigned percent)
{
	CUresult result;
	size_t released;

	object->used_bytes = object->bytes / 100 * percent & ~(size_t)7;
	if (percent == 100)
		object->used_bytes = object->bytes;
	if (take_kept(object))
		return;
	object->segment_bytes =
		caches ? (object->used_bytes + SEGMENT_STEP - 1) & ~(SEGMENT_STEP - 1) : object->used_bytes;
	result = cuMemAlloc(&object->address, object->segment_bytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && (released = release_kept())) {
		printf("released %zu\n", released);
		result = cuMemAlloc(&object->address, object->segment_bytes);
	}
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		printf("no-room %s %zu\n", object->name, object->segment_bytes);
		exit(OUT_OF_ROOM);
	}
	check(result, "cuMemAlloc");
}

void object_give(struct object *object)
{
	if (caches && segment_count < SEGMENTS)
		segments[segment_count++] = (struct segment){object->address, object->segment_bytes};
	else
		CHECK(cuMemFree(object->address));
	object->address = 0;
}

/* ---- bytes ---- */

static void *host_room(size_t bytes)
{
	void *room = malloc(bytes);

	if (!room)
		check(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
	return room;
}

uint64_t mixed(uint64_t one, uint64_t other)
{
	one = (one ^ (other + 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
	return one ^ one >> 32;
}

void object_fill(struct object *object, uint64_t seed)
{
	uint64_t *words = host_room(object->used_bytes);

	for (size_t i = 0; i < object->used_bytes / sizeof(*words); i++)
		words[i] = seed ^ i * 0x9e3779b97f4a7c15ull;
	CHECK(cuMemcpyHtoD(object->address, words, object->used_bytes));
	free(words);
	object_note(object);
}

void object_compute(struct object *object, uint64_t number)
{
	size_t words = object->used_bytes / sizeof(uint32_t);
	uint32_t addend = (uint32_t)(number ^ number >> 32);
	void *params[] = {&object->address, &words, &addend};

	CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CHECK(cuCtxSynchronize());
	object_note(object);
}

void object_write(struct object *object, size_t offset, const void *from, size_t bytes)
{
	if (offset < object->used_bytes)
		CHECK(cuMemcpyHtoD(object->address + offset, from,
			bytes < object->used_bytes - offset ? bytes : object->used_bytes - offset));
	object_note(object);
}

void *object_read(const struct object *object)
{
	void *bytes = host_room(object->used_bytes);

	CHECK(cuMemcpyDtoH(bytes, object->address, object->used_bytes));
	return bytes;
}

static uint64_t sum_of(const struct object *object)
{
	uint64_t *words = object_read(object), sum = object->used_bytes;

	for (size_t i = 0; i < object->used_bytes / sizeof(*words); i++)
		sum = mixed(sum, words[i]);
	free(words);
	return sum;
}

uint64_t object_note(struct object *object)
{
	return object->sum = sum_of(object);
}

uint64_t object_compare(struct object *object)
{
	uint64_t sum = sum_of(object);

	printf("%s %s %zu %016llx\n", sum == object->sum ? "same" : "other", object->name, object->used_bytes,
		(unsigned long long)sum);
	return sum;
}
