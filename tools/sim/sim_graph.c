/* tools/sim/sim_graph.c
 * Graphs: nodes with their work, edges, copies, and running one. A run takes the nodes in an order that respects every edge;
 * on the virtual clock those without an edge between them overlap. */
#include "tools/sim/sim_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"

#define MAGIC_GRAPH 0x53694772
#define MAGIC_NODE 0x53694e6f

static struct sim_graph *graphs; /* living and dead */
static struct sim_node *dead_nodes;

/* ---- handles ---- */

struct sim_graph *sim_graph_of(CUgraph handle)
{
	struct sim_graph *graph = (struct sim_graph *)handle;

	return graph && graph->magic == MAGIC_GRAPH && graph->alive ? graph : NULL;
}

struct sim_node *sim_node_of(CUgraphNode handle)
{
	struct sim_node *node = (struct sim_node *)handle;

	return node && node->magic == MAGIC_NODE && node->alive ? node : NULL;
}

struct sim_graph *sim_graph_new(void)
{
	struct sim_graph *graph;

	for (graph = graphs; graph && graph->alive; graph = graph->next)
		;
	if (!graph) {
		graph = calloc(1, sizeof(*graph));
		if (!graph)
			return NULL;
		graph->next = graphs;
		graphs = graph;
	}
	graph->magic = MAGIC_GRAPH;
	graph->alive = true;
	graph->owned = false;
	graph->sorted = true;
	graph->references = 1;
	graph->count = 0;
	return graph;
}

void sim_node_free(struct sim_node *node)
{
	sim_work_release(&node->work);
	free(node->attributes);
	node->attributes = NULL;
	node->alive = false;
	node->edge_count = 0;
	node->next_dead = dead_nodes;
	dead_nodes = node;
}

void sim_graph_free(struct sim_graph *graph)
{
	if (!graph || --graph->references)
		return;
	for (size_t i = 0; i < graph->count; i++)
		sim_node_free(graph->nodes[i]);
	graph->count = 0;
	graph->alive = false;
	sim_held_release(graph);
}

/* ---- nodes and edges ---- */

static struct sim_node *node_new(void)
{
	struct sim_node *node = dead_nodes;

	if (!node)
		return calloc(1, sizeof(*node));
	dead_nodes = node->next_dead;
	*node = (struct sim_node){.edges = node->edges, .edge_capacity = node->edge_capacity};
	return node;
}

bool sim_edge_add(struct sim_node *from, struct sim_node *to, const CUgraphEdgeData *data)
{
	if (!list_room(&to->edges, to->edge_count, &to->edge_capacity, sizeof(*to->edges)))
		return false;
	to->edges[to->edge_count] = (struct sim_edge){.from = from};
	if (data)
		to->edges[to->edge_count].data = *data;
	to->edge_count++;
	return true;
}

struct sim_node *sim_node_add(struct sim_graph *graph, const struct sim_work *work, struct sim_node *const *from,
	const CUgraphEdgeData *data, size_t count)
{
	struct sim_node *node;
	bool fine = true;

	if (!list_room(&graph->nodes, graph->count, &graph->capacity, sizeof(*graph->nodes)))
		return NULL;
	node = node_new();
	if (!node)
		return NULL;
	node->magic = MAGIC_NODE;
	node->alive = node->enabled = true;
	node->graph = graph;
	if (!sim_work_copy(&node->work, work)) {
		node->work = sim_empty_work();
		sim_node_free(node);
		return NULL;
	}
	for (size_t i = 0; i < count && fine; i++)
		fine = sim_edge_add(from[i], node, data ? &data[i] : NULL);
	if (!fine) {
		sim_node_free(node);
		return NULL;
	}
	graph->nodes[graph->count++] = node;
	return node;
}

struct sim_node *sim_node_from(struct sim_graph *graph, const struct sim_node *origin)
{
	for (size_t i = 0; i < graph->count; i++) {
		if (graph->nodes[i]->origin == origin)
			return graph->nodes[i];
	}
	return NULL;
}

/* Is there a way along edges @from -> ... -> @to? Each node is looked at once: the walk marks what it has seen. */
static bool reaches(const struct sim_node *from, struct sim_node *to, size_t mark)
{
	if (from == to)
		return true;
	if (to->position == mark)
		return false;
	to->position = mark;
	for (size_t i = 0; i < to->edge_count; i++) {
		if (reaches(from, to->edges[i].from, mark))
			return true;
	}
	return false;
}

bool sim_node_reaches(const struct sim_node *from, const struct sim_node *to)
{
	static size_t last_mark = SIZE_MAX / 2; /* above any position in an order */

	return reaches(from, (struct sim_node *)to, ++last_mark);
}

/* Nodes are mostly made in order, so this mostly moves nothing: repeated passes that place what is ready. */
bool sim_graph_sort(struct sim_graph *graph)
{
	size_t placed = 0;

	if (graph->sorted) {
		for (size_t i = 0; i < graph->count; i++)
			graph->nodes[i]->position = i;
		return true;
	}
	for (size_t i = 0; i < graph->count; i++)
		graph->nodes[i]->position = SIZE_MAX;
	while (placed < graph->count) {
		size_t before = placed;

		for (size_t i = placed; i < graph->count; i++) {
			struct sim_node *node = graph->nodes[i];
			bool ready = true;

			for (size_t e = 0; e < node->edge_count && ready; e++)
				ready = node->edges[e].from->position != SIZE_MAX;
			if (!ready)
				continue;
			memmove(&graph->nodes[placed + 1], &graph->nodes[placed], (i - placed) * sizeof(*graph->nodes));
			graph->nodes[placed] = node;
			node->position = placed++;
		}
		if (placed == before)
			return false;
	}
	graph->sorted = true;
	return true;
}

