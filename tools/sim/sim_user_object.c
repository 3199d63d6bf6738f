/* tools/sim/sim_user_object.c
 * User objects: something of the program's with a count and a destructor, kept alive by graphs and executables. */
#include "tools/sim/sim_graph.h"

#include <stdlib.h>

#include "base/list.h"

struct sim_user_object {
	void *what;
	CUhostFn destroy;
	unsigned count;
	bool alive;
	struct sim_user_object *next;
};
static struct sim_user_object *objects; /* living and dead */

static struct sim_user_object *object_of(CUuserObject handle)
{
	for (struct sim_user_object *object = objects; object; object = object->next) {
		if (object == (struct sim_user_object *)handle && object->alive)
			return object;
	}
	return NULL;
}

static void *destroy_main(void *arg)
{
	CUDA_HOST_NODE_PARAMS call = *(CUDA_HOST_NODE_PARAMS *)arg;

	free(arg);
	call.fn(call.userData);
	return NULL;
}

static void drop(struct sim_user_object *object, unsigned count)
{
	CUDA_HOST_NODE_PARAMS *call;
	pthread_attr_t attributes;
	pthread_t thread;

	object->count -= count < object->count ? count : object->count;
	if (object->count || !object->alive)
		return;
	object->alive = false;
	/* A destructor may take the program's locks, and sim_lock is held here: it runs on a thread of its own. */
	call = malloc(sizeof(*call));
	if (!call)
		return;
	*call = (CUDA_HOST_NODE_PARAMS){object->destroy, object->what};
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, destroy_main, call) != 0)
		free(call);
	pthread_attr_destroy(&attributes);
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *ret_object, void *what, CUhostFn destroy, unsigned int count, unsigned int flags)
{
	struct sim_user_object *object;

	ENTER(cuUserObjectCreate);
	/* Documented: the one flag must be given, since destructors are not synchronised. */
	if (!ret_object || !destroy || !count || count > 0x7fffffff || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	object = calloc(1, sizeof(*object));
	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim_lock);
	*object = (struct sim_user_object){what, destroy, count, true, objects};
	objects = object;
	pthread_mutex_unlock(&sim_lock);
	*ret_object = (CUuserObject)object;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
	struct sim_user_object *object;

	ENTER(cuUserObjectRetain);
	pthread_mutex_lock(&sim_lock);
	object = count ? object_of(handle) : NULL;
	if (object)
		object->count += count;
	pthread_mutex_unlock(&sim_lock);
	return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
	struct sim_user_object *object;

	ENTER(cuUserObjectRelease);
	pthread_mutex_lock(&sim_lock);
	object = count ? object_of(handle) : NULL;
	if (object)
		drop(object, count);
	pthread_mutex_unlock(&sim_lock);
	return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct sim_held *held_of(struct sim_graph *graph, struct sim_user_object *object)
{
	for (size_t i = 0; i < graph->held_count; i++) {
		if (graph->held[i].object == object)
			return &graph->held[i];
	}
	if (!list_room(&graph->held, graph->held_count, &graph->held_capacity, sizeof(*graph->held)))
		return NULL;
	graph->held[graph->held_count] = (struct sim_held){object, 0};
	return &graph->held[graph->held_count++];
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count, unsigned int flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_user_object *object;
	struct sim_graph *graph;

	ENTER(cuGraphRetainUserObject);
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(graph_handle);
	object = object_of(handle);
	if (graph && object && count && flags <= CU_GRAPH_USER_OBJECT_MOVE) {
		struct sim_held *held = held_of(graph, object);

		if (held) {
			held->count += count;
			/* Moved: the caller's own references are the graph's now. */
			if (flags != CU_GRAPH_USER_OBJECT_MOVE)
				object->count += count;
		}
		result = held ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_user_object *object;
	struct sim_graph *graph;

	ENTER(cuGraphReleaseUserObject);
	pthread_mutex_lock(&sim_lock);
	graph = sim_graph_of(graph_handle);
	object = object_of(handle);
	for (size_t i = 0; graph && object && count && i < graph->held_count; i++) {
		if (graph->held[i].object != object || graph->held[i].count < count)
			continue;
		graph->held[i].count -= count;
		drop(object, count);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* Copies and executables hold one reference of each object their graph holds. */
bool sim_held_copy(struct sim_graph *to, const struct sim_graph *from)
{
	for (size_t i = 0; i < from->held_count; i++) {
		struct sim_held *held = from->held[i].count ? held_of(to, from->held[i].object) : NULL;

		if (!from->held[i].count)
			continue;
		if (!held)
			return false;
		held->count++;
		held->object->count++;
	}
	return true;
}

void sim_held_release(struct sim_graph *graph)
{
	for (size_t i = 0; i < graph->held_count; i++) {
		if (graph->held[i].count)
			drop(graph->held[i].object, graph->held[i].count);
	}
	graph->held_count = 0;
}

void sim_user_objects_drop_all(void)
{
	while (objects) {
		struct sim_user_object *object = objects;

		objects = object->next;
		free(object);
	}
}
