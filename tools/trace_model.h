/* tools/trace_model.h
 * What a trace says, event by event: who had how many bytes of which object where, and when. `sublet trace summary`, export, plot and top
 * are loops over trace_model_next; after each the state below is that behind the event, so that what lies between two events is an
 * interval of unchanging bytes.
 *
 * Objects and phases are told apart by name, devices by their UUID, whatever numbers the processes give them. Lost rows are
 * made up for where a later row names the allocation; one that no row names is not there. */
#ifndef SUBLET_TOOLS_TRACE_MODEL_H
#define SUBLET_TOOLS_TRACE_MODEL_H

#include "base/map.h"
#include "policy/decide.h"
#include "tools/trace_merge.h"

#define TRACE_MODEL_DEVICES 64 /* of one process */
#define TRACE_NOTHING UINT32_MAX /* as an object or phase of an event: it has none */

/* Names, numbered in the order in which they were met. */
struct trace_names {
	char **names;
	size_t count, room;
};

/* Bytes of one object in one process on one device. */
struct trace_series {
	struct trace_process *process;
	uint32_t object, device; /* in `objects` and `devices` */
	uint64_t bytes[POLICY_RESIDENCY_COUNT];
	uint64_t allocations;    /* live */
	uint64_t begun_ns;	 /* its first allocation */
	void *user;		 /* the reader's; freed with free() */
};

struct trace_process {
	struct trace_source *source;
	const char *role;	/* "" for none; good as long as the model */
	uint32_t role_number;	/* in `roles` */
	uint32_t phase;		/* in `phases`; 0: none yet */
	bool ended;		/* its bytes are gone */
	bool is_coordinator;
	uint64_t ended_ns;
	uint32_t driver_version;
	uint32_t device[TRACE_MODEL_DEVICES];	/* its numbers -> `devices`, and 1 more; 0: not met */
	uint64_t native_bytes[TRACE_MODEL_DEVICES]; /* by its numbers */
	uint64_t host_pool_bytes;
	struct map live;	/* serial -> struct trace_live */
	struct map series;	/* object and device -> struct trace_series */
	uint32_t *texts;	/* number of a text -> of the name it is, and 1 more */
	size_t texts_count;
	void *user;		/* the reader's; freed with free() */
};

struct trace_live {
	struct trace_series *series;
	uint64_t bytes, requested_bytes;
	uint64_t since_ns;
	uint32_t site;		/* number of a text of the process, TRACE_NO_TEXT: none */
	uint32_t phase;		/* in which it was made */
	uint8_t residency;
};

struct trace_holder {
	const struct trace_series *series; /* NULL: native bytes of `process` */
	const struct trace_process *process;
	uint64_t bytes;
};

struct trace_device {
	char *name;		/* its UUID in hexadecimal digits; its number where that is not known */
	uint32_t number;	/* as the first process that had it counts */
	uint64_t bytes;		/* on it, managed and native */
	uint64_t native_bytes;
	uint64_t peak_bytes, peak_ns;
	struct trace_holder *holders; /* at the peak, the largest first */
	size_t holders_count, holders_room;
	bool holders_due;
	bool free_known;	/* the driver was asked at some barrier */
	uint64_t free_bytes, least_free_bytes, total_bytes;
};

struct trace_model {
	struct trace_merge merge;
	struct trace_names objects; /* 0: no object is known */
	struct trace_names phases;  /* 0: none */
	struct trace_names roles;   /* 0: none */
	struct trace_device *devices;
	size_t devices_count, devices_room;
	struct trace_process **processes; /* as merge.sources; no order else */
	size_t processes_count, processes_room;
	uint64_t now_ns;	 /* of the last event */
	uint64_t events;	 /* so far */
	uint64_t recovered;	 /* allocations of which an earlier row was lost */
	uint64_t unknown_frees;	 /* of those no row was there at all */
	struct trace_row row;	 /* of the last event */
	struct trace_live *freed; /* by it */
	bool out_of_memory;	 /* what follows is not complete */
};

struct trace_event_view {
	uint64_t time_ns;	 /* since the trace's begin */
	enum trace_event event;
	struct trace_process *process;
	const struct trace_row *row; /* as it stands in the file, but for its time */
	struct trace_series *series; /* whose bytes changed; NULL: none's */
	uint64_t bytes;		 /* that changed */
	int from, to;		 /* residencies, -1: nowhere. What changed, whatever the row says */
	uint32_t phase;		 /* in `phases`: the row's own where it names one, else the process's */
	const struct trace_live *live; /* of the allocation; gone with the next call */
};

/* As trace_merge_open. On success trace_model_close is due. */
enum sublet_err trace_model_open(struct trace_model *model, const char *path, bool follows, struct errinfo *reterr);
void trace_model_close(struct trace_model *model);

/* The next event. False: no more, or none before trace_merge_refresh. */
bool trace_model_next(struct trace_model *model, struct trace_event_view *ret);

/* Series of all processes. */
void trace_model_each_series(const struct trace_model *model, void (*visit)(struct trace_series *series, void *arg), void *arg);

/* Have the holders of @device's peak ready to be read. */
void trace_model_settle_peaks(struct trace_model *model);

/* The text of number @number of a row of @process, "" where there is none. */
const char *trace_model_site(const struct trace_process *process, uint32_t number);

/* "hold", ... of the field `object` of TRACE_STEP and TRACE_BARRIER_STEP. */
const char *trace_step_name(uint32_t step);
#endif
