/* tools/sim/sim_stream.c
 * Streams: operations with tickets, run in order by one worker each (or by the caller, when the stream is idle and the
 * operation is brief). What must come first on other streams is a list of (stream, ticket). Structs are kept until reset,
 * so that a ticket can always be asked for. Workers leave after a while without work: a process may make many streams. */
#include "tools/sim/sim_exec.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/list.h"

#define IDLE_NS 200000000 /* after which a worker leaves */

struct sim_stream *sim_all_streams;
bool sim_stopping;

uint64_t sim_thread_id(void)
{
	static uint64_t last;
	static __thread uint64_t own;

	if (!own)
		own = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	return own;
}

/* ---- work ---- */

bool sim_work_copy(struct sim_work *ret, const struct sim_work *work)
{
	void *bytes = NULL;

	if (work->bytes) {
		bytes = malloc(work->bytes);
		if (!bytes)
			return false;
		memcpy(bytes, work->arg, work->bytes);
		if (work->kind->retain && !work->kind->retain(bytes)) {
			free(bytes);
			return false;
		}
	}
	*ret = *work;
	ret->arg = bytes;
	return true;
}

void sim_work_release(struct sim_work *work)
{
	if (work->arg && work->kind->release)
		work->kind->release(work->arg);
	free(work->arg);
	work->arg = NULL;
}

/* ---- dependencies ---- */

bool sim_deps_passed(const struct sim_dep *deps, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (deps[i].stream->done < deps[i].ticket)
			return false;
	}
	return true;
}

void sim_deps_wait(const struct sim_dep *deps, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		deps[i].stream->users++;
		while (deps[i].stream->done < deps[i].ticket)
			pthread_cond_wait(&sim_moved, &sim_lock);
		deps[i].stream->users--;
	}
}

bool sim_stream_idle(const struct sim_stream *stream)
{
	return stream->done == stream->queued;
}

/* ---- the streams of a context ---- */

struct sim_stream *sim_stream_new(struct sim_context *ctx, bool blocking)
{
	static uint64_t last_id;
	struct sim_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->context = ctx;
	stream->blocking = blocking;
	stream->alive = true;
	stream->id = ++last_id;
	stream->next = ctx->streams;
	ctx->streams = stream;
	stream->all_next = sim_all_streams;
	sim_all_streams = stream;
	return stream;
}

static struct sim_stream *legacy_of(struct sim_context *ctx)
{
	if (!ctx->legacy)
		ctx->legacy = sim_stream_new(ctx, false);
	return ctx->legacy;
}

static struct sim_stream *per_thread_of(struct sim_context *ctx)
{
	uint64_t thread = sim_thread_id();
	struct sim_stream *stream;

	for (stream = ctx->streams; stream; stream = stream->next) {
		if (stream->owner == thread)
			return stream;
	}
	stream = sim_stream_new(ctx, true);
	if (stream)
		stream->owner = thread;
	return stream;
}

struct sim_stream *sim_stream_of(struct sim_context *ctx, CUstream handle, bool per_thread)
{
	if ((!handle && per_thread) || handle == CU_STREAM_PER_THREAD)
		return per_thread_of(ctx);
	if (!handle || handle == CU_STREAM_LEGACY)
		return legacy_of(ctx);
	for (struct sim_stream *stream = sim_all_streams; stream; stream = stream->all_next) {
		if (stream == (struct sim_stream *)handle && stream->alive)
			return stream;
	}
	return NULL;
}

