/* tools/probe.h
 * What a driver library can do, found out by doing it. Every driver call happens in a child process, so a driver that
 * hangs or crashes costs the caller the given time at most; what was learnt until then is kept. */
#ifndef SUBLET_TOOLS_PROBE_H
#define SUBLET_TOOLS_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/child.h"
#include "tools/probe_abi.h"

enum { PROBE_DEVICES = 16 };

enum probe_step {
#define PROBE_STEP(token, doing) PROBE_STEP_##token,
#define PROBE_CALL(symbol, field, parameters)
#include "tools/probe.def"
	PROBE_STEP_COUNT
};

/* How one thing that was tried went. */
struct probe_answer {
	bool tried;
	int result;    /* CUresult; meaningless unless tried */
	char call[40]; /* the call that gave it */
	char name[48]; /* of the result, as the driver says it; empty when it says none */
};

struct probe_device {
	char name[96];
	/* what cuDeviceGetAttribute says; false, too, where the driver does not know the attribute */
	bool has_vmm, has_posix_fd, has_rdma, has_host_numa, under_mps;
	int host_numa_id;
	struct probe_answer create, export, rdma;
};

/* Written by the child as it goes on. */
struct probe {
	enum probe_step step;  /* the last one begun */
	char path[4096];       /* the file that was loaded, empty: none */
	char load_error[1024]; /* the loader's own words */
	char lacking[1024];    /* required entry points that it does not export, with blanks between */
	int version;	       /* as cuDriverGetVersion counts, 0: not known */
	struct probe_answer init;
	int device_count; /* at most PROBE_DEVICES are looked at */
	struct probe_device devices[PROBE_DEVICES];
	/* tried with the first device */
	struct probe_answer host_numa, context, map, record;
	bool has_record; /* exports cuCtxRecordEvent */
};

/* Load @library (a name the loader looks for, or a path) and try everything. Takes 2 MiB of device memory for a moment,
 * and on the first device what its primary context takes. Never NULL but when there is no memory. */
struct probe *probe_driver(const char *library, unsigned int timeout_ms, struct child_outcome *ret_outcome);

/* "cuInit", "loading it", ... */
const char *probe_step_text(enum probe_step step);

#endif