struct sim_graph *sim_graph_copy(struct sim_graph *graph, bool keep)
{
	struct sim_graph *copy = sim_graph_new();
	bool fine = copy && sim_graph_sort(graph);

	for (size_t i = 0; fine && i < graph->count; i++) {
		const struct sim_node *node = graph->nodes[i];
		struct sim_node *twin = sim_node_add(copy, &node->work, NULL, NULL, 0);

		fine = twin && sim_attributes_copy(&twin->attributes, node->attributes) == CUDA_SUCCESS;
		if (twin) {
			twin->origin = keep ? node->origin : node;
			twin->enabled = node->enabled;
		}
		for (size_t e = 0; e < node->edge_count && fine; e++)
			fine = sim_edge_add(copy->nodes[node->edges[e].from->position], twin, &node->edges[e].data);
	}
	fine = fine && sim_held_copy(copy, graph);
	if (!fine && copy) {
		sim_graph_free(copy);
		copy = NULL;
	}
	if (copy)
		sim_graph_sort(copy);
	return copy;
}

/* ---- running ---- */

void sim_graph_run(struct sim_graph *graph, struct sim_context *ctx)
{
	for (size_t i = 0; i < graph->count && !ctx->sticky; i++) {
		struct sim_node *node = graph->nodes[i];

		if (node->enabled)
			node->work.kind->run(node->work.arg);
	}
}

uint64_t sim_graph_run_timed(struct sim_graph *graph, struct sim_context *ctx, uint64_t ready_ns)
{
	uint64_t *ends = calloc(graph->count + 1, sizeof(*ends)), last = ready_ns;

	for (size_t i = 0; i < graph->count && !ctx->sticky; i++) {
		struct sim_node *node = graph->nodes[i];
		uint64_t begin = ready_ns;

		for (size_t e = 0; ends && e < node->edge_count; e++) {
			uint64_t end = ends[node->edges[e].from->position];

			begin = end > begin ? end : begin;
		}
		begin = ends ? begin : last;
		if (node->enabled)
			begin = sim_run_claimed(&node->work, ctx, begin);
		if (ends)
			ends[i] = begin;
		last = begin > last ? begin : last;
	}
	free(ends);
	return last;
}

/* ---- kinds of work that only graphs have ---- */

struct child {
	struct sim_graph *graph;
};

static void run_child(void *arg)
{
	/* The context is that of the launch; a loss stops the outer run. */
	struct sim_graph *graph = ((struct child *)arg)->graph;

	for (size_t i = 0; i < graph->count; i++) {
		if (graph->nodes[i]->enabled)
			graph->nodes[i]->work.kind->run(graph->nodes[i]->work.arg);
	}
}

static uint64_t run_child_timed(void *arg, struct sim_context *ctx, uint64_t ready_ns)
{
	return sim_graph_run_timed(((struct child *)arg)->graph, ctx, ready_ns);
}

/* The copy of the work has a copy of the graph; where memory runs out, an empty one would be silently wrong, so none. */
static bool retain_child(void *arg)
{
	struct child *child = arg;

	child->graph = sim_graph_copy(child->graph, false);
	if (child->graph)
		child->graph->owned = true;
	return child->graph != NULL;
}

static void release_child(void *arg)
{
	sim_graph_free(((struct child *)arg)->graph);
}

static const struct sim_work_kind child_kind = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .run = run_child,
	.run_timed = run_child_timed, .retain = retain_child, .release = release_child};

struct sim_work sim_child_work(struct sim_graph **graph)
{
	_Static_assert(sizeof(struct child) == sizeof(*graph), "the argument is the graph");
	return (struct sim_work){&child_kind, graph, sizeof(*graph), false};
}

struct sim_graph *sim_child_graph(const struct sim_node *node)
{
	return node->work.kind == &child_kind ? ((struct child *)node->work.arg)->graph : NULL;
}

static void nothing(void *arg)
{
}

struct sim_work sim_empty_work(void)
{
	static const struct sim_work_kind empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY, .run = nothing};

	return (struct sim_work){&empty, NULL, 0, true};
}

/* ---- control ---- */

void sim_graphs_drop_all(void)
{
	sim_execs_drop_all();
	for (struct sim_graph *graph = graphs; graph; graph = graph->next) {
		if (graph->alive && !graph->owned) {
			graph->references = 1;
			sim_graph_free(graph);
		}
	}
	while (graphs) {
		struct sim_graph *graph = graphs;

		graphs = graph->next;
		graph->magic = 0;
		free(graph->nodes);
		free(graph->held);
		free(graph);
	}
	while (dead_nodes) {
		struct sim_node *node = dead_nodes;

		dead_nodes = node->next_dead;
		node->magic = 0;
		free(node->edges);
		free(node);
	}
	sim_graph_memory_drop_all();
	sim_user_objects_drop_all();
}