CUresult sim_stream_usable(struct sim_stream *stream)
{
	CUresult result = stream->context->sticky;

	if (result != CUDA_SUCCESS || !sim_captures_active || stream != stream->context->legacy)
		return result;
	for (struct sim_stream *other = stream->context->streams; other; other = other->next) {
		if (!other->capture || !other->blocking)
			continue;
		other->capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	return result;
}

CUresult sim_stream_uncaptured(struct sim_stream *stream)
{
	CUresult result = stream ? sim_stream_usable(stream) : CUDA_ERROR_INVALID_HANDLE;

	if (result == CUDA_SUCCESS && stream->capture) {
		stream->capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

/* ---- running ---- */

/* sim_lock held, given up meanwhile. @ready_ns: when the operation could have begun on the virtual clock. */
static void run_work(struct sim_stream *stream, const struct sim_work *work, uint64_t ready_ns, bool on_worker)
{
	struct sim_context *ctx = stream->context;
	uint64_t end_ns = ready_ns;

	pthread_mutex_unlock(&sim_lock);
	/* What a caller runs itself is brief and was checked at the call; a worker's may have lost its memory since. */
	if (on_worker)
		sim_guard_install();
	if (sim_clock_on)
		end_ns = sim_run_timed(work, ctx, ready_ns);
	else
		sim_guard_run(work, ctx);
	pthread_mutex_lock(&sim_lock);
	stream->end_ns = end_ns;
}

static void run_head(struct sim_stream *stream)
{
	struct sim_op *op = stream->head;

	stream->head = op->next;
	if (!stream->head)
		stream->tail = NULL;
	if (!stream->context->sticky || op->work.kind->always) {
		uint64_t ready_ns = 0;

		if (sim_clock_on) {
			/* Behind other streams the time is read from the clock: their ends may have moved on. */
			ready_ns = op->dep_count ? sim_clock_now() : op->submitted_ns;
			if (ready_ns < stream->end_ns)
				ready_ns = stream->end_ns;
		}
		run_work(stream, &op->work, ready_ns, true);
	}
	stream->done = op->ticket;
	pthread_cond_broadcast(&sim_moved);
	sim_work_release(&op->work);
	free(op->deps);
	free(op);
}

static void *worker_main(void *arg)
{
	struct sim_stream *stream = arg;

	pthread_mutex_lock(&sim_lock);
	for (;;) {
		struct sim_op *op = stream->head;

		if (op && op->ticket == stream->done + 1 && sim_deps_passed(op->deps, op->dep_count)) {
			run_head(stream);
		} else if (op) {
			pthread_cond_wait(&sim_moved, &sim_lock);
		} else if (stream->stop) {
			break;
		} else {
			struct timespec until;

			clock_gettime(CLOCK_MONOTONIC, &until);
			until.tv_nsec += IDLE_NS;
			until.tv_sec += until.tv_nsec / 1000000000;
			until.tv_nsec %= 1000000000;
			if (pthread_cond_clockwait(&sim_moved, &sim_lock, CLOCK_MONOTONIC, &until) && !stream->head)
				break;
		}
	}
	stream->worker = false;
	pthread_cond_broadcast(&sim_moved);
	pthread_mutex_unlock(&sim_lock);
	return NULL;
}

static bool start_worker(struct sim_stream *stream)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	if (stream->worker)
		return true;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 512 * 1024);
	/* The program's signals are for its own threads; faults of kernels are not blocked by this. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, worker_main, stream);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	stream->worker = error == 0;
	return stream->worker;
}

struct dep_list {
	struct sim_dep *deps;
	size_t count, capacity;
};

static bool depend(struct dep_list *list, struct sim_dep dep)
{
	if (dep.stream->done >= dep.ticket)
		return true;
	if (!list_room(&list->deps, list->count, &list->capacity, sizeof(*list->deps)))
		return false;
	list->deps[list->count++] = dep;
	return true;
}

/* What @stream has to wait for by the rules of the legacy stream, and @deps. */
static bool collect(struct sim_stream *stream, const struct sim_dep *deps, size_t count, struct dep_list *list)
{
	struct sim_context *ctx = stream->context;
	bool fine = true;

	for (size_t i = 0; i < count && fine; i++)
		fine = depend(list, deps[i]);
	if (stream == ctx->legacy) {
		for (struct sim_stream *other = ctx->streams; other && fine; other = other->next) {
			if (other->blocking)
				fine = depend(list, (struct sim_dep){other, other->queued});
		}
	} else if (stream->blocking && ctx->legacy && fine) {
		fine = depend(list, (struct sim_dep){ctx->legacy, ctx->legacy->queued});
	}
	return fine;
}

CUresult sim_enqueue(struct sim_stream *stream, const struct sim_work *work, const struct sim_dep *deps, size_t dep_count)
{
	struct dep_list list = {0};
	struct sim_op *op = NULL;

	if (!collect(stream, deps, dep_count, &list))
		goto out_of_memory;
	if (work->brief && list.count == 0 && sim_stream_idle(stream) && !(sim_clock_on && (work->kind->cost || work->kind->run_timed))) {
		uint64_t ticket = ++stream->queued;
		uint64_t ready_ns = sim_clock_on ? sim_clock_now() : 0;

		run_work(stream, work, ready_ns > stream->end_ns ? ready_ns : stream->end_ns, false);
		stream->done = ticket;
		pthread_cond_broadcast(&sim_moved);
		return CUDA_SUCCESS;
	}
	op = calloc(1, sizeof(*op));
	if (!op || !sim_work_copy(&op->work, work))
		goto out_of_memory;
	if (!start_worker(stream)) {
		sim_work_release(&op->work);
		goto out_of_memory;
	}
	op->deps = list.deps;
	op->dep_count = list.count;
	op->ticket = ++stream->queued;
	op->submitted_ns = sim_clock_on ? sim_clock_now() : 0;
	if (stream->tail)
		stream->tail->next = op;
	else
		stream->head = op;
	stream->tail = op;
	pthread_cond_broadcast(&sim_moved);
	return CUDA_SUCCESS;

out_of_memory:
	free(op);
	free(list.deps);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static void nothing(void *arg)
{
}

CUresult sim_enqueue_marker(struct sim_stream *stream, const struct sim_dep *deps, size_t dep_count)
{
	static const struct sim_work_kind marker = {.type = CU_GRAPH_NODE_TYPE_EMPTY, .run = nothing};
	const struct sim_work work = {&marker, NULL, 0, true};

	return sim_enqueue(stream, &work, deps, dep_count);
}

void sim_stream_wait_for_room(struct sim_stream *stream)
{
	struct sim_dep room = {stream, stream->queued - (uint64_t)sim_config.queue + 1};

	if (sim_config.queue && stream->queued >= (uint64_t)sim_config.queue)
		sim_deps_wait(&room, 1);
}

CUresult sim_submit_work(struct sim_context *ctx, CUstream handle, bool per_thread, const struct sim_work *work)
{
	struct sim_stream *stream;
	CUresult result;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	if (stream && !stream->capture)
		sim_stream_wait_for_room(stream);
	result = stream ? sim_stream_usable(stream) : CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS)
		result = stream->capture ? sim_capture_note(stream, work, NULL) : sim_enqueue(stream, work, NULL, 0);
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* ---- calls of other files: a function and its malloc'd argument ---- */

struct plain_call {
	void (*run)(void *arg);
	void *arg;
};

/* The argument is freed by the operation itself, since nobody copies a plain call. */
static void run_owned(void *arg)
{
	struct plain_call *call = arg;

	call->run(call->arg);
	free(call->arg);
}

static const struct sim_work_kind owned_kind = {.type = CU_GRAPH_NODE_TYPE_EMPTY, .run = run_owned};

CUresult sim_submit(struct sim_context *ctx, CUstream handle, bool per_thread, void (*run)(void *), void *arg, bool brief)
{
	struct plain_call call = {run, arg};
	struct sim_work work = {&owned_kind, &call, sizeof(call), brief};
	struct sim_stream *stream;
	CUresult result;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	result = sim_stream_uncaptured(stream);
	if (result == CUDA_SUCCESS)
		result = sim_enqueue(stream, &work, NULL, 0);
	pthread_mutex_unlock(&sim_lock);
	if (result != CUDA_SUCCESS)
		free(arg);
	return result;
}

/* ---- waiting ---- */

static void wait_where(struct sim_context *ctx, int device)
{
	pthread_mutex_lock(&sim_lock);
	/* New streams go to the head of the list and are not part of what was submitted before. */
	for (struct sim_stream *stream = sim_all_streams; stream; stream = stream->all_next) {
		struct sim_dep dep = {stream, stream->queued};

		if (ctx ? stream->context == ctx : stream->context->device == device)
			sim_deps_wait(&dep, 1);
	}
	pthread_mutex_unlock(&sim_lock);
}

void sim_wait_context(struct sim_context *ctx)
{
	wait_where(ctx, 0);
}

void sim_wait_device(int device)
{
	wait_where(NULL, device);
}

CUresult sim_wait_stream(struct sim_context *ctx, CUstream handle, bool per_thread)
{
	struct sim_stream *stream;
	CUresult result;

	pthread_mutex_lock(&sim_lock);
	stream = sim_stream_of(ctx, handle, per_thread);
	result = sim_stream_uncaptured(stream);
	/* Waiting for the legacy stream waits for the blocking ones in front of it. */
	if (result == CUDA_SUCCESS && stream == stream->context->legacy)
		result = sim_enqueue_marker(stream, NULL, 0);
	if (result == CUDA_SUCCESS) {
		struct sim_dep dep = {stream, stream->queued};

		sim_deps_wait(&dep, 1);
		result = stream->context->sticky;
	}
	pthread_mutex_unlock(&sim_lock);
	return result;
}

/* ---- control ---- */

uint64_t sim_live_streams(void)
{
	uint64_t count = 0;

	for (struct sim_stream *stream = sim_all_streams; stream; stream = stream->all_next)
		count += stream->alive && stream->context->alive && stream != stream->context->legacy && !stream->owner;
	return count;
}

void sim_streams_end(struct sim_context *ctx)
{
	for (struct sim_stream *stream = ctx->streams; stream; stream = stream->next) {
		sim_capture_abandon(stream);
		stream->alive = false;
		stream->stop = true;
		stream->owner = 0;
	}
	ctx->streams = ctx->legacy = NULL;
	sim_events_end(ctx);
	sim_modules_end(ctx);
	pthread_cond_broadcast(&sim_moved);
}

void sim_streams_drop_all(void)
{
	pthread_mutex_lock(&sim_lock);
	__atomic_store_n(&sim_stopping, true, __ATOMIC_RELEASE);
	for (struct sim_stream *stream = sim_all_streams; stream; stream = stream->all_next) {
		sim_capture_abandon(stream);
		stream->stop = true;
	}
	pthread_cond_broadcast(&sim_moved);
	for (struct sim_stream *stream = sim_all_streams; stream; stream = stream->all_next) {
		while (stream->worker)
			pthread_cond_wait(&sim_moved, &sim_lock);
	}
	sim_events_drop_all();
	sim_graphs_drop_all();
	while (sim_all_streams) {
		struct sim_stream *stream = sim_all_streams;

		sim_all_streams = stream->all_next;
		free(stream->tips);
		free(stream->attributes);
		free(stream);
	}
	for (struct sim_context *ctx = sim_contexts; ctx; ctx = ctx->next)
		ctx->streams = ctx->legacy = NULL;
	__atomic_store_n(&sim_stopping, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&sim_lock);
}
