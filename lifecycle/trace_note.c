/* lifecycle/trace_note.c
 * From Sublet's structures to rows. Nothing is decided here. */
#include "lifecycle/trace_note.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lifecycle/client_priv.h"
#include "lifecycle/lifecycle.h"

#define NATIVE_EACH_NS 10000000ull

enum { SITE_BYTES = 8192 };

static uint64_t since(uint64_t begun_ns)
{
	const uint64_t now = clock_now_ns();

	return begun_ns && now > begun_ns ? now - begun_ns : 0;
}

/* Every process numbers the devices in its own way (CUDA_VISIBLE_DEVICES). */
static void note_device(struct lifecycle *lc, int device)
{
	char text[16 + 2 * sizeof(CUuuid)];
	int used = snprintf(text, sizeof(text), "%d ", device);
	CUuuid uuid;

	if (!trace_is_on(&lc->trace) || !lc->driver.DeviceGetUuid || lc->driver.DeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
		return;
	for (size_t i = 0; i < sizeof(uuid.bytes); i++)
		used += snprintf(text + used, sizeof(text) - (size_t)used, "%02x", (unsigned char)uuid.bytes[i]);
	trace_text(&lc->trace, TRACE_TEXT_DEVICE, text, (uint32_t)used);
}

void trace_note_begin(struct lifecycle *lc)
{
	const struct trace_config config = {.folder = lc->config.trace_folder, .writer = TRACE_WRITER_PROCESS, .role = lc->stats->role,
		.ring_bytes = lc->config.trace_bytes};
	struct trace_row row = trace_row_none();
	struct errinfo error;

	if (trace_open(&lc->trace, &config, &error))
		log_say(LOG_STATS, LOG_WARN, WHOSE_NONE, "nothing is traced: %s", error.text);
	row.extra = (uint32_t)lc->driver.version;
	trace_put(&lc->trace, TRACE_BEGIN, &row);
	for (int d = 0; d < lc->device_count; d++)
		note_device(lc, d);
}

void trace_note_end(struct lifecycle *lc)
{
	trace_note_native(lc, true);
	trace_put_plain(&lc->trace, TRACE_END);
	trace_end(&lc->trace);
}

/* ---- allocations ---- */

static struct trace_row row_of(const struct lifecycle *lc, uint64_t serial, int device, uint32_t rule, uint64_t bytes)
{
	struct trace_row row = trace_row_none();

	row.allocation = serial;
	row.device = (uint16_t)device;
	row.object = trace_object(&lc->trace, rule);
	row.bytes = bytes;
	return row;
}

static struct trace_row row_of_allocation(const struct lifecycle *lc, const struct allocation *allocation)
{
	struct trace_row row = row_of(lc, allocation->serial, allocation->device, allocation->rule, allocation->span_bytes);

	row.to = (uint8_t)allocation->residency;
	return row;
}

static uint32_t not_asked_for(uint64_t span_bytes, uint64_t size_bytes)
{
	return span_bytes - size_bytes < UINT32_MAX ? (uint32_t)(span_bytes - size_bytes) : UINT32_MAX;
}

static size_t add_line(char *text, size_t used, const char *key, const char *value)
{
	int length = value ? snprintf(text + used, SITE_BYTES - used, "%s%s: %s", used ? "\n" : "", key, value) : 0;

	/* one that does not fit is left out, whole */
	if (length < 0 || (size_t)length >= SITE_BYTES - used) {
		text[used] = '\0';
		return used;
	}
	return used + (size_t)length;
}

/* The text of @site, written the first time that an allocation of it is. */
static uint32_t text_of_site(struct lifecycle *lc, const struct site *site)
{
	static char text[SITE_BYTES]; /* RANK_RECORDS, as all who come here hold it: the stack may be small */
	uint32_t *known = &((struct site *)site)->traced;
	size_t used = 0;

	if (*known)
		return *known - 1;
	used = add_line(text, used, "library", site->library[0]);
	used = add_line(text, used, "library", site->library[1]);
	used = add_line(text, used, "thread", site->thread);
	used = add_line(text, used, "tag", site->tag);
	for (uint16_t i = 0; i < site->stack_count + site->python_count; i++)
		used = add_line(text, used, i < site->stack_count ? "stack" : "python", site->frames[i]);
	*known = trace_text(&lc->trace, TRACE_TEXT_SITE, text, (uint32_t)used) + 1; /* none is 0 again: it is asked for next time too */
	return *known - 1;
}

void trace_note_allocated(struct lifecycle *lc, const struct allocation *allocation)
{
	struct trace_row row;

	if (!trace_is_on(&lc->trace))
		return;
	row = row_of_allocation(lc, allocation);
	row.extra = not_asked_for(allocation->span_bytes, allocation->size_bytes);
	trace_put(&lc->trace, TRACE_ALLOCATE, &row);
	trace_note_native(lc, false);
	if (!allocation->site)
		return;
	row = trace_row_none();
	row.object = text_of_site(lc, allocation->site);
	row.allocation = allocation->serial;
	trace_put(&lc->trace, TRACE_SITE, &row);
}

void trace_note_object(struct lifecycle *lc, const struct allocation *allocation)
{
	struct trace_row row;

	if (!trace_is_on(&lc->trace))
		return;
	row = row_of_allocation(lc, allocation);
	row.extra = not_asked_for(allocation->span_bytes, allocation->size_bytes);
	trace_put(&lc->trace, TRACE_OBJECT, &row);
}

void trace_note_become(struct lifecycle *lc, const struct allocation *allocation, enum residency to, uint64_t since_ns, bool way_back)
{
	struct trace_row row;

	if (!trace_is_on(&lc->trace) || allocation->dead)
		return;
	row = row_of_allocation(lc, allocation);
	row.from = (uint8_t)allocation->residency;
	row.to = (uint8_t)to;
	row.extra = way_back;
	row.duration_ns = since(since_ns);
	trace_put(&lc->trace, TRACE_MOVE, &row);
}

static const char *name_of(const void *arg, enum trace_text_kind kind, uint32_t number)
{
	const struct policy *policy = arg;

	return policy_text(policy, kind == TRACE_TEXT_OBJECT ? policy->rules[number].name : policy->phases[number].name);
}

void trace_note_policy(struct lifecycle *lc, const struct client_policy *policy)
{
	const bool known = policy->bytes != NULL;

	trace_policy(&lc->trace, known ? policy->policy.rules_count : 0, known ? policy->policy.phases_count : 0, name_of, &policy->policy);
}

void trace_note_freed(struct lifecycle *lc, const struct allocation_view *view)
{
	struct trace_row row;

	if (!trace_is_on(&lc->trace))
		return;
	row = row_of(lc, view->serial, view->device, view->rule, view->span_bytes);
	row.from = (uint8_t)view->residency;
	trace_put(&lc->trace, TRACE_FREE, &row);
	trace_note_native(lc, false);
}

void trace_note_given_back(struct lifecycle *lc, const struct allocation *allocation, uint64_t bytes)
{
	struct trace_row row;

	if (!trace_is_on(&lc->trace))
		return;
	row = row_of(lc, allocation->serial, allocation->device, RULE_NONE, bytes);
	trace_put(&lc->trace, TRACE_GIVEN, &row);
}

void trace_note_move_failed(struct lifecycle *lc, const struct residency_move *move, const struct errinfo *error)
{
	struct trace_row row;

	if (!trace_is_on(&lc->trace))
		return;
	row = row_of_allocation(lc, move->allocation);
	row.from = (uint8_t)move->from;
	row.to = (uint8_t)move->to;
	row.extra = (uint32_t)error->code;
	row.duration_ns = since(move->since_ns);
	trace_put(&lc->trace, TRACE_MOVE_FAILED, &row);
}

/* ---- gate and phases ---- */

static void note_time(struct lifecycle *lc, enum trace_event event, uint64_t begun_ns, uint64_t bytes, uint32_t extra)
{
	struct trace_row row = trace_row_none();

	if (!trace_is_on(&lc->trace))
		return;
	row.duration_ns = since(begun_ns);
	row.bytes = bytes;
	row.extra = extra;
	trace_put(&lc->trace, event, &row);
}

void trace_note_held(struct lifecycle *lc, uint64_t begun_ns, enum sublet_err err)
{
	note_time(lc, TRACE_HELD, begun_ns, 0, (uint32_t)err);
}

void trace_note_opened(struct lifecycle *lc)
{
	note_time(lc, TRACE_OPENED, __atomic_load_n(&lc->gate.held_since_ns, __ATOMIC_ACQUIRE), 0, 0);
}

void trace_note_soft_service(struct lifecycle *lc, uint64_t begun_ns, uint64_t moved_bytes, enum sublet_err err)
{
	note_time(lc, TRACE_SOFT_SERVICE, begun_ns, moved_bytes, (uint32_t)err);
}

void trace_note_joined(struct lifecycle *lc, const char *role)
{
	struct trace_row row = trace_row_none();

	if (!trace_is_on(&lc->trace))
		return;
	trace_put(&lc->trace, TRACE_JOIN, &row);
	if (!*role)
		return;
	row.object = trace_text(&lc->trace, TRACE_TEXT_ROLE, role, (uint32_t)strlen(role));
	trace_put(&lc->trace, TRACE_ROLE, &row);
}

void trace_note_phase(struct lifecycle *lc, uint32_t phase)
{
	if (!trace_is_on(&lc->trace))
		return;
	trace_set_phase(&lc->trace, phase);
	trace_put_plain(&lc->trace, TRACE_PHASE);
	trace_note_native(lc, true);
}

void trace_note_waited(struct lifecycle *lc, uint32_t phase, uint64_t begun_ns)
{
	struct trace_row row = trace_row_none();

	if (!trace_is_on(&lc->trace))
		return;
	row.phase = trace_phase(&lc->trace, phase);
	row.duration_ns = since(begun_ns);
	trace_put(&lc->trace, TRACE_WAITED, &row);
}

void trace_note_step(struct lifecycle *lc, uint64_t barrier, const struct message_step *step, const struct message_stepped *stepped,
	uint64_t begun_ns)
{
	struct trace_row row = trace_row_none();

	if (!trace_is_on(&lc->trace))
		return;
	row.phase = trace_phase(&lc->trace, step->phase);
	row.object = step->step;
	row.allocation = barrier;
	row.bytes = stepped->served.moved_bytes;
	row.extra = stepped->served.error;
	row.duration_ns = since(begun_ns);
	trace_put(&lc->trace, TRACE_STEP, &row);
	trace_note_native(lc, true);
}

/* ---- what is around ---- */

void trace_note_host_pool(struct lifecycle *lc)
{
	note_time(lc, TRACE_HOST_POOL, 0, lc->host_pool.bytes, 0);
}

void trace_note_native(struct lifecycle *lc, bool at_once)
{
	uint64_t now;

	if (!trace_is_on(&lc->trace))
		return;
	now = clock_now_ns();
	if (!at_once && now - __atomic_load_n(&lc->trace_native_ns, __ATOMIC_RELAXED) < NATIVE_EACH_NS)
		return;
	__atomic_store_n(&lc->trace_native_ns, now, __ATOMIC_RELAXED);
	for (int d = 0; d < lc->device_count; d++) {
		struct trace_row row = trace_row_none();

		row.device = (uint16_t)d;
		for (int kind = 0; kind < STATS_NATIVE_COUNT; kind++)
			if (kind != STATS_NATIVE_PINNED)
				row.bytes += __atomic_load_n(&lc->stats->device[d].native[kind].bytes, __ATOMIC_RELAXED);
		if (__atomic_exchange_n(&lc->trace_native_bytes[d], row.bytes, __ATOMIC_RELAXED) != row.bytes)
			trace_put(&lc->trace, TRACE_NATIVE, &row);
	}
}

void trace_note_device_free(struct lifecycle *lc)
{
	for (int d = 0; trace_is_on(&lc->trace) && d < lc->device_count; d++) {
		struct trace_row row = trace_row_none();
		CUcontext context, popped;
		size_t free_bytes, total;
		uint64_t id;

		/* a context that nobody has made is not made for this */
		context = contexts_borrow(&lc->contexts, d, 0, &id);
		if (!context)
			continue;
		if (lc->driver.CtxPushCurrent(context) == CUDA_SUCCESS) {
			if (lc->driver.MemGetInfo(&free_bytes, &total) == CUDA_SUCCESS) {
				row.device = (uint16_t)d;
				row.bytes = free_bytes;
				row.extra = (uint32_t)(total >> 20);
				trace_put(&lc->trace, TRACE_DEVICE_FREE, &row);
			}
			lc->driver.CtxPopCurrent(&popped);
		}
		contexts_return(&lc->contexts, id);
	}
}
