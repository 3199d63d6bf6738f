/* base/log.h
 * One line on stderr, one buffer, one write: `sublet[pid role]: component: whose: text`.
 * SUBLET_LOG=component:level[,component:level...] with `*` for all; a bare level means `*:level`. Default `*:warn`.
 * Safe under any lock, keeps errno, allocates nothing. */
#ifndef SUBLET_BASE_LOG_H
#define SUBLET_BASE_LOG_H

#include <stdbool.h>

#include "base/attributes.h"

enum log_level {
	LOG_OFF,
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG,
	LOG_LEVEL_COUNT
};

enum log_component {
	LOG_SHIM,    /* start, look-ups, fork */
	LOG_MEMORY,  /* allocation, free, answers about memory */
	LOG_CONTEXT, /* contexts, peers, capture */
	LOG_NATIVE,  /* memory Sublet does not manage */
	LOG_GATE,    /* holds: gated calls that wait, and what a hold waits for */
	LOG_RESIDENCY, /* pages that leave and return, the host pool */
	LOG_SESSION, /* the coordinator, and joining it */
	LOG_STATS,   /* counters, summary at exit */
	LOG_COMPONENT_COUNT
};

/* Whose fault a line is about. */
enum log_whose {
	WHOSE_NONE,
	WHOSE_DRIVER,
	WHOSE_FRAMEWORK,
	WHOSE_POLICY,
	WHOSE_SUBLET,
};

/* Read SUBLET_LOG and SUBLET_ROLE. Unknown words are reported once, at level warn, and ignored. Idempotent. */
void log_init(void);

bool log_wants(enum log_component component, enum log_level level);

void log_say(enum log_component component, enum log_level level, enum log_whose whose, const char *format, ...)
	SUBLET_PRINTF(4, 5);

/* For lines that can repeat: says the 1st, 2nd, 4th, 8th ... of this call site, with the count. */
#define log_limited(component, level, whose, format, ...)                                                              \
	do {                                                                                                           \
		static unsigned long log_times_;                                                                       \
		unsigned long log_now_ = __atomic_add_fetch(&log_times_, 1, __ATOMIC_RELAXED);                         \
		if (log_now_ == 1)                                                                                     \
			log_say(component, level, whose, format, ##__VA_ARGS__);                                       \
		else if ((log_now_ & (log_now_ - 1)) == 0)                                                             \
			log_say(component, level, whose, format " (%lu times so far)", ##__VA_ARGS__, log_now_);       \
	} while (0)

#endif
